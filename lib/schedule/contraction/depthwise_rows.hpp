// Depthwise convolutions on CUDA cores whose pixels TMA brings: the shape of a thread block of
// codegen/device/family/contraction_depthwise_rows.cuh.
#pragma once
#include "schedule/contraction/depthwise.hpp"

namespace sinter {

// `parts`: operands, dims, the channel's index, and channels of a thread. `memory`: microseconds
// that memory takes. Nothing where TMA cannot bring the pixels.
std::optional<DepthwiseConfig> plan_depthwise_rows(const KernelSpec& spec,
                                                   const DepthwiseConfig& parts, double memory,
                                                   const DeviceModel& device);

}  // namespace sinter
