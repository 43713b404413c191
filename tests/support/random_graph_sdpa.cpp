// Makers of attention and its gradient, with every optional input and attribute.
#include <algorithm>

#include "support/random_graph_grower.hpp"

namespace sinter::test {
namespace {

struct Attention {
  SdpaAttributes a;
  TensorId q = kNoTensor, k = kNoTensor, v = kNoTensor;
  std::int64_t b = 0, hq = 0, sq = 0, skv = 0, dv = 0;
  // By the order of the optional ports: Bias to CU_SEQ_LEN_KV.
  std::vector<TensorId> optional = std::vector<TensorId>(11, kNoTensor);
  // Descale_Q to Scale_O, which the gradient does not take.
  std::vector<TensorId> scales = std::vector<TensorId>(6, kNoTensor);
  DataType o = DataType::none;
  bool amax = false;
  TensorId& port(int forward_port) {
    return optional[static_cast<std::size_t>(forward_port - shapes::kSdpaPorts.bias)];
  }
};

Dims query_dims(Grower& g) {
  auto d =
      g.random.chance(0.7) ? g.random.pick({8, 16, 32, 64, 40}) : static_cast<int>(g.extent(80));
  if (g.options().seed >= kTrainingVary && g.random.chance(0.3))
    d = g.random.pick({72, 80, 96, 128, 128, 192, 256});
  const auto left = Grower::room(g.most(), at_least_one(d));
  const auto s = g.extent(std::min<std::int64_t>(left, 140));
  const auto h = g.extent(std::min<std::int64_t>(Grower::room(left, at_least_one(s)), 6));
  const auto b =
      g.extent(std::min<std::int64_t>(Grower::room(left, at_least_one(s) * at_least_one(h)), 3));
  return {b, h, s, d};
}

// Keys and values in pages of a common pool, reached through tables.
void draw_paged(Grower& g, Attention& t, std::int64_t hk, std::int64_t hv, std::int64_t d) {
  const auto page = g.divisor(t.skv), page_v = g.random.chance(0.7) ? page : g.divisor(t.skv);
  const auto side = [&](std::int64_t heads, std::int64_t size, std::int64_t width, int table) {
    const auto pages = t.skv / size, blocks = t.b * pages + g.random.below(3);
    t.port(table) = g.index_input({t.b, 1, pages, 1}, g.integer_type());
    return g.operand({blocks, heads, size, width});
  };
  t.k = side(hk, page, d, shapes::kSdpaPorts.page_k);
  t.v = side(hv, page_v, t.dv, shapes::kSdpaPorts.page_v);
}

void draw_operands(Grower& g, Attention& t, bool may_page) {
  t.q = g.primary(
      [&](const Dims& d) {
        return d.size() == 4 && volume({d[0], d[1]}) <= 32 && d[3] <= 256;
      },
      g.factor_limit(), [&] { return query_dims(g); });
  const Dims q = g.dim(t.q);
  t.b = q[0], t.hq = q[1], t.sq = q[2];
  const auto batch_heads = at_least_one(t.b) * at_least_one(t.hq);
  const auto rows = batch_heads * at_least_one(t.sq);
  const auto heads = [&] { return g.random.chance(0.5) ? t.hq : std::min(g.divisor(t.hq), t.hq); };
  const auto hk = heads(), hv = g.random.chance(0.8) ? hk : heads();
  t.dv = g.random.chance(0.7) ? q[3]
                              : g.extent(std::min<std::int64_t>(64, Grower::room(g.most(), rows)));
  const auto width = at_least_one(q[3] + t.dv);
  const auto most =
      std::min({Grower::room(g.most() * 2, rows), Grower::room(g.options().max_work, rows * width),
                Grower::room(g.most(), batch_heads * width)});
  t.skv = g.random.chance(0.4) ? std::min(t.sq, most) : g.extent(most);
  if (may_page && t.skv > 0 && g.random.chance(0.2)) {
    draw_paged(g, t, hk, hv, q[3]);
    return;
  }
  t.k = g.operand({t.b, hk, t.skv, q[3]});
  t.v = g.operand({t.b, hv, t.skv, t.dv});
}

void draw_masks(Grower& g, Attention& t) {
  auto& r = g.random;
  const auto& p = shapes::kSdpaPorts;
  t.a.causal_mask = r.chance(0.25);
  t.a.causal_mask_bottom_right = r.chance(0.15);
  if (r.chance(0.15)) t.a.left_bound = r.between(0, at_least_one(t.skv));
  if (r.chance(0.15)) t.a.right_bound = r.between(0, at_least_one(t.skv));
  t.a.padding_mask = r.chance(0.25);
  if (t.a.padding_mask || r.chance(0.08))
    t.port(p.seq_q) = g.index_input({t.b, 1, 1, 1}, g.integer_type());
  if (t.a.padding_mask || r.chance(0.08))
    t.port(p.seq_kv) = g.index_input({t.b, 1, 1, 1}, g.integer_type());
  t.a.alibi_mask = r.chance(0.12);
  if (r.chance(0.08))
    t.port(p.block_mask) =
        g.index_input({t.b, t.hq, (t.sq + 127) / 128, (t.skv + 1023) / 1024}, u8);
}

// Where nothing else forbids it, the only batch entry holds several sequences. Drawn by a copy of
// the random source, so that other graphs stay what they are.
void draw_packed(Grower& g, Attention& t) {
  const auto& p = shapes::kSdpaPorts;
  for (int port : {p.bias, p.seq_q, p.seq_kv, p.page_k, p.page_v, p.block_mask})
    if (t.port(port) != kNoTensor) return;
  Random apart = g.random;
  if (t.b != 1 || t.a.padding_mask || !apart.chance(0.4)) return;
  const Dims offsets{apart.between(2, 8), 1, 1, 1};
  const DataType type = apart.chance(0.7) ? i32 : i64;
  t.port(p.cu_q) = g.index_input(offsets, type);
  t.port(p.cu_kv) =
      t.sq == t.skv && apart.chance(0.5) ? t.port(p.cu_q) : g.index_input(offsets, type);
}

// Q, K and V of f8 with the scales of a quantised model: a number for the tensor, for each head or
// for each head of each batch entry. Drawn by a copy of the random source, as packed sequences are.
void draw_scales(Grower& g, Attention& t) {
  Random apart = g.random;
  if (g.exact() || !apart.chance(0.25)) return;
  const auto narrow = [&] { return apart.pick({f8e4m3, f8e4m3, f8e4m3, f8e5m2}); };
  for (TensorId* x : {&t.q, &t.k, &t.v})
    if (apart.chance(0.85)) *x = g.input(Dims(g.dim(*x)), narrow());
  for (TensorId& scale : t.scales) {
    if (!apart.chance(0.6)) continue;
    const Dims dim = apart.chance(0.6)   ? Dims{1, 1, 1, 1}
                     : apart.chance(0.5) ? Dims{1, t.hq, 1, 1}
                                         : Dims{t.b, t.hq, 1, 1};
    scale = g.input(dim, f32);
  }
  if (apart.chance(0.5)) t.o = narrow();
  t.amax = apart.chance(0.5);
}

Attention draw_attention(Grower& g, bool may_page) {
  Attention t;
  auto& r = g.random;
  const auto& p = shapes::kSdpaPorts;
  draw_operands(g, t, may_page);
  if (r.chance(0.7)) t.a.attn_scale = r.pick({0.125, 0.25, 0.35355339, 1.5, -0.5});
  if (r.chance(0.12)) t.a.softcap = r.pick({1.0, 5.0, 30.0});
  draw_masks(g, t);
  if (r.chance(0.25)) {
    Dims bias{t.b, t.hq, t.sq, t.skv};
    for (int i = 0; i < 4; ++i)
      if (r.chance(i < 2 ? 0.5 : 0.2)) bias[i] = 1;
    t.port(p.bias) = g.operand(bias);
  }
  if (r.chance(0.15)) {
    t.a.dropout_probability = r.pick({0.1, 0.5, 1e-6, 0.999});
    t.port(p.seed) = g.seed();
    t.port(p.offset) = g.seed();
  }
  if (r.chance(0.12)) t.port(p.sink) = g.operand({1, t.hq, 1, 1});
  draw_packed(g, t);
  return t;
}

// Attention takes no integers.
void make_floating(Grower& g, TensorId& t) {
  if (t == kNoTensor || is_floating(g.graph().type(t))) return;
  t = g.add(OpKind::pointwise, PointwiseAttributes{}, {t}, {{true, {}, f32}})[0];
}
void make_floating(Grower& g, Attention& t) {
  for (TensorId* x : {&t.q, &t.k, &t.v, &t.port(shapes::kSdpaPorts.bias)}) make_floating(g, *x);
}

std::vector<TensorId> add_forward(Grower& g, Attention& t, bool stats) {
  make_floating(g, t);
  SdpaAttributes a = t.a;
  if (g.random.chance(0.6)) a.generate_stats = stats;
  std::vector<TensorId> in{t.q, t.k, t.v};
  in.insert(in.end(), t.optional.begin(), t.optional.end());
  in.insert(in.end(), t.scales.begin(), t.scales.end());
  const DataType stats_type = g.random.chance(0.8) ? f32 : DataType::none;
  return g.add(OpKind::sdpa, a, in, {{true, {}, t.o}, {stats, {}, stats_type}, {t.amax, {}, f32}});
}

}  // namespace

void grow_sdpa(Grower& g) {
  Attention t = draw_attention(g, true);
  draw_scales(g, t);
  add_forward(g, t, g.random.chance(0.35));
}

// O and Stats come from a forward node of the graph, which is what they mean, or are inputs.
void grow_sdpa_backward(Grower& g) {
  Attention t = draw_attention(g, false);
  const Dims o_dim{t.b, t.hq, t.sq, t.dv};
  TensorId o, stats;
  if (g.nodes_left() > 1 && g.random.chance(0.65)) {
    const auto forward = add_forward(g, t, true);
    o = forward[0];
    stats = forward[1];
  } else {
    o = g.operand(o_dim);
    stats = g.input({t.b, t.hq, t.sq, 1}, f32);
  }
  make_floating(g, t);
  const TensorId d_o = g.operand(o_dim);
  SdpaAttributes a = t.a;
  Random apart = g.random;  // so that other graphs stay what they are
  a.deterministic = apart.chance(0.3);
  if (g.random.chance(0.1)) a.generate_stats = g.random.chance(0.5);
  std::vector<TensorId> in{t.q, t.k, t.v, o, d_o, stats};
  in.insert(in.end(), t.optional.begin(), t.optional.end());
  const bool has_bias = t.port(shapes::kSdpaPorts.bias) != kNoTensor;
  const bool dk = g.random.chance(0.8), dv = g.random.chance(0.8);
  bool dq = (!dk && !dv) || g.random.chance(0.85);
  const bool dbias = has_bias && g.random.chance(0.7);
  Random of_sink(apart.bits());  // other numbers than those that are drawn from g.random again
  const bool dsink = t.port(shapes::kSdpaPorts.sink) != kNoTensor && of_sink.chance(0.7);
  if (dsink) dq = dq && of_sink.chance(0.7);
  g.add(OpKind::sdpa_backward, a, in, {{dq}, {dk}, {dv}, {dbias}, {dsink}});
}

}  // namespace sinter::test
