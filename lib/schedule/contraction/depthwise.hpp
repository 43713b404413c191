// Which engine a convolution runs on whose channels are not summed over, or one in groups of few
// channels: the fastest by their estimates. A pure function of the spec and the device model.
#pragma once
#include <optional>
#include <variant>

#include "schedule/contraction/depthwise_gradient_mma.hpp"
#include "schedule/contraction/depthwise_lines.hpp"
#include "schedule/contraction/depthwise_mma.hpp"
#include "schedule/contraction/depthwise_planes.hpp"
#include "schedule/contraction/depthwise_rows.hpp"
#include "schedule/contraction/depthwise_walk.hpp"
#include "schedule/contraction/narrow_groups.hpp"
#include "schedule/contraction/narrow_groups_gradient.hpp"

namespace sinter {

using DepthwiseEngine =
    std::variant<DepthwiseWalkConfig, DepthwiseRowsConfig, DepthwisePlanesConfig,
                 DepthwiseLinesConfig, DepthwiseMmaConfig, DepthwiseGradientMmaConfig,
                 NarrowGroupsConfig, NarrowGroupsGradientConfig, ChannelsGradientConfig,
                 RunsGradientConfig>;

inline const DepthwiseConfig& config_of(const DepthwiseEngine& engine) {
  return std::visit([](const DepthwiseConfig& e) -> const DepthwiseConfig& { return e; }, engine);
}
inline DepthwiseConfig& config_of(DepthwiseEngine& engine) {
  return std::visit([](DepthwiseConfig& e) -> DepthwiseConfig& { return e; }, engine);
}

struct DepthwisePlan {
  KernelSpec spec;  // the given one with its indices in the order that the kernel wants
  DepthwiseEngine engine;
};

// Nothing where the spec is no such convolution, channels do not lie together in memory, or its
// filter is too large for registers.
std::optional<DepthwisePlan> plan_depthwise(const KernelSpec& spec, const DeviceModel& device);

// Convolutions in groups of several channels, or with several filters for each, on CUDA cores as
// depthwise ones are: a thread's channels are filters of one group, which see the same pixels, and
// the group's channels are taken one after another, as taps are. Nothing where the spec is no such
// convolution, or groups have many channels.
std::optional<DepthwisePlan> plan_channel_groups(const KernelSpec& spec, const DeviceModel& device);

// Those of 2, 4 or 8 channels on the tensor cores of sm_90a, and filter gradients of up to 32.
std::optional<DepthwisePlan> plan_groups_on_tensor_cores(const KernelSpec& spec,
                                                         const DeviceModel& device);

}  // namespace sinter
