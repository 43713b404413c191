// Reductions that a kernel can only begin, and the kernels that finish them:
//   rowwise      values reduced down the columns: each block keeps running results of the rows that
//                it walks over
//   contraction  results reduced over rows, columns or both: 16 of them at a time
#pragma once
#include <vector>

#include "planner/split/split.hpp"

namespace sinter {

// The kernels that compute a spec with cross-row reductions, in order.
std::vector<KernelSpec> split_columns(KernelSpec spec, const PlanContext& context,
                                      Temporaries& temporaries);

}  // namespace sinter
