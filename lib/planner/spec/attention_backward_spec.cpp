#include "planner/spec/attention_backward_spec.hpp"

#include <algorithm>
#include <cmath>
#include <set>

#include "planner/match/index_mask.hpp"
#include "planner/spec/attention_spec.hpp"
#include "planner/spec/body_builder.hpp"
#include "planner/spec/body_copy.hpp"
#include "planner/spec/derivative.hpp"
#include "schedule/attention/backward.hpp"
#include "schedule/attention/forward.hpp"
#include "sinter/ops/shapes_sdpa.hpp"

namespace sinter {
namespace {

using Backward = AttentionBackwardSpec;

constexpr shapes::SdpaPorts kPorts = shapes::kSdpaBackwardPorts;
constexpr std::size_t kQ = 0, kK = 1, kV = 2, kO = 3, kDO = 4, kStats = 5;  // inputs
constexpr std::size_t kDQ = 0, kDK = 1, kDV = 2, kDBias = 3;                // outputs

TensorId input(const Region& r, int port) { return r.inputs[static_cast<std::size_t>(port)]; }

// Nodes of the region on which `t` depends.
void collect(const FusionState& state, const Region& region, TensorId t, std::set<NodeId>& nodes) {
  const NodeId p = t >= 0 ? state.producer(t) : -1;
  if (p < 0 || state.region_of(p) != &region || !nodes.insert(p).second) return;
  for (TensorId x : state.operands(p)) collect(state, region, x, nodes);
}

bool is_paged(const Region& r) {
  return input(r, kPorts.page_k) >= 0 || input(r, kPorts.page_v) >= 0;
}

bool wanted(const Region& r, std::size_t output) { return r.outputs[output] >= 0; }
// The gradients of scores, for dQ, dK or dBias.
bool wants_ds(const Region& r) { return wanted(r, kDQ) || wanted(r, kDK) || wanted(r, kDBias); }
int products(const Region& r) {
  return 1 + wants_ds(r) + wanted(r, kDQ) + wanted(r, kDK) + wanted(r, kDV);
}

// Where dropout begins and ends: of the weights that dV's product multiplies; without dV of their
// gradients, to which the same is done.
bool find_weights(const FusionState& state, AttentionBackwardNodes& a) {
  const Region& r = *a.region;
  a.before_dropout = a.probabilities;
  for (NodeId id : r.nodes) {
    const Node& n = state.node(id);
    if (!wanted(r, kDV) && has_mode(n, PointwiseMode::sub) && n.inputs[1] == a.delta) {
      a.weights = n.inputs[0];
      std::set<NodeId> before;
      collect(state, r, a.weights, before);
      for (NodeId p : before)
        if (state.node(p).op == OpKind::matmul) a.before_dropout = state.node(p).outputs[0];
    }
    if (!wanted(r, kDV) || n.op != OpKind::matmul || n.inputs[1] != r.inputs[kDO]) continue;
    const NodeId transpose = state.producer(n.inputs[0]);
    if (transpose < 0 || state.node(transpose).op != OpKind::transpose) continue;
    // Where dO is Q, dK's product has it, too; what that multiplies depends on delta.
    std::set<NodeId> before;
    collect(state, r, state.node(transpose).inputs[0], before);
    if (a.delta < 0 || !before.contains(state.producer(a.delta)))
      a.weights = state.node(transpose).inputs[0];
  }
  return a.weights >= 0;
}

// The same of gradients that were written out, by what makes their region
// (lib/planner/rewrite/attention_gradients.cpp).
bool find_written(const FusionState& state, AttentionBackwardNodes& a) {
  const Graph& g = state.graph();
  const Region& r = *a.region;
  const auto made = [&](TensorId t, OpKind op) -> const Node* {
    const NodeId p = t >= 0 ? state.producer(t) : -1;
    return p >= 0 && state.region_of(p) == &r && state.node(p).op == op ? &state.node(p) : nullptr;
  };
  for (NodeId id : r.nodes) {
    const Node& n = state.node(id);
    const Node* const shifted = made(n.inputs[0], OpKind::pointwise);
    if (has_mode(n, PointwiseMode::exp) && shifted && has_mode(*shifted, PointwiseMode::sub) &&
        shifted->inputs[1] == r.inputs[kStats])
      a.probabilities = a.before_dropout = a.weights = n.outputs[0], a.score = shifted->inputs[0];
    if (has_mode(n, PointwiseMode::div) && n.inputs[0] == a.probabilities)
      a.probabilities = a.before_dropout = a.weights = n.outputs[0], a.total = n.inputs[1];
    if (!has_mode(n, PointwiseMode::mul) || a.probabilities < 0 || n.inputs[0] != a.probabilities)
      continue;
    a.of_score = a.of_sums = n.outputs[0];
    a.dp = n.inputs[1];
    const Node* const centred = made(a.dp, OpKind::pointwise);
    if (!centred || !has_mode(*centred, PointwiseMode::sub)) continue;
    a.dp = centred->inputs[0];
    a.delta = centred->inputs[1];
  }
  if (a.of_score < 0 || a.delta != r.inputs[kO] || !in_memory(state, a.total)) return false;
  TensorId sums = kNoTensor;
  for (NodeId id : r.nodes) {
    const Node& n = state.node(id);
    if (n.op != OpKind::matmul || n.outputs[0] == a.dp) continue;
    const Node* const turned = made(n.inputs[0], OpKind::transpose);
    if (!turned && made(n.inputs[1], OpKind::transpose))
      sums = n.outputs[0];
    else if (!turned || turned->inputs[0] != a.probabilities)  // of dQ or dK
      a.of_sums = turned ? turned->inputs[0] : n.inputs[0];
    if (a.of_sums == n.inputs[0]) a.dq_sums = n.outputs[0];
  }
  if (sums < 0) return false;
  a.scaled = r.attributes.attn_scale == 1 ? sums : kNoTensor;
  for (NodeId id : state.consumers(sums)) {
    const Node& n = state.node(id);
    if (a.scaled >= 0 || !has_mode(n, PointwiseMode::mul)) continue;
    const TensorId by = n.inputs[n.inputs[0] == sums ? 1 : 0];
    if (g[by].has_value && g[by].value == r.attributes.attn_scale) a.scaled = n.outputs[0];
  }
  // Masks of -infinity, where each row sees some columns: of others the softmax gives NaN.
  const Dims& dim = g[a.score].dim;
  const std::int64_t rows = dim[2], columns = dim[3];
  AttentionBand band;
  const TensorId seen = without_index_masks(state, a.score, band, nullptr, false);
  const std::int64_t left = band.left.value_or(rows + columns),
                     right = band.right.value_or(rows + columns);
  if (right >= 0 && rows - left <= columns - 1 && left + right >= 1) a.score = seen, a.band = band;
  // What takes back these masks: pairs that do not see each other have no gradient.
  if (a.band.bounded() && a.score == a.scaled)
    for (TensorId t = a.of_sums; t != a.of_score;) {
      const Node* const select = made(t, OpKind::pointwise);
      if (!select || !has_mode(*select, PointwiseMode::binary_select)) break;
      t = select->inputs[g[select->inputs[0]].has_value ? 1 : 0];
      if (t == a.of_score) a.of_sums = t;
    }
  return a.scaled >= 0;
}

// Finds the tensors by what the expansion of sdpa_backward makes (lib/lower/sdpa.cpp).
bool find_tensors(const FusionState& state, AttentionBackwardNodes& a) {
  const Graph& g = state.graph();
  const Region& r = *a.region;
  if (r.written_out) return find_written(state, a);
  a.band = {r.band.left, r.band.right, r.band.bottom_right, r.attributes.padding_mask};
  const Dims &q = g[r.inputs[kQ]].dim, &k = g[r.inputs[kK]].dim;
  const Dims scores = {q[0], q[1], q[2], k[2]}, rows = {q[0], q[1], q[2], 1};
  for (NodeId id : r.nodes) {
    const Node& n = state.node(id);
    if (has_mode(n, PointwiseMode::exp) && g[n.outputs[0]].dim == scores) {
      const NodeId shifted = state.producer(n.inputs[0]);
      if (shifted < 0 || !has_mode(state.node(shifted), PointwiseMode::sub) ||
          state.node(shifted).inputs[1] != r.inputs[kStats])
        return false;
      // With one key a sink's exponentials have these dims, too.
      if (const TensorId score = state.node(shifted).inputs[0]; score != input(r, kPorts.sink))
        a.score = score;
    }
    if (n.op != OpKind::reduction || g[n.outputs[0]].dim != rows) continue;
    const NodeId product = state.producer(n.inputs[0]);
    if (product < 0 || !has_mode(state.node(product), PointwiseMode::mul)) continue;
    const auto& of = state.node(product).inputs;
    if ((of[0] == r.inputs[kDO] && of[1] == r.inputs[kO]) ||
        (of[1] == r.inputs[kDO] && of[0] == r.inputs[kO]))
      a.delta = n.outputs[0];
  }
  if (a.score < 0 || (a.delta < 0 && wants_ds(r))) return false;
  // A bias may hide keys by their place. Chunks are conditions as others are.
  if (AttentionBand band = a.band; !band.bounded() && input(r, kPorts.cu_q) < 0) {
    AttentionBand others = band;
    a.unmasked = without_index_masks(state, a.score, others, &a.mask, false);
    a.score = without_index_masks(state, a.score, band, nullptr, false);
    a.band = band;
  }
  for (NodeId id : r.nodes) {
    const Node& n = state.node(id);
    if (!has_mode(n, PointwiseMode::binary_select)) continue;
    const NodeId exponential = state.producer(n.inputs[0]);
    if (exponential >= 0 && has_mode(state.node(exponential), PointwiseMode::exp))
      a.probabilities = n.outputs[0];
  }
  if (a.probabilities < 0 || !find_weights(state, a)) return false;
  // The score's product, and its sums times the scale.
  std::set<NodeId> before;
  collect(state, r, a.score, before);
  TensorId sums = kNoTensor;
  for (NodeId id : before)
    if (state.node(id).op == OpKind::matmul) sums = state.node(id).outputs[0];
  if (sums < 0) return false;
  a.scaled = r.attributes.attn_scale == 1 ? sums : kNoTensor;
  for (NodeId id : before) {
    const Node& n = state.node(id);
    if (!has_mode(n, PointwiseMode::mul) || a.scaled >= 0) continue;
    for (std::size_t side : {0u, 1u})
      if (n.inputs[side] == sums && g[n.inputs[1 - side]].has_value &&
          g[n.inputs[1 - side]].value == r.attributes.attn_scale)
        a.scaled = n.outputs[0];
  }
  if (a.scaled < 0 || r.outputs[kDQ] < 0) return a.scaled >= 0;
  // dQ is its product, or that times the scale.
  a.dq_sums = r.outputs[kDQ];
  const NodeId scaling = state.producer(a.dq_sums);
  if (scaling >= 0 && has_mode(state.node(scaling), PointwiseMode::mul))
    for (std::size_t side : {0u, 1u})
      if (g[state.node(scaling).inputs[1 - side]].has_value)
        a.dq_sums = state.node(scaling).inputs[side];
  const NodeId product = state.producer(a.dq_sums);
  return product >= 0 && state.node(product).op == OpKind::matmul;
}

}  // namespace

namespace {

// Of q, k, v and dO.
DataType multiplied_type(const FusionState& state, const Region& region) {
  const Graph& g = state.graph();
  const TensorId operands[] = {region.inputs[kQ], region.inputs[kK], region.inputs[kV],
                               region.inputs[kDO]};
  std::vector<NodeId> products;
  for (NodeId n : region.nodes)
    if (state.node(n).op == OpKind::matmul) products.push_back(n);
  const Dims &q = g[operands[0]].dim, &v = g[operands[2]].dim;
  return multiplied_type(state, operands, products, std::min({q[2], q[3], v[2], v[3]}));
}

}  // namespace

std::optional<AttentionBackwardNodes> attention_backward_at(const FusionState& state, NodeId last) {
  const Graph& g = state.graph();
  const Region* const region = state.region_of(last);
  if (!region || region->op != OpKind::sdpa_backward || is_paged(*region)) return {};
  int found = 0;
  NodeId final = -1;
  for (NodeId n : region->nodes) {
    if (state.node(n).op != OpKind::matmul) continue;
    if (g.arithmetic(state.node(n)) != DataType::f32) return {};
    ++found, final = n;
  }
  if (found != products(*region) || final != last) return {};
  for (int port : {kPorts.seq_q, kPorts.seq_kv, kPorts.block_mask, static_cast<int>(kStats)})
    if (!in_memory(state, input(*region, port))) return {};
  if (!reads_sequences(state, *region, kPorts)) return {};
  // Backward V that is computed is not there where dV alone is wanted, which does not need it.
  for (std::size_t i : {kQ, kK, kV, kDO})
    if (region->inputs[i] < 0) return {};
  if (multiplied_type(state, *region) == DataType::none) return {};
  if (g[region->inputs[kK]].dim[1] != g[region->inputs[kV]].dim[1]) return {};
  // Heads of one element: infinite Q (the Stats of rows that see nothing) makes scores that are
  // infinite rather than NaN, and weights of zero that must hide it, which the expansion's do.
  for (std::size_t i : {kQ, kV})
    if (g[region->inputs[i]].dim[3] == 1) return {};
  // What the kernel stores without a body is rounded to the type of the buffer alone, which may be
  // wider where the gradient is only moved into a larger or transposed one.
  for (std::size_t i : {kDK, kDV, kDBias})
    if (const TensorId t = region->outputs[i];
        t >= 0 && !holds(g[t].data_type, state.storage()[t].type))
      return {};
  AttentionBackwardNodes a;
  a.region = region;
  if (!find_tensors(state, a)) return {};
  // What the kernel computes; Delta, and the sink's gradient, which is made of it, others do.
  std::set<NodeId> of_delta, of_products;
  collect(state, *region, a.delta, of_delta);  // of none: nothing
  for (std::size_t i : {kDQ, kDK, kDV, kDBias})
    collect(state, *region, region->outputs[i], of_products);
  for (NodeId n : region->nodes)
    if (of_products.contains(n) && !of_delta.contains(n)) a.nodes.push_back(n);
  for (NodeId n : a.nodes)
    for (TensorId t : state.node(n).outputs)
      if (t >= 0 && !contains(region->outputs, t) && state.needed_outside(t, a.nodes)) return {};
  return a;
}

std::optional<KernelSpec> attention_backward_spec(const FusionState& state,
                                                  const AttentionBackwardNodes& attention) {
  const Graph& g = state.graph();
  const Region& r = *attention.region;
  const Dims &q = g[r.inputs[kQ]].dim, &v = g[r.inputs[kV]].dim;
  KernelSpec spec;
  spec.family = Backward{};
  spec.nodes = attention.nodes;
  spec.extent = {q[0], q[1], q[2], v[2], q[3], v[3]};
  Backward& to = spec.attention_backward();
  to.group = v[1] > 0 ? q[1] / v[1] : 1;
  to.scale = r.attributes.attn_scale;
  to.deterministic = r.attributes.deterministic;
  to.band = attention.band;
  const auto builder = [&](Body& body, const Dims& dim, int row, int column) {
    std::vector<Coordinate> at;
    for (int i : {0, 1, row, column}) at.push_back(index_coordinate(spec.extent.size(), i));
    return BodyBuilder(state, spec, body, attention.nodes, dim, std::move(at));
  };
  const DataType type = multiplied_type(state, r);
  const auto operand = [&](ProductOperand& o, std::size_t port, int row, int column) {
    const TensorId t = r.inputs[port];
    o.type = type;
    builder(o.body, g[t].dim, row, column).value(t);
  };
  operand(to.q, kQ, Backward::m, Backward::d);
  operand(to.k, kK, Backward::n, Backward::d);
  operand(to.v, kV, Backward::n, Backward::e);
  operand(to.d_o, kDO, Backward::m, Backward::e);
  const auto accumulator = [&](TensorId t) {
    Statement s = statement(StatementKind::accumulator, DataType::f32, g[t].name);
    s.dim = 0;
    return s;
  };
  // From one tensor of the scores' dims to another.
  const auto between = [&](Body& body, TensorId from, TensorId until, int number = 0) {
    body.statements.push_back(accumulator(from));
    body.statements.back().dim = number;
    BodyBuilder scores = builder(body, {q[0], q[1], q[2], v[2]}, Backward::m, Backward::n);
    scores.define(from, 0);
    body.statements.resize(static_cast<std::size_t>(scores.value(until)) + 1);
  };
  const auto rounded = [&](Body& body, TensorId t) {
    if (t >= 0 && g.type(t) != DataType::f32) between(body, t, t);
  };
  const bool has_blocks = std::ranges::any_of(
      attention.nodes, [&](NodeId n) { return state.node(n).op == OpKind::block_mask; });
  // As a part of the score, too, it saves nothing but tiles, and looking for these costs orders of
  // their walk, and parts, which few tiles of keys need to fill the device. (Neither number is
  // measured.)
  constexpr double kMostVisited = 0.9, kLeastOfDevice = 0.75;
  const bool apart = attention.unmasked == attention.scaled && to.scale > 0 && !wanted(r, kDBias) &&
                     v[2] > kFewKeysUnderMask && masks_pairs(type, q[3], v[3], state.device());
  const double tiles =
      std::ceil(static_cast<double>(v[2]) / kMaskBlock) * static_cast<double>(v[0] * v[1]);
  if (!has_blocks && attention.mask.condition >= 0 &&
      (apart || tiles >= kLeastOfDevice * state.device().sms) &&
      computes(state, attention.nodes, attention.mask.condition)) {
    to.masks_pairs = apart;
    put_mask(to.mask, builder(to.mask, {q[0], q[1], q[2], v[2]}, Backward::m, Backward::n),
             attention.mask);
    if (!apart && visited_share(spec) > kMostVisited) to.mask = {};
  }
  const TensorId score = to.masks_pairs ? attention.unmasked : attention.score;
  const bool written = r.written_out;
  if (written) {
    rounded(to.rounded_dp, attention.dp);
    rounded(to.rounded_ds, attention.of_score);
  }
  if (score != attention.scaled || to.scale <= 0 || wanted(r, kDBias) ||
      (written &&
       (g.type(attention.scaled) != DataType::f32 || attention.of_sums != attention.of_score))) {
    between(to.score, attention.scaled, score);
    if (written) {
      between(to.gradient, attention.of_score, attention.of_sums, 1);
    } else {
      auto gradient = derivative(spec, to.score);
      if (!gradient) return {};
      to.gradient = std::move(*gradient);
    }
  }
  if (attention.weights != attention.before_dropout)
    between(to.weight, attention.before_dropout, attention.weights);
  for (NodeId n : attention.nodes)
    if (state.node(n).op == OpKind::block_mask) {
      builder(to.mask, {q[0], q[1], q[2], v[2]}, Backward::m, Backward::n)
          .value(state.node(n).outputs[0]);
      spec.gathers.back().indices = {0, Backward::head, Backward::m, Backward::n};
    }
  Body none;
  const auto port = [&](TensorId t, int row, int column, const Dims& dim, bool written) {
    return t < 0 ? -1 : builder(none, dim, row, column).port(t, written);
  };
  if (to.band.padding || to.band.bottom_right) {
    to.length_q = port(input(r, kPorts.seq_q), Backward::m, Backward::d, q, false);
    to.length_kv = port(input(r, kPorts.seq_kv), Backward::m, Backward::d, q, false);
  }
  to.sequences = packed_sequences(state, spec, input(r, kPorts.cu_q), input(r, kPorts.cu_kv));
  to.band.padding = to.band.padding || to.sequences.count > 0;
  (attention.total >= 0 ? to.largest : to.stats) =
      port(r.inputs[kStats], Backward::m, Backward::d, q, false);
  to.total = port(attention.total, Backward::m, Backward::d, q, false);
  // A sink's gradient may need it where no score's does.
  if (wants_ds(r)) to.delta = port(attention.delta, Backward::m, Backward::d, q, false);
  if (wanted(r, kDQ)) {
    to.dq.statements.push_back(accumulator(attention.dq_sums));
    BodyBuilder dq = builder(to.dq, q, Backward::m, Backward::d);
    dq.define(attention.dq_sums, 0);
    dq.store(r.outputs[kDQ]);
  }
  to.dk = port(r.outputs[kDK], Backward::n, Backward::d, g[r.inputs[kK]].dim, true);
  to.dv = port(r.outputs[kDV], Backward::n, Backward::e, v, true);
  to.dbias = port(r.outputs[kDBias], Backward::m, Backward::n, {q[0], q[1], q[2], v[2]}, true);
  return spec;
}

}  // namespace sinter
