// How the filter gradient of a convolution of few channels runs on the tensor cores of sm_90a; see
// codegen/device/family/contraction_depthwise_runs_gradient.cuh. A pure function of the spec and
// the device model.
#pragma once
#include <optional>

#include "schedule/contraction/depthwise_config.hpp"

namespace sinter {

struct RunsGradientConfig : DepthwiseConfig {
  DepthwiseTiles tiles{};
  DepthwiseGroups groups{};
  int filters = 0;                // of a block
  bool filters_together = false;  // in the result
};

// `parts`: what is known of the spec, whose channels are the one group of `groups`. Nothing where
// rows of the image are no whole pieces of 16 bytes, there are dilations along a row, or more sums
// than registers.
std::optional<RunsGradientConfig> plan_runs_gradient(const KernelSpec& spec,
                                                     const DepthwiseConfig& parts,
                                                     const DepthwiseGroups& groups,
                                                     const DeviceModel& device);

}  // namespace sinter
