// How the filter gradient of a depthwise convolution of 16-bit numbers runs on the tensor cores of
// sm_90a; see codegen/device/family/contraction_depthwise_gradient_mma.cuh. A pure function of the
// spec and the device model.
#pragma once
#include <optional>

#include "schedule/contraction/depthwise_config.hpp"

namespace sinter {

struct DepthwiseGradientMmaConfig : DepthwiseConfig {
  DepthwiseTiles tiles{};
};

// `parts` and `memory` as in plan_depthwise_mma. Nothing where there are strides, dilations, or
// more than 7 x 8 taps, and where TMA cannot bring both operands.
std::optional<DepthwiseGradientMmaConfig> plan_depthwise_gradient_mma(const KernelSpec& spec,
                                                                      const DepthwiseConfig& parts,
                                                                      double memory,
                                                                      const DeviceModel& device);

}  // namespace sinter
