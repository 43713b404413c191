#include "schedule/contraction/depthwise_rows.hpp"

#include <algorithm>
#include <cmath>

#include "plan/tma_limits.hpp"
#include "schedule/contraction/depthwise_boxes.hpp"
#include "schedule/contraction/depthwise_search.hpp"
#include "schedule/contraction/depthwise_walk.hpp"

namespace sinter {
namespace {

constexpr int kEach = 2;          // channels of a thread
constexpr int kMostLanes = 64;    // side by side along channels
constexpr int kLeastColumns = 4;  // of a thread, where there are as many
constexpr int kMostColumns = 8;
constexpr int kMostWorkers = 384;    // threads with results
constexpr int kMostPlanes = 8;       // images of a thread block
constexpr int kMostRegisters = 128;  // of a thread
constexpr int kMostProducts = 1000;  // multiplications of a step: they cost time to compile
constexpr int kMostStages = 8, kLeastStages = 3;

// A thread block's shape and what follows from it.
struct Block {
  int rows, columns, lanes, across, planes;
  int frames, advance, slots, line, workers;
  double taps, products, pixels;  // of a thread's step

  Block(const KernelSpec& spec, const DepthwiseConfig& e, int rows_, int columns_, int lanes_,
        int across_, int planes_)
      : rows(rows_), columns(columns_), lanes(lanes_), across(across_), planes(planes_) {
    const ImageDim &down = *e.down, &line_dim = *e.across;
    advance = advance_of(down, rows);
    slots = slots_of(spec, down, rows);
    const int count = seen(spec, line_dim, columns);
    line = (across - 1) * advance_of(line_dim, columns) + count;
    workers = lanes * across * planes;
    frames = e.looped.empty() ? 1 : taps_of(spec, e.looped.front());
    taps = taps_of(spec, down) * taps_of(spec, line_dim);
    products = static_cast<double>(rows) * columns * taps * kEach /
               static_cast<double>(down.divisor * line_dim.divisor);
    pixels = static_cast<double>(advance) * count;
  }
  int warps() const { return (workers + 31) / 32; }
  int threads() const { return 32 * warps() + 32; }
  double registers() const {
    constexpr double kOwn = 26;
    return kEach * (slots * rows * columns + taps) + kOwn;
  }
  double stage_bytes() const {
    return frames * std::ceil(planes * advance * line * lanes * kEach * 2.0 / 128) * 128;
  }
  double shared_bytes(int stages) const {
    return stages * (stage_bytes() + 16) + frames * taps * lanes * kEach * 4 + kLostToAlignment;
  }
  // Instructions of a thread's step, roughly; `cost`: of an element of the epilogue.
  double code(int cost) const {
    constexpr double kFixed = 20, kResult = 3;
    const double factors = frames > 1 ? taps : 0;
    return kFixed + frames * (pixels * (1 + kEach) + products + factors) +
           rows * columns * (kResult + cost * kEach);
  }
};

// How such thread blocks walk: down `run` blocks of results each, `ctas` of them on an SM.
struct RowsRun {
  int stages;
  double shared, ctas, run, grid;
};

// The steps of planning one, in order; what returns a bool says whether the engine takes it.
class RowsSearch {
 public:
  RowsSearch(const KernelSpec& spec, const DepthwiseConfig& parts, double memory,
             const DeviceModel& device)
      : spec_(spec), e_{parts}, memory_(memory), device_(device) {}

  std::optional<DepthwiseRowsConfig> make() {
    if (!takes_operands() || !takes_dims() || !find_extents()) return {};
    const int pairs = static_cast<int>((channels_ + kEach - 1) / kEach);
    for (int blocks = (pairs + kMostLanes - 1) / kMostLanes;; ++blocks) {
      // 32 bytes or a multiple: of smaller pieces of a result the cache writes others' half. (36
      // lanes: 108 us where 24 take 71.)
      const int lanes = ((pairs + blocks - 1) / blocks + 7) / 8 * 8;
      if (lanes > kMostLanes) continue;
      try_lanes(lanes);
      if (lanes <= 16) break;
    }
    return std::move(best_).finished(spec_, device_);
  }

 private:
  const KernelSpec& spec_;
  DepthwiseRowsConfig e_;
  const double memory_;  // microseconds
  const DeviceModel& device_;
  double channels_ = 0, planes_ = 0;
  int down_ = 1, across_ = 1;  // results
  int cost_ = 0;               // of an element of the epilogue
  Fastest<DepthwiseRowsConfig> best_;

  // Frames of a volume, each of which is a coordinate of the map.
  bool is_volume() const { return !e_.looped.empty(); }

  bool takes_operands() const {
    const KernelPort& image = spec_.ports[static_cast<std::size_t>(e_.image.port)];
    return device_.has_tma && device_.has_wgmma && !e_.gradient && !e_.along_columns &&
           e_.each == kEach && e_.down && info(image.type).bytes == 2;
  }

  bool takes_dims() const {
    for (const ImageDim* d : {&*e_.down, &*e_.across})
      if (!d->parts.empty() || d->divisor > kMostPhases) return false;
    if (!is_volume()) return true;
    const ImageDim& frames = e_.looped.front();
    return e_.looped.size() == 1 && frames.pixel_index >= 0 && frames.divisor == 1 &&
           frames.parts.empty();
  }

  // Planes are what the map counts beside a plane's own coordinates.
  bool find_extents() {
    const ContractionSpec& c = spec_.contraction();
    planes_ = elements(spec_.extent, 0, e_.channel) *
              elements(spec_.extent, c.first_m(), c.first_n() - 2);
    if (!set_map(spec_, e_, e_.image)) return false;
    double counted = 1;
    for (int i : e_.image.counted) counted *= static_cast<double>(spec_.extent[i]);
    if (counted != planes_ || (!is_volume() && e_.image.counted.size() != 1)) return false;
    channels_ = static_cast<double>(spec_.extent[e_.channel]);
    down_ = static_cast<int>(spec_.extent[e_.down->pixel_index]);
    across_ = static_cast<int>(spec_.extent[e_.across->pixel_index]);
    cost_ = element_cost(spec_, spec_.body);
    return channels_ * planes_ * down_ * across_ != 0;
  }

  void try_lanes(int lanes) {
    const int phases = static_cast<int>(e_.down->divisor),
              phases_across = static_cast<int>(e_.across->divisor),
              // Steps of two rows of the image, at the least: 128 x 144 x 56 x 56, 3 x 3 79 us with
              // two, 88 with one, its image gradient of stride 2 47 and 53.
        rows = advance_of(e_.down, phases) > 1 ? phases : 2 * phases;
    for (int columns = phases_across; columns <= kMostColumns; columns += phases_across) {
      if (columns < std::min(kLeastColumns, across_)) continue;
      const int across = (across_ + columns - 1) / columns,
                strips = (across * lanes + kMostWorkers - 1) / kMostWorkers;
      for (int planes = 1; planes <= (is_volume() ? 1 : kMostPlanes) && planes <= planes_;
           planes *= 2)
        try_block(Block(spec_, e_, rows, columns, lanes, (across + strips - 1) / strips, planes),
                  strips);
    }
  }

  // With as many stages as keep memory busy; `strips`: of a row of results.
  void try_block(const Block& s, double strips) {
    if (s.registers() > kMostRegisters || s.products > kMostProducts || s.line > tma::kMostBox ||
        s.workers > kMostWorkers)
      return;
    const double by_registers =
                     std::floor(device_.registers_per_sm / (s.registers() * s.threads())),
                 blocks = blocks_of_channels(s), groups = std::ceil(planes_ / s.planes),
                 blocks_down = std::ceil(static_cast<double>(down_) / s.rows);
    for (int stages = kLeastStages; stages <= kMostStages; ++stages) {
      const double shared = s.shared_bytes(stages),
                   by_shared =
                       std::floor(device_.shared_per_sm / (shared + device_.shared_reserved));
      if (shared > device_.shared_per_cta) break;
      for (double part = 1; part <= 8 && part <= blocks_down; part *= 2) {
        const double run = std::ceil(blocks_down / part);
        const RowsRun r{stages, shared, std::max(1.0, std::min(by_registers, by_shared)), run,
                        blocks * strips * groups * std::ceil(blocks_down / run)};
        if (r.grid < 0x1p31 && best_.improves(estimate(s, r))) configure(s, r);
      }
    }
  }

  void configure(const Block& s, const RowsRun& r) {
    DepthwiseRowsConfig& e = best_.config;
    e = e_;
    e.rows = s.rows;
    e.columns = s.columns;
    e.lanes = s.lanes;
    e.run = static_cast<int>(r.run);
    e.boxes = {.across = s.across, .planes = s.planes, .stages = r.stages};
    e.image.line = s.line;
    Dims& box = e.image.map->box;
    box = Dims::filled(e.image.map->dim.size(), 1);
    box[0] = s.lanes * kEach;
    box[1] = s.line;
    box[2] = s.advance;
    box[3] = s.planes;
    e.threads = s.threads();
    e.grid = clamp_grid(r.grid);
    e.shared_bytes = static_cast<std::uint32_t>(r.shared);
  }

  double blocks_of_channels(const Block& s) const {
    return std::ceil(channels_ / (s.lanes * kEach));
  }

  double estimate(const Block& s, const RowsRun& r) const {
    constexpr double kExposed = 0.1;
    const double issued = Rounds(r.grid, r.ctas, device_.sms).clocks([&](double n) {
      return clocks(s, r, n);
    }) / device_.clock;
    return longer(s) * overlapped(waited(s, r), issued, kExposed);
  }

  // Microseconds of memory.
  double waited(const Block& s, const RowsRun& r) const {
    const double at_once = std::clamp(r.grid / device_.sms, 1.0, r.ctas),
                 flight = (r.stages - 1) * s.stage_bytes() * at_once,
                 // SMs that have a thread block more than others work when those rest.
        each = r.grid / device_.sms, unlike = std::ceil(each) / each;
    const double again = s.frames * static_cast<double>(s.line) /
                         (s.across * advance_of(e_.across, s.columns)),
                 rows_again = (r.run + s.slots - 1) / r.run;
    // Thread blocks that begin and end together leave memory idle, which those of several rounds do
    // not: 128 x 144 x 56 x 56, 3 x 3 on an H200 79 us in one round, 71 in two. Image gradients of
    // stride 2, which write four times what they read, gain from more of them: with 384, 768
    // and 1,536 thread blocks 45.3, 44.1 and 42.4 us.
    const bool strided = e_.down->divisor > 1;
    const double rounds = r.grid / ((strided ? 3 : r.ctas) * device_.sms);
    constexpr double kAgain = 0.15, kUnlike = 0.5, kEnds = 0.2;
    const double unused = blocks_of_channels(s) * s.lanes * kEach / channels_ - 1,  // lanes
        ends = kEnds / std::clamp(rounds, 1.0, strided ? 4.0 : 2.0);
    return kBoxesStream * memory_ * std::max(1.0, kFlightOfSm / flight) *
           (1 + kAgain * (again * rows_again - 1)) * (1 + kUnlike * (unlike - 1 + unused)) *
           (1 + ends);
  }

  // Of `n` thread blocks of an SM: steps, alone or beside others', and a thread block's beginning.
  double clocks(const Block& s, const RowsRun& r, double n) const {
    constexpr double kIssued = 0.95, kAlone = 0.3, kWait = 150, kBegin = 4600;
    const double code = s.code(cost_);
    return (r.run + s.slots - 1) *
               std::max({n * s.warps() / 4 * code / kIssued, code / kAlone + kWait,
                         n * s.frames * s.planes * s.advance * s.line * kClocksOfLine}) +
           kBegin;
  }

  double longer(const Block& s) const {
    // Large filters with strides take longer. (5 x 5, stride 2 on an H200: 64 x 672 x 14 x 14 18.5
    // us where 13.2 were estimated, 64 x 144 x 56 x 56 34.1 where 29.9 were; by loads to registers
    // 13.5 and 35.3.)
    constexpr double kLargeStrided = 1.25, kLarge = 25;
    // So do the smallest results of strides. (128 x 512 x 14 x 14, 3 x 3 14.8 us where 12.2 are
    // estimated, by loads 12.6; 64 x 672 x 14 x 14, 5 x 5 18.5, 14.8 and 13.5.)
    constexpr double kSmallStrided = 1.2;
    constexpr int kSmall = 8;
    // And so do boxes of several frames; loads, whose estimates are too long here, are what they
    // are compared with. (3 x 3 x 3, 8 x 112 x 16 x 40 x 40 54.6 us where 46.3 are estimated
    // without this, by loads 71.9 and 86.8; 8 x 216 x 16 x 20 x 20 35.4 and 26.5, by loads 39.2
    // and 45.5; 8 x 432 x 16 x 10 x 10 34.0 and 25.8, by loads 24.2 and 25.2.)
    constexpr double kFrames = 1.4;
    return (s.frames > 1 ? kFrames : 1) *
           (e_.down->pixel == 1
                ? 1
                : (s.taps >= kLarge ? kLargeStrided : 1) * (across_ <= kSmall ? kSmallStrided : 1));
  }
};

}  // namespace

std::optional<DepthwiseRowsConfig> plan_depthwise_rows(const KernelSpec& spec,
                                                       const DepthwiseConfig& parts, double memory,
                                                       const DeviceModel& device) {
  return RowsSearch(spec, parts, memory, device).make();
}

}  // namespace sinter
