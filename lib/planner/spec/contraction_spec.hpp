// The kernel of a matmul, a convolution or a grouped matmul with its prologues and epilogue.
#pragma once
#include <string>
#include <vector>

#include "plan/kernel_spec.hpp"
#include "planner/match/fusion_state.hpp"

namespace sinter {

// The tensor whose producer could become a prologue of this operand: the operand itself, or what a
// chain of views shows of it; kNoTensor where somebody else reads it too. The left operand of two
// products of one kernel of `nodes` is one where it only scales what has 8 bits.
TensorId prologue_tensor(const FusionState& state, const std::vector<NodeId>& nodes,
                         NodeId contraction, int port);

// Where that is what a reshape shows of blocks, as a scale for each of them has it, their extents
// along k and along the operand's rows (B's are columns); 0 where there are none.
struct Blocks {
  std::int64_t k = 0, row = 0;
  bool operator==(const Blocks&) const = default;
};
Blocks prologue_blocks(const FusionState& state, NodeId contraction, int port);

// Whether the operand has a prologue for the tensor cores of sm_90a alone: scales for blocks, or of
// a grouped product.
bool only_accelerated(const FusionState& state, NodeId contraction, int port);

// Adds the nodes among `nodes` that `t` is computed from.
void collect_ancestors(const FusionState& state, const std::vector<NodeId>& nodes, TensorId t,
                       std::vector<NodeId>& found);

// Why the elementwise node cannot run on the result's tiles; empty when it can.
std::string epilogue_refuses(const FusionState& state, NodeId contraction, NodeId other);

// Why the other contraction cannot be a second product of the kernel; empty when it can.
Refusal product_refuses(const FusionState& state, const std::vector<NodeId>& nodes,
                        NodeId contraction, NodeId other);

// Why the reduction cannot run on the result's tiles of a kernel of `nodes`; empty when it can.
Refusal reduction_refuses(const FusionState& state, const std::vector<NodeId>& nodes,
                          NodeId contraction, NodeId reduction);

// The contraction that a kernel is made around.
NodeId contraction_of(const FusionState& state, const KernelSpec& spec);

KernelSpec contraction_spec(const FusionState& state, const std::vector<NodeId>& nodes,
                            NodeId contraction);

}  // namespace sinter
