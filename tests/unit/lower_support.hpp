// Shared by the tests of lowering: a graph's nodes and tensors found by name, and what every
// lowered graph must satisfy.
#pragma once
#include <set>
#include <string>

#include "lower/lower.hpp"
#include "sinter/operations.hpp"
#include "support/catch.hpp"

namespace sinter::test {

inline bool is_primitive(OpKind op) {
  switch (op) {
    case OpKind::matmul:
    case OpKind::conv_fprop:
    case OpKind::conv_dgrad:
    case OpKind::conv_wgrad:
    case OpKind::pointwise:
    case OpKind::reduction:
    case OpKind::moe_grouped_matmul:
    case OpKind::reshape:
    case OpKind::transpose:
    case OpKind::slice:
    case OpKind::concatenate:
    case OpKind::resample:
    case OpKind::resample_backward:
    case OpKind::rng:
    case OpKind::page_gather:
    case OpKind::block_mask:
      return true;
    default:
      return false;
  }
}

// Lowers a graph without mistakes and checks what holds for every lowered graph.
inline Lowered checked_lower(Graph& graph) {
  for (const auto& d : graph.check()) FAIL(d.message());
  Lowered lowered = lower(graph);
  const Graph& g = *lowered.graph;
  for (const auto& d : lowered.graph->check()) FAIL(d.message());
  REQUIRE(lowered.origin.size() == g.nodes().size());
  std::set<TensorId> made;
  for (std::size_t n = 0; n < g.nodes().size(); ++n) {
    const auto& node = g.nodes()[n];
    INFO(g.label(node));
    CHECK(is_primitive(node.op));
    CHECK(node.compute == graph.nodes()[static_cast<std::size_t>(lowered.origin[n])].compute);
    for (TensorId t : node.inputs)
      if (t >= 0 && g[t].producer >= 0) CHECK(made.contains(t));
    made.insert(node.outputs.begin(), node.outputs.end());
  }
  for (TensorId t = 0; t < static_cast<TensorId>(graph.tensors().size()); ++t) {
    const auto& was = graph[t];
    if (!was.output && was.producer >= 0) continue;
    INFO(was.name);
    const auto found = g.find(was.name);
    REQUIRE(found);
    const auto& is = g[*found];
    CHECK(is.dim == was.dim);
    CHECK(is.stride == was.stride);
    CHECK(is.data_type == graph.type(t));
    CHECK(is.output == was.output);
    CHECK(is.has_value == was.has_value);
    CHECK(is.alignment == was.alignment);
    CHECK(is.uid == was.uid);
  }
  return lowered;
}

inline const Node* find_node(const Graph& g, std::string_view name) {
  for (const auto& n : g.nodes())
    if (n.name == name) return &n;
  return nullptr;
}
inline int count_nodes(const Graph& g, OpKind op) {
  int n = 0;
  for (const auto& node : g.nodes()) n += node.op == op;
  return n;
}
inline const TensorDesc& find_tensor(const Graph& g, std::string_view name) {
  const auto t = g.find(name);
  INFO(name);
  REQUIRE(t);
  return g[*t];
}

}  // namespace sinter::test
