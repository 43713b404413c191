// The kernels around attention backward: what sets dQ's sums to zero, and what makes dQ of them.
#pragma once
#include "planner/split/split.hpp"

namespace sinter {

// In order: operands that the kernel cannot load, written to where it can; zeros for dQ's sums; the
// kernel itself; dQ.
std::vector<KernelSpec> attention_backward_kernels(KernelSpec spec, const DeviceModel& device,
                                                   Temporaries& temporaries);

}  // namespace sinter
