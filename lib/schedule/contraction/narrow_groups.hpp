// How a convolution of 16-bit numbers in groups of 2, 4 or 8 channels runs on the tensor cores of
// sm_90a; see codegen/device/family/contraction_depthwise_groups.cuh. A pure function of the spec
// and the device model.
#pragma once
#include "schedule/contraction/convolution_dims.hpp"
#include "schedule/contraction/depthwise_config.hpp"

namespace sinter {

struct NarrowGroupsConfig : DepthwiseConfig {
  DepthwiseTiles tiles{};
  DepthwiseGroups groups{};
  std::optional<DepthwiseOperand> result{};  // that TMA stores in boxes
};

struct NarrowGroupsPlan {
  KernelSpec spec;  // the given one with its indices in the order that the kernel wants
  NarrowGroupsConfig engine;
};

// Forward, and the data gradient, of stride 1; nothing for others.
std::optional<NarrowGroupsPlan> plan_narrow_groups(const KernelSpec& spec,
                                                   const DeviceModel& device);

// Puts index `group`, which counts groups, behind the other batch indices; the roles of these and
// of the channels of `groups`.
void place_groups(KernelSpec& spec, int group, const DepthwiseGroups& groups, DepthwiseConfig& e,
                  ConvolutionRoles& roles);

}  // namespace sinter
