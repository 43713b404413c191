// Attention of few rows and many keys: the keys are cut in parts that CTAs take side by side, and a
// second kernel combines what they give.
#pragma once
#include "planner/split/split.hpp"
#include "schedule/scheduled_kernel.hpp"

namespace sinter {

// The kernels in place of the attention, in order. Parts depend on the shapes alone. Of packed
// sequences keys are not cut; zeros come first where tiles are counted.
std::vector<KernelSpec> split_keys(KernelSpec attention, const PlanContext& context,
                                   Temporaries& temporaries);

}  // namespace sinter
