// Lowering: the user's graph rewritten into primitives, which are all that the planner, the kernels
// and the reference know: pointwise, reduction, matmul, the convolutions, moe_grouped_matmul,
// reshape, transpose, slice, concatenate, resample, resample_backward (with Index for maxpool),
// rng, page_gather and block_mask. The composite operations (softmax, norms, attention, block
// scaling) are declared here, once; that expansion is their meaning.
#pragma once
#include <memory>
#include <vector>

#include "lower/region.hpp"
#include "sinter/graph.hpp"

namespace sinter {

struct Lowered {
  std::unique_ptr<Graph> graph;  // checked; inputs, outputs and scalars keep their names
  std::vector<NodeId> origin;    // lowered node -> node of the user's graph
  std::vector<Region> regions;   // attention that stands in `graph` as a whole
  // A fault of a rewrite: what the graph's checks said of its result, which was not taken.
  std::string wrong_rewrite{};
};

// `graph` must be free of diagnostics. Nodes stand in an order that can be executed. Nodes that no
// output depends on are dropped. Where an intermediate tensor is too large to be addressed, the
// result holds no nodes but the diagnostics that say so.
Lowered lower(const Graph& graph);

// What an rng node computes in: f64 where its compute type or its result asks for that. Integers as
// compute type, which Seed and Offset always are, ask for nothing.
inline DataType random_arithmetic(const Graph& g, const Node& n) {
  const bool wide = g.compute(n) == DataType::f64 || g.type(n.outputs[0]) == DataType::f64;
  return wide ? DataType::f64 : DataType::f32;
}

}  // namespace sinter
