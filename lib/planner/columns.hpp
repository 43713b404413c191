// Reductions over the rows of a kernel that has something else to do along them: of a rowwise
// kernel's columns, and of a contraction's results.
// Blocks keep running results of the rows that they meet, and a second kernel combines these.
#pragma once
#include <string_view>
#include <vector>

#include "planner/split.hpp"

namespace sinter {

// The kernels that compute a spec with column reductions, in order.
std::vector<KernelSpec> split_columns(KernelSpec spec, std::string_view architecture,
                                      Temporaries& temporaries);

}  // namespace sinter
