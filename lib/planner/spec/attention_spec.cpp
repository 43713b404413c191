#include "planner/spec/attention_spec.hpp"

#include <algorithm>

#include "planner/match/index_mask.hpp"
#include "planner/spec/attention_by_hand.hpp"
#include "planner/spec/body_builder.hpp"
#include "planner/spec/body_copy.hpp"
#include "schedule/attention/forward.hpp"
#include "schedule/attention/forward_parts.hpp"
#include "sinter/ops/shapes_sdpa.hpp"

namespace sinter {

bool has_mode(const Node& n, PointwiseMode mode) {
  const auto* const p = std::get_if<PointwiseAttributes>(&n.attributes);
  return p && p->mode == mode;
}

namespace {

using A = AttentionSpec;

const PointwiseAttributes* pointwise(const Node& n) {
  return std::get_if<PointwiseAttributes>(&n.attributes);
}

// Adds the region's nodes between `t` and the first product, which come first.
void collect(const FusionState& state, const Region& region, TensorId t, AttentionNodes& a) {
  const NodeId p = t >= 0 ? state.producer(t) : -1;
  if (p < 0 || p == a.first || contains(a.nodes, p) || state.region_of(p) != &region) return;
  for (TensorId x : state.operands(p)) collect(state, region, x, a);
  if (!state.no_kernel(p) && !contains(a.nodes, p)) a.nodes.push_back(p);
}

// Finds the tensors by what the expansion of sdpa makes (lib/lower/sdpa.cpp).
bool find_tensors(const FusionState& state, const Region& region, AttentionNodes& a) {
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
  if (select >= 0 && contains(a.nodes, select) && state.region_of(select) == &region &&
      has_mode(state.node(select), PointwiseMode::binary_select)) {
    a.masked_score = a.score;
    a.score = state.node(select).inputs[0];
    for (NodeId n : a.nodes)
      if (state.node(n).op == OpKind::block_mask) a.mask.condition = state.node(n).outputs[0];
  }
  return true;
}

// A score that is the sums times a constant above zero.
std::optional<double> plain_scale(const FusionState& state, const AttentionNodes& a) {
  const Graph& g = state.graph();
  double scale = 1;
  const auto fits = [&](TensorId t) { return g.type(t) == DataType::f32; };  // not rounded
  TensorId t = a.score;
  while (t != a.sums) {
    const NodeId p = state.producer(t);
    if (p < 0 || !contains(a.nodes, p) || !pointwise(state.node(p)) || !fits(t)) return {};
    const Node& n = state.node(p);
    const auto value = [&](std::size_t i) {
      return i < n.inputs.size() && n.inputs[i] >= 0 && g[n.inputs[i]].has_value
                 ? g[n.inputs[i]].value
                 : 0.0;
    };
    if (has_mode(n, PointwiseMode::identity)) {
      t = n.inputs[0];
    } else if (has_mode(n, PointwiseMode::mul) && value(1) > 0) {
      t = n.inputs[0], scale *= value(1);
    } else if (has_mode(n, PointwiseMode::mul) && value(0) > 0) {
      t = n.inputs[1], scale *= value(0);
    } else if (has_mode(n, PointwiseMode::div) && value(1) > 0) {
      t = n.inputs[0], scale /= value(1);
    } else {
      return {};
    }
  }
  constexpr double kLeast = 1e-30, kMost = 1e30;  // of f32, with room for log2(e)
  return fits(a.sums) && scale > kLeast && scale < kMost ? std::optional(scale) : std::nullopt;
}

// Whether the heads that share one of k and v become rows of one product: where they fill its tiles
// better than queries alone do. What is gathered knows its indices by their place.
bool packs_heads(const FusionState& state, const AttentionNodes& a, std::int64_t group,
                 std::int64_t heads, std::int64_t queries, std::int64_t keys) {
  constexpr std::int64_t kRows = 64;
  const auto tiles = [](std::int64_t rows) { return (rows + kRows - 1) / kRows; };
  // Few queries of few keys that take one round either way are of a text with many.
  if (state.context().of_class && queries > 1 && keys <= kRows &&
      heads * tiles(queries) <= state.context().device.sms)
    return false;
  const bool gathers = std::any_of(a.nodes.begin(), a.nodes.end(), [&](NodeId n) {
    return state.node(n).op == OpKind::block_mask;
  });
  if (group <= 1 || gathers) return false;
  // A class that has a tile's queries at the most is one of fewer, too, which fill it better so.
  // (64 x 17 tokens of 32 heads, 8 of K and V, on an H200: 41 us not packed, 17 packed.) Warps have
  // tiles of fewer rows.
  if (state.context().of_class && state.context().device.has_wgmma && queries > 1 &&
      queries <= kRows)
    return true;
  return 5 * tiles(queries * group) <= 4 * tiles(queries) * group;
}

// The attention of an sdpa node.
std::optional<AttentionNodes> attention_of_region(const FusionState& state, NodeId second) {
  const Region* const region = state.region_of(second);
  if (!region || region->op != OpKind::sdpa) return {};
  const Node& last = state.node(second);
  const auto* const product = std::get_if<MatmulAttributes>(&last.attributes);
  if (!product || !product->of_attention) return {};
  for (int port : {shapes::kSdpaPorts.seq_q, shapes::kSdpaPorts.seq_kv, shapes::kSdpaPorts.sink})
    if (!in_memory(state, region->inputs[static_cast<std::size_t>(port)])) return {};
  if (!reads_sequences(state, *region, shapes::kSdpaPorts)) return {};
  AttentionNodes a;
  a.second = second;
  for (NodeId n : region->nodes)
    if (n != second && state.node(n).op == OpKind::matmul) {  // that of q and k
      if (a.first >= 0) return {};
      a.first = n;
    }
  if (a.first < 0) return {};
  a.nodes = {a.first};
  collect(state, *region, last.inputs[0], a);
  if (const TensorId stats = region->outputs[1]; stats >= 0) {
    collect(state, *region, stats, a);
    a.stats = stats;
  }
  a.nodes.push_back(second);
  if (!find_tensors(state, *region, a)) return {};
  a.f8_weights = product->f8_weights;
  a.band = {region->band.left, region->band.right, region->band.bottom_right,
            region->attributes.padding_mask};
  const auto input = [&](int port) { return region->inputs[static_cast<std::size_t>(port)]; };
  if (a.band.padding || a.band.bottom_right) {
    a.length_q = input(shapes::kSdpaPorts.seq_q);
    a.length_kv = input(shapes::kSdpaPorts.seq_kv);
  }
  a.sink = input(shapes::kSdpaPorts.sink);
  a.offsets_q = input(shapes::kSdpaPorts.cu_q);
  a.offsets_kv = input(shapes::kSdpaPorts.cu_kv);
  // A bias may hide keys by their place.
  if (!a.band.bounded() && a.offsets_q < 0) {
    if (a.mask.condition < 0)
      take_index_masks(state, a);
    else
      a.score = without_index_masks(state, a.score, a.band);
  }
  a.band.padding = a.band.padding || a.offsets_q >= 0;
  return a;
}

}  // namespace

bool computes(const FusionState& state, const std::vector<NodeId>& nodes, TensorId t) {
  const NodeId p = t < 0 ? -1 : state.graph()[t].producer;
  if (t < 0 || state.graph()[t].has_value) return true;
  if (p < 0 || (!contains(nodes, p) && !state.recomputed(p))) return false;
  const auto* const made = pointwise(state.node(p));
  return (made && made->mode == PointwiseMode::gen_index) ||
         std::ranges::all_of(state.operands(p),
                             [&](TensorId x) { return computes(state, nodes, x); });
}

void put_mask(Body& to, BodyBuilder builder, const IndexMask& mask) {
  const int seen = builder.value(mask.condition);
  if (mask.wanted) return;
  Statement no = statement(StatementKind::pointwise, DataType::f32, "seen");
  no.mode = PointwiseMode::logical_not;
  no.args = {seen};
  to.statements.push_back(std::move(no));
}

void take_index_masks(const FusionState& state, AttentionNodes& a) {
  AttentionBand band = a.band;
  IndexMask mask;
  const TensorId score = without_index_masks(state, a.score, band, &mask);
  a.score = a.masked_score = without_index_masks(state, a.score, a.band);
  if (mask.condition >= 0 && computes(state, a.nodes, mask.condition))
    a.mask = mask, a.score = score, a.band = band;
}

bool in_memory(const FusionState& state, TensorId t) {
  return t < 0 || state.producer(t) < 0 || !state.recomputed(state.producer(t));
}

bool reads_sequences(const FusionState& state, const Region& region,
                     const shapes::SdpaPorts& ports) {
  for (int port : {ports.cu_q, ports.cu_kv}) {
    const TensorId t = region.inputs[static_cast<std::size_t>(port)];
    if (t < 0) continue;
    if (!state.device().has_wgmma || !state.device().has_tma) return false;
    // ALiBi's distances are sums over the offsets, which a kernel's score does not compute.
    if (region.attributes.alibi_mask || !in_memory(state, t) || state.storage()[t].stride[0] != 1)
      return false;
  }
  return true;
}

PackedSequences packed_sequences(const FusionState& state, KernelSpec& spec, TensorId offsets_q,
                                 TensorId offsets_kv) {
  if (offsets_q < 0) return {};
  const auto port = [&](TensorId t) {
    const Location& at = state.storage()[t];
    Access access;
    access.offset = at.offset;
    access.stride = Dims::filled(spec.extent.size(), 0);
    return add_port(spec, state.graph(), t, at, access, false);
  };
  return {state.graph()[offsets_q].dim[0] - 1, port(offsets_q), port(offsets_kv)};
}

DataType attention_operand_type(const FusionState& state, TensorId t) {
  const Graph& g = state.graph();
  const Location& at = state.storage()[t];
  return attention_factor_type(at.type, is_computed(g, at.root), g.options().io);
}

DataType multiplied_type(const FusionState& state, std::span<const TensorId> operands,
                         std::span<const NodeId> products, std::int64_t terms) {
  const Graph& g = state.graph();
  const DataType type = attention_operand_type(state, operands[0]);
  if (type != DataType::none && std::all_of(operands.begin(), operands.end(), [&](TensorId t) {
        return attention_operand_type(state, t) == type;
      }))
    return type;
  const bool of_f32 = std::all_of(operands.begin(), operands.end(), [&](TensorId t) {
    const DataType stored = state.storage()[t].type;
    return is_floating(stored) && stored != DataType::f64;
  });
  if (!of_f32) return DataType::none;
  if (std::all_of(products.begin(), products.end(),
                  [&](NodeId n) { return g.compute(state.node(n)) == DataType::tf32; }))
    return DataType::tf32;
  // Three tf32 products lack 2^-22 of each product, as much as four roundings: sums of at least as
  // many terms may differ by that in any case, a sum of one may not.
  constexpr std::int64_t kFewest = 8;
  return terms >= kFewest ? DataType::f32 : DataType::none;
}

namespace {

// Of q, k and v. f32 only of an sdpa node, whose weights of zero hide what they meet.
DataType multiplied_type(const FusionState& state, const AttentionNodes& a) {
  const Graph& g = state.graph();
  const Node &first = state.node(a.first), &last = state.node(a.second);
  const TensorId operands[] = {first.inputs[0], first.inputs[1], last.inputs[1]};
  const NodeId products[] = {a.first, a.second};
  const DataType type = multiplied_type(state, operands, products,
                                        std::min(g[operands[0]].dim.back(), g[a.sums].dim.back()));
  return info(type).bytes == 2 || state.region_of(a.second) ? type : DataType::none;
}

}  // namespace

Dims attention_dims(const Dims& d) {
  Dims r = Dims::filled(4 - d.size(), 1);
  for (std::int64_t x : d) r.push_back(x);
  return r;
}

bool is_attention(const FusionState& state, const AttentionNodes& a) {
  const Graph& g = state.graph();
  const Node &first = state.node(a.first), &last = state.node(a.second);
  if (g.arithmetic(first) != DataType::f32 || g.arithmetic(last) != DataType::f32) return false;
  // Between score and weight the kernel rounds nothing.
  if (!a.written_out && g.type(a.sums) != DataType::f32) return false;
  const TensorId operands[] = {first.inputs[0], first.inputs[1], last.inputs[1]};
  if (multiplied_type(state, a) == DataType::none) return false;
  for (TensorId t : {operands[0], operands[1], operands[2], a.sums, last.outputs[0]})
    if (g[t].dim.size() > 4) return false;
  const Dims result = attention_dims(g[last.outputs[0]].dim), sums = attention_dims(g[a.sums].dim);
  if (sums[0] != result[0] || sums[1] != result[1]) return false;
  // Entries are the result's or are broadcast; heads may be shared, by as many in both of k and v.
  const Dims q = attention_dims(g[operands[0]].dim), k = attention_dims(g[operands[1]].dim),
             v = attention_dims(g[operands[2]].dim);
  for (const Dims& d : {q, k, v})
    if (d[0] != result[0] && d[0] != 1) return false;
  if (q[1] != result[1] && q[1] != 1) return false;
  if (k[1] != v[1] && k[1] != 1 && v[1] != 1) return false;
  for (NodeId n : a.nodes)
    for (TensorId t : state.node(n).outputs)
      if (t >= 0 && t != last.outputs[0] && t != a.stats && t != a.largest && t != a.total &&
          state.needed_outside(t, a.nodes))
        return false;
  return true;
}

std::vector<NodeId> nodes_of(const AttentionNodes& a) {
  std::vector<NodeId> nodes = a.views;
  for (NodeId n : {a.pages_k, a.pages_v})
    if (n >= 0) nodes.push_back(n);
  nodes.insert(nodes.end(), a.nodes.begin(), a.nodes.end());
  return nodes;
}

namespace {

// The gather whose result, or a view of it, is read by this node alone; the view goes to `views`.
NodeId pages_read_by(const FusionState& state, NodeId reader, TensorId operand,
                     std::vector<NodeId>& views) {
  const TensorId root = state.storage()[operand].root;
  const NodeId gather = state.producer(root);
  if (gather < 0 || state.node(gather).op != OpKind::page_gather || state.graph()[root].output)
    return -1;
  const auto read_alone = [&](TensorId t, NodeId by) {
    return state.consumers(t) == std::vector<NodeId>{by};
  };
  if (operand == root) return read_alone(root, reader) ? gather : -1;
  const NodeId view = state.producer(operand);
  if (view < 0 || !read_alone(operand, reader) || !read_alone(root, view)) return -1;
  views.push_back(view);
  return gather;
}

// Whether a kernel loads the pages of these nodes where they lie. Other operands need not lie so.
bool loads_pages(const FusionState& state, const AttentionNodes& a, CanRunAttention can_run) {
  KernelSpec spec = attention_spec(state, a, nodes_of(a));
  for (ProductOperand AttentionSpec::*which : not_loadable(spec, state.device()))
    if ((which == &AttentionSpec::k && a.pages_k >= 0) ||
        (which == &AttentionSpec::v && a.pages_v >= 0))
      return false;
  return can_run(state, std::move(spec));
}

}  // namespace

std::optional<AttentionNodes> attention_at(const FusionState& state, NodeId second,
                                           CanRunAttention can_run) {
  auto a = attention_of_region(state, second);
  const bool region = a && is_attention(state, *a);
  if (!region) a = attention_by_hand(state, second);
  // Stats are stored without a body, rounded to the type of their buffer alone, which may be wider
  // where they are only moved into it.
  if (a)
    for (TensorId t : {a->stats, a->largest, a->total})
      if (t >= 0 && !holds(state.graph()[t].data_type, state.storage()[t].type)) return {};
  if (!region) return a;
  const Graph& g = state.graph();
  const TensorId keys = state.node(a->first).inputs[1], values = state.node(a->second).inputs[1];
  const Dims k = attention_dims(g[keys].dim), v = attention_dims(g[values].dim);
  const std::int64_t entries = attention_dims(g[state.node(second).outputs[0]].dim)[0];
  // Pages are found by entry and head as they are, none of which may be broadcast.
  if (k[0] == entries && k[1] >= v[1]) a->pages_k = pages_read_by(state, a->first, keys, a->views);
  if (v[0] == entries && v[1] >= k[1])
    a->pages_v = pages_read_by(state, a->second, values, a->views);
  if ((a->pages_k >= 0 || a->pages_v >= 0) && !loads_pages(state, *a, can_run))
    a->pages_k = a->pages_v = -1, a->views.clear();
  return a;
}

KernelSpec attention_spec(const FusionState& state, const AttentionNodes& a,
                          const std::vector<NodeId>& nodes) {
  const Graph& g = state.graph();
  const Node &first = state.node(a.first), &last = state.node(a.second);
  const Dims q = attention_dims(g[first.inputs[0]].dim), k = attention_dims(g[first.inputs[1]].dim),
             v = attention_dims(g[last.inputs[1]].dim),
             result = attention_dims(g[last.outputs[0]].dim),
             scores = attention_dims(g[a.sums].dim);
  const DataType type = multiplied_type(state, a);
  KernelSpec spec;
  spec.family = AttentionSpec{};
  spec.nodes = nodes;
  A& to = spec.attention();
  const std::int64_t shared = std::max(k[1], v[1]), group = shared > 0 ? result[1] / shared : 1;
  const bool packed =
      a.offsets_q < 0 &&
      state.context().decisions.decide(Decisions::Kind::heads_packed, a.first, [&] {
        return packs_heads(state, a, group, result[0] * result[1], q[2], scores[3]) ? 1 : 0;
      }) != 0;
  to.group = packed ? 1 : group;
  spec.extent = {
      result[0], packed ? shared : result[1], packed ? group : 1, q[2], result[3], scores[3], q[3]};
  AttentionNodes masked = a;  // with the score that the kernel has
  to.band = a.band;
  to.written_out = a.written_out;
  to.adds_stats = a.adds_stats;
  to.zero_dominates = a.zero_dominates;
  to.f8_weights = a.f8_weights;
  // Of q's heads, or of those of k and v.
  const auto coordinates = [&](bool of_q, int row, int column) {
    const int rank = spec.extent.size();
    Coordinate head = index_coordinate(rank, A::head);
    if (of_q && packed) head.coefficient[A::head] = group, head.coefficient[A::member] = 1;
    return std::vector{index_coordinate(rank, 0), head, index_coordinate(rank, row),
                       index_coordinate(rank, column)};
  };
  const auto operand = [&](ProductOperand& o, TensorId t, int row, int column) {
    o.type = type;
    BodyBuilder(state, spec, o.body, {}, attention_dims(g[t].dim),
                coordinates(&o == &to.q, row, column))
        .value(t);
  };
  operand(to.q, first.inputs[0], A::query, A::d);
  // Rows of pages, as they are before they are gathered.
  const auto pages = [&](ProductOperand& o, NodeId gather, int column) {
    const TensorId t = state.node(gather).outputs[0];
    o.type = type;
    BodyBuilder(state, spec, o.body, {gather}, g[t].dim, coordinates(false, A::n, column)).value(t);
    spec.gathers.back().indices = {0, A::head, A::n, column};
  };
  if (a.pages_k >= 0)
    pages(to.k, a.pages_k, A::d);
  else
    operand(to.k, first.inputs[1], A::d, A::n);
  if (a.pages_v >= 0)
    pages(to.v, a.pages_v, A::e);
  else
    operand(to.v, last.inputs[1], A::n, A::e);
  // From one tensor of the scores' dims to another: what the body of a score or a weight computes.
  const auto between = [&](Body& body, TensorId from, TensorId until) {
    BodyBuilder builder(state, spec, body, a.nodes, scores, coordinates(true, A::query, A::n));
    Statement acc = statement(StatementKind::accumulator, DataType::f32, g[from].name);
    acc.dim = 0;
    body.statements.push_back(std::move(acc));
    builder.define(from, 0);
    const int value = builder.value(until);
    if (value + 1 < static_cast<int>(body.statements.size())) body.statements.resize(value + 1);
  };
  if (a.mask.condition >= 0 && visits_seen_tiles(spec, state.device())) {
    put_mask(to.mask, {state, spec, to.mask, a.nodes, scores, coordinates(true, A::query, A::n)},
             a.mask);
    to.zero_dominates = true;
  } else if (a.mask.condition >= 0) {
    masked.score = a.masked_score;
  }
  if (const auto scale = plain_scale(state, masked))
    to.scale = *scale;
  else
    between(to.score, a.sums, masked.score);
  if (a.weight != a.probabilities || a.rounds_weights) {
    between(to.weight, a.probabilities, a.weight);
    auto& made = to.weight.statements;
    if (a.rounds_weights && !rounds_divided(to.weight)) {
      Statement rounding = statement(StatementKind::convert, DataType::f32, made.back().label);
      rounding.type = type;
      rounding.args = {static_cast<int>(made.size()) - 1};
      made.push_back(std::move(rounding));
    }
  }
  for (Gather& gather : spec.gathers)
    if (gather.op == OpKind::block_mask) gather.indices = {0, A::head, A::query, A::n};

  std::vector<NodeId> epilogue;
  const std::vector<NodeId> own = nodes_of(a);
  for (NodeId n : nodes)
    if (!contains(own, n)) epilogue.push_back(n);
  BodyBuilder body(state, spec, spec.body, epilogue, result, coordinates(true, A::query, A::e));
  Statement acc = statement(StatementKind::accumulator, DataType::f32, g[last.outputs[0]].name);
  acc.dim = 0;
  spec.body.statements.push_back(std::move(acc));
  body.define(last.outputs[0], 0);
  if (state.needed_outside(last.outputs[0], nodes)) body.store(last.outputs[0]);
  for (NodeId n : epilogue)
    for (TensorId t : state.node(n).outputs)
      if (t >= 0 && state.needed_outside(t, nodes))
        state.node(n).op == OpKind::reduction ? body.column(state.node(n)) : body.store(t);
  const auto port = [&](TensorId t) { return t < 0 ? -1 : body.port(t, false); };
  to.length_q = port(a.length_q);
  to.length_kv = port(a.length_kv);
  to.sequences = packed_sequences(state, spec, a.offsets_q, a.offsets_kv);
  if (a.sink >= 0 && g[a.sink].has_value)
    to.sink_value = g[a.sink].value;
  else
    to.sink = port(a.sink);
  if (a.stats >= 0 && state.needed_outside(a.stats, nodes)) to.stats = body.port(a.stats, true);
  if (a.total >= 0) to.largest = body.port(a.largest, true), to.total = body.port(a.total, true);
  return spec;
}

}  // namespace sinter
