// Filter gradients of convolutions in groups of 2 to 32 channels, or of up to 64 channels and
// filters, on the tensor cores of sm_90a: how
// codegen/device/family/contraction_depthwise_groups_gradient.cuh runs them, or
// contraction_depthwise_channels_gradient.cuh, or, of few channels,
// contraction_depthwise_runs_gradient.cuh.
#pragma once
#include <variant>

#include "schedule/contraction/channels_gradient.hpp"
#include "schedule/contraction/runs_gradient.hpp"

namespace sinter {

struct NarrowGroupsGradientConfig : DepthwiseConfig {
  DepthwiseTiles tiles{};
  DepthwiseGroups groups{};
  int line_units = 0;  // of 8 channels of a line in shared memory
  int joined = 1;      // pixels of a line of a box
};

struct NarrowGroupsGradientPlan {
  KernelSpec spec;  // the given one with its indices in the order that the kernel wants
  std::variant<NarrowGroupsGradientConfig, ChannelsGradientConfig, RunsGradientConfig> engine;
};

// Of groups of 2 to 32 channels, or, where all channels are one group, of up to 64 channels and
// filters, or of few channels: the fastest of these engines. Nothing where the spec is no such
// gradient.
std::optional<NarrowGroupsGradientPlan> plan_narrow_groups_gradient(const KernelSpec& spec,
                                                                    const DeviceModel& device);

// Of single channels, whose operands, dims and channel index `parts` has. `memory`: microseconds
// that memory takes.
std::optional<NarrowGroupsGradientConfig> plan_units_gradient(const KernelSpec& spec,
                                                              const DepthwiseConfig& parts,
                                                              double memory,
                                                              const DeviceModel& device);

}  // namespace sinter
