#include "planner/spec/chained_spec.hpp"

#include <algorithm>

#include "plan/access.hpp"
#include "planner/spec/body_builder.hpp"
#include "planner/spec/body_copy.hpp"

namespace sinter {
namespace {

bool is_16_bits(DataType t) { return t == DataType::f16 || t == DataType::bf16; }

// A matmul without other rules whose result has the dims of its operands' batch.
bool is_plain_matmul(const FusionState& state, NodeId n) {
  const Node& node = state.node(n);
  const auto* const a = std::get_if<MatmulAttributes>(&node.attributes);
  if (!a || a->zero_dominates || state.graph().arithmetic(node) != DataType::f32) return false;
  const Dims& c = state.graph()[node.outputs[0]].dim;
  for (TensorId t : {node.inputs[0], node.inputs[1]}) {
    const Dims& dim = state.graph()[t].dim;
    if (dim.size() != c.size()) return false;
    for (int i = 0; i < c.size() - 2; ++i)
      if (dim[i] != c[i] && dim[i] != 1) return false;
  }
  return true;
}

constexpr std::size_t kLongestWalk = 256;  // pointwise nodes one behind another

// Whether a node behind the second product reads it: numbers of nodes follow their order, and so
// does each list of readers.
bool read_later(const FusionState& state, TensorId t, const Chain& chain) {
  const auto& readers = state.consumers(t);
  return std::any_of(readers.rbegin(), readers.rend(),
                     [&](NodeId reader) { return reader > chain.second; });
}

// Walks from the operand up to one matmul, through pointwise nodes that nobody else reads. It ends
// at values that are read behind the second product: the walk up a chain of residuals, of which
// each is, would take the square of its length.
bool collect(const FusionState& state, TensorId t, Chain& chain, std::size_t walked = 0) {
  const Graph& g = state.graph();
  const NodeId p = state.producer(t);
  if (p < 0 || g[t].output || !state.free(p)) return false;
  if (walked > kLongestWalk || read_later(state, t, chain)) return false;
  if (p == chain.first || contains(chain.middle, p)) return true;
  const Node& n = state.node(p);
  if (n.op == OpKind::matmul) {
    if (chain.first >= 0 || !is_plain_matmul(state, p)) return false;
    chain.first = p;
    return true;
  }
  if (n.op != OpKind::pointwise || g.arithmetic(n) != DataType::f32) return false;
  bool reaches = false;  // the matmul, through some operand; what does not is read from memory
  for (TensorId x : n.inputs) {
    if (x < 0 || g[x].dim != g[t].dim) continue;
    Chain attempt = chain;
    if (collect(state, x, attempt, walked + 1)) reaches = true, chain = std::move(attempt);
  }
  if (reaches) chain.middle.push_back(p);
  return reaches;
}

}  // namespace

std::optional<Chain> chain_to(const FusionState& state, NodeId matmul) {
  const Graph& g = state.graph();
  if (!state.device().has_wgmma || !state.device().has_tma) return {};
  if (!state.free(matmul) || !is_plain_matmul(state, matmul)) return {};
  Chain chain;
  chain.second = matmul;
  const Node& last = state.node(matmul);
  if (!collect(state, last.inputs[0], chain) || chain.first < 0) return {};
  std::sort(chain.middle.begin(), chain.middle.end());
  const Node& first = state.node(chain.first);
  if (g[first.outputs[0]].dim != g[last.inputs[0]].dim) return {};
  // Nothing between the products is of use to anybody else.
  std::vector<NodeId> between = chain.middle;
  between.push_back(chain.first);
  for (NodeId n : between)
    for (NodeId reader : state.consumers(state.node(n).outputs[0]))
      if (reader != matmul && !contains(chain.middle, reader)) return {};
  const DataType type = g.type(last.inputs[1]), operand = g.type(last.inputs[0]);
  if (!is_16_bits(type) || g.type(first.inputs[0]) != g.type(first.inputs[1]) ||
      !is_16_bits(g.type(first.inputs[0])))
    return {};
  // The sums become numbers of C's type.
  if (operand != type && (operand != DataType::f32 || g.options().io != type)) return {};
  return chain;
}

KernelSpec chained_spec(const FusionState& state, const Chain& chain,
                        const std::vector<NodeId>& nodes) {
  const Graph& g = state.graph();
  const Node &first = state.node(chain.first), &last = state.node(chain.second);
  const Dims &left = g[first.inputs[0]].dim, &result = g[last.outputs[0]].dim,
             &between = g[first.outputs[0]].dim;
  const int batch = result.size() - 2, m = batch, n = m + 1, k = n + 1, depth = k + 1;
  KernelSpec spec;
  spec.family = ContractionSpec{};
  spec.nodes = nodes;
  spec.extent = result;
  spec.extent.push_back(between.back());
  spec.extent.push_back(left.back());
  ContractionSpec& c = spec.contraction();
  c.batch = batch;
  c.m = c.n = 1;
  c.k_indices = {KIndex::channels};
  c.chained_k = 1;
  c.products.resize(2);
  const auto coordinates = [&](int row, int column) {
    std::vector<Coordinate> at;
    for (int i = 0; i < batch; ++i) at.push_back(index_coordinate(spec.extent.size(), i));
    at.push_back(index_coordinate(spec.extent.size(), row));
    at.push_back(index_coordinate(spec.extent.size(), column));
    return at;
  };
  const auto operand = [&](ProductOperand& o, TensorId t, int row, int column) {
    o.type = g.type(t);
    BodyBuilder(state, spec, o.body, {}, g[t].dim, coordinates(row, column)).value(t);
  };
  operand(c.products[0].a, first.inputs[0], m, depth);
  operand(c.products[0].b, first.inputs[1], depth, k);
  operand(c.products[1].b, last.inputs[1], k, n);
  const auto add_sums = [&](Body& body, BodyBuilder& builder, TensorId t) {
    Statement acc = statement(StatementKind::accumulator, c.accumulate, g[t].name);
    acc.dim = 0;
    body.statements.push_back(std::move(acc));
    builder.define(t, 0);
  };
  c.products[1].a.type = g.type(last.inputs[1]);
  Body& middle = c.products[1].a.body;
  BodyBuilder between_products(state, spec, middle, chain.middle, between, coordinates(m, k));
  add_sums(middle, between_products, first.outputs[0]);
  const int value = between_products.value(last.inputs[0]);
  if (value + 1 < static_cast<int>(middle.statements.size())) middle.statements.resize(value + 1);

  std::vector<NodeId> epilogue;
  for (NodeId node : nodes)
    if (node != chain.first && node != chain.second && !contains(chain.middle, node))
      epilogue.push_back(node);
  BodyBuilder body(state, spec, spec.body, epilogue, result, coordinates(m, n));
  add_sums(spec.body, body, last.outputs[0]);
  if (state.needed_outside(last.outputs[0], nodes)) body.store(last.outputs[0]);
  for (NodeId node : epilogue)
    for (TensorId t : state.node(node).outputs)
      if (t >= 0 && state.needed_outside(t, nodes)) body.store(t);
  return spec;
}

}  // namespace sinter
