// How attention backward runs on the tensor cores that every GPU from sm_80 on has; see
// codegen/device/family/attention_backward_mma.cuh.
#pragma once
#include "schedule/attention/backward.hpp"

namespace sinter {

// Completes a configuration that has its operands and results. False where heads are wider than
// registers hold.
bool plan_backward_by_warps(const KernelSpec& spec, const DeviceModel& device,
                            AttentionBackwardConfig& e);

}  // namespace sinter
