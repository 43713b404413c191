#include "schedule/contraction/runs_gradient.hpp"

#include <algorithm>
#include <cmath>

#include "plan/access.hpp"
#include "plan/tma_limits.hpp"
#include "schedule/contraction/depthwise_boxes.hpp"
#include "schedule/contraction/depthwise_search.hpp"

namespace sinter {
namespace {

constexpr int kConsumers = 128, kAllThreads = kConsumers + 32;
constexpr int kPixelsOfStep = 16, kMostPixels = 128;      // of a product, and of a walk
constexpr int kElementsOfUnit = 4, kElementsOfPiece = 8;  // that TMA moves
constexpr int kMostFilters = 128, kFewestFilters = 32;    // of a block, where others have more
constexpr int kMostRunSums = 160, kRegistersBeside = 56;  // of a thread, 32 of these of fragments
constexpr int kMostStages = 6, kLeastStages = 2;
constexpr int kMostWalks = 3;         // more than the fewest, side by side in a row
constexpr double kMostRunBlocks = 4;  // of an SM
constexpr int kBarrierBytes = 16;     // of a stage

std::int64_t line_bytes(std::int64_t filters) {
  return filters > 32 ? 128 : filters > 16 ? 64 : 32;
}

// The steps of planning one, in order; what returns a bool says whether the engine takes it.
class RunsGradientSearch {
 public:
  RunsGradientSearch(const KernelSpec& spec, const DepthwiseConfig& parts,
                     const DepthwiseGroups& groups, const DeviceModel& device)
      : spec_(spec), device_(device) {
    static_cast<DepthwiseConfig&>(e_) = parts;
    e_.groups = groups;
  }

  std::optional<RunsGradientConfig> make() {
    if (!takes_operands() || !map_image() || !map_gradient() || !find_runs()) return {};
    if (all_filters_ <= kMostFilters) try_filters(all_filters_);
    for (std::int64_t filters = kFewestFilters; filters < all_filters_; filters += kFewestFilters)
      if (filters <= kMostFilters && all_filters_ % filters == 0) try_filters(filters);
    return std::move(best_).finished(spec_, device_);
  }

 private:
  const KernelSpec& spec_;
  RunsGradientConfig e_;
  const DeviceModel& device_;
  std::int64_t all_filters_ = 0;
  // As RunsGradientTiles of the device library: elements from a pixel's run to the next one's, and
  // what a row has of them in front of a walk's first and of its last; products of a row of dy;
  // groups of rows.
  std::int64_t step_ = 0, lead_ = 0, reach_ = 0, products_ = 0, groups_ = 0, rows_of_group_ = 0;
  double memory_ = 0, blocks_ = 0, rows_ = 0;  // microseconds; all; of dy, of a block, and images
  Fastest<RunsGradientConfig> best_;

  const Access& access(const DepthwiseOperand& o) const {
    return spec_.ports[static_cast<std::size_t>(o.port)].access;
  }
  bool aligned(const DepthwiseOperand& o) const {
    return spec_.ports[static_cast<std::size_t>(o.port)].alignment >= tma::kUnit;
  }

  bool takes_operands() {
    const ImageDim &down = *e_.down, &across = *e_.across;
    const auto takes = [](const ImageDim& d) {
      return d.pixel_index >= 0 && d.divisor == 1 && d.pixel >= 1 &&
             (d.tap_index < 0 || d.tap == 1);
    };
    all_filters_ = spec_.extent[e_.groups.outer];
    if (!device_.has_wgmma || !device_.has_tma || !are_of_16_bits(spec_, e_) || !takes(down) ||
        !takes(across) || !across.parts.empty() || e_.groups.channels % kElementsOfPiece == 0 ||
        (across.tap_index >= 0 && across.stride != e_.groups.channels) ||
        all_filters_ % kElementsOfPiece != 0 || !aligned(e_.image) || !aligned(e_.other))
      return false;
    e_.each = e_.lanes = e_.rows = 1;
    e_.threads = kAllThreads;
    e_.packing = choose_packing(spec_, e_.groups.inner, 1);
    for (const KernelPort& p : spec_.ports)
      if (p.written) e_.filters_together = p.access.stride[e_.groups.outer] == 1;
    return true;
  }

  // Adds the indices that tell images apart to a map of rows. `o`: counts them.
  bool add_images(DepthwiseOperand& o, TensorMap& map) const {
    const Access& a = access(o);
    const ImageDim &down = *e_.down, &across = *e_.across;
    for (int i = 0; i < spec_.extent.size(); ++i) {
      const bool part = std::any_of(down.parts.begin(), down.parts.end(),
                                    [&](const auto& p) { return p.first == i; });
      if (part || a.stride[i] == 0 || i == e_.channel || i == e_.groups.inner ||
          i == e_.groups.outer || i == down.pixel_index || i == down.tap_index ||
          i == across.pixel_index || i == across.tap_index)
        continue;
      if (map.dim.size() == tma::kMostDims) return false;
      o.counted.push_back(i);
      map.dim.push_back(spec_.extent[i]);
      map.stride.push_back(a.stride[i] * 2);
    }
    const auto takes = [](std::int64_t stride) { return tma::takes_step(stride); };
    return a.via.empty() && map.offset >= 0 && map.offset % tma::kUnit == 0 &&
           std::all_of(map.stride.begin(), map.stride.end(), takes);
  }

  // Rows of the image are runs of units of 8 bytes, of which a box has up to 256.
  bool map_image() {
    const ImageDim &down = *e_.down, &across = *e_.across;
    const std::int64_t line = (across.extent - 1) * across.stride + e_.groups.channels;
    if (line % kElementsOfUnit != 0 || line > down.stride) return false;
    TensorMap map;
    map.type = DataType::f64;
    map.offset = e_.image.offset * 2;
    map.dim = {line / kElementsOfUnit, 1, down.extent};
    map.stride = {down.stride * 2, down.stride * 2};
    e_.image.counted.clear();
    if (!add_images(e_.image, map)) return false;
    e_.image.map = std::move(map);
    const double images =
                     elements(spec_.extent, 0, e_.channel) *
                     elements(spec_.extent, spec_.contraction().first_k(), spec_.extent.size() - 2),
                 rows = static_cast<double>(down.parts.empty()
                                                ? down.extent
                                                : spec_.extent[down.pixel_index] * down.pixel +
                                                      taps_of(spec_, down) - down.pixel);
    memory_ =
        bytes_of(spec_, e_, images * rows * static_cast<double>(line)) / device_.memory_bandwidth;
    return true;
  }

  // Parts of an image are rows of one dim.
  bool map_gradient() {
    const ImageDim &down = *e_.down, &across = *e_.across;
    const Access& a = access(e_.other);
    const std::int64_t row = a.stride[down.pixel_index];
    std::int64_t rows = spec_.extent[down.pixel_index];
    for (const auto& [index, moves] : down.parts) {
      if (moves % down.pixel != 0 || moves / down.pixel * row != a.stride[index]) return false;
      rows += moves / down.pixel * (spec_.extent[index] - 1);
    }
    if (!a.windows.empty() || a.stride[e_.groups.outer] != 1) return false;
    TensorMap map;
    map.type = spec_.ports[static_cast<std::size_t>(e_.other.port)].type;
    map.offset = a.offset * 2;
    map.dim = {all_filters_, spec_.extent[across.pixel_index], rows};
    map.stride = {a.stride[across.pixel_index] * 2, row * 2};
    e_.other.counted.clear();
    if (!add_images(e_.other, map)) return false;
    e_.other.map = std::move(map);
    return true;
  }

  bool find_runs() {
    const ImageDim &down = *e_.down, &across = *e_.across;
    const std::int64_t taps = taps_of(spec_, down), start = across.base * across.stride,
                       run = (taps_of(spec_, across) - 1) * across.stride + e_.groups.channels,
                       begins = start - floor_divide(start, kElementsOfPiece) * kElementsOfPiece,
                       skip = begins % 2;
    const auto products_of = [&](std::int64_t pairs) { return divide_up(pairs * taps, 32); };
    std::int64_t pairs = divide_up(skip + run, 2);
    products_ = products_of(pairs);
    for (const std::int64_t together : {8, 4})
      if (products_of(fill_up(pairs, together)) == products_) {
        pairs = fill_up(pairs, together);
        break;
      }
    step_ = across.pixel * across.stride;
    lead_ = begins - skip;
    reach_ = lead_ + 2 * pairs + step_ % 2;
    groups_ = divide_up(taps, down.pixel);
    rows_of_group_ = groups_ == 1 ? taps : down.pixel;
    blocks_ = elements(spec_.extent, 0, e_.channel);
    rows_ = elements(spec_.extent, spec_.contraction().first_k(), spec_.extent.size() - 1);
    return rows_ * blocks_ > 0 && rows_of_group_ <= tma::kMostBox && step_ * kMostPixels < 0x1p20 &&
           blocks_ < 0x1p20;
  }

  void try_filters(std::int64_t filters) {
    if (products_ * filters / 2 > kMostRunSums) return;
    const std::int64_t pixels = spec_.extent[e_.across->pixel_index],
                       fewest = divide_up(pixels, kMostPixels);
    for (std::int64_t walks = fewest; walks <= fewest + kMostWalks; ++walks) {
      const std::int64_t depth = fill_up(divide_up(pixels, walks), kPixelsOfStep);
      const std::int64_t row = fill_up((depth - 1) * step_ + reach_, kElementsOfPiece);
      if (row / kElementsOfUnit > tma::kMostBox || divide_up(pixels, depth) != walks) continue;
      for (int stages = kMostStages; stages >= kLeastStages; --stages)
        try_stages(filters, depth, row, stages);
    }
  }

  // Blocks of five warps, which the four parts of an SM share out, each with a quarter of its
  // registers.
  double most_by_registers(double registers) const {
    const double of_warp = std::ceil(registers / 8) * 8 * 32;
    double blocks = kMostRunBlocks;
    while (blocks > 1 &&
           std::ceil(blocks * e_.threads / 128) * of_warp > device_.registers_per_sm / 4)
      --blocks;
    return blocks;
  }

  void try_stages(std::int64_t filters, std::int64_t depth, std::int64_t row, int stages) {
    const std::int64_t line = line_bytes(filters), panels = divide_up(2 * filters, line),
                       stage = panels * depth * line,
                       group = fill_up(rows_of_group_ * row * 2, 128), slots = groups_ + stages,
                       loaded = stages * stage + slots * group,
                       sums = products_ * 64 * (filters + 2) * 4,
                       bytes = fill_up(std::max(loaded, sums), kBarrierBytes) +
                               kBarrierBytes * (stages + slots);
    const double shared = static_cast<double>(bytes) + kLostToAlignment,
                 registers = static_cast<double>(products_ * filters / 2 + kRegistersBeside);
    if (shared > device_.shared_per_cta) return;
    const double most =
        std::clamp(std::min(most_by_registers(registers),
                            std::floor(device_.shared_per_sm / (shared + device_.shared_reserved))),
                   1.0, kMostRunBlocks);
    if (!best_.improves(estimate(filters, depth, stages, stage, group, most))) return;
    e_.columns = static_cast<int>(depth);
    e_.filters = static_cast<int>(filters);
    e_.tiles = {.across = static_cast<int>(depth) / kPixelsOfStep, .stages = stages};
    e_.grid = clamp_grid(blocks_ * static_cast<double>(all_filters_ / filters));
    e_.shared_bytes = static_cast<std::uint32_t>(shared);
    e_.least_blocks = static_cast<int>(most);
    TensorMap &image = *e_.image.map, &gradient = *e_.other.map;
    image.box = Dims::filled(image.dim.size(), 1);
    image.box[0] = row / kElementsOfUnit;
    image.box[2] = rows_of_group_;
    gradient.swizzle = static_cast<int>(line);
    gradient.box = Dims::filled(gradient.dim.size(), 1);
    gradient.box[0] = line / 2;
    gradient.box[1] = depth;
    best_.config = e_;
  }

  // A product of 16 pixels takes as many clocks of an SM as it has columns, at least 55, and all is
  // shorter than that by `kOverestimated`: fitted to what is in
  // tools/benchmarks/decisions/depthwise.md, which is estimated 0.93 to 1.09 times as long. Those
  // of a row, of a block and of what it stores are guesses; the wait is as long as leaves 7 x 7 of
  // 4 channels, in one block an SM, faster than by wgmma (74 us and 84).
  double estimate(std::int64_t filters, std::int64_t depth, int stages, std::int64_t stage,
                  std::int64_t group, double most) const {
    constexpr double kOverestimated = 1.2, kProduct = 55, kRow = 150, kWait = 60, kBegin = 3000,
                     kStore = 60;
    const double products = static_cast<double>(products_), columns = static_cast<double>(filters),
                 steps = static_cast<double>(depth / kPixelsOfStep),
                 moved = static_cast<double>(stage + group),
                 busy = steps * products * std::max(kProduct, columns),
                 alone = busy + kRow + kWait * products * std::ceil(steps / 4),
                 stored = columns * static_cast<double>(e_.groups.channels) *
                          taps_of(spec_, e_.down) * taps_of(spec_, e_.across) / e_.threads;
    const double walks = std::ceil(static_cast<double>(spec_.extent[e_.across->pixel_index]) /
                                   static_cast<double>(depth)),
                 blocks = blocks_ * static_cast<double>(all_filters_ / filters);
    const auto clocks = [&](double ctas) {
      return rows_ * walks * std::max(ctas * busy, alone) + kBegin + kStore * stored;
    };
    const double issued = Rounds(blocks, most, device_.sms).clocks(clocks) / device_.clock,
                 flight = (stages - 1) * moved * std::clamp(blocks / device_.sms, 1.0, most),
                 // SMs that have a thread block less than others rest.
        each = blocks / device_.sms, unlike = std::ceil(each) / each,
                 waited = memory_ * unlike * std::max(1.0, kFlightOfSm / flight);
    return overlapped(waited, issued) / kOverestimated;
  }
};

}  // namespace

std::optional<RunsGradientConfig> plan_runs_gradient(const KernelSpec& spec,
                                                     const DepthwiseConfig& parts,
                                                     const DepthwiseGroups& groups,
                                                     const DeviceModel& device) {
  return RunsGradientSearch(spec, parts, groups, device).make();
}

}  // namespace sinter
