// Which nodes of the lowered graph each kernel of a partition computes, for those who ask.
#pragma once
#include <vector>

#include "planner/planner.hpp"

namespace sinter {

// By kernel: its spec's nodes; of a kernel that adds up partial results of another, which are the
// nodes of both, the sums and what stands behind them.
std::vector<std::vector<NodeId>> computed_nodes(const Graph& lowered, const Partition& partition);

}  // namespace sinter
