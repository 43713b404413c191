#include "schedule/contraction/depthwise_rows.hpp"

#include <algorithm>
#include <cmath>

#include "plan/tma_limits.hpp"
#include "schedule/contraction/depthwise_boxes.hpp"
#include "schedule/contraction/depthwise_walk.hpp"
#include "schedule/schedule_parts.hpp"

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

}  // namespace

std::optional<DepthwiseRowsConfig> plan_depthwise_rows(const KernelSpec& spec,
                                                       const DepthwiseConfig& parts, double memory,
                                                       const DeviceModel& device) {
  const KernelPort& image = spec.ports[static_cast<std::size_t>(parts.image.port)];
  if (!device.has_tma || !device.has_wgmma || parts.gradient || parts.along_columns ||
      parts.each != kEach || !parts.down || info(image.type).bytes != 2)
    return {};
  const ImageDim &down = *parts.down, &line = *parts.across;
  if (!down.parts.empty() || !line.parts.empty() || down.divisor > kMostPhases ||
      line.divisor > kMostPhases)
    return {};
  // Frames of a volume, each of which is a coordinate of the map.
  const bool volume = !parts.looped.empty();
  if (volume && (parts.looped.size() > 1 || parts.looped[0].pixel_index < 0 ||
                 parts.looped[0].divisor > 1 || !parts.looped[0].parts.empty()))
    return {};
  DepthwiseRowsConfig e{parts};
  const ContractionSpec& c = spec.contraction();
  const double planes =
      elements(spec.extent, 0, e.channel) * elements(spec.extent, c.first_m(), c.first_n() - 2);
  if (!set_map(spec, e, e.image)) return {};
  double counted = 1;
  for (int i : e.image.counted) counted *= static_cast<double>(spec.extent[i]);
  if (counted != planes || (!volume && e.image.counted.size() != 1)) return {};
  const double channels = static_cast<double>(spec.extent[e.channel]);
  const int results_down = static_cast<int>(spec.extent[down.pixel_index]),
            results_across = static_cast<int>(spec.extent[line.pixel_index]);
  if (channels * planes * results_down * results_across == 0) return {};
  const int cost = element_cost(spec, spec.body);
  std::optional<double> least;
  DepthwiseRowsConfig best;

  // The shapes of one kind of walk, with as many stages as keep memory busy.
  const auto consider = [&](const Block& s, double strips) {
    if (s.registers() > kMostRegisters || s.products > kMostProducts || s.line > tma::kMostBox ||
        s.workers > kMostWorkers)
      return;
    const double by_registers = std::floor(device.registers_per_sm / (s.registers() * s.threads()));
    const double blocks = std::ceil(channels / (s.lanes * kEach)),
                 groups = std::ceil(planes / s.planes),
                 blocks_down = std::ceil(static_cast<double>(results_down) / s.rows);
    for (int stages = kLeastStages; stages <= kMostStages; ++stages) {
      const double shared = s.shared_bytes(stages);
      if (shared > device.shared_per_cta) break;
      const double ctas = std::max(
          1.0, std::min(by_registers,
                        std::floor(device.shared_per_sm / (shared + device.shared_reserved))));
      for (double part = 1; part <= 8 && part <= blocks_down; part *= 2) {
        const double run = std::ceil(blocks_down / part),
                     grid = blocks * strips * groups * std::ceil(blocks_down / run);
        if (grid >= 0x1p31) continue;
        const double at_once = std::clamp(grid / device.sms, 1.0, ctas),
                     flight = (stages - 1) * s.stage_bytes() * at_once,
                     // SMs that have a thread block more than others work when those rest.
            each = grid / device.sms, unlike = std::ceil(each) / each;
        const double again = s.frames * static_cast<double>(s.line) /
                             (s.across * advance_of(line, s.columns)),
                     rows_again = (run + s.slots - 1) / run;
        // Thread blocks that begin and end together leave memory idle, which those of several
        // rounds do not: 128 x 144 x 56 x 56, 3 x 3 on an H200 79 us in one round, 71 in two. Image
        // gradients of stride 2, which write four times what they read, gain from more of them:
        // with 384, 768 and 1,536 thread blocks 45.3, 44.1 and 42.4 us.
        const bool strided = down.divisor > 1;
        const double rounds_of_blocks = grid / ((strided ? 3 : ctas) * device.sms);
        constexpr double kAgain = 0.15, kUnlike = 0.5, kEnds = 0.2;
        const double unused = blocks * s.lanes * kEach / channels - 1;  // lanes
        const double ends = kEnds / std::clamp(rounds_of_blocks, 1.0, strided ? 4.0 : 2.0);
        const double waited = kBoxesStream * memory * std::max(1.0, kFlightOfSm / flight) *
                              (1 + kAgain * (again * rows_again - 1)) *
                              (1 + kUnlike * (unlike - 1 + unused)) * (1 + ends);
        // A step, alone or beside others'; the beginning of a thread block.
        constexpr double kIssued = 0.95, kAlone = 0.3, kWait = 150, kBegin = 4600, kExposed = 0.1;
        const auto clocks = [&](double n) {
          const double code = s.code(cost);
          return (run + s.slots - 1) *
                     std::max({n * s.warps() / 4 * code / kIssued, code / kAlone + kWait,
                               n * s.frames * s.planes * s.advance * s.line * kClocksOfLine}) +
                 kBegin;
        };
        // Large filters with strides take longer. (5 x 5, stride 2 on an H200: 64 x 672 x 14 x 14
        // 18.5 us where 13.2 were estimated, 64 x 144 x 56 x 56 34.1 where 29.9 were; by loads to
        // registers 13.5 and 35.3.)
        constexpr double kLargeStrided = 1.25, kLarge = 25;
        // So do the smallest results of strides. (128 x 512 x 14 x 14, 3 x 3 14.8 us where 12.2 are
        // estimated, by loads 12.6; 64 x 672 x 14 x 14, 5 x 5 18.5, 14.8 and 13.5.)
        constexpr double kSmallStrided = 1.2;
        constexpr int kSmall = 8;
        // And so do boxes of several frames; loads, whose estimates are too long here, are what
        // they are compared with. (3 x 3 x 3, 8 x 112 x 16 x 40 x 40 54.6 us where 46.3 are
        // estimated without this, by loads 71.9 and 86.8; 8 x 216 x 16 x 20 x 20 35.4 and 26.5, by
        // loads 39.2 and 45.5; 8 x 432 x 16 x 10 x 10 34.0 and 25.8, by loads 24.2 and 25.2.)
        constexpr double kFrames = 1.4;
        const double longer =
            (s.frames > 1 ? kFrames : 1) *
            (down.pixel == 1 ? 1
                             : (s.taps >= kLarge ? kLargeStrided : 1) *
                                   (results_across <= kSmall ? kSmallStrided : 1));
        const double all = ctas * device.sms, rounds = std::floor(grid / all),
                     left = std::ceil((grid - rounds * all) / device.sms),
                     issued =
                         (rounds * clocks(ctas) + (left > 0 ? clocks(left) : 0)) / device.clock,
                     us = longer * overlapped(waited, issued, kExposed);
        if (least && *least <= us) continue;
        least = us;
        best = e;
        best.rows = s.rows;
        best.columns = s.columns;
        best.lanes = s.lanes;
        best.run = static_cast<int>(run);
        best.boxes = {.across = s.across, .planes = s.planes, .stages = stages};
        best.image.line = s.line;
        best.image.map->box = Dims::filled(e.image.map->dim.size(), 1);
        best.image.map->box[0] = s.lanes * kEach;
        best.image.map->box[1] = s.line;
        best.image.map->box[2] = s.advance;
        best.image.map->box[3] = s.planes;
        best.threads = s.threads();
        best.grid = clamp_grid(grid);
        best.shared_bytes = static_cast<std::uint32_t>(shared);
      }
    }
  };
  const int pairs = static_cast<int>((channels + kEach - 1) / kEach),
            phases = static_cast<int>(down.divisor),
            // Steps of two rows of the image, at the least: 128 x 144 x 56 x 56, 3 x 3 79 us with
            // two, 88 with one, its image gradient of stride 2 47 and 53.
      rows = advance_of(down, phases) > 1 ? phases : 2 * phases;
  for (int blocks = (pairs + kMostLanes - 1) / kMostLanes;; ++blocks) {
    // 32 bytes or a multiple: of smaller pieces of a result the cache writes others' half. (36
    // lanes: 108 us where 24 take 71.)
    const int lanes = ((pairs + blocks - 1) / blocks + 7) / 8 * 8;
    if (lanes > kMostLanes) continue;
    for (int columns = static_cast<int>(line.divisor); columns <= kMostColumns;
         columns += static_cast<int>(line.divisor)) {
      if (columns < std::min(kLeastColumns, results_across)) continue;
      const int across = (results_across + columns - 1) / columns;
      const int strips = (across * lanes + kMostWorkers - 1) / kMostWorkers;
      for (int together = 1; together <= (volume ? 1 : kMostPlanes) && together <= planes;
           together *= 2)
        consider(Block(spec, e, rows, columns, lanes, (across + strips - 1) / strips, together),
                 strips);
    }
    if (lanes <= 16) break;
  }
  if (!least) return {};
  best.microseconds = device.launch_microseconds + *least;
  best.wide_index = needs_wide_index(spec);
  return best;
}

}  // namespace sinter
