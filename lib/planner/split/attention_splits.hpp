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

// Whether products, softmax and product as kernels of their own, with the scores in memory, are
// estimated to be faster than one kernel of this many microseconds.
bool expands_faster(const KernelSpec& attention, double microseconds, const DeviceModel& device);

}  // namespace sinter
