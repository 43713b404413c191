// Attention as one thing in a lowered graph: the nodes into which an sdpa or sdpa_backward node was
// expanded, with what the node said. The expansion is its meaning and what is planned where no
// pattern takes the whole.
//
//     Q, K, V, ...  ->  [ matmul, scale, mask, softmax, dropout, matmul ]  ->  O, Stats
//     inputs            nodes                                                  outputs
#pragma once
#include <optional>
#include <vector>

#include "sinter/graph.hpp"

namespace sinter {

// The columns that a row of the scores sees: diagonal - left < column <= diagonal + right.
struct SdpaBand {
  std::optional<std::int64_t> left, right;  // none: no bound
  // The diagonal ends in the last row and column (of SEQ_LEN_Q and SEQ_LEN_KV where they are
  // given), else it begins in the first ones.
  bool bottom_right = false;
};
SdpaBand sdpa_band(const SdpaAttributes& a);

// The 16-bit type in which attention multiplies an operand of this type, and to which what it
// makes of its weights may be rounded beside it (GRAPH_JSON.md, "Data types"). It holds every f8
// value. none: the operand is multiplied as it is. `io`: the graph's io type.
DataType attention_factor_type(DataType type, bool is_virtual, DataType io);

struct Region {
  NodeId origin = -1;  // node of the user's graph
  OpKind op{};         // sdpa or sdpa_backward
  SdpaAttributes attributes;
  SdpaBand band;
  // Gradients that the user wrote out: scores are any function of the products of Q and K, Delta
  // stands at the port of O, and behind the ports stands what else is read.
  bool written_out = false;
  // Of the lowered graph, by port of `op`; kNoTensor where absent or not needed.
  std::vector<TensorId> inputs, outputs;
  // Of the lowered graph, in order. They read inputs, constants and each other; what they make is
  // an output or read by themselves alone.
  std::vector<NodeId> nodes;
};

}  // namespace sinter
