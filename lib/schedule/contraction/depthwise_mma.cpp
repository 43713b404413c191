#include "schedule/contraction/depthwise_mma.hpp"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <vector>

#include "schedule/contraction/depthwise_boxes.hpp"
#include "schedule/contraction/depthwise_search.hpp"
#include "schedule/contraction/depthwise_walk.hpp"

namespace sinter {
namespace {

// Of an MMA: independent tiles, results of a tile, pixels that they see.
constexpr int kTiles = 16, kWidth = 8, kDepth = 16;
constexpr int kMostChunks = 4;       // MMAs of a tile and row of the filter
constexpr int kMostChannels = 4;     // of a lane
constexpr int kLeastColumns = 4;     // of a tile: else too few of its products count
constexpr int kMostStages = 8;       // rows
constexpr int kBoxedStages = 6;      // at the least, where shared memory has room
constexpr int kResultRows = 4;       // in shared memory, boxed
constexpr int kOtherThreads = 128;   // threads that load and store, boxed
constexpr int kMostRegisters = 240;  // of a thread, of 255
constexpr double kPrologue = 5e3;    // clocks of a thread block's beginning, boxed
constexpr double kBoxLine = 2.1;     // clocks of a line of a box, loaded or stored
constexpr double kAgain = 0.15;      // of memory's time, for an image that is read once more
// Without TMA each step waits for its loads and a barrier. (5 x 5 of stride 2 on an H200, us: 128 x
// 72 x 56 x 56 41.0 where 27.4 were estimated, pixels by TMA on CUDA cores 27.4; 32 x 336 x 48 x
// 48 34.9 where 22.9 were, 28.4.)
constexpr double kUnboxed = 1.5;

// MMAs that the pixels of a tile of so many results are.
int chunks_of(const KernelSpec& spec, const ImageDim& d, int columns) {
  return (seen(spec, d, columns) + kDepth - 1) / kDepth;
}

// The shape of a thread block, as the device code's Bands has it.
struct Bands {
  int each, lanes, columns, across;
  int chunks;                // MMAs of a tile and row of the filter
  int taps, advance, slots;  // rows of the filter, of the image a step, of results in the making
  int pixels, row, plane;    // of a row of the image; vectors
  int result_pixels;         // of a row of results, boxed
  int reached, behind = 0;   // pixels of a row that tiles read; of these behind a plane's, boxed
  bool boxed;                // by TMA: `pixels` of a box

  Bands(const KernelSpec& spec, const DepthwiseConfig& parts, int each_, int lanes_, int columns_,
        int across_, bool boxed_)
      : each(each_),
        lanes(lanes_),
        columns(columns_),
        across(across_),
        chunks(chunks_of(spec, *parts.across, columns_)),
        boxed(boxed_) {
    const ImageDim &down = *parts.down, &line = *parts.across;
    taps = taps_of(spec, down);
    advance = advance_of(down, 1);
    slots = slots_of(spec, down, 1);
    pixels = seen(spec, line, across * columns);
    reached = pixels;
    result_pixels = across * columns;
    if (boxed) set_lines(spec, line);
    row = (pixels + 1) / 2 * 2 * (lanes + 1);
    const int bank = 4 * across % 32;
    plane = (row * advance + 31 - bank) / 32 * 32 + bank;
  }
  // Of a row of each plane, boxed, as the device code's Bands has them.
  void set_lines(const KernelSpec& spec, const ImageDim& line) {
    const int all = (across - 1) * columns + chunks * kDepth;
    const auto results = static_cast<int>(spec.extent[line.pixel_index]);
    pixels = reached = line_of_box(all);
    if (results > across * columns) return;
    const std::int64_t reach = line.tap * (taps_of(spec, line) - 1),
                       first = line.base + std::min<std::int64_t>(0, reach),
                       of_image = line.extent - first, seen_by_all = seen(spec, line, results),
                       least = std::max(std::min(of_image, seen_by_all),
                                        seen_by_all - std::max<std::int64_t>(0, -first));
    pixels = std::min(pixels, line_of_box(static_cast<int>(least)));
    behind = std::max(0, all - pixels);
    result_pixels = (results + 1) / 2 * 2;
  }
  int threads() const { return 32 * lanes + (boxed ? kOtherThreads : 0); }
  int planes() const { return kTiles / across; }
  int vector_bytes() const { return 2 * each; }
  int copies() const { return (planes() * pixels + 31) / 32; }  // of a thread and row
  int registers() const {
    constexpr int kOwn = 30;  // at the least, besides
    return slots * each * 4 + chunks * (taps * each * 2 + advance * each * 4) +
           (boxed ? 0 : 2 * copies()) + kOwn;
  }
  // Thread blocks an SM whose registers are enough.
  int most_blocks(const DeviceModel& device) const {
    if (!boxed) return device.registers_per_sm / (registers() * threads());
    int ctas = 0;
    while (set_registers(device, ctas + 1, nullptr)) ++ctas;
    return ctas;
  }
  // Those of threads that multiply and of others, which the former get from the latter; false where
  // they are too few.
  bool set_registers(const DeviceModel& device, int ctas, DepthwiseMmaConfig* e) const {
    constexpr int kUnit = 8, kMost = 240, kOthers = 40, kOthersBeside = 56;
    const int all = device.registers_per_sm / (ctas * threads()) / kUnit * kUnit * threads();
    const auto own = [&](int others) {
      return std::min(kMost,
                      (all - others * kOtherThreads) / (threads() - kOtherThreads) / kUnit * kUnit);
    };
    if (own(kOthersBeside) < registers() || kOthersBeside > all / threads()) return false;
    if (!e) return true;
    e->producer_registers = e->beside.empty() ? kOthers : kOthersBeside;
    e->consumer_registers = own(e->producer_registers);
    return true;
  }
  static int aligned(int bytes) { return (bytes + 1023) / 1024 * 1024; }
  int stage_bytes() const {
    if (boxed) return aligned((planes() * pixels + behind) * lanes * vector_bytes());
    return (plane * planes() + kDepth / 2 * (lanes + 1)) * vector_bytes();
  }
  // Of 16 bytes, in the line of a pixel's results of so many bytes; 0: shared memory has no swizzle
  // for such a line.
  int result_units(int bytes) const {
    const int units = lanes * each * bytes / 16;
    return each * bytes <= 16 && (units == 2 || units == 4 || units == 8) ? units : 0;
  }
  // Of a row of results in shared memory, boxed, with what the epilogue reads beside these; 0 where
  // there is no swizzle for one of them.
  int leaving_bytes(const DepthwiseOperand& result,
                    const std::vector<DepthwiseOperand>& beside) const {
    const auto row = [&](const DepthwiseOperand& o) {
      return aligned(planes() * result_pixels * result_units(info(o.map->type).bytes) * 16);
    };
    int all = row(result);
    for (const DepthwiseOperand& o : beside) {
      if (all == 0 || row(o) == 0) return 0;
      if (!o.in_place) all += row(o);
    }
    return all;
  }
  // `leaving`: those bytes.
  int shared_bytes(int stages, int all_taps, int leaving) const {
    const int results = boxed ? kResultRows * leaving
                              : 2 * (kTiles * kWidth * (lanes * each + 4) + 8) * 4,
              barriers = boxed ? 16 * (stages + 2 * kResultRows) + kLostToAlignment : 0;
    return results + stages * stage_bytes() + (all_taps + 1) * lanes * vector_bytes() + barriers;
  }
  // Steps of a thread block that has `run` of the steps of all groups, `of_group` each. Rows before
  // its results are half outside of the image where a group begins. Boxed, as many are below it
  // where it ends, which are not loaded and take half as long; and what comes behind the first two
  // steps is loaded ahead, where else each group begins with two steps' wait.
  double steps(double run, double of_group) const {
    constexpr double kBegin = 2;
    if (slots == 1) return run + kBegin;  // no row is read before results
    const double whole = run / of_group, before = slots - 1,
                 below = boxed ? std::floor(before / 2) / 2 : 0,
                 begun =
                     boxed && std::fmod(of_group, run) != 0 ? std::ceil(whole) : std::floor(whole),
                 own = run + begun * (before / 2 - below + (boxed ? 0 : kBegin)) +
                       (boxed ? kBegin : 0);
    return whole == std::floor(whole) ? own : own + before + (boxed ? 0 : kBegin);
  }

  // Clocks in which an SM with `ctas` thread blocks makes a step of each. Instructions, roughly,
  // estimated and not measured; a warp's MMAs hide behind other warps' instructions. Not
  // less than TMA takes for the lines of boxes, of which each row of results has `leaving`. (64 x
  // 96 x 56 x 56, 7 x 7 on an H200 in tiles of 16 planes, 448 lines a step, 36.3 us; in tiles side
  // by side of two planes, 232 lines, 25.8. A line alone takes three clocks, but so counted 256 x
  // 960 x 7 x 7, 3 x 3 would leave these boxes, which are faster.)
  double clocks(double ctas, int width, int cost, int leaving) const {
    constexpr double kCopy = 6, kFixed = 40, kPack = 20, kResult = 3, kMma = 6, kBarrier = 150,
                     kIssued = 0.9;
    const double code = (boxed ? 0 : kCopy * copies() * advance) +
                        chunks * (advance * (8 + 4.0 * each) + each * taps) + 8 +
                        4.0 * each / width * (kPack + (kResult + cost) * width) + kFixed,
                 issued = code / kIssued, multiplied = kMma * each * taps * chunks;
    const double lines = boxed ? kBoxLine * planes() * (pixels + leaving * result_pixels) : 0;
    return std::max(
        ctas * lanes / 4 * std::max(issued, multiplied) + std::min(issued, multiplied) + kBarrier,
        ctas * lines);
  }
};

// Whether TMA can bring the pixels; sets the map if so. Planes are what one index counts.
bool fits_boxes(const KernelSpec& spec, DepthwiseConfig& e, double planes,
                const DeviceModel& device) {
  const ImageDim &down = *e.down, &line = *e.across;
  if (!device.has_tma || !device.has_wgmma || down.pixel != 1 || line.pixel != 1 ||
      chunks_of(spec, line, kWidth) > kMostChunks || !down.parts.empty() || !line.parts.empty() ||
      !set_map(spec, e, e.image))
    return false;
  const std::vector<int>& counted = e.image.counted;
  if (counted.size() == 1 && static_cast<double>(spec.extent[counted[0]]) == planes) return true;
  e.image.map.reset();
  return false;
}

// What a thread block's warps have: channels, and tiles side by side.
struct Arrangement {
  int each, lanes, across;
};
std::vector<Arrangement> arrangements() {
  std::vector<Arrangement> all;
  for (const int each : {kMostChannels, 2})
    for (const int lanes : {8, 16})
      for (int across = 1; across <= kTiles; across *= 2) all.push_back({each, lanes, across});
  return all;
}

// The most results of a tile whose pixels are no more than the MMA's.
int columns_of(const KernelSpec& spec, const ImageDim& d) {
  const std::int64_t reach = std::abs(d.tap) * (taps_of(spec, d) - 1);
  if (reach >= kDepth) return 0;
  return static_cast<int>(std::min<std::int64_t>(kWidth, (kDepth - 1 - reach) / d.pixel + 1));
}

// What thread blocks of one shape have of shared memory, and how many of them an SM has at once.
struct BandsInShared {
  int stages, bytes;
  double ctas;
};

// The steps of planning one, in order; what returns a bool says whether the engine takes it.
class DepthwiseMmaSearch {
 public:
  DepthwiseMmaSearch(const KernelSpec& spec, const DepthwiseConfig& parts, int vector,
                     double memory, const DeviceModel& device)
      : spec_(spec), e_{parts}, vector_(vector), memory_(memory), device_(device) {}

  std::optional<DepthwiseMmaConfig> make() {
    if (!takes_operands() || !find_extents()) return {};
    find_result();
    // By TMA if it can.
    if (result_) try_columns(true, kWidth);
    if (!best_.found()) {
      const int columns = columns_of(spec_, *e_.across);
      if (columns >= kLeastColumns && e_.down->pixel_index >= 0) try_columns(false, columns);
    }
    return std::move(best_).finished(spec_, device_);
  }

 private:
  const KernelSpec& spec_;
  DepthwiseMmaConfig e_;
  const int vector_;
  const double memory_;  // microseconds
  const DeviceModel& device_;
  double channels_ = 0, planes_ = 0, rows_ = 1, line_ = 0;  // of results
  int taps_ = 0, cost_ = 0;                 // of the filter; of an element of the epilogue
  std::optional<DepthwiseOperand> result_;  // that leaves in boxes
  std::vector<DepthwiseOperand> beside_;
  Fastest<DepthwiseMmaConfig> best_;

  // Tests: the long walks that few SMs have on small shapes.
  double sms() const { return device_.overrides.depthwise == "mma" ? 3 : device_.sms; }

  bool takes_operands() const {
    return !e_.gradient && !e_.along_columns && e_.down && e_.looped.empty() &&
           are_of_16_bits(spec_, e_) && vector_ >= 2 && e_.down->divisor == 1 &&
           e_.across->divisor == 1;
  }

  bool find_extents() {
    const ContractionSpec& c = spec_.contraction();
    const bool one_dim = e_.down->pixel_index < 0;
    e_.rows = 1;
    e_.packing = choose_packing(spec_, e_.channel, std::min(kWidth, widest_pack(spec_)));
    channels_ = static_cast<double>(spec_.extent[e_.channel]);
    if (!one_dim) rows_ = static_cast<double>(spec_.extent[e_.down->pixel_index]);
    line_ = static_cast<double>(spec_.extent[e_.across->pixel_index]);
    planes_ = elements(spec_.extent, 0, e_.channel) *
              elements(spec_.extent, c.first_m(), c.first_n() - (one_dim ? 1 : 2));
    taps_ = static_cast<int>(elements(spec_.extent, c.first_k(), spec_.extent.size()));
    cost_ = element_cost(spec_, spec_.body);
    return channels_ * rows_ * line_ * planes_ * taps_ != 0;
  }

  void find_result() {
    const bool loads = e_.packing.width >= kMostChannels;  // a lane for its channels at once
    if (fits_boxes(spec_, e_, planes_, device_))
      result_ = result_in_boxes(spec_, e_, loads, &beside_);
  }

  // Every arrangement of tiles of so many results.
  void try_columns(bool boxed, int columns) {
    const double tiles = std::ceil(line_ / columns);
    for (const auto& [each, lanes, across] : arrangements()) {
      if (each > vector_ || (across > 1 && across >= 2 * tiles)) continue;
      // A line of a box has 64 or 128 bytes, a box two planes or more.
      if (boxed && (lanes * each / 8 < 4 || across >= kTiles)) continue;
      const Bands b(spec_, e_, each, lanes, columns, across, boxed);
      if (const auto shared = in_shared(b)) try_runs(b, *shared);
    }
  }

  // As many stages as keep memory busy; nothing where registers or shared memory are too few.
  std::optional<BandsInShared> in_shared(const Bands& b) const {
    const int leaving = b.boxed ? b.leaving_bytes(*result_, beside_) : 0;
    if (b.boxed && leaving == 0) return {};
    const double most = b.most_blocks(device_);
    if (b.registers() > kMostRegisters || most < 1) return {};
    int stages = b.boxed ? kBoxedStages : 3;
    while (stages < kMostStages && (stages - 1) * row_bytes(b) * most < kFlightOfSm) ++stages;
    const auto bytes = [&] { return b.shared_bytes(stages, taps_, leaving); };
    const auto fits = [&](double ctas) {
      return ctas * (bytes() + device_.shared_reserved) <= device_.shared_per_sm;
    };
    while (stages > 2 && !fits(most)) --stages;
    if (bytes() > device_.shared_per_cta) return {};
    double ctas = most;
    while (ctas > 1 && !fits(ctas)) --ctas;
    return BandsInShared{stages, bytes(), ctas};
  }
  // Of the image, of a step.
  static double row_bytes(const Bands& b) {
    return static_cast<double>(b.planes()) * b.reached * b.advance * b.lanes * b.vector_bytes();
  }

  // Steps of a thread block: groups or equal parts of one, or as many as fill whole rounds.
  void try_runs(const Bands& b, const BandsInShared& s) {
    const double tiles = std::ceil(line_ / b.columns),
                 blocks = std::ceil(channels_ / (b.lanes * b.each)),
                 lines = std::ceil(tiles / b.across) * std::ceil(planes_ / b.planes()) * rows_,
                 at_once = s.ctas * sms();
    if (blocks * lines >= 0x1p31) return;
    std::vector<double> runs;
    for (const double part : {1.0, 2.0, 4.0, 8.0}) runs.push_back(std::ceil(rows_ / part));
    for (double round = 1; round <= 4; ++round) {
      runs.push_back(std::ceil(lines / std::max(1.0, std::floor(round * at_once / blocks))));
      runs.push_back(std::ceil(runs.back() / rows_) * rows_);
    }
    for (const double run : runs) {
      const double grid = blocks * std::ceil(lines / run);
      if (best_.improves(estimate(b, s, run, grid))) configure(b, s, run, grid);
    }
  }

  double estimate(const Bands& b, const BandsInShared& s, double run, double grid) const {
    const double steps = b.steps(run, rows_);
    const Rounds rounds(grid, s.ctas, sms());
    const double begun = b.boxed ? kPrologue * (rounds.full + (rounds.left > 0) - 1) : 0,
                 all = rounds.clocks([&](double n) {
                   return steps * b.clocks(n, e_.packing.width, cost_,
                                           1 + static_cast<int>(beside_.size()));
                 }) + begun;
    return (b.boxed ? 1 : kUnboxed) * overlapped(waited(b, s), all / device_.clock);
  }
  // Microseconds of memory. Pixels beside a block's own come from the second-level cache.
  double waited(const Bands& b, const BandsInShared& s) const {
    const double again = std::ceil(std::ceil(line_ / b.columns) / b.across) *
                         (b.reached - b.across * b.columns) /
                         static_cast<double>(e_.across->extent);
    return memory_ * (b.boxed ? kBoxesStream * (1 + kAgain * again) : 1) *
           std::max(1.0, kFlightOfSm / ((s.stages - 1) * row_bytes(b) * s.ctas));
  }

  void configure(const Bands& b, const BandsInShared& s, double run, double grid) {
    DepthwiseMmaConfig& e = best_.config;
    e = e_;
    e.columns = b.columns;
    e.each = b.each;
    e.lanes = b.lanes;
    e.run = static_cast<int>(run);
    e.tiles = {.across = b.across, .stages = s.stages};
    if (b.boxed)
      set_boxes(b, static_cast<int>(s.ctas), e);
    else
      e.image.map.reset();
    e.threads = b.threads();
    e.grid = clamp_grid(grid);
    e.shared_bytes = static_cast<std::uint32_t>(s.bytes);
    e.least_blocks = static_cast<int>(s.ctas);  // limits registers to what so many leave each
  }
  void set_boxes(const Bands& b, int ctas, DepthwiseMmaConfig& e) const {
    e.result_rows = kResultRows;
    set_box(e.image, b.lanes * b.each / 8, b.pixels, b.pixels, 0, false);
    e.image.map->box[3] = b.planes();
    e.result = result_, e.beside = beside_;
    b.set_registers(device_, ctas, &e);
    std::vector<DepthwiseOperand*> leave{&*e.result};
    for (DepthwiseOperand& o : e.beside) leave.push_back(&o);
    for (DepthwiseOperand* o : leave)
      set_result_box(*o, b.result_units(info(o->map->type).bytes), b.result_pixels, b.planes());
  }
};

}  // namespace

std::optional<DepthwiseMmaConfig> plan_depthwise_mma(const KernelSpec& spec,
                                                     const DepthwiseConfig& parts, int vector,
                                                     double memory, const DeviceModel& device) {
  return DepthwiseMmaSearch(spec, parts, vector, memory, device).make();
}

}  // namespace sinter
