// Depthwise convolutions, and those in narrow groups, whose images lie plane by plane, with whole
// planes in shared memory: codegen/device/family/contraction_depthwise_planes.cuh.
#pragma once
#include "schedule/contraction/channel_groups.hpp"

namespace sinter {

// Nothing where planes do not lie one behind another, runs of them do not begin at multiples of 16
// bytes, or where this was not measured to be faster than loads to registers. `memory`:
// microseconds that memory takes.
std::optional<DepthwiseConfig> plan_depthwise_planes(const KernelSpec& spec,
                                                     const DepthwiseConfig& parts,
                                                     const std::vector<ImageDim>& dims,
                                                     double memory, const DeviceModel& device);

}  // namespace sinter
