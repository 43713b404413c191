// How the filter gradient of a convolution of up to 64 channels and filters runs on the tensor
// cores of sm_90a; see codegen/device/family/contraction_depthwise_channels_gradient.cuh. A pure
// function of the spec and the device model.
#pragma once
#include <optional>

#include "schedule/contraction/depthwise_config.hpp"

namespace sinter {

inline constexpr int kMostGradientChannels = 64;  // and filters: of a pixel in shared memory

struct ChannelsGradientConfig : DepthwiseConfig {
  DepthwiseTiles tiles{};
  DepthwiseGroups groups{};
  int filters = 0;          // channels of the result, as those of the image are the group's
  int product_columns = 0;  // taps of a row and channels
};

// `parts`: what is known of the spec, whose channels are the one group of `groups`; `memory`:
// microseconds that memory takes. Nothing where strides are more than 2, where there are dilations,
// or more sums than registers.
std::optional<ChannelsGradientConfig> plan_channels_gradient(const KernelSpec& spec,
                                                             const DepthwiseConfig& parts,
                                                             const DepthwiseGroups& groups,
                                                             double memory,
                                                             const DeviceModel& device);

}  // namespace sinter
