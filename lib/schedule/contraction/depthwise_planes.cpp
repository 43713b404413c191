#include "schedule/contraction/depthwise_planes.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "plan/access.hpp"
#include "schedule/contraction/depthwise_search.hpp"
#include "schedule/contraction/depthwise_walk.hpp"

namespace sinter {
namespace {

constexpr std::int64_t kPiece = kPieceOfPlanes;
constexpr std::int64_t kWellMoved = 8;  // bytes, that threads load and store well from lines

// Images and results that are no wider. Of those of 28 and 56 pixels, with packs of 8 and 16 bytes,
// loads to registers are as fast or faster. (H200, so and by loads: 64 x 240 x 28 x 28, 5 x 5 35.8
// us and 24.4, 64 x 384 x 28 x 28, 7 x 7 134 and 71; 128 x 144 x 56 x 56, 3 x 3 96 and 88.)
constexpr int kMostPixels = 32, kMostResults = 16;
// Filters of so many taps gain nothing but on the smallest images. (64 x 768 x 14 x 14, 7 x 7 53 us
// and 50 by loads.)
constexpr int kManyTaps = 49, kSmallest = 8;

bool is_of_channel(const KernelSpec& spec, int port, int channel, int filters) {
  const Access& a = spec.ports[static_cast<std::size_t>(port)].access;
  if (!a.windows.empty() || !a.via.empty()) return false;
  for (int i = 0; i < a.stride.size(); ++i)
    if (i != channel && i != filters && a.stride[i] != 0 && spec.extent[i] != 1) return false;
  return true;
}

// Whether the body loads from port `beside` what lies as the results of `port` do, and can wait
// where they will.
bool lies_as_results(const KernelSpec& spec, const DepthwiseConfig& e, int beside, int port) {
  const KernelPort &b = spec.ports[static_cast<std::size_t>(beside)],
                   &r = spec.ports[static_cast<std::size_t>(port)];
  return b.together == 1 && b.alignment >= kPiece && b.access.windows.empty() &&
         b.access.via.empty() && b.access.stride == r.access.stride &&
         b.access.offset * info(b.type).bytes % kPiece == 0 &&
         info(b.type).bytes == info(r.type).bytes &&
         e.packing.ports[static_cast<std::size_t>(beside)].kind == PortPack::Kind::pack;
}

// The port whose results are a function of the sums, of numbers of their channel and of one number
// that lies as they do; -1: no such.
int port_of_results(const KernelSpec& spec, const DepthwiseConfig& e, int filters) {
  int port = -1, beside = -1;
  for (const Statement& s : spec.body.statements) {
    if (is_load(s) && !is_of_channel(spec, s.port, e.channel, filters)) {
      if (beside >= 0 && beside != s.port) return -1;
      beside = s.port;
    }
    if (s.kind == StatementKind::random || s.kind == StatementKind::gather ||
        s.kind == StatementKind::index || s.kind == StatementKind::inside)
      return -1;
    if (!is_store(s)) continue;
    if (port >= 0) return -1;
    port = s.port;
  }
  if (port < 0 || !spec.ports[static_cast<std::size_t>(port)].access.windows.empty() ||
      e.packing.ports[static_cast<std::size_t>(port)].kind != PortPack::Kind::pack ||
      (beside >= 0 && !lies_as_results(spec, e, beside, port)))
    return -1;
  return port;
}

// Bytes that the epilogue reads as results leave registers, where these do not wait in planes.
double bytes_beside(const KernelSpec& spec, const DepthwiseConfig& e) {
  double bytes = 0;
  for (std::size_t i = 0; i < spec.ports.size(); ++i) {
    const KernelPort& p = spec.ports[i];
    if (!p.written && static_cast<int>(i) != e.image.port &&
        p.access.stride[e.across->pixel_index] == 1)
      bytes += info(p.type).bytes * static_cast<double>(elements_reached(spec.extent, p.access));
  }
  return bytes;
}

}  // namespace

std::int64_t channels_of_pieces(const KernelSpec& spec, const KernelPort& p, std::int64_t offset,
                                int channel, const std::vector<int>& walked,
                                std::int64_t elements) {
  const Access& a = p.access;
  const std::int64_t bytes = info(p.type).bytes;
  if (!a.via.empty() || p.together != 1 || p.alignment < kPiece || offset * bytes % kPiece != 0 ||
      (spec.extent[channel] > 1 && a.stride[channel] != elements) ||
      spec.extent[channel] * elements * bytes % kPiece != 0)
    return 0;
  for (int i = 0; i < spec.extent.size(); ++i)
    if (i != channel && std::find(walked.begin(), walked.end(), i) == walked.end() &&
        a.stride[i] * bytes % kPiece != 0)
      return 0;
  return kPiece / std::gcd(kPiece, elements * bytes);
}

int port_beside_results(const KernelSpec& spec, const DepthwisePlanesConfig& e) {
  if (!e.result) return -1;
  const int filters = index_of_filters(spec.contraction());
  for (const Statement& s : spec.body.statements)
    if (is_load(s) && !is_of_channel(spec, s.port, e.channel, filters)) return s.port;
  return -1;
}

namespace {

// The steps of planning one, in order; what returns a bool says whether the engine takes it.
class PlanesSearch {
 public:
  PlanesSearch(const KernelSpec& spec, const DepthwiseConfig& parts,
               const std::vector<ImageDim>& dims, double memory, const DeviceModel& device)
      : spec_(spec), e_{parts}, dims_(dims), memory_(memory), device_(device) {}

  std::optional<DepthwisePlanesConfig> make() {
    if (!takes_dims() || !lies_in_planes() || !find_extents()) return {};
    place_results();
    if (!gains()) return {};
    place_rows();
    if (!choose_block() || pixels_of_step() > kMostUnrolled) return {};
    e_.microseconds = longer_in_groups(spec_, e_.looped, dims_, false) *
                      (device_.launch_microseconds + overlapped(waited(), issued(), 1 / ctas()));
    e_.wide_index = needs_wide_index(spec_);
    return std::move(e_);
  }

 private:
  const KernelSpec& spec_;
  DepthwisePlanesConfig e_;
  const std::vector<ImageDim>& dims_;
  const double memory_;  // microseconds
  const DeviceModel& device_;
  int filters_ = -1;                                             // their index
  std::int64_t all_units_ = 0, of_group_ = 1, least_units_ = 1;  // filters; units of whole pieces
  std::int64_t results_ = 0;                                     // of a plane
  int across_ = 1, down_ = 1;
  double images_ = 0, grid_ = 0;
  int taps_ = 1, looped_taps_ = 1, phases_ = 1, phases_across_ = 1;
  int image_bytes_ = 0, result_bytes_ = 4;  // of an element
  double parts_of_unit_ = 1;                // that threads have

  const KernelPort& image() const { return spec_.ports[static_cast<std::size_t>(e_.image.port)]; }
  // For tests also of what gains nothing.
  bool asked() const { return device_.overrides.depthwise == "planes"; }

  bool takes_dims() {
    if (!e_.along_columns || dims_.size() > 2 || e_.looped.size() > 1) return false;
    for (const ImageDim& d : dims_)
      if (!d.parts.empty() || d.divisor > kMostPhases) return false;
    filters_ = index_of_filters(spec_.contraction());
    e_.packing = choose_packing(spec_, dims_.back().pixel_index, 8);
    e_.across = dims_.back();
    e_.down = dims_.size() > 1 ? std::optional(dims_.front()) : std::nullopt;
    return true;
  }

  // Planes one behind another, in whole pieces of so many units.
  bool lies_in_planes() {
    std::int64_t plane = e_.across->extent;
    if (e_.across->stride != 1 || (e_.down && e_.down->stride != plane)) return false;
    if (e_.down) plane *= e_.down->extent;
    e_.planes.pixels = plane;
    std::vector<int> walked;
    for (const ImageDim& d : dims_) {
      walked.push_back(d.pixel_index);
      if (d.tap_index >= 0) walked.push_back(d.tap_index);
    }
    for (const ImageDim& d : e_.looped) {
      if (d.stride != plane || d.pixel_index >= 0) return false;
      e_.planes.pixels *= spec_.extent[d.tap_index];
      walked.push_back(d.tap_index);
    }
    least_units_ =
        channels_of_pieces(spec_, image(), e_.image.offset, e_.channel, walked, e_.planes.pixels);
    return least_units_ != 0;
  }

  bool find_extents() {
    const ContractionSpec& c = spec_.contraction();
    all_units_ = spec_.extent[e_.channel];
    of_group_ = filters_ < 0 ? 1 : spec_.extent[filters_];
    across_ = static_cast<int>(spec_.extent[e_.across->pixel_index]);
    down_ = e_.down ? static_cast<int>(spec_.extent[e_.down->pixel_index]) : 1;
    results_ = static_cast<std::int64_t>(down_) * across_;
    images_ = elements(spec_.extent, 0, e_.channel) *
              elements(spec_.extent, c.first_m(), c.first_n() - static_cast<int>(dims_.size()));
    for (const ImageDim& d : e_.looped) looped_taps_ *= taps_of(spec_, d);
    taps_ = taps_of(spec_, e_.down) * taps_of(spec_, e_.across);
    phases_ = e_.down ? static_cast<int>(e_.down->divisor) : 1;
    phases_across_ = static_cast<int>(e_.across->divisor);
    image_bytes_ = info(image().type).bytes;
    return images_ * static_cast<double>(all_units_ * results_) != 0;
  }

  // Results that lie as planes do leave in runs of whole pieces.
  void place_results() {
    const int port = port_of_results(spec_, e_, filters_);
    if (port < 0) return;
    const KernelPort& p = spec_.ports[static_cast<std::size_t>(port)];
    const Access& a = p.access;
    const bool runs = a.stride[e_.across->pixel_index] == 1 &&
                      (!e_.down || a.stride[e_.down->pixel_index] == across_) &&
                      (filters_ < 0 || a.stride[filters_] == results_);
    if (!runs) return;
    std::vector<int> within{e_.across->pixel_index};
    if (e_.down) within.push_back(e_.down->pixel_index);
    if (filters_ >= 0) within.push_back(filters_);
    const std::int64_t pieces =
        channels_of_pieces(spec_, p, a.offset, e_.channel, within, results_ * of_group_);
    if (pieces == 0) return;
    e_.result = DepthwiseOperand{.port = port};
    least_units_ = std::lcm(least_units_, pieces);
    result_bytes_ = info(p.type).bytes;
  }

  // Where this was measured to be faster than loads to registers.
  bool gains() {
    const std::int64_t line = e_.across->extent;
    const bool small = across_ <= kMostResults && line <= kMostPixels &&
                       (taps_ < kManyTaps || across_ <= kSmallest),
               phased = phases_across_ > 1 && across_ <= kMostPixels;
    e_.narrow = across_ * result_bytes_ % kWellMoved != 0 || line * image_bytes_ % kWellMoved != 0;
    return asked() || (e_.narrow ? e_.result && (small || phased) : e_.looped.empty());
  }

  // Whole lines of the smallest images, else 8 columns; few rows.
  void place_rows() {
    constexpr int kColumns = 8, kRows = 8;
    const int wanted = std::min(across_, kColumns),
              unit = std::lcm(phases_across_, e_.packing.width);
    e_.rows = phases_;
    e_.columns = (wanted + unit - 1) / unit * unit;
    const int blocks_across = (across_ + e_.columns - 1) / e_.columns,
              blocks_down = (down_ + e_.rows - 1) / e_.rows, runs = (down_ + kRows - 1) / kRows;
    e_.run = (blocks_down + runs - 1) / runs;
    const int runs_down = (blocks_down + e_.run - 1) / e_.run;
    parts_of_unit_ = static_cast<double>(of_group_) * runs_down * blocks_across;
  }

  double shared_bytes(std::int64_t units, std::int64_t images) const {
    const auto whole = [](double bytes) { return std::ceil(bytes / kPiece) * kPiece; };
    const int factors = (looped_taps_ * taps_) | 1;
    const double of_block = static_cast<double>(units * images);
    return whole(of_block * static_cast<double>(e_.planes.pixels) * image_bytes_) +
           whole(static_cast<double>(units * of_group_ * factors) * 4) +
           whole(of_block * static_cast<double>(of_group_ * results_) * result_bytes_);
  }

  // Threads, units and images of a thread block. 64 x 1536 x 7 x 7, 7 x 7: 29.7 us with 128
  // threads, 26.0 with 256; 256 x 960 x 7 x 7, 3 x 3 23.2 and 23.7, 27.3 with 64.
  bool choose_block() {
    constexpr int kManyRows = 5, kFewestThreads = 64;
    const int most = taps_of(spec_, e_.down) > kManyRows ? 256 : 128;
    choose_units(most);
    for (int threads = most / 2; threads >= kFewestThreads && grid_ < 2 * device_.sms; threads /= 2)
      choose_units(threads);
    // A thread block copies, computes and stores one after another. (960 x 7 x 7, 3 x 3 in 15
    // thread blocks 4.1 us and 1.6 by loads; 8 x 512 x 14 x 14 in 256 3.2 and 3.1.)
    if (grid_ == 0 || grid_ >= 0x1p31 || (grid_ < device_.sms && !asked())) return false;
    e_.grid = clamp_grid(grid_);
    e_.shared_bytes = static_cast<std::uint32_t>(shared_bytes(e_.planes.units, e_.planes.images));
    return true;
  }
  // Those that leave the fewest of so many threads idle; no grid where shared memory has no room.
  void choose_units(int threads) {
    // Of as many threads about 64 channels, whose filters leave room for other thread blocks.
    const auto unlike = [](std::int64_t n) {
      return std::abs(std::log2(static_cast<double>(n) / 64));
    };
    std::vector<std::int64_t> widths{all_units_};
    for (std::int64_t units = least_units_; units < all_units_; units *= 2) widths.push_back(units);
    e_.threads = threads;
    double most = -1;
    for (const std::int64_t units : widths)
      for (std::int64_t images = 1; images <= 16; images *= 2) {
        if (images > 1 && static_cast<double>(images) > images_) break;
        if (shared_bytes(units, images) > device_.shared_per_cta) break;
        const double busy = busy_threads(units, images);
        if (busy < most || (busy == most && unlike(units) >= unlike(e_.planes.units))) continue;
        most = busy;
        e_.planes.units = static_cast<int>(units);
        e_.planes.images = static_cast<int>(images);
      }
    grid_ = most < 0 ? 0
                     : std::ceil(static_cast<double>(all_units_) / e_.planes.units) *
                           std::ceil(images_ / e_.planes.images);
  }
  double busy_threads(std::int64_t units, std::int64_t images) const {
    const auto used = [](double all, double of_block) {
      return all / (std::ceil(all / of_block) * of_block);
    };
    const double items = static_cast<double>(units * images) * parts_of_unit_,
                 fills = items <= e_.threads
                             ? items
                             : e_.threads - 0.5 * std::log2(items / e_.threads) - 0.5 * e_.threads;
    return fills * used(static_cast<double>(all_units_), static_cast<double>(units)) *
           used(images_, static_cast<double>(images));
  }

  // What a thread's step sees and makes.
  double pixels_of_step() const {
    return static_cast<double>(advance_of(e_.down, e_.rows)) * seen(spec_, e_.across, e_.columns);
  }
  double results_of_step() const { return static_cast<double>(e_.rows) * e_.columns; }
  int slots() const { return slots_of(spec_, e_.down, e_.rows); }

  // Microseconds in which SMs issue the instructions of their thread blocks, counted in machine
  // code.
  double issued() const {
    constexpr double kIssued = 3.8, kItem = 60, kPixel = 1.5, kPack = 1.5, kMove = 1.4, kStep = 15,
                     kLoop = 30, kFactor = 30, kMoved = 31, kBegin = 800;
    constexpr int kTurned = 3;  // slots whose sums do not move
    const double looped = looped_taps_, block = results_of_step(), steps = e_.run + slots() - 1,
                 products = block * taps_ / (phases_ * phases_across_),
                 loads =
                     pixels_of_step() * (kPixel + kPack / line_pack(spec_, e_, e_.columns, true)),
                 item = kItem +
                        steps * (looped * (products + loads + (looped > 1 ? taps_ + kLoop : 0)) +
                                 block * (1 + kPack / e_.packing.width) +
                                 (slots() > kTurned ? kMove * block * (slots() - 1) : 0) + kStep),
                 per_thread = std::ceil(static_cast<double>(e_.planes.units * e_.planes.images) *
                                        parts_of_unit_ / e_.threads),
                 factors = static_cast<double>(e_.planes.units * of_group_) *
                           (looped_taps_ * taps_) * kFactor,
                 code = e_.threads / 32.0 * per_thread * item +
                        (e_.shared_bytes / kPiece * kMoved + factors) / 32;
    return (std::ceil(grid_ / device_.sms) * code / kIssued + kBegin) / device_.clock;
  }

  // Thread blocks of an SM. Each copies, computes and stores one after another: as many of these
  // are hidden as there are others.
  double ctas() const {
    constexpr double kOwn = 10;
    const double registers = slots() * results_of_step() + taps_ + pixels_of_step() + kOwn,
                 by_shared = std::floor(device_.shared_per_sm /
                                        (e_.shared_bytes + device_.shared_reserved)),
                 by_registers = std::floor(device_.registers_per_sm / (e_.threads * registers));
    return std::clamp(std::min(by_shared, by_registers), 1.0, std::max(1.0, grid_ / device_.sms));
  }

  // Microseconds of memory.
  double waited() const {
    constexpr double kStreams = 0.86;
    const double late =
        e_.result ? 0 : bytes_beside(spec_, e_) / (kWindowsReach * device_.memory_bandwidth);
    return kStreams * (memory_ + (kReadLate - 1) * late);
  }
};

}  // namespace

std::optional<DepthwisePlanesConfig> plan_depthwise_planes(const KernelSpec& spec,
                                                           const DepthwiseConfig& parts,
                                                           const std::vector<ImageDim>& dims,
                                                           double memory,
                                                           const DeviceModel& device) {
  return PlanesSearch(spec, parts, dims, memory, device).make();
}

}  // namespace sinter
