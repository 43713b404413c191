// Makers of layers as models train and serve them: convolutions and products with their gradients,
// attention's node among what models lay around it, experts, products of block-scaled numbers, the
// loss of classes and the steps of optimisers.
#include <algorithm>

#include "support/random_graph_steps.hpp"

namespace sinter::test {
namespace {

using M = PointwiseMode;

// Channels last, mostly.
TensorId laid_image(Grower& g, const Dims& dim) {
  return g.random.chance(0.75) ? g.input(dim, DataType::none, channels_last(dim)) : g.operand(dim);
}

std::int64_t tokens_of(Grower& g, std::int64_t widest) {
  return g.extent(std::max<std::int64_t>(g.most() / widest, 1));
}

M activation_gradient(Random& r) {
  return r.pick({M::relu_bwd, M::gelu_bwd, M::swish_bwd, M::tanh_bwd, M::gelu_approx_tanh_bwd,
                 M::sigmoid_bwd, M::softplus_bwd, M::elu_bwd});
}

struct Layer {
  ConvAttributes a;
  Dims x, w, y;
};

// A convolution as models have them, of one to three spatial dims.
Layer draw_layer(Grower& g) {
  auto& r = g.random;
  Layer l;
  const int spatial = r.chance(0.7) ? 2 : r.chance(0.6) ? 1 : 3;
  std::int64_t c = r.pick<std::int64_t>({3, 4, 8, 8, 16, 16, 24, 32, 64, 10, 48}),
               k = r.pick<std::int64_t>({4, 8, 16, 16, 32, 64, 24, 6, 40});
  const double p = r.real(0, 1);
  if (p < 0.15) {
    l.a.groups = c, k = r.chance(0.8) ? c : 2 * c;
  } else if (p < 0.35) {
    const auto width = r.pick<std::int64_t>({2, 4, 8, 16}), groups = r.between(2, 4);
    l.a.groups = groups, c = groups * width;
    k = groups * (r.chance(0.7) ? width : r.pick<std::int64_t>({1, 4, 8, 12}));
  }
  std::int64_t left = std::max<std::int64_t>(g.most() / std::max(c, k), 1);
  l.x = {1, c}, l.w = {k, c / l.a.groups}, l.y = {1, k};
  for (int i = 0; i < spatial; ++i) {
    const std::int64_t filter = r.pick<std::int64_t>({1, 1, 3, 3, 3, 2, 5, spatial == 1 ? 7 : 4}),
                       dilation = r.chance(0.12) ? 2 : 1, stride = r.chance(0.25) ? 2 : 1,
                       reach = dilation * (filter - 1) + 1;
    const std::int64_t extent =
        std::max(g.extent_from_one(std::min<std::int64_t>(left, spatial == 1 ? 200 : 24)), filter);
    std::int64_t pre = r.chance(0.7) ? reach / 2 : r.between(0, reach - 1), post = pre;
    if (r.chance(0.15)) post = r.between(0, reach - 1);
    if (extent + pre + post < reach) pre = post = reach;
    left = Grower::room(left, extent);
    l.x.push_back(extent), l.w.push_back(filter);
    l.y.push_back((extent + pre + post - reach) / stride + 1);
    l.a.pre_padding.push_back(pre), l.a.post_padding.push_back(post);
    l.a.stride.push_back(stride), l.a.dilation.push_back(dilation);
  }
  l.x[0] = l.y[0] = r.between(1, std::clamp<std::int64_t>(left, 1, 4));
  if (r.chance(0.1)) l.a.mode = ConvMode::convolution;
  return l;
}

TensorId one(const std::vector<TensorId>& results) { return results[0]; }

}  // namespace

// A convolution's gradients with what stands before and behind them; now and then it itself and a
// batch norm.
void grow_convolution_step(Grower& g) {
  Steps s(g);
  auto& r = g.random;
  const Layer l = draw_layer(g);
  TensorId x = laid_image(g, l.x);
  const TensorId w = laid_image(g, l.w);
  if (r.chance(0.25)) x = s.activation(x);
  TensorId y = kNoTensor, dy = laid_image(g, l.y);
  Dims channel = g.ones(l.y.size());
  channel[1] = l.y[1];
  if (r.chance(0.4)) {
    y = one(g.add(OpKind::conv_fprop, l.a, {x, w}, {{}}));
    if (r.chance(0.5)) y = s.pointwise(M::add, {y, g.operand(channel)});
    if (r.chance(0.4)) {  // statistics of the batch and the gradient through them
      const TensorId scale = g.input(channel);
      const bool running = r.chance(0.5);
      const auto kept = [&] { return running ? g.input(channel, f32) : kNoTensor; };
      const auto mean = kept(), variance = kept();
      const auto made = g.add(OpKind::batchnorm, NoAttributes{},
                              {y, scale, g.operand(channel), g.scalar(1e-3, f32), mean, variance,
                               running ? g.scalar(0.1, f32) : kNoTensor},
                              {{}, {}, {}, {running}, {running}});
      const TensorId z = s.pointwise(M::relu_fwd, {made[0]});
      dy = s.pointwise(M::relu_bwd, {dy, r.chance(0.5) ? z : made[0]});
      dy = one(g.add(OpKind::batchnorm_backward, NoAttributes{}, {dy, y, scale, made[1], made[2]},
                     {{}, {r.chance(0.8)}, {r.chance(0.8)}}));
    } else if (r.chance(0.6)) {
      s.narrowed(s.activation(y));
      dy = s.pointwise(activation_gradient(r), {dy, y});
    }
  } else if (r.chance(0.4)) {
    dy = s.pointwise(activation_gradient(r), {dy, laid_image(g, l.y)});
  }
  if (r.chance(0.4)) dy = s.narrowed(dy);
  if (r.chance(0.7)) {
    TensorId dx = one(g.add(OpKind::conv_dgrad, l.a, {dy, w}, {{true, l.x, DataType::none}}));
    if (r.chance(0.3)) dx = s.pointwise(M::add, {dx, laid_image(g, l.x)});
    if (r.chance(0.3)) dx = s.pointwise(activation_gradient(r), {dx, laid_image(g, l.x)});
    if (r.chance(0.3)) s.narrowed(dx);
  }
  if (r.chance(0.7)) {
    TensorId dw = one(g.add(OpKind::conv_wgrad, l.a, {dy, x}, {{true, l.w, DataType::none}}));
    if (r.chance(0.3)) dw = s.pointwise(M::add, {dw, s.pointwise(M::mul, {w, s.number(0.01)})});
    if (r.chance(0.3)) s.narrowed(dw);
  }
  if (r.chance(0.4)) s.reduce(ReductionMode::add, dy, channel);
}

// Y = act(X W + b) and its gradients, of tokens or of batches of them.
void grow_linear_step(Grower& g) {
  Steps s(g);
  auto& r = g.random;
  const auto width = [&] { return r.pick<std::int64_t>({8, 16, 24, 32, 64, 72, 128, 33}); };
  const std::int64_t k = width(), n = width(), rows = tokens_of(g, std::max(k, n)),
                     batch = r.chance(0.7) ? 1 : r.between(2, 3);
  const bool flat = r.chance(0.5);
  const auto matrix = [&](std::int64_t a, std::int64_t b) {
    return flat ? Dims{batch * a, b} : Dims{batch, a, b};
  };
  const auto turned = [&](TensorId x) {
    return flat ? s.transpose(x, {1, 0}) : s.transpose(x, {0, 2, 1});
  };
  const TensorId x = g.operand(matrix(rows, k)), w = g.operand(flat ? Dims{k, n} : Dims{1, k, n});
  TensorId dy = g.operand(matrix(rows, n));
  const Dims row = flat ? Dims{1, n} : Dims{1, 1, n};
  if (r.chance(0.5)) {
    TensorId y = s.matmul(x, w);
    if (r.chance(0.6)) y = s.pointwise(M::add, {y, g.operand(row)});
    if (r.chance(0.5)) s.narrowed(s.activation(y));
    if (r.chance(0.3)) y = s.narrowed(y);
    dy = s.pointwise(activation_gradient(r), {dy, y});
  } else if (r.chance(0.5)) {
    dy = s.pointwise(activation_gradient(r), {dy, g.operand(matrix(rows, n))});
  }
  if (r.chance(0.4)) dy = s.narrowed(dy);
  if (r.chance(0.7)) {
    TensorId dx = s.matmul(dy, turned(w));
    if (r.chance(0.3)) dx = s.pointwise(M::add, {dx, g.operand(matrix(rows, k))});
    if (r.chance(0.3)) s.narrowed(dx);
  }
  if (r.chance(0.8)) {
    TensorId dw = s.matmul(turned(x), dy);
    if (!flat && batch > 1 && r.chance(0.7)) dw = s.reduce(ReductionMode::add, dw, {1, k, n});
    if (r.chance(0.3)) dw = s.pointwise(M::mul, {dw, s.number(0.5)});
    if (r.chance(0.3)) s.narrowed(dw);
  }
  if (r.chance(0.6)) s.reduce(ReductionMode::add, dy, row);
}

// Tokens to experts, a gated unit or an activation, and back, weighted and added up.
void grow_experts(Grower& g) {
  Steps s(g);
  auto& r = g.random;
  const std::int64_t k = r.pick<std::int64_t>({8, 16, 32, 64, 24}),
                     n = r.pick<std::int64_t>({8, 16, 32, 48}), experts = r.between(1, 5),
                     each = r.between(1, 3),
                     tokens = std::min<std::int64_t>(tokens_of(g, each * std::max(k, n)), 64);
  const TensorId x = g.operand({1, tokens, k});
  const TensorId offsets = g.index_input({experts + 1}, g.integer_type());
  const std::int64_t rows = tokens * each;
  const bool gathers = r.chance(0.7) || each > 1;
  const TensorId from = gathers ? g.index_input({rows}, g.integer_type()) : kNoTensor;
  MoeAttributes first;
  if (gathers) first.mode = MoeMode::gather, first.top_k = each;
  const auto product = [&](const MoeAttributes& a, TensorId in, std::int64_t wide,
                           std::int64_t narrow, TensorId index) {
    return one(g.add(OpKind::moe_grouped_matmul, a,
                     {in, g.operand({experts, wide, narrow}), offsets, index}, {{}}));
  };
  TensorId y;
  if (r.chance(0.4)) {
    const TensorId gate = product(first, x, k, n, from), up = product(first, x, k, n, from);
    y = s.pointwise(M::mul, {s.activation(gate), up});
  } else if (r.chance(0.5)) {
    const TensorId both = product(first, x, k, 2 * n, from);
    y = s.pointwise(M::mul, {s.activation(s.part(both, 2, 0, n)), s.part(both, 2, n, 2 * n)});
  } else {
    y = s.activation(product(first, x, k, n, from));
  }
  if (r.chance(0.5)) y = s.narrowed(y);
  if (r.chance(0.2)) return;
  MoeAttributes second;
  const bool scatters = r.chance(0.6);
  if (scatters) second.mode = MoeMode::scatter;
  y = product(second, y, n, k, scatters ? g.index_input({rows}, g.integer_type()) : kNoTensor);
  if (r.chance(0.6)) y = s.pointwise(M::mul, {y, g.operand({1, rows, 1})});
  if (each > 1 && r.chance(0.7))
    y = s.reshape(s.reduce(ReductionMode::add, s.reshape(y, {tokens, each, k}), {tokens, 1, k}),
                  {1, tokens, k});
  if (g.dim(y) == g.dim(x) && r.chance(0.5)) y = s.pointwise(M::add, {y, x});
  if (r.chance(0.3)) s.narrowed(y);
}

// Attention's node: heads of one packed projection or of three, normed, rotated, masked; its
// result joined and projected; or its gradients, laid as the projection's.
void grow_attention_layer(Grower& g) {
  Steps s(g);
  auto& r = g.random;
  const std::int64_t d = r.pick<std::int64_t>({16, 32, 64, 64, 128, 80, 96, 192, 256, 40, 8}),
                     h = r.pick<std::int64_t>({1, 2, 2, 4, 3}),
                     hk = r.chance(0.6) ? h : g.divisor(h), b = r.between(1, 2);
  const std::int64_t most = std::max<std::int64_t>(2 * g.most() / (d * h * b), 1);
  const std::int64_t rows = g.extent(std::min<std::int64_t>(most, 200));
  const std::int64_t all = (h + 2 * hk) * d;
  TensorId packed = kNoTensor;
  if (r.chance(0.6)) {
    packed = g.operand({b, rows, all});
    if (r.chance(0.2)) packed = s.pointwise(M::add, {packed, g.operand({1, 1, all})});
  }
  const auto heads = [&](std::int64_t first, std::int64_t count) {
    if (packed == kNoTensor && r.chance(0.5)) return g.operand({b, count, rows, d});
    const TensorId own = packed == kNoTensor ? g.operand({b, rows, count * d})
                                             : s.part(packed, 2, first * d, (first + count) * d);
    return s.transpose(s.reshape(own, {b, rows, count, d}), {0, 2, 1, 3});
  };
  TensorId q = heads(0, h), k = heads(h, hk), v = heads(h + hk, hk);
  const bool norms = r.chance(0.25), rotates = r.chance(0.3) && d % 2 == 0;
  const TensorId cosine = rotates ? g.operand({1, 1, rows, d}) : kNoTensor,
                 sine = rotates ? g.operand({1, 1, rows, d}) : kNoTensor;
  for (TensorId* x : {&q, &k}) {
    const std::int64_t count = g.dim(*x)[1];
    if (norms)
      *x = s.pointwise(M::mul, {s.normalized(*x, {b, count, rows, 1}), g.operand({1, 1, 1, d})});
    if (!rotates) continue;
    const TensorId other =
        s.joined({s.pointwise(M::neg, {s.part(*x, 3, d / 2, d)}), s.part(*x, 3, 0, d / 2)}, 3);
    *x = s.pointwise(M::add,
                     {s.pointwise(M::mul, {*x, cosine}), s.pointwise(M::mul, {other, sine})});
  }
  for (TensorId* x : {&q, &k, &v})
    if (!is_floating(g.graph().type(*x)) || r.chance(0.5)) *x = s.narrowed(*x);
  SdpaAttributes a;
  a.attn_scale = r.pick({0.125, 0.25, 1.0, 0.0883883476});
  a.causal_mask = r.chance(0.4);
  if (r.chance(0.15)) a.left_bound = r.between(1, at_least_one(rows));
  if (r.chance(0.1)) a.softcap = 15;
  std::vector<TensorId> optional(11, kNoTensor);
  const auto at = [&](int port) -> TensorId& {
    return optional[static_cast<std::size_t>(port - shapes::kSdpaPorts.bias)];
  };
  if (r.chance(0.2)) {
    a.padding_mask = true;
    at(shapes::kSdpaPorts.seq_q) = g.index_input({b, 1, 1, 1}, i32);
    at(shapes::kSdpaPorts.seq_kv) = g.index_input({b, 1, 1, 1}, i32);
  } else if (b == 1 && r.chance(0.3)) {
    const Dims ends{r.between(2, 6), 1, 1, 1};
    at(shapes::kSdpaPorts.cu_q) = at(shapes::kSdpaPorts.cu_kv) = g.index_input(ends, i32);
  }
  std::vector<TensorId> in{q, k, v};
  in.insert(in.end(), optional.begin(), optional.end());
  in.resize(in.size() + 6, kNoTensor);
  const bool trains = r.chance(0.4);
  const auto made = g.add(OpKind::sdpa, a, in, {{}, {trains, {}, f32}, {false}});
  TensorId o = made[0];
  const auto joined = [&](TensorId x, std::int64_t count) {
    return s.reshape(s.transpose(x, {0, 2, 1, 3}), {b, rows, count * d});
  };
  if (!trains) {
    if (r.chance(0.3))
      o = s.pointwise(M::mul, {o, s.pointwise(M::sigmoid_fwd, {g.operand(g.dim(o))})});
    o = joined(o, h);
    if (r.chance(0.6)) o = s.matmul(o, g.operand({1, h * d, r.pick<std::int64_t>({16, 24, 40})}));
    if (r.chance(0.4)) o = s.pointwise(M::add, {o, g.operand(g.dim(o))});
    if (r.chance(0.4)) s.narrowed(o);
    return;
  }
  TensorId d_o = r.chance(0.5) ? g.operand({b, h, rows, d})
                               : s.transpose(g.operand({b, rows, h, d}), {0, 2, 1, 3});
  if (!is_floating(g.graph().type(d_o))) d_o = s.narrowed(d_o);
  a.deterministic = r.chance(0.3);
  std::vector<TensorId> of{q, k, v, o, d_o, made[1]};
  of.insert(of.end(), optional.begin(), optional.end());
  const auto gradients = g.add(OpKind::sdpa_backward, a, of, {{}, {}, {}, {false}});
  if (r.chance(0.5)) {
    const TensorId dq = joined(gradients[0], h), dk = joined(gradients[1], hk),
                   dv = joined(gradients[2], hk);
    const TensorId dx = s.joined({dq, dk, dv}, 2);
    if (r.chance(0.5)) s.narrowed(dx);
  }
}

// Products whose factors the nodes of block scaling make: stored ones, or one quantised here.
void grow_scaled_product(Grower& g) {
  Steps s(g);
  auto& r = g.random;
  const std::int64_t block = r.pick<std::int64_t>({16, 32, 32, 64, 128}), blocks = r.between(1, 3),
                     k = block * blocks, n = r.pick<std::int64_t>({8, 16, 24, 64, 40}),
                     rows = std::min<std::int64_t>(tokens_of(g, std::max(k, n)), 96);
  const auto scale_type = [&] { return r.pick({f8e8m0, f8e8m0, f32, f8e4m3, bf16}); };
  const auto number_type = [&] { return r.pick({f8e4m3, f8e4m3, f8e5m2, f4e2m1, i8}); };
  BlockScaleAttributes a;
  a.block_size = block;
  const auto dequantised = [&](TensorId x, TensorId scale, const BlockScaleAttributes& by) {
    const DataType type = r.chance(0.6) ? f32 : r.pick({bf16, f16});
    return one(g.add(OpKind::block_scale_dequantize, by, {x, scale}, {{true, {}, type}}));
  };
  TensorId x;
  if (r.chance(0.4)) {
    x = g.operand({rows, k});
    if (r.chance(0.4)) x = s.normalized(x, {rows, 1});
    if (r.chance(0.3)) x = s.activation(x);
    const auto made = g.add(OpKind::block_scale_quantize, a, {x},
                            {{true, {}, number_type()}, {true, {}, scale_type()}});
    x = dequantised(made[0], made[1], a);
  } else {
    x = r.chance(0.5) ? s.narrowed(g.operand({rows, k}))
                      : dequantised(g.input({rows, k}, number_type()),
                                    g.input({rows, blocks}, scale_type()), a);
  }
  TensorId w;
  if (r.chance(0.5)) {
    w = s.transpose(
        dequantised(g.input({n, k}, number_type()), g.input({n, blocks}, scale_type()), a), {1, 0});
  } else {
    BlockScaleAttributes rows_of_w = a;
    rows_of_w.axis = r.pick({0, -2});
    w = dequantised(g.input({k, n}, number_type()), g.input({blocks, n}, scale_type()), rows_of_w);
  }
  TensorId y = s.matmul(x, w);
  if (r.chance(0.4)) y = s.pointwise(M::add, {y, g.operand({1, n})});
  if (r.chance(0.4)) y = s.activation(y);
  if (r.chance(0.4)) s.narrowed(y);
}

// The loss of classes, of scores that a product gives or that lie in memory, and its gradient.
void grow_class_loss(Grower& g) {
  Steps s(g);
  auto& r = g.random;
  const std::int64_t n = r.pick<std::int64_t>({2, 10, 16, 33, 64, 100, 128, 257}),
                     rows = tokens_of(g, n);
  TensorId x = g.operand({rows, n});
  if (r.chance(0.3)) {
    const std::int64_t k = r.pick<std::int64_t>({8, 16, 32});
    x = s.matmul(g.operand({rows, k}), g.operand({k, n}));
  }
  const Dims kept{rows, 1};
  const TensorId largest = s.reduce(ReductionMode::max, x, kept);
  const TensorId centred = s.pointwise(M::sub, {x, largest});
  const TensorId e = s.pointwise(M::exp, {centred});
  const TensorId sum = s.reduce(ReductionMode::add, e, kept);
  const TensorId log_p = s.pointwise(M::sub, {centred, s.pointwise(M::log, {sum})});
  const DataType integers = r.pick({i32, i32, i64});
  const TensorId label = g.index_input({rows, 1}, integers);
  const TensorId chosen =
      s.pointwise(M::cmp_eq, {r.chance(0.5) ? s.index(x, 1) : s.index(log_p, -1), label}, boolean);
  TensorId own = r.chance(0.5)
                     ? s.pointwise(M::binary_select, {log_p, s.number(0), chosen})
                     : s.pointwise(M::mul, {log_p, s.pointwise(M::identity, {chosen}, f32)});
  own = s.pointwise(M::neg, {s.reduce(ReductionMode::add, own, kept)});
  if (r.chance(0.5)) s.reduce(r.pick({ReductionMode::avg, ReductionMode::add}), own, {1, 1});
  if (r.chance(0.4)) return;
  const TensorId p = r.chance(0.5) ? s.pointwise(M::div, {e, sum}) : s.pointwise(M::exp, {log_p});
  TensorId dx = s.pointwise(M::sub, {p, s.pointwise(M::identity, {chosen}, f32)});
  dx = s.pointwise(M::mul, {dx, r.chance(0.5) ? g.operand(kept) : s.number(0.25)});
  if (r.chance(0.5)) s.narrowed(dx);
}

// A parameter and what an optimiser keeps of it; now and then gradients are shortened to a norm.
void grow_update(Grower& g) {
  Steps s(g);
  auto& r = g.random;
  const Dims dim = g.dims(g.rank(1, 4), g.most());
  const TensorId p = g.input(dim, r.chance(0.7) ? f32 : DataType::none);
  TensorId gradient = g.operand(dim);
  if (r.chance(0.3)) {
    const TensorId norm = s.reduce(ReductionMode::norm2, gradient, g.ones(dim.size()));
    const TensorId share =
        s.pointwise(M::div, {s.number(1), s.pointwise(M::add, {norm, s.number(1e-3)})});
    gradient = s.pointwise(M::mul, {gradient, s.pointwise(M::min, {share, s.number(1)})});
  }
  if (r.chance(0.3))
    gradient = s.pointwise(M::add, {gradient, s.pointwise(M::mul, {p, s.number(0.01)})});
  const auto mixed = [&](TensorId old, TensorId with, double share) {
    return s.pointwise(M::add,
                       {s.pointwise(M::mul, {old, s.number(1 - share)}),
                        s.pointwise(M::mul, {with, s.number(share)})},
                       f32);
  };
  TensorId step = mixed(g.input(dim, f32), gradient, 0.125);
  if (r.chance(0.6)) {
    const TensorId old = s.pointwise(M::abs, {g.input(dim, f32)}, f32);
    const TensorId second = mixed(old, s.pointwise(M::mul, {gradient, gradient}), 0.01);
    step = s.pointwise(
        M::div, {step, s.pointwise(M::add, {s.pointwise(M::sqrt, {second}), s.number(1e-3)})});
  }
  const TensorId next = s.pointwise(
      M::sub, {p, s.pointwise(M::mul, {step, r.chance(0.5) ? s.number(0.01) : g.scalar(0.5, f32)})},
      f32);
  if (r.chance(0.5)) s.narrowed(next);
}

// The nodes of norms as models have them: behind a residual, before a product or a narrowing; and
// their gradients with the residual's added.
void grow_norm_layer(Grower& g) {
  Steps s(g);
  auto& r = g.random;
  const std::int64_t n = r.pick<std::int64_t>({16, 32, 33, 64, 96, 128, 256, 40}),
                     rows = tokens_of(g, n);
  const Dims dim = r.chance(0.5) ? Dims{1, rows, n} : Dims{rows, n};
  Dims scale = g.ones(dim.size()), kept = dim;
  scale[dim.size() - 1] = n;
  kept[dim.size() - 1] = 1;
  const bool rms = r.chance(0.6);
  TensorId x = g.operand(dim);
  if (r.chance(0.5)) x = s.pointwise(M::add, {x, g.operand(dim)});
  if (r.chance(0.2)) x = s.narrowed(x);
  const TensorId weight = g.input(scale);
  const bool trains = r.chance(0.5);
  const NormAttributes a{trains ? ForwardPhase::training : ForwardPhase::inference};
  const TensorId bias = r.chance(rms ? 0.1 : 0.7) ? g.operand(scale) : kNoTensor;
  std::vector<Result> results{{}};
  if (!rms) results.push_back({trains, {}, f32});
  results.push_back({trains, {}, f32});
  const auto made = g.add(rms ? OpKind::rmsnorm : OpKind::layernorm, a,
                          {x, weight, bias, g.scalar(r.pick({1e-5, 1e-3, 0.1}), f32)}, results);
  TensorId y = made[0];
  if (r.chance(0.2)) y = s.activation(y);
  if (r.chance(0.3)) s.pointwise(M::identity, {y}, r.pick({f8e4m3, f8e5m2, i8}));
  if (r.chance(0.3)) {
    const Dims w = dim.size() == 3 ? Dims{1, n, 16} : Dims{n, 16};
    s.narrowed(s.matmul(y, g.operand(w)));
  }
  if (!trains || r.chance(0.2)) return;
  TensorId dy = g.operand(dim);
  if (r.chance(0.3)) dy = s.pointwise(M::add, {dy, g.operand(dim)});
  std::vector<TensorId> in{dy, x, weight};
  in.insert(in.end(), made.begin() + 1, made.end());
  TensorId dx = one(g.add(rms ? OpKind::rmsnorm_backward : OpKind::layernorm_backward,
                          NoAttributes{}, in, {{}, {r.chance(0.8)}, {r.chance(0.6)}}));
  if (r.chance(0.5)) dx = s.pointwise(M::add, {dx, g.operand(dim)});
  if (r.chance(0.4)) s.narrowed(dx);
}

}  // namespace sinter::test
