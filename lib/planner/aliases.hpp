// Outputs that may lie in the memory of an input: whether the kernels of a plan read each element
// before they write it, whatever the order in which their threads run. That is a matter of the
// schedule, too: what stays in registers is not read again.
#pragma once
#include <span>

#include "schedule/scheduled_kernel.hpp"
#include "sinter/base/diagnostic.hpp"

namespace sinter {

// What is wrong with the aliases that the user's graph declares, given the kernels in their order.
Diagnostics unsafe_aliases(const Graph& user, const Graph& lowered,
                           std::span<const ScheduledKernel> kernels);

}  // namespace sinter
