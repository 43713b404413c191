// How a depthwise convolution of 16-bit numbers whose pixels of a line lie together runs on the
// tensor cores of sm_80 and later; see codegen/device/family/contraction_depthwise_lines.cuh. A
// pure function of the spec and the device model.
#pragma once
#include <optional>
#include <vector>

#include "schedule/contraction/depthwise_config.hpp"

namespace sinter {

// Tiles of results side by side of a warp, which walks over `run` rows of those and of others.
struct DepthwiseLines {
  int across = 1;
};
struct DepthwiseLinesConfig : DepthwiseConfig {
  DepthwiseLines lines{};
};

// `parts`: what there is of a spec that plan_depthwise has read. `memory`: microseconds that memory
// takes. Nothing where words of two pixels straddle ends of lines, or the filter has too many taps
// for registers.
std::optional<DepthwiseLinesConfig> plan_depthwise_lines(const KernelSpec& spec,
                                                         const DepthwiseConfig& parts,
                                                         const std::vector<ImageDim>& dims,
                                                         double memory, const DeviceModel& device);

}  // namespace sinter
