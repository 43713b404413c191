#include "schedule/contraction/depthwise_mma.hpp"

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "schedule/schedule_parts.hpp"

namespace sinter {
namespace {

// Of a multiplication: independent tiles, results of a tile, pixels that they see.
constexpr int kTiles = 16, kWidth = 8, kDepth = 16;
constexpr int kLeastColumns = 4;     // of a tile: else too few of its products count
constexpr int kMostStages = 8;       // rows
constexpr int kMostRegisters = 240;  // of a thread, of 255
constexpr double kFlight = 40e3;     // bytes under way of an SM that reach the rate of memory
constexpr double kExposed = 0.2;     // of the shorter of memory and instructions

std::int64_t ceil_divide(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

// The shape of a thread block, as the device code's Bands has it.
struct Bands {
  int each, lanes, columns, across, run;
  int taps, advance, slots;  // rows of the filter, of the image a step, of results in the making
  int pixels, row, plane;    // of a row of the image; vectors

  Bands(const KernelSpec& spec, const DepthwiseConfig& parts, int each_, int lanes_, int columns_,
        int across_, int run_)
      : each(each_), lanes(lanes_), columns(columns_), across(across_), run(run_) {
    const ImageDim &down = *parts.down, &line = *parts.across;
    const auto taps_of = [&](const ImageDim& d) {
      return d.tap_index < 0 ? 1 : static_cast<int>(spec.extent[d.tap_index]);
    };
    taps = taps_of(down);
    advance = static_cast<int>(down.pixel);
    const int seen = static_cast<int>(std::abs(down.tap)) * (taps - 1) + 1;
    slots = (seen + advance - 1) / advance;
    pixels = static_cast<int>(line.pixel) * (across * columns - 1) +
             static_cast<int>(std::abs(line.tap)) * (taps_of(line) - 1) + 1;
    row = (pixels + 1) / 2 * 2 * (lanes + 1);
    const int bank = 4 * across % 32;
    plane = (row * advance + 31 - bank) / 32 * 32 + bank;
  }
  int threads() const { return 32 * lanes; }
  int planes() const { return kTiles / across; }
  int vector_bytes() const { return 2 * each; }
  int copies() const { return (planes() * pixels + 31) / 32; }  // of a thread and row
  int registers() const {
    constexpr int kOwn = 42;
    return slots * each * 4 + taps * each * 2 + advance * each * 4 + 2 * copies() + kOwn;
  }
  int stage_bytes() const { return (plane * planes() + kDepth / 2 * (lanes + 1)) * vector_bytes(); }
  int shared_bytes(int stages, int all_taps) const {
    const int results = 2 * kTiles * kWidth * (lanes * each + 4) * 4;
    return results + stages * stage_bytes() + (all_taps + 1) * lanes * vector_bytes();
  }
  double steps(double rows) const {  // of a thread block, those before its results among them
    const double before = slots - 1;
    return run + before * (run < rows ? 1 : 0.5);
  }

  // Clocks in which an SM with `ctas` thread blocks makes a step of each. Instructions, roughly,
  // reckoned and not measured; a warp's multiplications hide behind other warps' instructions.
  double clocks(double ctas, int width) const {
    constexpr double kCopy = 6, kFixed = 40, kPack = 20, kResult = 4, kMultiplication = 6,
                     kBarrier = 150, kIssued = 0.9;
    const double code = kCopy * copies() * advance + advance * (8 + 4.0 * each) + each * taps + 8 +
                        4.0 * each / width * (kPack + kResult * width) + kFixed,
                 issued = code / kIssued, multiplied = kMultiplication * each * taps;
    return ctas * lanes / 4 * std::max(issued, multiplied) + std::min(issued, multiplied) +
           kBarrier;
  }
};

// The most results of a tile whose pixels are no more than the multiplication's.
int columns_of(const KernelSpec& spec, const ImageDim& d) {
  const std::int64_t taps = d.tap_index < 0 ? 1 : spec.extent[d.tap_index],
                     reach = std::abs(d.tap) * (taps - 1);
  if (reach >= kDepth) return 0;
  return static_cast<int>(std::min<std::int64_t>(kWidth, (kDepth - 1 - reach) / d.pixel + 1));
}

}  // namespace

std::optional<DepthwiseConfig> plan_depthwise_mma(const KernelSpec& spec,
                                                  const DepthwiseConfig& parts, int vector,
                                                  double memory, const DeviceModel& device) {
  const auto type = [&](const DepthwiseOperand& o) {
    return spec.ports[static_cast<std::size_t>(o.port)].type;
  };
  if (parts.gradient || parts.along_columns || !parts.down || !parts.looped.empty()) return {};
  if (type(parts.image) != type(parts.other) || info(type(parts.image)).bytes != 2) return {};
  const ImageDim &down = *parts.down, &across = *parts.across;
  if (vector < 2 || down.divisor != 1 || across.divisor != 1) return {};
  const int columns = columns_of(spec, across);
  if (columns < kLeastColumns) return {};

  DepthwiseConfig e = parts;
  e.rows = 1;
  e.columns = columns;
  e.packing = choose_packing(spec, e.channel, std::min(kWidth, widest_pack(spec)));
  const ContractionSpec& c = spec.contraction();
  const std::int64_t channels = spec.extent[e.channel], rows = spec.extent[down.pixel_index],
                     tiles = ceil_divide(spec.extent[across.pixel_index], columns);
  const double planes =
      elements(spec.extent, 0, e.channel) * elements(spec.extent, c.first_m(), c.first_n() - 2);
  const int all_taps = static_cast<int>(elements(spec.extent, c.first_k(), spec.extent.size()));
  std::optional<double> least;
  for (const int each : {4, 2})
    for (const int lanes : {8, 16})
      for (int together = 1; together <= kTiles; together *= 2) {
        if (each > vector || (together > 1 && together >= 2 * tiles)) continue;
        for (int run_parts = 1; run_parts <= std::min<std::int64_t>(rows, 16); run_parts *= 2) {
          const Bands b(spec, parts, each, lanes, columns, together,
                        static_cast<int>(ceil_divide(rows, run_parts)));
          const int threads = b.threads();
          const double most = std::floor(device.registers_per_sm /
                                         (std::min(kMostRegisters, b.registers()) * threads * 1.0));
          if (b.registers() > kMostRegisters || most < 1) continue;
          const double grid = static_cast<double>(ceil_divide(channels, lanes * each)) *
                              static_cast<double>(ceil_divide(tiles, together)) *
                              static_cast<double>(ceil_divide(rows, b.run)) *
                              std::ceil(planes / b.planes());
          if (grid >= 0x1p31) continue;
          int stages = 3;
          const double row_bytes =
              static_cast<double>(b.planes()) * b.pixels * b.advance * lanes * b.vector_bytes();
          while (stages < kMostStages && (stages - 1) * row_bytes * most < kFlight) ++stages;
          const auto fits = [&](int n, double ctas) {
            return ctas * (b.shared_bytes(n, all_taps) + device.shared_reserved) <=
                   device.shared_per_sm;
          };
          while (stages > 2 && !fits(stages, most)) --stages;
          if (b.shared_bytes(stages, all_taps) > device.shared_per_cta) continue;
          double ctas = most;
          while (ctas > 1 && !fits(stages, ctas)) --ctas;
          // In rounds of as many thread blocks as an SM holds.
          constexpr double kMany = 4, kBegin = 3;  // steps until the first row has come
          const double at_once = ctas * device.sms, rounds = std::floor(grid / at_once),
                       left = std::ceil((grid - rounds * at_once) / device.sms);
          const auto round = [&](double n) {
            return (b.steps(static_cast<double>(rows)) + kBegin) * b.clocks(n, e.packing.width);
          };
          const double clocks = rounds >= kMany
                                    ? grid / at_once * round(ctas)
                                    : rounds * round(ctas) + (left > 0 ? round(left) : 0);
          const double issued = clocks / device.clock,
                       waited = memory * std::max(1.0, kFlight / ((stages - 1) * row_bytes * ctas)),
                       us = std::max(waited, issued) + kExposed * std::min(waited, issued);
          if (least && *least <= us) continue;
          least = us;
          e.each = each;
          e.lanes = lanes;
          e.run = b.run;
          e.mma = {.across = together, .stages = stages};
          e.threads = threads;
          e.grid = clamp_grid(grid);
          e.shared_bytes = static_cast<std::uint32_t>(b.shared_bytes(stages, all_taps));
          // Limits registers to what so many blocks leave each.
          e.least_blocks = static_cast<int>(ctas);
        }
      }
  if (!least) return {};
  e.microseconds = device.launch_microseconds + *least;
  e.wide_index = needs_wide_index(spec);
  return e;
}

}  // namespace sinter
