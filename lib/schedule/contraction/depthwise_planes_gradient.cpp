#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <numeric>
#include <utility>

#include "plan/access.hpp"
#include "schedule/contraction/depthwise_planes.hpp"
#include "schedule/contraction/depthwise_search.hpp"
#include "schedule/contraction/depthwise_walk.hpp"

namespace sinter {
namespace {

constexpr std::int64_t kPiece = kPieceOfPlanes;
constexpr int kMostColumns = 16, kFewColumns = 8, kFewRows = 8, kMostThreads = 512;
// Images whose lines fill no packs of 8 bytes, up to 32 wide, and such results up to 16. (H100, by
// loads and so: 256 x 960 x 7 x 7, 3 x 3 126 us and 23; 64 x 1536 x 7 x 7, 7 x 7 58 and 24; 128 x
// 512 x 14 x 14, 3 x 3 68 and 23; 64 x 672 x 14 x 14, 5 x 5 59 and 38. With packs of 8 bytes 64 x
// 192 x 28 x 28, 3 x 3 took 21 and 20, of 16 128 x 144 x 56 x 56 101 and 148 in the form that was
// the likeliest then.)
constexpr int kWellMoved = 8, kMostPixels = 32, kMostResults = 16;
// Lines of which threads load every second pixel, or which are one dim, come in planes of any size.
// (Bf16 on an H200, by loads and in planes: 3 x 3, stride 2, 64 x 96 x 112 x 112 67.6 and 56.9 us,
// 128 x 144 x 56 x 56 46.6 and 41.7; dilation 2, 64 x 144 x 56 x 56 65.6 and 46.9, but stride
// 1 70.5 and 78.2; 5 x 5, stride 2 33.0 and 36.0. 16 x 512 x 1500, 31 taps 111 and 34.6, 9
// taps 75.8 and 21.0; 4 x 2048 x 4096, 4 taps 38.0 and 73.9.)
constexpr int kFewTaps = 9, kMostOfOneDim = 2048;
constexpr double kWorth = 1;  // microseconds of memory: fewer images fill too few thread blocks
constexpr int kMostRegisters = 170;  // of sums, rows of the result's gradient, pixels
constexpr double kExposed = 0.25;    // of the shorter of memory and instructions
constexpr double kFlight = 32e3;     // in place of kFlightOfSm, as measured

// Wavefronts of shared memory that a warp's access takes, of `bytes` of each lane at these places.
int wavefronts(const std::array<std::int64_t, 32>& place, int bytes) {
  const int together = std::min(32, 128 / std::max(bytes, 4));  // lanes that go at once
  int all = 0;
  for (int first = 0; first < 32; first += together) {
    std::array<std::array<std::int64_t, 32>, 32> words{};
    std::array<int, 32> count{};
    for (int lane = first; lane < first + together; ++lane) {
      const std::int64_t from = place[static_cast<std::size_t>(lane)] / 4;
      for (std::int64_t word = from; word * 4 < place[static_cast<std::size_t>(lane)] + bytes;
           ++word) {
        const auto bank = static_cast<std::size_t>(word % 32);
        const auto begin = words[bank].begin(), end = begin + count[bank];
        if (std::find(begin, end, word) == end)
          words[bank][static_cast<std::size_t>(count[bank]++)] = word;
      }
    }
    all += *std::max_element(count.begin(), count.end());
  }
  return all;
}

// What a thread has of a plane, and what a row of pixels costs it.
struct Part {
  int columns, run, parts_across, parts_down, slots;
  double registers, instructions, fronts;  // of a warp that computes a part: both
};

// What all choices share.
struct Problem {
  int across = 1, down = 1, taps = 1, advance = 1;
  std::int64_t all_units = 0, least_units = 0;
  double images = 0, batches = 0, image_bytes = 0, result_bytes = 0;  // bytes of a channel

  double channel_bytes() const { return image_bytes + result_bytes; }
};

Part part_of_plane(const KernelSpec& spec, const DepthwisePlanesConfig& e, const Problem& p,
                   int columns, int run) {
  const KernelPort &image = spec.ports[static_cast<std::size_t>(e.image.port)],
                   &other = spec.ports[static_cast<std::size_t>(e.other.port)];
  const int image_bytes = info(image.type).bytes, other_bytes = info(other.type).bytes;
  Part part{.columns = columns,
            .run = run,
            .parts_across = (p.across + columns - 1) / columns,
            .parts_down = (p.down + run - 1) / run,
            .slots = slots_of(spec, e.down, 1),
            .registers = 0,
            .instructions = 0,
            .fronts = 0};
  const int line = seen(spec, e.across, columns), pack = line_pack(spec, e, columns, true),
            of_gradient = gradient_pack(spec, e, columns),
            loads = p.advance * ((line + pack - 1) / pack + (pack > 1)),
            loads_of_gradient = (columns + of_gradient - 1) / of_gradient;
  part.registers = p.taps + part.slots * columns + p.advance * line + 40;
  std::array<std::int64_t, 32> pixels{}, results{};
  for (int lane = 0; lane < 32; ++lane) {
    const std::int64_t at = lane % part.parts_across,
                       below = lane / part.parts_across % part.parts_down,
                       channel = lane / (part.parts_across * part.parts_down);
    const auto own = static_cast<std::size_t>(lane);
    pixels[own] =
        image_bytes * (channel * e.planes.pixels + below * run * p.advance * e.across->extent +
                       at * columns * static_cast<std::int64_t>(e.across->pixel));
    results[own] =
        other_bytes * (channel * p.down * p.across + below * run * p.across + at * columns);
  }
  // Rows in front of the image and behind it are not multiplied.
  constexpr double kLoad = 2, kConvert = 1, kStep = 14;
  const double outside = part.parts_down > 1 ? 0.5 : 1,
               multiplied = run + (part.slots - 1) * (1 - outside), steps = run + part.slots - 1;
  part.instructions =
      steps * (kStep + loads_of_gradient * kLoad + columns * (kConvert + part.slots - 1)) +
      multiplied *
          (loads * kLoad + p.advance * line * kConvert + static_cast<double>(columns) * p.taps);
  part.fronts = multiplied * loads * wavefronts(pixels, image_bytes * pack) +
                run * loads_of_gradient * wavefronts(results, other_bytes * of_gradient);
  return part;
}

// Shared memory of a thread block: tiles, and then sums of all threads.
double shared_of(const DepthwisePlanesConfig& e, const Problem& p) {
  const auto whole = [](double bytes) { return std::ceil(bytes / kPiece) * kPiece; };
  const DepthwisePlanes& t = e.planes;
  const double channels = static_cast<double>(t.units * t.images);
  return std::max(t.stages * (whole(channels * p.image_bytes) + whole(channels * p.result_bytes)),
                  static_cast<double>(e.threads) * (p.taps | 1) * 4);
}

// Microseconds of a choice, without the launch.
double estimate(const DepthwisePlanesConfig& e, const Problem& p, const Part& part, double memory,
                const DeviceModel& device) {
  constexpr double kIssued = 2.2, kAlone = 0.25, kWait = 1600, kWaitAhead = 400, kBegin = 3000,
                   kCopy = 6, kImage = 40, kStore = 40, kMany = 4;
  const DepthwisePlanes& t = e.planes;
  const double warps = e.threads / 32.0, shared = e.shared_bytes,
               tile = static_cast<double>(t.units * t.images) * p.channel_bytes(),
               // Teams of warps copy an image's run each, of both operands.
      teams = std::min(static_cast<double>(t.images), warps), run = tile / (2.0 * t.images),
               team_bytes = 32.0 * kPiece * warps / teams,
               copied =
                   2 * std::ceil(t.images / teams) * (kImage + kCopy * std::ceil(run / team_bytes)),
               code = part.instructions + copied, fronts = warps * part.fronts + tile / 128,
               end = 3.0 * p.taps +
                     static_cast<double>(t.units) * p.taps / e.threads *
                         (kStore + 6.0 * t.images * part.parts_across * part.parts_down),
               tiles = std::ceil(p.images / t.images), waits = t.stages > 1 ? kWaitAhead : kWait;
  const double ctas =
      std::max(1.0, std::floor(std::min({device.registers_per_sm / (part.registers * e.threads),
                                         device.shared_per_sm / (shared + device.shared_reserved),
                                         static_cast<double>(device.threads_per_sm) / e.threads})));
  const auto clocks = [&](double n) {
    return tiles * std::max({n * warps * code / kIssued, n * fronts, code / kAlone + waits}) +
           std::max(n * warps * end / kIssued, end / kAlone) + kBegin;
  };
  const double grid = std::ceil(static_cast<double>(p.all_units) / t.units) * p.batches;
  const Rounds rounds(grid, ctas, device.sms);
  const double issued =
      (rounds.full >= kMany ? grid / (ctas * device.sms) * clocks(ctas) : rounds.clocks(clocks)) /
      device.clock;
  const double at_once = std::clamp(grid / device.sms, 1.0, ctas),
               flight = at_once * tile * (t.stages > 1 ? 1.0 : 0.5),
               waited = memory * std::max({1.0, device.sms / grid, kFlight / flight});
  // Alone with one tile a thread block copies and computes by turns. (128 x 512 x 14 x 14, 3 x 3 on
  // an H100: 23 us in two stages, 28 in one with two thread blocks an SM.)
  return overlapped(waited, issued, t.stages > 1 ? kExposed : std::max(kExposed, 1 / at_once));
}

// Parts of a line: as few as are narrow, or it is whole; in whole packs.
std::vector<int> columns_of_parts(int across) {
  std::vector<int> columns;
  const int few_parts = (across + kFewColumns - 1) / kFewColumns;
  for (const int n : {few_parts, 1})
    for (const int pack : {1, 2, 4, 8})
      if (const int wide = ((across + n - 1) / n + pack - 1) / pack * pack;
          wide <= kMostColumns && std::find(columns.begin(), columns.end(), wide) == columns.end())
        columns.push_back(wide);
  return columns;
}
// In how many parts the rows of a plane are cut.
std::vector<int> cuts_of_rows(int down) {
  const int few = (down + kFewRows - 1) / kFewRows;
  std::vector<int> cuts{few};
  if (few > 1) cuts.push_back((few + 1) / 2);
  if (few == 1 && down > 1) cuts.push_back(2);
  return cuts;
}

// The steps of planning one, in order; what returns a bool says whether the engine takes it.
class PlanesGradientSearch {
 public:
  PlanesGradientSearch(const KernelSpec& spec, const DepthwiseConfig& parts,
                       const std::vector<ImageDim>& dims, double memory, const DeviceModel& device)
      : spec_(spec), e_{parts}, dims_(dims), memory_(memory), device_(device) {}

  std::optional<DepthwisePlanesConfig> make() {
    if (!takes_dims() || !lies_in_planes() || !find_extents() || !gains()) return {};
    for (const int wide : columns_of_parts(p_.across))
      for (const int cut : cuts_of_rows(p_.down)) {
        const Part part = part_of_plane(spec_, e_, p_, wide, (p_.down + cut - 1) / cut);
        if (part.registers <= kMostRegisters && wide * p_.taps <= kMostUnrolled &&
            p_.advance * seen(spec_, e_.across, wide) <= kMostUnrolled)
          try_part(part);
      }
    return std::move(best_).finished(spec_, device_);
  }

 private:
  const KernelSpec& spec_;
  DepthwisePlanesConfig e_;
  const std::vector<ImageDim>& dims_;
  const double memory_;  // microseconds
  const DeviceModel& device_;
  Problem p_;
  Fastest<DepthwisePlanesConfig> best_;

  const KernelPort& port(const DepthwiseOperand& o) const {
    return spec_.ports[static_cast<std::size_t>(o.port)];
  }
  std::int64_t plane_of_results() const { return static_cast<std::int64_t>(p_.down) * p_.across; }

  bool takes_dims() {
    if (!e_.gradient || e_.lanes != 1 || dims_.size() > 2 || !e_.looped.empty() ||
        index_of_filters(spec_.contraction()) >= 0)
      return false;
    for (const ImageDim& d : dims_)
      if (!d.parts.empty() || d.divisor > 1) return false;
    e_.each = 1;
    e_.rows = 1;
    e_.packing = choose_packing(spec_, e_.channel, 1);
    e_.across = dims_.back();
    e_.down = dims_.size() > 1 ? std::optional(dims_.front()) : std::nullopt;
    return true;
  }

  // Whether planes of both operands lie one behind another, in whole pieces of so many channels.
  bool lies_in_planes() {
    const ImageDim& line = *e_.across;
    const Access& dy = port(e_.other).access;
    p_.across = static_cast<int>(spec_.extent[line.pixel_index]);
    p_.down = e_.down ? static_cast<int>(spec_.extent[e_.down->pixel_index]) : 1;
    if (line.stride != 1 || (e_.down && e_.down->stride != line.extent) ||
        dy.stride[line.pixel_index] != 1 ||
        (e_.down && p_.down > 1 && dy.stride[e_.down->pixel_index] != p_.across))
      return false;
    std::vector<int> walked, pixels;
    for (const ImageDim& d : dims_) {
      walked.push_back(d.pixel_index);
      pixels.push_back(d.pixel_index);
      if (d.tap_index >= 0) walked.push_back(d.tap_index);
    }
    e_.planes.pixels = line.extent * (e_.down ? e_.down->extent : 1);
    const std::int64_t of_image = channels_of_pieces(spec_, port(e_.image), e_.image.offset,
                                                     e_.channel, walked, e_.planes.pixels),
                       of_gradient = channels_of_pieces(spec_, port(e_.other), dy.offset,
                                                        e_.channel, pixels, plane_of_results());
    if (of_image == 0 || of_gradient == 0) return false;
    p_.least_units = std::lcm(of_image, of_gradient);
    return true;
  }

  bool find_extents() {
    p_.taps = taps_of(spec_, e_.down) * taps_of(spec_, e_.across);
    p_.advance = advance_of(e_.down, 1);
    p_.all_units = spec_.extent[e_.channel];
    p_.images = elements(spec_.extent, spec_.contraction().first_k(),
                         spec_.extent.size() - static_cast<int>(dims_.size()));
    p_.batches = elements(spec_.extent, 0, e_.channel);
    p_.image_bytes = static_cast<double>(e_.planes.pixels * info(port(e_.image).type).bytes);
    p_.result_bytes = static_cast<double>(plane_of_results() * info(port(e_.other).type).bytes);
    return p_.images * p_.batches * static_cast<double>(p_.all_units * plane_of_results()) != 0;
  }

  // Where this was measured to be faster than loads to registers; tests ask for all.
  bool gains() const {
    const ImageDim& line = *e_.across;
    const int image_bytes = info(port(e_.image).type).bytes,
              other_bytes = info(port(e_.other).type).bytes;
    const bool narrow = p_.across * other_bytes % kWellMoved != 0 ||
                        line.extent * image_bytes % kWellMoved != 0,
               small = p_.across <= kMostResults && line.extent <= kMostPixels,
               two_bytes = image_bytes == 2 && other_bytes == 2,
               apart = e_.down && p_.taps > 1 && p_.taps <= kFewTaps &&
                       (line.pixel > 1 || std::abs(line.tap) > 1),
               one_dim = !e_.down && p_.taps >= kFewTaps && line.extent <= kMostOfOneDim,
               faster = (narrow && small) || (two_bytes && (apart || one_dim));
    return device_.overrides.depthwise == "planes" || (faster && memory_ >= kWorth);
  }

  void try_part(const Part& part) {
    std::vector<std::int64_t> widths{p_.all_units};
    for (std::int64_t units = p_.least_units; units < p_.all_units; units *= 2)
      widths.push_back(units);
    for (const std::int64_t units : widths)
      for (int images = 1; images <= 16 && images <= p_.images; images *= 2)
        for (int stages = 1; stages <= 2; ++stages) try_tile(part, units, images, stages);
  }

  void try_tile(const Part& part, std::int64_t units, int images, int stages) {
    const double all_units = static_cast<double>(p_.all_units), own = static_cast<double>(units),
                 items = own * images * part.parts_across * part.parts_down;
    if (items > kMostThreads) return;
    e_.columns = part.columns;
    e_.run = part.run;
    e_.threads = static_cast<int>((items + 31) / 32) * 32;
    e_.planes.units = static_cast<int>(units);
    e_.planes.images = images;
    e_.planes.stages = stages;
    const double shared = shared_of(e_, p_), grid = std::ceil(all_units / own) * p_.batches;
    if (shared > device_.shared_per_cta || grid >= 0x1p31) return;
    e_.grid = clamp_grid(grid);
    e_.shared_bytes = static_cast<std::uint32_t>(shared);
    if (best_.improves(estimate(e_, p_, part, memory_, device_))) best_.config = e_;
  }
};

}  // namespace

std::optional<DepthwisePlanesConfig> plan_depthwise_planes_gradient(
    const KernelSpec& spec, const DepthwiseConfig& parts, const std::vector<ImageDim>& dims,
    double memory, const DeviceModel& device) {
  return PlanesGradientSearch(spec, parts, dims, memory, device).make();
}

}  // namespace sinter
