#include "planner/spec/attention_spec.hpp"

#include <algorithm>

#include "fusion_patterns/pattern.hpp"
#include "planner/spec/body_builder.hpp"
#include "planner/spec/body_copy.hpp"
#include "sinter/ops/shapes_sdpa.hpp"

namespace sinter {
namespace {

using A = AttentionSpec;

bool is_16_bits(DataType t) { return t == DataType::f16 || t == DataType::bf16; }

const PointwiseAttributes* pointwise(const Node& n) {
  return std::get_if<PointwiseAttributes>(&n.attributes);
}
bool has_mode(const Node& n, PointwiseMode mode) {
  const auto* const p = pointwise(n);
  return p && p->mode == mode;
}

// Adds the region's nodes between `t` and the first product, which come first.
void collect(const FusionState& state, const Region& region, TensorId t, AttentionNodes& a) {
  const NodeId p = t >= 0 ? state.producer(t) : -1;
  if (p < 0 || p == a.first || contains(a.nodes, p) || state.region_of(p) != &region) return;
  for (TensorId x : state.operands(p)) collect(state, region, x, a);
  if (!state.no_kernel(p) && !contains(a.nodes, p)) a.nodes.push_back(p);
}

// Finds the tensors by what the expansion of sdpa makes (lib/lower/sdpa.cpp).
bool find_tensors(const FusionState& state, AttentionNodes& a) {
  const Graph& g = state.graph();
  a.sums = state.node(a.first).outputs[0];
  a.weight = state.node(a.second).inputs[0];
  const Dims& scores = g[a.sums].dim;
  for (NodeId n : a.nodes) {
    const Node& node = state.node(n);
    const auto* const reduction = std::get_if<ReductionAttributes>(&node.attributes);
    if (reduction && reduction->mode == ReductionMode::max) a.score = node.inputs[0];
    if (has_mode(node, PointwiseMode::exp) && g[node.outputs[0]].dim == scores)
      for (NodeId reader : state.consumers(node.outputs[0]))
        if (has_mode(state.node(reader), PointwiseMode::mul))
          a.probabilities = state.node(reader).outputs[0];
  }
  if (a.score < 0 || a.probabilities < 0 || g[a.score].dim != scores) return false;
  // What the bounds and the lengths mask is masked by the kernel itself.
  const NodeId select = state.producer(a.score);
  if (select >= 0 && contains(a.nodes, select) && state.region_of(select) == a.region &&
      has_mode(state.node(select), PointwiseMode::binary_select) &&
      a.region->inputs[shapes::kSdpaPorts.block_mask] < 0)
    a.score = state.node(select).inputs[0];
  return true;
}

// A score that is the sums times a constant above zero.
std::optional<double> plain_scale(const FusionState& state, const AttentionNodes& a) {
  if (a.score == a.sums) return 1.0;
  const Graph& g = state.graph();
  const NodeId p = state.producer(a.score);
  if (p < 0 || !contains(a.nodes, p) || !has_mode(state.node(p), PointwiseMode::mul)) return {};
  const Node& n = state.node(p);
  for (int side : {0, 1}) {
    const TensorId x = n.inputs[static_cast<std::size_t>(side)],
                   c = n.inputs[static_cast<std::size_t>(1 - side)];
    if (x == a.sums && g[c].has_value && g[c].value > 0) return g[c].value;
  }
  return {};
}

}  // namespace

DataType operand_type(const FusionState& state, TensorId t) {
  const Graph& g = state.graph();
  const DataType type = state.storage()[t].type, io = g.options().io;
  if (is_16_bits(type)) return type;
  return type == DataType::f32 && g.is_virtual(state.storage()[t].root) && is_16_bits(io)
             ? io
             : DataType::none;
}

bool in_memory(const FusionState& state, TensorId t) {
  return t < 0 || state.producer(t) < 0 || !state.recomputed(state.producer(t));
}

std::optional<AttentionNodes> attention_at(const FusionState& state, NodeId second) {
  const Graph& g = state.graph();
  const Region* const region = state.region_of(second);
  if (!region || region->op != OpKind::sdpa || !state.device().has_wgmma || !state.device().has_tma)
    return {};
  const Node& last = state.node(second);
  if (last.op != OpKind::matmul || last.outputs[0] != region->outputs[0] ||
      g[last.outputs[0]].dim.size() != 4)
    return {};
  for (int port : {shapes::kSdpaPorts.seq_q, shapes::kSdpaPorts.seq_kv, shapes::kSdpaPorts.sink})
    if (!in_memory(state, region->inputs[static_cast<std::size_t>(port)])) return {};
  AttentionNodes a;
  a.second = second;
  a.region = region;
  for (NodeId n : region->nodes)
    if (n != second && state.node(n).op == OpKind::matmul) {
      if (a.first >= 0) return {};
      a.first = n;
    }
  if (a.first < 0 || g.arithmetic(state.node(a.first)) != DataType::f32 ||
      g.arithmetic(last) != DataType::f32)
    return {};
  a.nodes = {a.first};
  collect(state, *region, last.inputs[0], a);
  if (const TensorId stats = region->outputs[1]; stats >= 0) {
    collect(state, *region, stats, a);
    a.stats = stats;
  }
  a.nodes.push_back(second);
  for (NodeId n : a.nodes) {
    for (TensorId t : state.node(n).outputs)
      if (t >= 0 && t != last.outputs[0] && t != a.stats && state.needed_outside(t, a.nodes))
        return {};
  }
  if (!find_tensors(state, a)) return {};
  for (TensorId t : {state.node(a.first).inputs[0], state.node(a.first).inputs[1], last.inputs[1]})
    if (operand_type(state, t) != operand_type(state, last.inputs[1]) ||
        operand_type(state, t) == DataType::none)
      return {};
  const Dims &k = g[state.node(a.first).inputs[1]].dim, &v = g[last.inputs[1]].dim;
  if (k[1] != v[1]) return {};
  return a;
}

KernelSpec attention_spec(const FusionState& state, const AttentionNodes& a,
                          const std::vector<NodeId>& nodes) {
  const Graph& g = state.graph();
  const Node &first = state.node(a.first), &last = state.node(a.second);
  const Dims &q = g[first.inputs[0]].dim, &k = g[first.inputs[1]].dim,
             &result = g[last.outputs[0]].dim, &scores = g[a.sums].dim;
  KernelSpec spec;
  spec.family = AttentionSpec{};
  spec.nodes = nodes;
  spec.extent = {q[0], q[1], q[2], result[3], scores[3], q[3]};
  A& to = spec.attention();
  to.group = q[1] / k[1];
  to.band = {a.region->band.left, a.region->band.right, a.region->band.bottom_right,
             a.region->attributes.padding_mask};
  const auto coordinates = [&](int row, int column) {
    std::vector<Coordinate> at;
    for (int i : {0, 1, row, column}) at.push_back(index_coordinate(spec.extent.size(), i));
    return at;
  };
  const auto operand = [&](ProductOperand& o, TensorId t, int row, int column) {
    o.type = operand_type(state, t);
    BodyBuilder(state, spec, o.body, {}, g[t].dim, coordinates(row, column)).value(t);
  };
  operand(to.q, first.inputs[0], A::m, A::d);
  operand(to.k, first.inputs[1], A::d, A::n);
  operand(to.v, last.inputs[1], A::n, A::e);
  // From one tensor of the scores' dims to another: what the body of a score or a weight computes.
  const auto between = [&](Body& body, TensorId from, TensorId until) {
    BodyBuilder builder(state, spec, body, a.nodes, scores, coordinates(A::m, A::n));
    Statement acc = statement(StatementKind::accumulator, DataType::f32, g[from].name);
    acc.dim = 0;
    body.statements.push_back(std::move(acc));
    builder.define(from, 0);
    const int value = builder.value(until);
    if (value + 1 < static_cast<int>(body.statements.size())) body.statements.resize(value + 1);
  };
  if (const auto scale = plain_scale(state, a))
    to.scale = *scale;
  else
    between(to.score, a.sums, a.score);
  if (a.weight != a.probabilities) between(to.weight, a.probabilities, a.weight);

  std::vector<NodeId> epilogue;
  for (NodeId n : nodes)
    if (!contains(a.nodes, n)) epilogue.push_back(n);
  BodyBuilder body(state, spec, spec.body, epilogue, result, coordinates(A::m, A::e));
  Statement acc = statement(StatementKind::accumulator, DataType::f32, g[last.outputs[0]].name);
  acc.dim = 0;
  spec.body.statements.push_back(std::move(acc));
  body.define(last.outputs[0], 0);
  if (state.needed_outside(last.outputs[0], nodes)) body.store(last.outputs[0]);
  for (NodeId n : epilogue)
    for (TensorId t : state.node(n).outputs)
      if (t >= 0 && state.needed_outside(t, nodes)) body.store(t);
  const auto port = [&](int number) {
    const TensorId t = a.region->inputs[static_cast<std::size_t>(number)];
    return t < 0 ? -1 : body.port(t, false);
  };
  if (to.band.padding || to.band.bottom_right) {
    to.length_q = port(shapes::kSdpaPorts.seq_q);
    to.length_kv = port(shapes::kSdpaPorts.seq_kv);
  }
  to.sink = port(shapes::kSdpaPorts.sink);
  if (a.stats >= 0 && state.needed_outside(a.stats, nodes)) to.stats = body.port(a.stats, true);
  return spec;
}

}  // namespace sinter
