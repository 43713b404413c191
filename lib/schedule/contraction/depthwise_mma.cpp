#include "schedule/contraction/depthwise_mma.hpp"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <vector>

#include "schedule/contraction/depthwise_boxes.hpp"
#include "schedule/contraction/depthwise_walk.hpp"
#include "schedule/schedule_parts.hpp"

namespace sinter {
namespace {

// Of a multiplication: independent tiles, results of a tile, pixels that they see.
constexpr int kTiles = 16, kWidth = 8, kDepth = 16;
constexpr int kMostChunks = 4;       // multiplications of a tile and row of the filter
constexpr int kMostChannels = 4;     // of a lane
constexpr int kLeastColumns = 4;     // of a tile: else too few of its products count
constexpr int kMostStages = 8;       // rows
constexpr int kBoxedStages = 6;      // at the least, where shared memory has room
constexpr int kResultRows = 4;       // in shared memory, boxed
constexpr int kOthers = 128;         // threads that load and store, boxed
constexpr int kMostRegisters = 240;  // of a thread, of 255
constexpr double kPrologue = 5e3;    // clocks of a thread block's beginning, boxed
constexpr double kAgain = 0.15;      // of memory's time, for an image that is read once more
// Without TMA each step waits for its loads and a barrier. (5 x 5 of stride 2 on an H200, us: 128 x
// 72 x 56 x 56 41.0 where 27.4 were estimated, pixels by TMA on CUDA cores 27.4; 32 x 336 x 48 x
// 48 34.9 where 22.9 were, 28.4.)
constexpr double kUnboxed = 1.5;

// Multiplications that the pixels of a tile of so many results are.
int chunks_of(const KernelSpec& spec, const ImageDim& d, int columns) {
  return (seen(spec, d, columns) + kDepth - 1) / kDepth;
}

// The shape of a thread block, as the device code's Bands has it.
struct Bands {
  int each, lanes, columns, across;
  int chunks;                // multiplications of a tile and row of the filter
  int taps, advance, slots;  // rows of the filter, of the image a step, of results in the making
  int pixels, row, plane;    // of a row of the image; vectors
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
    if (boxed) pixels = line_of_box((across - 1) * columns + chunks * kDepth);
    row = (pixels + 1) / 2 * 2 * (lanes + 1);
    const int bank = 4 * across % 32;
    plane = (row * advance + 31 - bank) / 32 * 32 + bank;
  }
  int threads() const { return 32 * lanes + (boxed ? kOthers : 0); }
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
    constexpr int kUnit = 8, kMost = 240, kOthersMost = 88, kOthersLeast = 56;
    const int all = device.registers_per_sm / (ctas * threads()) / kUnit * kUnit * threads();
    for (int others = kOthersMost; others >= kOthersLeast; others -= kUnit) {
      const int own =
          std::min(kMost, (all - others * kOthers) / (threads() - kOthers) / kUnit * kUnit);
      if (own < registers() || others > all / threads()) continue;
      if (e) e->consumer_registers = own, e->producer_registers = others;
      return true;
    }
    return false;
  }
  int stage_bytes() const {
    if (boxed) return (planes() * pixels * lanes * vector_bytes() + 1023) / 1024 * 1024;
    return (plane * planes() + kDepth / 2 * (lanes + 1)) * vector_bytes();
  }
  // Of 16 bytes, in the line of a pixel's results of so many bytes; 0: shared memory has no swizzle
  // for such a line.
  int result_units(int bytes) const {
    const int units = lanes * each * bytes / 16;
    return each * bytes <= 16 && (units == 2 || units == 4 || units == 8) ? units : 0;
  }
  // The units of a line of a row of results, boxed, with what the epilogue reads beside these; 0
  // where there is no swizzle for one of them.
  int leaving_units(const DepthwiseOperand& result,
                    const std::vector<DepthwiseOperand>& beside) const {
    int all = result_units(info(result.map->type).bytes);
    for (const DepthwiseOperand& o : beside) {
      const int units = result_units(info(o.map->type).bytes);
      if (all == 0 || units == 0) return 0;
      if (!o.in_place) all += units;
    }
    return all;
  }
  // `leaving`: those units.
  int shared_bytes(int stages, int all_taps, int leaving) const {
    const int results = boxed ? kResultRows * kTiles * kWidth * leaving * 16
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
  // estimated and not measured; a warp's multiplications hide behind other warps' instructions.
  double clocks(double ctas, int width, int cost) const {
    constexpr double kCopy = 6, kFixed = 40, kPack = 20, kResult = 3, kMma = 6, kBarrier = 150,
                     kIssued = 0.9;
    const double code = (boxed ? 0 : kCopy * copies() * advance) +
                        chunks * (advance * (8 + 4.0 * each) + each * taps) + 8 +
                        4.0 * each / width * (kPack + (kResult + cost) * width) + kFixed,
                 issued = code / kIssued, multiplied = kMma * each * taps * chunks;
    return ctas * lanes / 4 * std::max(issued, multiplied) + std::min(issued, multiplied) +
           kBarrier;
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

// The most results of a tile whose pixels are no more than the multiplication's.
int columns_of(const KernelSpec& spec, const ImageDim& d) {
  const std::int64_t reach = std::abs(d.tap) * (taps_of(spec, d) - 1);
  if (reach >= kDepth) return 0;
  return static_cast<int>(std::min<std::int64_t>(kWidth, (kDepth - 1 - reach) / d.pixel + 1));
}

}  // namespace

std::optional<DepthwiseMmaConfig> plan_depthwise_mma(const KernelSpec& spec,
                                                     const DepthwiseConfig& parts, int vector,
                                                     double memory, const DeviceModel& device) {
  const auto type = [&](const DepthwiseOperand& o) {
    return spec.ports[static_cast<std::size_t>(o.port)].type;
  };
  if (parts.gradient || parts.along_columns || !parts.down || !parts.looped.empty()) return {};
  if (type(parts.image) != type(parts.other) || info(type(parts.image)).bytes != 2) return {};
  const ImageDim &down = *parts.down, &line = *parts.across;
  if (vector < 2 || down.divisor != 1 || line.divisor != 1) return {};

  DepthwiseMmaConfig e{parts};
  e.rows = 1;
  e.columns = kWidth;
  e.packing = choose_packing(spec, e.channel, std::min(kWidth, widest_pack(spec)));
  const ContractionSpec& c = spec.contraction();
  const double channels = static_cast<double>(spec.extent[e.channel]),
               rows = down.pixel_index < 0 ? 1 : static_cast<double>(spec.extent[down.pixel_index]),
               line_pixels = static_cast<double>(spec.extent[line.pixel_index]);
  const int spatial = down.pixel_index < 0 ? 1 : 2;
  const double planes = elements(spec.extent, 0, e.channel) *
                        elements(spec.extent, c.first_m(), c.first_n() - spatial);
  const int all_taps = static_cast<int>(elements(spec.extent, c.first_k(), spec.extent.size()));
  if (channels * rows * line_pixels * planes * all_taps == 0) return {};
  const int cost = element_cost(spec, spec.body);
  // Tests: the long walks that few SMs have on small shapes.
  const double sms = device.overrides.depthwise == "mma" ? 3 : device.sms;
  std::optional<double> least;
  // A lane loads for its channels at once.
  const bool loads = e.packing.width >= kMostChannels;
  std::vector<DepthwiseOperand> beside;
  const std::optional<DepthwiseOperand> result =
      fits_boxes(spec, e, planes, device) ? result_in_boxes(spec, e, loads, &beside) : std::nullopt;
  const DepthwiseOperand image = e.image;
  // By TMA if it can.
  const auto choose = [&](bool boxed, int columns) {
    const double tiles = std::ceil(line_pixels / columns);
    for (const auto& [each, lanes, across] : arrangements()) {
      if (each > vector || (across > 1 && across >= 2 * tiles)) continue;
      // A line of a box has 64 or 128 bytes, a box two planes or more.
      const int units = lanes * each / 8;
      if (boxed && (units < 4 || across >= kTiles)) continue;
      const Bands b(spec, parts, each, lanes, columns, across, boxed);
      const int leaving = boxed ? b.leaving_units(*result, beside) : 0;
      if (boxed && leaving == 0) continue;
      const double most = b.most_blocks(device);
      if (b.registers() > kMostRegisters || most < 1) continue;
      const double blocks = std::ceil(channels / (lanes * each)),
                   lines = std::ceil(tiles / across) * std::ceil(planes / b.planes()) * rows;
      const double row_bytes =
          static_cast<double>(b.planes()) * b.pixels * b.advance * lanes * b.vector_bytes();
      int stages = boxed ? kBoxedStages : 3;
      while (stages < kMostStages && (stages - 1) * row_bytes * most < kFlightOfSm) ++stages;
      const auto fits = [&](double ctas) {
        return ctas * (b.shared_bytes(stages, all_taps, leaving) + device.shared_reserved) <=
               device.shared_per_sm;
      };
      while (stages > 2 && !fits(most)) --stages;
      if (b.shared_bytes(stages, all_taps, leaving) > device.shared_per_cta ||
          blocks * lines >= 0x1p31)
        continue;
      double ctas = most;
      while (ctas > 1 && !fits(ctas)) --ctas;
      // Pixels beside a block's own come from the second-level cache.
      const double again = std::ceil(tiles / across) * (b.pixels - across * columns) /
                           static_cast<double>(line.extent);
      const double at_once = ctas * sms,
                   waited = memory * (boxed ? kBoxesStream * (1 + kAgain * again) : 1) *
                            std::max(1.0, kFlightOfSm / ((stages - 1) * row_bytes * ctas));
      // Rows of a thread block: groups or equal parts of one, or as many as fill whole rounds.
      std::vector<double> runs;
      for (const double part : {1.0, 2.0, 4.0, 8.0}) runs.push_back(std::ceil(rows / part));
      for (double round = 1; round <= 4; ++round) {
        runs.push_back(std::ceil(lines / std::max(1.0, std::floor(round * at_once / blocks))));
        runs.push_back(std::ceil(runs.back() / rows) * rows);
      }
      for (const double run : runs) {
        const double grid = blocks * std::ceil(lines / run), rounds = std::floor(grid / at_once),
                     left = std::ceil((grid - rounds * at_once) / sms), steps = b.steps(run, rows);
        const auto clocks = [&](double n) {  // of n thread blocks of an SM
          return steps * b.clocks(n, e.packing.width, cost);
        };
        const double begun = boxed ? kPrologue * (rounds + (left > 0) - 1) : 0,
                     all = rounds * clocks(ctas) + (left > 0 ? clocks(left) : 0) + begun;
        const double issued = all / device.clock,
                     us = (boxed ? 1 : kUnboxed) * overlapped(waited, issued);
        if (least && *least <= us) continue;
        least = us;
        e.columns = columns;
        e.each = each;
        e.lanes = lanes;
        e.run = static_cast<int>(run);
        e.tiles = {.across = across, .stages = stages};
        e.result_rows = e.consumer_registers = e.producer_registers = 0;
        e.image.map.reset();
        e.result.reset();
        e.beside.clear();
        if (boxed) {
          e.result_rows = kResultRows;
          b.set_registers(device, static_cast<int>(ctas), &e);
          e.image = image;
          set_box(e.image, units, b.pixels, b.pixels, 0, false);
          e.image.map->box[3] = b.planes();
          e.result = result, e.beside = beside;
          std::vector<DepthwiseOperand*> leave{&*e.result};
          for (DepthwiseOperand& o : e.beside) leave.push_back(&o);
          for (DepthwiseOperand* o : leave)
            set_result_box(*o, b.result_units(info(o->map->type).bytes), across * columns,
                           b.planes());
        }
        e.threads = b.threads();
        e.grid = clamp_grid(grid);
        e.shared_bytes = static_cast<std::uint32_t>(b.shared_bytes(stages, all_taps, leaving));
        e.least_blocks = static_cast<int>(ctas);  // limits registers to what so many leave each
      }
    }
  };
  if (result) choose(true, kWidth);
  if (!least) {
    const int columns = columns_of(spec, line);
    if (columns >= kLeastColumns && down.pixel_index >= 0) choose(false, columns);
  }
  if (!least) return {};
  e.microseconds = device.launch_microseconds + *least;
  e.wide_index = needs_wide_index(spec);
  return e;
}

}  // namespace sinter
