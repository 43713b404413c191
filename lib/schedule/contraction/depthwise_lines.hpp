// How a depthwise convolution of 16-bit numbers whose pixels of a line lie together runs on the
// tensor cores of sm_80 and later; see codegen/device/family/contraction_depthwise_lines.cuh. A
// pure function of the spec and the device model.
#pragma once
#include <optional>
#include <vector>

#include "schedule/contraction/depthwise.hpp"

namespace sinter {

// `parts`: what there is of a spec that plan_depthwise has read. `memory`: microseconds that memory
// takes. Nothing where words of two pixels straddle ends of lines, or the filter has too many taps
// for registers.
std::optional<DepthwiseConfig> plan_depthwise_lines(const KernelSpec& spec,
                                                    const DepthwiseConfig& parts,
                                                    const std::vector<ImageDim>& dims,
                                                    double memory, const DeviceModel& device);

}  // namespace sinter
