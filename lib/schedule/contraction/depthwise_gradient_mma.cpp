#include "schedule/contraction/depthwise_gradient_mma.hpp"

#include <algorithm>
#include <cmath>

#include "schedule/contraction/depthwise_boxes.hpp"
#include "schedule/schedule_parts.hpp"

namespace sinter {
namespace {

constexpr int kChannels = 8, kWidth = 16;             // of a warp; columns of a multiplication
constexpr int kMostRowTaps = 7, kMostColumnTaps = 8;  // of eight rows and eight moves
constexpr int kLeft = 16, kRight = 8;                 // rows of a multiplication's operands
constexpr int kMostRows = 5;                          // of a step
constexpr int kMostTiles = 2;                         // side by side
constexpr int kMostStages = 8;
constexpr int kRegisters = 112;
constexpr double kMostCtas = 4;  // of an SM

// Rows of pixels of a step, and how many moves of each a multiplication has.
struct Step {
  int rows = 2, moves = kLeft / 2;
  Step(int taps, int column_taps) {
    for (int n = kMostRows; n > 2; --n)
      if (n * column_taps <= kLeft && n + taps - 1 <= kRight) {
        rows = n;
        moves = column_taps;
        break;
      }
  }
  // For which a row of dy stays.
  int kept(int taps) const { return (taps - 1 + rows - 1) / rows; }
  // Of a row of the image; see the device code.
  int line(int pixels) const {
    const int least = line_of_box(pixels + moves - 1);
    return rows == 2 ? least : std::min(least, (pixels + moves - 1 + 7) / 8 * 8);
  }
};

// Of a step's rows in shared memory.
double stage_bytes(const DepthwiseOperand& o, int rows, int lanes) {
  return static_cast<double>((rows * o.line * lanes * 16 + 1023) / 1024 * 1024);
}

bool plain(const ImageDim& d) { return d.divisor == 1 && d.pixel == 1 && d.tap == 1; }

}  // namespace

std::optional<DepthwiseGradientMmaConfig> plan_depthwise_gradient_mma(const KernelSpec& spec,
                                                                      const DepthwiseConfig& parts,
                                                                      double memory,
                                                                      const DeviceModel& device) {
  const auto type = [&](const DepthwiseOperand& o) {
    return spec.ports[static_cast<std::size_t>(o.port)].type;
  };
  if (!device.has_tma || !device.has_wgmma || !parts.gradient || !parts.down ||
      !parts.looped.empty())
    return {};
  if (type(parts.image) != type(parts.other) || info(type(parts.image)).bytes != 2) return {};
  const ImageDim &down = *parts.down, &across = *parts.across;
  const int taps = taps_of(spec, down) * taps_of(spec, across);
  if (!plain(down) || !plain(across) || !down.parts.empty() || !across.parts.empty() ||
      taps_of(spec, down) > kMostRowTaps || taps_of(spec, across) > kMostColumnTaps)
    return {};
  DepthwiseGradientMmaConfig e{parts};
  e.each = kChannels;
  const Step step(taps_of(spec, down), taps_of(spec, across));
  const int kept = step.kept(taps_of(spec, down));
  e.rows = step.rows;
  if (!set_map(spec, e, e.image) || !set_map(spec, e, e.other)) return {};

  const ContractionSpec& c = spec.contraction();
  const double channels = static_cast<double>(spec.extent[e.channel]),
               images = elements(spec.extent, c.first_k(), spec.extent.size() - 2),
               batches = elements(spec.extent, 0, e.channel),
               width = std::ceil(static_cast<double>(spec.extent[across.pixel_index]) / kWidth);
  if (channels * images * batches * width == 0) return {};
  // Walks of equal numbers of tiles.
  const double walks = std::ceil(width / kMostTiles), tiles = std::ceil(width / walks),
               steps = images * walks *
                       (std::ceil(static_cast<double>(down.extent) / step.rows) + kept);
  std::optional<double> least;
  DepthwiseGradientMmaConfig best;
  for (const int lanes : {4, 8}) {
    e.lanes = lanes;
    e.threads = 32 * lanes + 32;
    e.columns = static_cast<int>(tiles) * kWidth;
    const bool one = tiles == width;
    const int seen = e.columns + taps_of(spec, across) - 1;
    set_box(e.image, lanes, step.line(e.columns), seen, across.base, one);
    set_box(e.other, lanes, line_of_box(e.columns), e.columns, 0, one);
    e.packing = choose_packing(spec, e.channel, std::min(kChannels, widest_pack(spec)));
    const double image = stage_bytes(e.image, step.rows, lanes),
                 other = stage_bytes(e.other, step.rows, lanes);
    const auto shared = [&](int stages) {
      return (stages - kept) * (image + 16) + stages * (other + 16) + kLostToAlignment;
    };
    const double grid = std::ceil(channels / (lanes * kChannels)) * batches;
    for (int stages = kMostStages; stages >= kept + 2; --stages) {
      if (shared(stages) > device.shared_per_cta ||
          shared(stages) <
              4.0 * taps * (lanes * kChannels + 1) + kLostToAlignment + 16 * kMostStages * 2)
        continue;
      const double ctas = std::clamp(
          std::min(
              std::floor(device.registers_per_sm / (kRegisters * static_cast<double>(e.threads))),
              std::floor(device.shared_per_sm / (shared(stages) + device.shared_reserved))),
          1.0, kMostCtas);
      // Clocks of a round of `n` thread blocks on an SM, with what beginning and ending take:
      // fitted on an H200 to 64 x 384 x 28 x 28, 7 x 7, with 384 thread blocks of 4 warps (32.7
      // us), 192 (38.1) and 384 of 8 (38.6), and to 64 x 240 x 28 x 28, 5 x 5, with 128 thread
      // blocks of 8 warps (26.1) and 256 (23.6). Reads of shared memory are the limit, or, of few
      // warps, waiting for them.
      const auto clocks = [&](double n) {
        constexpr double kTile = 52, kAlone = 470, kBegin = 8000;
        return steps * tiles * std::max(n * lanes * kTile, kAlone) + kBegin;
      };
      const double at_once = ctas * device.sms, rounds = std::floor(grid / at_once),
                   left = std::ceil((grid - rounds * at_once) / device.sms);
      const double issued = (rounds * clocks(ctas) + (left > 0 ? clocks(left) : 0)) / device.clock;
      const double flight =
                       (stages - kept - 0.5) * (image + other) * std::min(ctas, grid / device.sms),
                   waited = memory * std::max(1.0, kFlightOfSm / flight),
                   us = overlapped(waited, issued);
      if (least && *least <= us) continue;
      least = us;
      e.tiles = {.across = static_cast<int>(tiles), .stages = stages};
      e.grid = clamp_grid(grid);
      e.shared_bytes = static_cast<std::uint32_t>(shared(stages));
      e.least_blocks = static_cast<int>(ctas);
      best = e;
    }
  }
  if (!least) return {};
  best.microseconds = device.launch_microseconds + *least;
  best.wide_index = needs_wide_index(spec);
  return best;
}

}  // namespace sinter
