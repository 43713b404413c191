#include "schedule/contraction/depthwise_gradient_mma.hpp"

#include <algorithm>
#include <cmath>

#include "schedule/contraction/depthwise_boxes.hpp"
#include "schedule/contraction/depthwise_search.hpp"

namespace sinter {
namespace {

constexpr int kChannels = 8, kWidth = 16;             // of a warp; columns of an MMA
constexpr int kMostRowTaps = 7, kMostColumnTaps = 8;  // of eight rows and eight moves
constexpr int kLeft = 16, kRight = 8;                 // rows of an MMA's operands
constexpr int kMostRows = 5;                          // of a step
constexpr int kMostTiles = 2;                         // side by side
constexpr int kMostStages = 8;
constexpr int kRegisters = 112;
constexpr double kMostCtas = 4;  // of an SM

// Rows of pixels of a step, and how many moves of each an MMA has.
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

// The steps of planning one, in order; what returns a bool says whether the engine takes it.
class GradientMmaSearch {
 public:
  GradientMmaSearch(const KernelSpec& spec, const DepthwiseConfig& parts, double memory,
                    const DeviceModel& device)
      : spec_(spec), e_{parts}, memory_(memory), device_(device) {}

  std::optional<DepthwiseGradientMmaConfig> make() {
    if (!takes_operands() || !takes_dims() || !set_maps() || !find_extents()) return {};
    for (const int lanes : {4, 8}) try_lanes(lanes);
    return std::move(best_).finished(spec_, device_);
  }

 private:
  const KernelSpec& spec_;
  DepthwiseGradientMmaConfig e_;
  const double memory_;  // microseconds
  const DeviceModel& device_;
  int taps_ = 1, column_taps_ = 1;
  Step step_{1, 1};
  int kept_ = 0;  // steps for which a row of dy stays
  double channels_ = 0, batches_ = 0;
  double width_ = 0, tiles_ = 0, steps_ = 0;  // tiles of a row, and of a walk
  Fastest<DepthwiseGradientMmaConfig> best_;

  bool takes_operands() const {
    return device_.has_tma && device_.has_wgmma && e_.gradient && e_.down && e_.looped.empty() &&
           are_of_16_bits(spec_, e_);
  }

  bool takes_dims() {
    const ImageDim &down = *e_.down, &across = *e_.across;
    taps_ = taps_of(spec_, down);
    column_taps_ = taps_of(spec_, across);
    return is_plain(down) && is_plain(across) && down.parts.empty() && across.parts.empty() &&
           taps_ <= kMostRowTaps && column_taps_ <= kMostColumnTaps;
  }

  bool set_maps() {
    step_ = Step(taps_, column_taps_);
    kept_ = step_.kept(taps_);
    e_.each = kChannels;
    e_.rows = step_.rows;
    e_.packing = choose_packing(spec_, e_.channel, std::min(kChannels, widest_pack(spec_)));
    return set_map(spec_, e_, e_.image) && set_map(spec_, e_, e_.other);
  }

  bool find_extents() {
    const double images =
        elements(spec_.extent, spec_.contraction().first_k(), spec_.extent.size() - 2);
    channels_ = static_cast<double>(spec_.extent[e_.channel]);
    batches_ = elements(spec_.extent, 0, e_.channel);
    width_ = std::ceil(static_cast<double>(spec_.extent[e_.across->pixel_index]) / kWidth);
    if (channels_ * images * batches_ * width_ == 0) return false;
    // Walks of equal numbers of tiles.
    const double walks = std::ceil(width_ / kMostTiles);
    tiles_ = std::ceil(width_ / walks);
    steps_ =
        images * walks * (std::ceil(static_cast<double>(e_.down->extent) / step_.rows) + kept_);
    e_.columns = static_cast<int>(tiles_) * kWidth;
    return true;
  }

  void try_lanes(int lanes) {
    e_.lanes = lanes;
    e_.threads = 32 * lanes + 32;
    const bool one = tiles_ == width_;
    const int seen = e_.columns + column_taps_ - 1;
    set_box(e_.image, lanes, step_.line(e_.columns), seen, e_.across->base, one);
    set_box(e_.other, lanes, line_of_box(e_.columns), e_.columns, 0, one);
    const double grid = std::ceil(channels_ / (lanes * kChannels)) * batches_;
    for (int stages = kMostStages; stages >= kept_ + 2; --stages) {
      const double shared = shared_bytes(stages);
      if (shared > device_.shared_per_cta || shared < bytes_of_sums()) continue;
      const double ctas = most_ctas(shared);
      if (!best_.improves(estimate(stages, grid, ctas))) continue;
      e_.tiles = {.across = static_cast<int>(tiles_), .stages = stages};
      e_.grid = clamp_grid(grid);
      e_.shared_bytes = static_cast<std::uint32_t>(shared);
      e_.least_blocks = static_cast<int>(ctas);
      best_.config = e_;
    }
  }

  double stage_bytes_of(const DepthwiseOperand& o) const {
    return stage_bytes(o, step_.rows, e_.lanes);
  }
  double shared_bytes(int stages) const {
    return (stages - kept_) * (stage_bytes_of(e_.image) + 16) +
           stages * (stage_bytes_of(e_.other) + 16) + kLostToAlignment;
  }
  // Of what a thread block has added up, which is put together there in the end.
  double bytes_of_sums() const {
    return 4.0 * (taps_ * column_taps_) * (e_.lanes * kChannels + 1) + kLostToAlignment +
           16 * kMostStages * 2;
  }
  double most_ctas(double shared) const {
    return std::clamp(
        std::min(
            std::floor(device_.registers_per_sm / (kRegisters * static_cast<double>(e_.threads))),
            std::floor(device_.shared_per_sm / (shared + device_.shared_reserved))),
        1.0, kMostCtas);
  }

  // Clocks of a round of `n` thread blocks on an SM, with what beginning and ending take: fitted on
  // an H200 to 64 x 384 x 28 x 28, 7 x 7, with 384 thread blocks of 4 warps (32.7 us), 192 (38.1)
  // and 384 of 8 (38.6), and to 64 x 240 x 28 x 28, 5 x 5, with 128 thread blocks of 8 warps (26.1)
  // and 256 (23.6). Reads of shared memory are the limit, or, of few warps, waiting for them.
  double estimate(int stages, double grid, double ctas) const {
    const auto clocks = [&](double n) {
      constexpr double kTile = 52, kAlone = 470, kBegin = 8000;
      return steps_ * tiles_ * std::max(n * e_.lanes * kTile, kAlone) + kBegin;
    };
    const double issued = Rounds(grid, ctas, device_.sms).clocks(clocks) / device_.clock,
                 flight = (stages - kept_ - 0.5) *
                          (stage_bytes_of(e_.image) + stage_bytes_of(e_.other)) *
                          std::min(ctas, grid / device_.sms),
                 waited = memory_ * std::max(1.0, kFlightOfSm / flight);
    return overlapped(waited, issued);
  }
};

}  // namespace

std::optional<DepthwiseGradientMmaConfig> plan_depthwise_gradient_mma(const KernelSpec& spec,
                                                                      const DepthwiseConfig& parts,
                                                                      double memory,
                                                                      const DeviceModel& device) {
  return GradientMmaSearch(spec, parts, memory, device).make();
}

}  // namespace sinter
