// Filter gradients of convolutions in groups of few channels on the tensor cores of sm_90a: how
// codegen/device/family/contraction_depthwise_groups_gradient.cuh runs them.
#pragma once
#include "schedule/contraction/depthwise.hpp"

namespace sinter {

// Of groups of 2 to 32 channels. Nothing where the spec is no such gradient.
std::optional<DepthwisePlan> plan_narrow_groups_gradient(const KernelSpec& spec,
                                                         const DeviceModel& device);

// Of single channels, whose operands, dims and channel index `parts` has. `memory`: microseconds
// that memory takes.
std::optional<DepthwiseConfig> plan_units_gradient(const KernelSpec& spec,
                                                   const DepthwiseConfig& parts, double memory,
                                                   const DeviceModel& device);

}  // namespace sinter
