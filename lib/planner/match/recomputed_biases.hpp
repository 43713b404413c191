// Biases of attention that nodes make of indices and of what is in memory before the graph is run.
#pragma once
#include <span>
#include <vector>

#include "planner/match/fusion_state.hpp"

namespace sinter {

// The nodes whose values the scores' bodies compute, where that takes no longer than a bias that is
// written to memory and read again. `overwritten`: tensors of the graph that kernels write over.
std::vector<NodeId> nodes_of_recomputed_biases(const FusionState& state,
                                               std::span<const TensorId> overwritten);

}  // namespace sinter
