// The kernel of two chained matmuls: f(A B) C, where f is a pointwise DAG.
#pragma once
#include <optional>
#include <vector>

#include "plan/kernel_spec.hpp"
#include "planner/match/fusion_state.hpp"

namespace sinter {

// A matmul whose left operand is computed, element by element, from another matmul's results that
// nothing else reads.
struct Chain {
  NodeId first = -1, second = -1;
  std::vector<NodeId> middle;  // f, in order of the nodes
};

// The chain that ends in a matmul; nothing where there is none, a node of it is taken, or an
// operand is not a plain matrix of 16-bit floats.
std::optional<Chain> chain_to(const FusionState& state, NodeId matmul);

// `nodes`: those of the chain and of the epilogue.
KernelSpec chained_spec(const FusionState& state, const Chain& chain,
                        const std::vector<NodeId>& nodes);

}  // namespace sinter
