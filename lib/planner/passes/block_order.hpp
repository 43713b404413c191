// In which direction the blocks of kernels go through memory.
#pragma once
#include <vector>

#include "plan/kernel_spec.hpp"
#include "schedule/scheduled_kernel.hpp"
#include "sinter/graph.hpp"

namespace sinter {

// What a kernel has moved last is in the second-level cache when it ends, and of more than that
// holds nothing else is: a pointwise or rowwise kernel that reads the same tensor begins there
// (KernelSpec::from_end). Not in plans of a class of extents, whose kernels share a text.
void order_blocks(std::vector<KernelSpec>& kernels, const Graph& lowered,
                  const PlanContext& context);

}  // namespace sinter
