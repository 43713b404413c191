// Pooling by 2 x 2 behind a convolution: the kernel that multiplies stores the largest of each 2 x
// 2 of its pixels, or their average, beside them or in their place, where the estimates say that
// this is faster. Blocks of the image hold whole windows (contraction_window_resident.cuh).
#pragma once
#include <vector>

#include "planner/aliases.hpp"
#include "planner/planner.hpp"
#include "schedule/scheduled_kernel.hpp"

namespace sinter {

// Kernels that pool join those before them whose results they read; what `cuts` says of that goes.
void pool_pixels(std::vector<KernelSpec>& kernels, const Graph& lowered, const PlanContext& context,
                 std::span<const Alias> aliases, std::vector<PlanCut>& cuts);

}  // namespace sinter
