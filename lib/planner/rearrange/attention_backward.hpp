// The kernels around attention backward: what sets dQ's sums to zero, and what makes dQ of them.
#pragma once
#include <span>

#include "planner/split/split.hpp"

namespace sinter {

// In order: operands that the kernel cannot load, written to where it can; zeros for dQ's sums; the
// kernel itself; dQ; dK and dV where they are sums of parts. `overwritten`: inputs whose memory an
// output takes.
std::vector<KernelSpec> attention_backward_kernels(KernelSpec spec, const PlanContext& context,
                                                   std::span<const TensorId> overwritten,
                                                   Temporaries& temporaries);

// Whether the expansion, whose scores are in memory, is faster than one kernel, where it has room:
// of f32 operands, whose products the kernel makes of three, and a plain softmax. (h8 s2048 causal
// on an H200, us, one kernel and the expansion: d128 1,581 and 1,070, d64 719 and 1,381.)
bool gradients_expand_faster(const KernelSpec& spec, double microseconds,
                             const DeviceModel& device);

}  // namespace sinter
