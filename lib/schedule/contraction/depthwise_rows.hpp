// Depthwise convolutions on CUDA cores whose pixels TMA brings: the shape of a thread block of
// codegen/device/family/contraction_depthwise_rows.cuh.
#pragma once
#include "schedule/contraction/depthwise_config.hpp"

namespace sinter {

// Blocks of results side by side, images of a thread block, and stages of rows.
struct DepthwiseRows {
  int across = 1, planes = 1, stages = 3;
};
struct DepthwiseRowsConfig : DepthwiseConfig {
  DepthwiseRows boxes{};
};

// `parts`: operands, dims, the channel's index, and channels of a thread. `memory`: microseconds
// that memory takes. Nothing where TMA cannot bring the pixels.
std::optional<DepthwiseRowsConfig> plan_depthwise_rows(const KernelSpec& spec,
                                                       const DepthwiseConfig& parts, double memory,
                                                       const DeviceModel& device);

}  // namespace sinter
