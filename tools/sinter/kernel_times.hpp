// How long each kernel of a plan takes on a GPU, by itself.
#pragma once
#include <vector>

#include "sinter/compile.hpp"

namespace sinter::cli {

// Microseconds, in the order of the kernels. `graph`: the plan's, from which its inputs are filled.
Result<std::vector<double>> kernel_times(Graph& graph, const Plan& plan, Device device);

}  // namespace sinter::cli
