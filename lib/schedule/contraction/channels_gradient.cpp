#include "schedule/contraction/channels_gradient.hpp"

#include <algorithm>
#include <cmath>

#include "plan/access.hpp"
#include "schedule/contraction/depthwise_boxes.hpp"
#include "schedule/contraction/depthwise_search.hpp"

namespace sinter {
namespace {

constexpr int kUnitOfChannels = 8;
constexpr int kRowsOfProduct = 64, kDepthOfProduct = 16;  // k
constexpr int kMostDepth = 128;                           // pixels of a walk
constexpr int kMostStride = 2;
// These and the clocks of estimate() are fitted: tools/benchmarks/decisions/depthwise.md.
constexpr int kMostSums = 160, kOtherRegisters = 48;  // of a thread
constexpr int kMostAhead = 6, kLeastAhead = 2;        // steps
constexpr double kMostBlocks = 4;                     // of an SM

// Of a pixel in shared memory.
int filled_up(std::int64_t channels) { return channels > 32 ? 64 : channels > 16 ? 32 : 16; }

bool takes_channels(std::int64_t channels) {
  return channels > 0 && channels <= kMostGradientChannels && channels % kUnitOfChannels == 0;
}
bool takes_dim(const ImageDim& d) {
  return d.pixel_index >= 0 && d.divisor == 1 && d.tap == 1 && d.pixel >= 1 &&
         d.pixel <= kMostStride;
}

// The steps of planning one, in order; what returns a bool says whether the engine takes it.
class ChannelsGradientSearch {
 public:
  ChannelsGradientSearch(const KernelSpec& spec, const DepthwiseConfig& parts,
                         const DepthwiseGroups& groups, double memory, const DeviceModel& device)
      : spec_(spec), memory_(memory), device_(device) {
    static_cast<DepthwiseConfig&>(e_) = parts;
    e_.groups = groups;
  }

  std::optional<ChannelsGradientConfig> make() {
    if (!takes_operands() || !find_extents() || !find_products()) return {};
    e_.packing = choose_packing(spec_, e_.groups.inner, std::min(2, widest_pack(spec_)));
    for (int ahead = kMostAhead; ahead >= kLeastAhead; --ahead) try_ahead(ahead);
    return std::move(best_).finished(spec_, device_);
  }

 private:
  const KernelSpec& spec_;
  ChannelsGradientConfig e_;
  const double memory_;  // microseconds
  const DeviceModel& device_;
  // Pixels of a walk; rows of dy of a product; those that meet a row of x; products of a step.
  std::int64_t depth_ = 0, panels_ = 0, seen_ = 0, products_ = 0;
  std::int64_t image_slot_ = 0, gradient_slot_ = 0;  // bytes of a step's rows
  double steps_ = 0, blocks_ = 0;                    // of a block; all
  Fastest<ChannelsGradientConfig> best_;

  bool takes_operands() {
    const ImageDim &down = *e_.down, &across = *e_.across;
    const std::int64_t filters = spec_.extent[e_.groups.outer];
    if (!device_.has_wgmma || !takes_channels(e_.groups.channels) || !takes_channels(filters) ||
        !are_of_16_bits(spec_, e_) || !takes_dim(down) || !takes_dim(across) ||
        !across.parts.empty() ||
        across.pixel * filled_up(e_.groups.channels) > kMostGradientChannels)
      return false;
    e_.filters = static_cast<int>(filters);
    e_.each = e_.lanes = e_.rows = 1;
    e_.threads = 128;
    // Pixels begin at multiples of 16 bytes, as a map of TMA would have them: cp.async copies so
    // many at once.
    DepthwiseOperand image = e_.image, other = e_.other;
    return set_map(spec_, e_, image, &e_.groups) && set_map(spec_, e_, other, &e_.groups);
  }

  bool find_extents() {
    const ImageDim &down = *e_.down, &across = *e_.across;
    const std::int64_t pixels = spec_.extent[across.pixel_index],
                       rows = spec_.extent[down.pixel_index];
    const double images =
        elements(spec_.extent, spec_.contraction().first_k(), spec_.extent.size() - 2);
    blocks_ = elements(spec_.extent, 0, e_.channel);
    if (images * blocks_ * static_cast<double>(pixels * rows) == 0) return false;
    depth_ = fill_up(divide_up(pixels, divide_up(pixels, kMostDepth)), kDepthOfProduct);
    e_.columns = static_cast<int>(depth_);
    seen_ = divide_up(taps_of(spec_, down), down.pixel);
    steps_ = images * static_cast<double>(divide_up(pixels, depth_) * (rows + seen_ - 1));
    return blocks_ < 0x1p31 && steps_ < 0x1p31;
  }

  bool find_products() {
    const ImageDim &down = *e_.down, &across = *e_.across;
    const int channels = filled_up(e_.groups.channels), filters = filled_up(e_.filters),
              taps = taps_of(spec_, down);
    const std::int64_t lines = divide_up(taps_of(spec_, across), across.pixel);
    panels_ = kRowsOfProduct / filters;
    for (std::int64_t f = 0; f < down.pixel; ++f)
      products_ += divide_up(divide_up(taps - f, down.pixel), panels_);
    e_.product_columns = static_cast<int>(lines * across.pixel * channels);
    image_slot_ = down.pixel * fill_up((depth_ + lines - 1) * across.pixel * channels * 2, 1024);
    gradient_slot_ = fill_up(depth_ * filters * 2, 1024);
    return taps >= down.pixel && e_.product_columns <= 256 &&
           products_ * e_.product_columns / 2 <= kMostSums;
  }

  void try_ahead(int ahead) {
    const std::int64_t slots = ahead + seen_ + 1, sums = products_ * e_.product_columns / 2,
                       bytes = std::max(
                           (slots + panels_ - 1) * gradient_slot_ + (ahead + 2) * image_slot_,
                           products_ * kRowsOfProduct * (e_.product_columns + 8) * 4);
    const double shared = static_cast<double>(bytes) + kLostToAlignment,
                 registers = static_cast<double>(sums + kOtherRegisters) * e_.threads;
    if (shared > device_.shared_per_cta || panels_ - 1 > slots) return;
    const double most =
        std::clamp(std::min(std::floor(device_.registers_per_sm / registers),
                            std::floor(device_.shared_per_sm / (shared + device_.shared_reserved))),
                   1.0, kMostBlocks);
    if (!best_.improves(estimate(ahead, most))) return;
    e_.tiles = {.across = static_cast<int>(depth_) / kDepthOfProduct, .stages = ahead};
    e_.grid = clamp_grid(blocks_);
    e_.shared_bytes = static_cast<std::uint32_t>(shared);
    e_.least_blocks = static_cast<int>(most);
    best_.config = e_;
  }

  // Products take half a clock a column, or what they read of shared memory; a step of a block
  // alone waits for the barrier and its first product. Each thread stores two sums at a time in the
  // end: fitted on an H200, with what the second kernel takes, to 64 x 112 x 112, 3 x 3, of 32
  // channels with stride 2, where 64 filters took 38.9 us and 32 27.3, and of 8 and 8, 20.2.
  double estimate(int ahead, double most) const {
    const double columns = e_.product_columns,
                 rows = static_cast<double>(image_slot_ + gradient_slot_),
                 stored = static_cast<double>(e_.filters) * e_.groups.channels *
                          taps_of(spec_, e_.down) * taps_of(spec_, e_.across) / (2.0 * e_.threads);
    const auto clocks = [&](double blocks) {
      constexpr double kBegin = 4000, kAlone = 250, kStore = 200;
      const double products = static_cast<double>(depth_ / kDepthOfProduct * products_) *
                              std::max(columns / 2, (kRowsOfProduct + columns) / 4);
      return steps_ * std::max(blocks * (products + rows / 128), products + kAlone) + kBegin +
             kStore * stored;
    };
    const double issued = Rounds(blocks_, most, device_.sms).clocks(clocks) / device_.clock,
                 flight = ahead * rows * std::clamp(blocks_ / device_.sms, 1.0, most),
                 // SMs that have a thread block less than others rest.
        each = blocks_ / device_.sms, unlike = std::ceil(each) / each,
                 waited = memory_ * unlike * std::max(1.0, kFlightOfSm / flight);
    return overlapped(waited, issued);
  }
};

}  // namespace

std::optional<ChannelsGradientConfig> plan_channels_gradient(const KernelSpec& spec,
                                                             const DepthwiseConfig& parts,
                                                             const DepthwiseGroups& groups,
                                                             double memory,
                                                             const DeviceModel& device) {
  return ChannelsGradientSearch(spec, parts, groups, memory, device).make();
}

}  // namespace sinter
