#include "schedule/contraction/depthwise_lines.hpp"

#include <algorithm>
#include <cmath>

#include "schedule/contraction/depthwise_walk.hpp"
#include "schedule/schedule_parts.hpp"

namespace sinter {
namespace {

// Of a multiplication: tiles, results of a tile, pixels that they see.
constexpr int kTiles = 16, kWidth = 8, kDepth = 16;
constexpr int kWord = 2;   // pixels
constexpr int kAhead = 5;  // sets of words
constexpr int kOwn = 52;   // registers, at the least, besides
constexpr int kMostRegisters = 168;
constexpr double kMostBlocks = 8;   // of an SM
constexpr int kLinesThreads = 128;  // of a thread block

}  // namespace

std::optional<DepthwiseLinesConfig> plan_depthwise_lines(const KernelSpec& spec,
                                                         const DepthwiseConfig& parts,
                                                         const std::vector<ImageDim>& dims,
                                                         double memory, const DeviceModel& device) {
  const KernelPort& image = spec.ports[static_cast<std::size_t>(parts.image.port)];
  const KernelPort& filter = spec.ports[static_cast<std::size_t>(parts.other.port)];
  if (!parts.along_columns || parts.gradient || !parts.looped.empty() || dims.size() != 2 ||
      image.type != filter.type || info(image.type).bytes != 2)
    return {};
  for (const ImageDim& d : dims)
    if (d.divisor != 1 || !d.parts.empty()) return {};
  const ContractionSpec& c = spec.contraction();
  DepthwiseLinesConfig e{parts};
  e.across = dims.back();
  e.down = dims.front();
  const ImageDim &down = *e.down, &line = *e.across;
  if (line.stride != 1 || line.extent % kWord != 0 || e.image.offset % kWord != 0 ||
      down.stride % kWord != 0)
    return {};
  for (int i = 0; i < spec.extent.size(); ++i)
    if (i != line.pixel_index && i != line.tap_index && i != down.pixel_index &&
        i != down.tap_index && image.access.stride[i] % kWord != 0)
      return {};
  if (image.alignment < kWord * info(image.type).bytes) return {};
  const auto extent_of = [&](int index) {
    return index < 0 ? 1.0 : static_cast<double>(spec.extent[index]);
  };
  const std::int64_t reach = line.tap * (taps_of(spec, line) - 1),
                     low = line.base + std::min<std::int64_t>(0, reach),
                     high =
                         line.base + line.pixel * (kWidth - 1) + std::max<std::int64_t>(0, reach),
                     seen = high - floor_divide(low, kWord) * kWord + 1;
  const int chunks = static_cast<int>((seen + kDepth - 1) / kDepth), taps = taps_of(spec, down),
            slots = slots_of(spec, down, 1), advance = advance_of(down, 1);
  const double channels = static_cast<double>(spec.extent[e.channel]),
               planes =
                   elements(spec.extent, 0, e.channel) *
                   elements(spec.extent, c.first_m(), c.first_n() - static_cast<int>(dims.size())),
               rows = extent_of(down.pixel_index),
               tiles = std::ceil(extent_of(line.pixel_index) / kWidth);
  const int registers = chunks * (2 * taps + kAhead * advance * 4) + slots * 4 + kOwn;
  if (registers > kMostRegisters || channels * rows * planes * tiles == 0) return {};
  // Tests: the long walks that few SMs have on small shapes.
  const double sms = device.overrides.depthwise == "mma" ? 1 : device.sms;
  const double blocks = std::min(kMostBlocks,
                                 std::floor(static_cast<double>(device.registers_per_sm /
                                                                (registers * kLinesThreads)))),
               warps = kLinesThreads / 32.0, cost = element_cost(spec, spec.body),
               at_once = blocks * warps * sms;
  // Instructions of a step, roughly, and of its wait for memory.
  constexpr double kWordCode = 3.5, kResult = 45, kIssued = 0.6, kWait = 120, kBegin = 4e3;
  const double words = chunks * advance * 4,
               code = words * kWordCode + chunks * taps + kResult + 2 * cost;
  std::optional<double> least;
  // As many tiles of a line as there are: what lanes load lies together.
  int across = kTiles;
  while (across > 1 && across >= 2 * tiles) across /= 2;
  const double groups = std::ceil(planes / (kTiles / across)) * std::ceil(tiles / across),
               lines = groups * rows, before = slots - 1,
               parts_of = std::clamp(std::floor(at_once / channels), 1.0, lines);
  const double even = std::ceil(lines / parts_of);
  for (const double run : {even, std::ceil(even / rows) * rows, rows}) {
    const double grid = std::ceil(channels * std::ceil(lines / run) / warps);
    if (lines >= 0x1p30 || grid * warps >= 0x1p31) continue;
    const bool whole = std::fmod(run, rows) == 0;
    const double steps = run + std::ceil(run / rows) * before + (whole ? 0 : before),
                 at_most = blocks * sms, rounds = std::floor(grid / at_most),
                 left = std::ceil((grid - rounds * at_most) / sms);
    const auto clocks = [&](double n) {
      return n == 0 ? 0 : steps * std::max(n * warps / 4 * code / kIssued, code + kWait) + kBegin;
    };
    const double issued = (rounds * clocks(blocks) + clocks(left)) / device.clock,
                 us = overlapped(memory, issued);
    if (least && *least <= us) continue;
    least = us;
    e.lines = {.across = across};
    e.run = static_cast<int>(run);
    e.grid = clamp_grid(grid);
  }
  if (!least) return {};
  e.rows = 1;
  e.columns = kWidth;
  e.each = 1;
  e.lanes = 1;
  e.packing = choose_packing(spec, line.pixel_index, kWord);
  e.threads = kLinesThreads;
  e.least_blocks = static_cast<int>(blocks);
  e.shared_bytes = 0;
  e.microseconds = device.launch_microseconds + *least;
  e.wide_index = needs_wide_index(spec);
  return e;
}

}  // namespace sinter
