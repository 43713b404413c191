// How a depthwise convolution of 16-bit numbers runs on the tensor cores of sm_80 and later; see
// codegen/device/family/contraction_depthwise_mma.cuh. A pure function of the spec and the device
// model.
#pragma once
#include <optional>

#include "schedule/contraction/depthwise_config.hpp"

namespace sinter {

struct DepthwiseMmaConfig : DepthwiseConfig {
  DepthwiseTiles tiles{};
  // By TMA, with warps that multiply and others that load and store: rows of results in shared
  // memory, and registers of both. 0: all warps do all.
  int result_rows = 0, consumer_registers = 0, producer_registers = 0;
  std::optional<DepthwiseOperand> result{};  // that TMA stores in boxes
  std::vector<DepthwiseOperand> beside{};    // that the epilogue reads, and TMA brings
};

// `parts`: what there is of a spec that plan_depthwise has read: image, other, channel, down,
// across. `vector`: the most neighbouring channels, up to 4, that lie together and aligned in the
// image. `memory`: microseconds that memory takes. Nothing where the filter's lines are too long
// for one MMA or its rows too many for registers.
std::optional<DepthwiseMmaConfig> plan_depthwise_mma(const KernelSpec& spec,
                                                     const DepthwiseConfig& parts, int vector,
                                                     double memory, const DeviceModel& device);

}  // namespace sinter
