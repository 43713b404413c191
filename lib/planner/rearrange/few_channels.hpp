// What space_to_depth.hpp takes: a convolution whose image, or whose results, have few channels,
// and the blocks that its positions are to become.
#pragma once
#include <cstdint>
#include <optional>
#include <vector>

#include "plan/spec/contraction.hpp"
#include "planner/split/split.hpp"

namespace sinter {

// Of an image, at the most.
inline constexpr std::int64_t kMostSpaceToDepthChannels = 16;

// A spatial dim: x = stride p + t - pre of a pixel index and a tap index.
struct SpatialDim {
  int pixel = -1, tap = -1;
  std::int64_t stride = 1, pre = 0, taps = 1, extent = 0;
  std::int64_t block = 1;                           // positions that become one
  std::int64_t shift = 0, cut_taps = 0, first = 0;  // of t = stride j + a - shift; see above
};

// What the operands of the convolution are.
struct FewChannels {
  enum class Direction { forward, few_filters, data_gradient, filter_gradient } direction{};
  std::vector<SpatialDim> dims;  // outermost first
  int channel = -1;              // the index with few values: of few_filters the filters
  const KernelPort *image = nullptr, *other = nullptr;

  bool blocks_are_of_results() const {
    return direction == Direction::few_filters || direction == Direction::data_gradient;
  }
};

// Blocks of results, which are columns: strides of a data gradient, or results of filters, that one
// has along all dims or along the innermost ones alone. Of one stride a data gradient's other dims
// keep their phases.
struct ResultBlocks {
  std::int64_t strides = 1;
  std::size_t innermost = 0;  // dims; 0: all
  enum class Of { few_channels, few_filters, more } of = Of::few_channels;
};

// One channel has no index: it gets one. Where channels are padded, what has them steps along it,
// so that those behind it lie outside.
KernelSpec with_channel_index(const KernelSpec& given);

// Nothing where the contraction, with a channel index, is no such convolution. Ports are those of
// `spec`.
std::optional<FewChannels> few_channels(const KernelSpec& spec, const ResultBlocks& blocks);

}  // namespace sinter
