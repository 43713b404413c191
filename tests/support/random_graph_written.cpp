// Makers of what models write out in several nodes and planning takes as one: attention and its
// gradients, norms, quantisation, rotations, gated layers, chains of convolutions.
#include <algorithm>
#include <limits>

#include "support/random_graph_steps.hpp"

namespace sinter::test {
namespace {

using M = PointwiseMode;

// ---- attention

struct Heads {
  std::int64_t b, h, hk, m, n, d;
  bool entries = false;  // products of [b h, rows, columns]
  Dims scores() const { return {b, h, m, n}; }
  Dims rows() const { return {b, h, m, 1}; }
  Dims flat(std::int64_t r, std::int64_t c) const { return {b * h, r, c}; }
};

bool varies(const Grower& g) { return g.options().seed >= kLayersVary; }
// Drawn apart, so that graphs of earlier seeds stay what they are.
bool chance_apart(const Grower& g, double probability) {
  Random apart(g.options().seed + 5 + g.graph().nodes().size());
  return g.options().seed >= kStoredVary && apart.chance(probability);
}

Heads draw_heads(Grower& g) {
  auto& r = g.random;
  Heads a{};
  a.d = r.pick({8, 16, 32, 64, 64, 40, 128});
  const auto most = 2 * g.most() / a.d;  // rows of an operand
  a.b = r.between(1, 2);
  a.h = r.pick({1, 2, 2, 3, 4});
  a.hk = r.chance(0.7) ? a.h : g.divisor(a.h);
  const auto length = [&] {
    return g.extent_from_one(std::clamp<std::int64_t>(most / (a.b * a.h), 1, 160));
  };
  a.m = length();
  a.n = r.chance(0.4) ? a.m : length();
  if (chance_apart(g, 0.01)) a.n = 0;
  a.entries = a.hk == a.h && r.chance(0.25);
  return a;
}

// [b, h, rows, d], stored so or with the heads of a row side by side, alone or packed.
TensorId heads_of(Steps& s, const Heads& a, std::int64_t heads, std::int64_t rows) {
  Grower& g = s.g;
  const double p = g.random.real(0, 1);
  if (p < 0.5) return g.operand({a.b, heads, rows, a.d});
  if (p < 0.75) return s.transpose(g.operand({a.b, rows, heads, a.d}), {0, 2, 1, 3});
  if (p < 0.85)
    return s.transpose(s.reshape(g.operand({a.b, rows, heads * a.d}), {a.b, rows, heads, a.d}),
                       {0, 2, 1, 3});
  const TensorId packed = g.operand({a.b, rows, 2 * heads * a.d});
  const auto first = g.random.between(0, 1) * heads * a.d;
  const TensorId own = s.part(packed, 2, first, first + heads * a.d);
  return s.transpose(s.reshape(own, {a.b, rows, heads, a.d}), {0, 2, 1, 3});
}

// Keys and values of all heads: as they are (a product groups them), or repeated.
TensorId repeated(Steps& s, const Heads& a, TensorId x) {
  if (a.hk == a.h || s.g.random.chance(0.5)) return x;
  const TensorId one = s.reshape(x, {a.b, a.hk, 1, a.n, a.d});
  const Dims each{a.b, a.hk, a.h / a.hk, a.n, a.d};
  const TensorId all = s.g.add(OpKind::pointwise, PointwiseAttributes{},
                               {one, kNoTensor, kNoTensor}, {{true, each, DataType::none}})[0];
  return s.reshape(all, {a.b, a.h, a.n, a.d});
}

// Any comparison of column and row, or of their distance and a number, seen where it holds or where
// it does not.
TensorId masked_by_index(Steps& s, TensorId x, TensorId row, TensorId hidden) {
  auto& r = s.g.random;
  const M mode =
      r.pick({M::cmp_le, M::cmp_le, M::cmp_lt, M::cmp_ge, M::cmp_gt, M::cmp_neq, M::cmp_eq});
  TensorId left = s.index(x, 3), right = row;
  if (r.chance(0.4)) {
    left = s.pointwise(M::sub, {left, right}, f32);
    right = s.number(static_cast<double>(r.between(-3, 3)));
  }
  if (r.chance(0.4)) std::swap(left, right);
  TensorId seen = s.pointwise(mode, {left, right}, boolean);
  if (r.chance(0.2)) seen = s.pointwise(M::identity, {seen}, boolean);
  if (r.chance(0.3)) seen = s.pointwise(M::logical_not, {seen}, boolean);
  return r.chance(0.6) ? s.pointwise(M::binary_select, {x, hidden, seen})
                       : s.pointwise(M::binary_select, {hidden, x, seen});
}

TensorId masked(Steps& s, const Heads& a, TensorId x) {
  Grower& g = s.g;
  const double p = g.random.real(0, 1);
  const auto bias = [&] {
    Dims d = a.scores();
    for (int i = 0; i < 4; ++i)
      if (g.random.chance(i < 2 ? 0.5 : 0.25)) d[i] = 1;
    return d;
  };
  if (p < 0.35) return x;
  if (p < 0.6) return s.pointwise(M::add, {x, g.operand(bias())});
  if (p < 0.7) {  // slopes
    const TensorId distance = s.pointwise(M::sub, {s.index(x, 3), s.index(x, 2)});
    const TensorId slope = g.operand({1, a.h, 1, 1});
    return s.pointwise(M::add, {x, s.pointwise(M::mul, {distance, slope})});
  }
  const double number = g.random.pick({-1e9, -1e4, -30000.0});
  const TensorId hidden =
      s.number(chance_apart(g, 0.4) ? -std::numeric_limits<double>::infinity() : number);
  TensorId seen;
  if (p < 0.8) {
    seen = s.pointwise(M::cmp_gt, {g.operand(bias()), s.number(-0.5)}, boolean);
  } else {
    TensorId row = s.index(x, 2);
    if (g.random.chance(0.3))
      row = s.pointwise(M::add, {row, s.number(static_cast<double>(a.n - a.m))}, f32);
    if (varies(g)) return masked_by_index(s, x, row, hidden);
    seen = s.pointwise(M::cmp_le, {s.index(x, 3), row}, boolean);
  }
  return s.pointwise(M::binary_select, {x, hidden, seen});
}

// A softmax in a form of its own: with a column that has no value, or by the logarithm of the sum.
TensorId weights_of(Steps& s, const Heads& a, TensorId x) {
  auto& r = s.g.random;
  if (r.chance(0.5)) {
    const TensorId all = s.joined({x, s.g.operand(a.rows())}, 3);
    return s.part(s.softmax(all, a.rows(), -1), 3, 0, a.n);
  }
  const TensorId largest = s.reduce(ReductionMode::max, x, a.rows());
  const TensorId e = s.pointwise(M::exp, {s.pointwise(M::sub, {x, largest})});
  const TensorId log = s.pointwise(M::log, {s.reduce(ReductionMode::add, e, a.rows())});
  return s.pointwise(M::exp, {s.pointwise(M::sub, {x, s.pointwise(M::add, {largest, log})})});
}
// Without the largest score: of rows that are not masked.
TensorId weights_without_largest(Steps& s, const Heads& a, TensorId x) {
  const TensorId e = s.pointwise(M::exp, {x});
  return s.pointwise(M::div, {e, s.reduce(ReductionMode::add, e, a.rows())});
}

// The gradients of O = P V: dQ, dK and dV, those that are drawn.
void written_gradients(Steps& s, const Heads& a, TensorId q, TensorId k, TensorId v, TensorId p,
                       TensorId o, double scale) {
  Grower& g = s.g;
  const TensorId d_o = heads_of(s, a, a.h, a.m);
  const TensorId dp = s.matmul(d_o, s.transpose(v, {0, 1, 3, 2}));
  const bool of_o = g.random.chance(0.4);
  const TensorId p_dp = s.pointwise(M::mul, {p, dp});
  const TensorId terms = of_o ? s.pointwise(M::mul, {d_o, o}) : p_dp;
  const TensorId delta = s.reduce(ReductionMode::add, terms, a.rows());
  TensorId ds = g.random.chance(0.5) ? s.pointwise(M::mul, {p, s.pointwise(M::sub, {dp, delta})})
                                     : s.pointwise(M::sub, {p_dp, s.pointwise(M::mul, {p, delta})});
  ds = s.pointwise(M::mul, {ds, s.number(scale)});
  if (g.random.chance(0.8)) s.narrowed(s.matmul(ds, k));
  if (g.random.chance(0.8)) s.narrowed(s.matmul(s.transpose(ds, {0, 1, 3, 2}), q));
  if (g.random.chance(0.8)) s.narrowed(s.matmul(s.transpose(p, {0, 1, 3, 2}), d_o));
}

// ---- norms and quantisation

Dims image(Grower& g) {
  auto& r = g.random;
  const auto c = r.pick({4, 6, 8, 12, 16, 32, 64});
  const auto left = g.most() / c;
  const auto h = g.extent_from_one(std::min<std::int64_t>(left, 14));
  const auto w = g.extent_from_one(std::min<std::int64_t>(Grower::room(left, h), 14));
  const auto n = g.extent_from_one(std::min<std::int64_t>(Grower::room(left, h * w), 3));
  return {n, c, h, w};
}

// An image in the layout that most have; both are read and written in one graph.
TensorId image_operand(Grower& g, const Dims& dim) {
  return g.random.chance(0.5) ? g.input(dim, DataType::none, channels_last(dim)) : g.operand(dim);
}

}  // namespace

void grow_written_attention(Grower& g) {
  Steps s(g);
  auto& r = g.random;
  const Heads a = draw_heads(g);
  const double scale = r.pick({0.125, 0.25, 0.35355339, 1.0});
  TensorId q = heads_of(s, a, a.h, a.m), k = heads_of(s, a, a.hk, a.n),
           v = heads_of(s, a, a.hk, a.n);
  k = repeated(s, a, k);
  v = repeated(s, a, v);
  const bool of_q = r.chance(0.3);
  TensorId left = of_q ? s.pointwise(M::mul, {q, s.number(scale)}) : q;
  TensorId kt = s.transpose(k, {0, 1, 3, 2});
  TensorId x;
  if (a.entries) {
    left = s.reshape(left, a.flat(a.m, a.d));
    x = s.reshape(s.matmul(left, s.reshape(kt, a.flat(a.d, a.n))), a.scores());
  } else {
    x = s.matmul(left, kt);
  }
  const bool scaled_last = varies(g) && !of_q && r.chance(0.3);  // behind the mask
  if (scaled_last) x = masked(s, a, x);
  if (!of_q) x = s.pointwise(r.chance(0.5) ? M::mul : M::div, {x, s.number(scale)});
  if (r.chance(0.12)) {  // a soft cap
    const TensorId cap = s.number(5);
    x = s.pointwise(M::mul, {s.pointwise(M::tanh_fwd, {s.pointwise(M::div, {x, cap})}), cap});
  }
  const bool bare = varies(g) && !scaled_last && r.chance(0.1);
  if (!scaled_last && !bare) x = masked(s, a, x);
  TensorId p = bare                         ? weights_without_largest(s, a, x)
               : varies(g) && r.chance(0.4) ? weights_of(s, a, x)
                                            : s.softmax(x, a.rows(), r.chance(0.5) ? -1 : 3);
  if (r.chance(0.4)) p = s.narrowed(p);
  if (r.chance(0.15)) {
    RngAttributes rng;
    rng.distribution = Distribution::bernoulli;
    rng.probability = 0.8;
    const TensorId kept =
        g.add(OpKind::rng, rng, {g.seed(), g.seed()}, {{true, a.scores(), f32}})[0];
    p = s.pointwise(M::mul, {s.pointwise(M::mul, {p, kept}), s.number(1.25)});
  }
  TensorId o;
  if (a.entries)
    o = s.reshape(s.matmul(s.reshape(p, a.flat(a.m, a.n)), s.reshape(v, a.flat(a.n, a.d))),
                  {a.b, a.h, a.m, a.d});
  else
    o = s.matmul(p, v);
  if (r.chance(0.4) && g.dim(v)[1] == a.h && g.dim(k)[1] == a.h)
    return written_gradients(s, a, q, k, v, p, o, scale);
  if (r.chance(0.5)) o = s.narrowed(o);
  if (r.chance(0.4)) {
    o = s.reshape(s.transpose(o, {0, 2, 1, 3}), {a.b, a.m, a.h * a.d});
    if (r.chance(0.5)) s.matmul(o, g.operand({1, a.h * a.d, r.pick({16, 24, 40})}));
  }
}

// A norm over the groups of channels, or over any axes, and what follows it.
void grow_written_norm(Grower& g) {
  Steps s(g);
  auto& r = g.random;
  TensorId y;
  Dims scale;
  if (r.chance(0.5)) {
    const Dims d = image(g);
    const TensorId x = image_operand(g, d);
    const auto groups = r.pick({1, 2, static_cast<int>(d[1])});
    const auto in_group = d[1] / groups;
    const bool kept_apart = r.chance(0.5);
    const Dims split = kept_apart ? Dims{d[0], groups, in_group, d[2], d[3]}
                                  : Dims{d[0], groups, in_group * d[2] * d[3]};
    const Dims kept = kept_apart ? Dims{d[0], groups, 1, 1, 1} : Dims{d[0], groups, 1};
    y = s.reshape(s.normalized(s.reshape(x, split), kept), d);
    scale = {1, d[1], 1, 1};
  } else {
    const Dims d = g.dims(g.rank(2, 5), g.most());
    Dims kept = d;
    scale = g.ones(d.size());
    const bool last = r.chance(0.5);
    for (int i = 0; i < d.size(); ++i)
      if (last ? i + 1 == d.size() : r.chance(0.5)) {
        kept[i] = 1;
        scale[i] = d[i];
      }
    y = s.normalized(g.operand(d), kept);
  }
  if (r.chance(0.7)) y = s.pointwise(M::mul, {y, g.operand(scale)});
  if (r.chance(0.5)) y = s.pointwise(M::add, {y, g.operand(scale)});
  if (r.chance(0.4)) y = s.activation(y);
  if (r.chance(0.3)) y = s.pointwise(M::add, {y, g.operand(g.dim(y))});
  if (r.chance(0.3)) s.narrowed(y);
}

// Narrow numbers and a scale for all of them, for each row, each column or each block.
void grow_written_quantize(Grower& g) {
  Steps s(g);
  auto& r = g.random;
  const std::int64_t block = r.pick({4, 16, 32, 128});
  const auto blocks = g.extent_from_one(std::max<std::int64_t>(g.most() / 4 / block, 1));
  const auto rows = g.extent_from_one(Grower::room(g.most(), block * blocks));
  TensorId x = g.operand({rows, blocks * block});
  if (r.chance(0.4)) x = s.pointwise(M::mul, {x, g.operand({1, blocks * block})});
  if (r.chance(0.4)) x = s.normalized(x, {rows, 1});
  if (r.chance(0.3)) x = s.activation(x);
  Dims kept{rows, 1};
  const double p = r.real(0, 1);
  if (p < 0.15) kept = {1, 1};
  if (p > 0.85) kept = {1, blocks * block};
  const bool in_blocks = p > 0.4 && p < 0.8;
  if (in_blocks) {
    x = s.reshape(x, {rows, blocks, block});
    kept = {rows, blocks, 1};
  }
  const TensorId largest = s.reduce(ReductionMode::amax, x, kept);
  const TensorId scale =
      s.pointwise(M::max, {s.pointwise(M::mul, {largest, s.number(1.0 / 448)}), s.number(1e-6)});
  const TensorId y = s.pointwise(M::div, {x, scale}, r.pick({f8e4m3, f8e5m2, i8, f16}));
  if (in_blocks && r.chance(0.7)) s.reshape(y, {rows, blocks * block});
  if (!in_blocks && r.chance(0.3)) s.transpose(scale, {1, 0});
}

// x cos + rotated(x) sin: of halves, or of pairs side by side.
void grow_rotation(Grower& g) {
  Steps s(g);
  auto& r = g.random;
  const std::int64_t half = r.pick({2, 4, 8, 16, 32, 64}), d = 2 * half;
  const auto most = g.most() / d;
  const auto b = r.between(1, 2), h = r.between(1, 4);
  const auto rows = g.extent_from_one(std::max<std::int64_t>(most / (b * h), 1));
  const bool turned = r.chance(0.3);
  TensorId x =
      turned ? s.transpose(g.operand({b, rows, h, d}), {0, 2, 1, 3}) : g.operand({b, h, rows, d});
  if (varies(g) && r.chance(0.3)) x = s.normalized(x, {b, h, rows, 1});
  const Dims angles = r.chance(0.7) ? Dims{1, 1, rows, d} : Dims{b, 1, rows, d};
  const TensorId cosine = g.operand(angles), sine = g.operand(angles);
  TensorId other;
  if (r.chance(0.6)) {
    other = s.joined({s.pointwise(M::neg, {s.part(x, 3, half, d)}), s.part(x, 3, 0, half)}, 3);
  } else {
    const Dims pair{b, h, rows, half, 1};
    const TensorId even = s.reshape(s.part(x, 3, 0, d, 2), pair);
    const TensorId odd = s.reshape(s.part(x, 3, 1, d, 2), pair);
    other = s.reshape(s.joined({s.pointwise(M::neg, {odd}), even}, 4), {b, h, rows, d});
  }
  const TensorId y =
      s.pointwise(M::add, {s.pointwise(M::mul, {x, cosine}), s.pointwise(M::mul, {other, sine})});
  if (r.chance(0.5)) s.narrowed(y);
  if (r.chance(0.3)) s.transpose(y, {0, 2, 1, 3});
}

// act(A W1) * (A W2), of two products or of the halves of one, rows of experts or of one batch.
void grow_gated(Grower& g) {
  Steps s(g);
  auto& r = g.random;
  const std::int64_t k = r.pick({8, 16, 32, 64, 40, 128}), n = r.pick({8, 16, 24, 32, 64});
  const auto rows = g.extent_from_one(std::max<std::int64_t>(g.most() / std::max(k, 2 * n), 1));
  TensorId x = g.operand({1, rows, k});
  if (r.chance(0.3)) x = s.normalized(x, {1, rows, 1});
  if (r.chance(0.3)) x = s.narrowed(x);
  TensorId gate, up;
  if (r.chance(0.5)) {
    const TensorId both = s.matmul(x, g.operand({1, k, 2 * n}));
    gate = s.part(both, 2, 0, n);
    up = s.part(both, 2, n, 2 * n);
  } else {
    gate = s.matmul(x, g.operand({1, k, n}));
    up = s.matmul(x, g.operand({1, k, n}));
  }
  if (r.chance(0.3)) gate = s.pointwise(M::add, {gate, g.operand({1, 1, n})});
  TensorId y = s.pointwise(M::mul, {s.activation(gate), up});
  if (r.chance(0.4)) y = s.narrowed(y);
  if (r.chance(0.5)) y = s.matmul(y, g.operand({1, n, k}));
  if (g.dim(y) == g.dim(x) && r.chance(0.5)) s.pointwise(M::add, {y, x});
}

// Convolutions behind each other in layouts of any kind, with what stands between them.
void grow_convolutions(Grower& g) {
  Steps s(g);
  auto& r = g.random;
  const Dims d = image(g);
  const TensorId first = image_operand(g, d);
  TensorId x = first;
  for (int layers = static_cast<int>(r.between(2, 4)); layers > 0; --layers) {
    const Dims in = g.dim(x);
    ConvAttributes a;
    const std::int64_t filter = r.pick({1, 1, 3, 3, 5});
    const auto pad = r.chance(0.9) || in[2] < filter || in[3] < filter ? filter / 2 : 0;
    a.pre_padding = a.post_padding = {pad, pad};
    if (r.chance(0.15)) a.stride = {2, 2};
    const bool depthwise = r.chance(0.2);
    const std::int64_t k = depthwise ? in[1] : r.pick({in[1], d[1], std::int64_t{8}});
    if (depthwise)
      a.groups = in[1];
    else if (r.chance(0.15) && in[1] % 2 == 0 && k % 2 == 0)
      a.groups = 2;
    const Dims w{k, in[1] / a.groups, filter, filter};
    x = g.add(OpKind::conv_fprop, a, {x, image_operand(g, w)}, {{}})[0];
    if (r.chance(0.5)) x = s.pointwise(M::mul, {x, g.operand({1, k, 1, 1})});
    if (r.chance(0.6)) x = s.pointwise(M::add, {x, g.operand({1, k, 1, 1})});
    if (r.chance(0.6)) x = s.activation(x);
    if (g.dim(x) == g.dim(first) && r.chance(0.4)) x = s.pointwise(M::add, {x, first});
    if (r.chance(0.3)) x = s.narrowed(x);
    if (r.chance(0.15)) {  // squeeze and excitation, or the mean of the image
      const Dims y = g.dim(x);
      const TensorId mean = s.reduce(ReductionMode::avg, x, {y[0], y[1], 1, 1});
      x = s.pointwise(M::mul, {x, s.pointwise(M::sigmoid_fwd, {mean})});
    }
  }
}

// Parts that several nodes make, side by side in one tensor that others read.
void grow_joined_parts(Grower& g) {
  Steps s(g);
  auto& r = g.random;
  Dims d = g.dims(g.rank(2, 4), g.most() / 4);
  const auto axis = static_cast<int>(r.below(d.size()));
  std::vector<TensorId> parts;
  for (int left = static_cast<int>(r.between(2, 4)); left > 0; --left) {
    TensorId x = g.operand(d);
    Dims kept = d;
    kept[d.size() - 1] = 1;
    switch (r.below(6)) {
      case 0:
        x = s.softmax(x, kept, -1);
        break;
      case 1:
        x = s.normalized(x, kept);
        break;
      case 2:
        x = s.activation(x);
        break;
      case 3:
        x = s.matmul(x, g.operand({d[d.size() - 1], d[d.size() - 1]}));
        break;
      case 4:
        x = s.pointwise(M::sub, {x, s.reduce(ReductionMode::max, x, kept)});
        break;
      default:
        break;
    }
    if (r.chance(0.3)) s.pointwise(M::abs, {x});  // another reader
    parts.push_back(x);
  }
  TensorId y = s.joined(std::move(parts), axis);
  if (r.chance(0.5)) y = s.activation(y);
  if (r.chance(0.3)) s.reduce(ReductionMode::add, y, g.ones(d.size()));
  if (r.chance(0.2)) s.narrowed(y);
}

}  // namespace sinter::test
