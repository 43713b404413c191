// Runs a partition on the CPU exactly as its kernels would: kernel by kernel, through the same
// accesses, workspace offsets and bodies, in float or double as each statement says. It checks all
// that the planner decides without a GPU and without the generated text.
#pragma once
#include "compile/make_plan.hpp"
#include "planner/planner.hpp"
#include "reference/reference.hpp"

namespace sinter::test {

// `memory` holds the inputs and outputs by tensor of the lowered graph. The workspace starts as
// NaN patterns.
void interpret(const Partition& partition, const HostPointers& memory, const Graph& graph);

// The same of a graph's fused kernels, as a plan with these options has them: rewritten first.
// `lowered`: whose tensors `memory` holds. Throws std::runtime_error where the graph is not valid.
void interpret_fused(Graph& graph, const PlanOptions& options, const Graph& lowered,
                     const HostPointers& memory);

}  // namespace sinter::test
