// Makers of the normalisations, forward and backward.
#include <algorithm>

#include "support/random_graph_grower.hpp"

namespace sinter::test {
namespace {

struct NormKind {
  OpKind forward, backward;
};
constexpr NormKind kKinds[] = {
    {OpKind::layernorm, OpKind::layernorm_backward},
    {OpKind::rmsnorm, OpKind::rmsnorm_backward},
    {OpKind::adaptive_layernorm, OpKind::adaptive_layernorm_backward},
    {OpKind::instancenorm, OpKind::instancenorm_backward},
    {OpKind::groupnorm, OpKind::groupnorm_backward},
    {OpKind::batchnorm, OpKind::batchnorm_backward},
};

// Extent on the axes that are normalised, 1 elsewhere; leading ones may be left out.
Dims scale_dims(Grower& g, OpKind forward, const Dims& x) {
  if (shapes::is_channel_norm(forward)) {
    Dims s = g.ones(x.size());
    s[1] = x[1];
    return s;
  }
  const bool adaptive = forward == OpKind::adaptive_layernorm;
  Dims s = g.ones(x.size());
  const bool usual = g.random.chance(0.7);
  const auto first = usual ? g.random.between(adaptive && x.size() > 1 ? 1 : 0, x.size() - 1) : 0;
  for (int i = 0; i < x.size(); ++i)
    if (usual ? i >= first : g.random.chance(0.5)) s[i] = x[i];
  if (adaptive) s[0] = g.random.chance(0.8) ? x[0] : 1;
  if (g.random.chance(0.3)) {  // NumPy's rule
    Dims tail;
    int from = 0;
    while (from + 1 < s.size() && s[from] == 1) ++from;
    for (int i = from; i < s.size(); ++i) tail.push_back(s[i]);
    s = tail;
  }
  return s;
}

TensorId epsilon(Grower& g) {
  const Dims one = g.ones(static_cast<int>(g.random.between(1, 4)));
  if (g.random.chance(0.06)) return g.input(one);
  if (g.random.chance(0.03)) return g.operand(one);
  return g.scalar(g.random.pick({1e-5, 1e-3, 1e-6, 0.1, 1.0}), g.random.pick({f32, f32, f64, f16}));
}

Dims norm_input(Grower& g, OpKind forward) {
  const bool channels = shapes::is_channel_norm(forward);
  Dims d = g.dims(channels ? g.rank(2, 6) : g.rank(1, 8), g.most());
  // One element alone has no variance, so that its statistics are all rounding.
  if (channels && d.size() > 2 && g.random.chance(0.7) && count(d) < g.most() / 8) d.back() *= 8;
  return d;
}

struct Norm {
  NormKind kind;
  TensorId x, scale;
  std::int64_t groups = 0;
};

Norm draw_norm(Grower& g) {
  Norm n{};
  n.kind = g.random.pick(kKinds);
  const int least = shapes::is_channel_norm(n.kind.forward) ? 2 : 1;
  n.x = g.primary([&](const Dims& d) { return d.size() >= least; }, g.term_limit(),
                  [&] { return norm_input(g, n.kind.forward); });
  const Dims x = g.dim(n.x);
  n.scale = g.operand(scale_dims(g, n.kind.forward, x));
  if (n.kind.forward == OpKind::groupnorm) n.groups = g.divisor(x[1]);
  return n;
}

Attributes forward_attributes(const Norm& n, ForwardPhase phase) {
  if (n.kind.forward == OpKind::batchnorm) return NoAttributes{};
  if (n.kind.forward == OpKind::groupnorm) return GroupNormAttributes{phase, n.groups};
  return NormAttributes{phase};
}

// Adds the forward node; returns its outputs.
std::vector<TensorId> add_forward(Grower& g, const Norm& n, bool statistics) {
  const OpKind op = n.kind.forward;
  const Dims bias_dim = g.dim(n.scale);
  const TensorId bias = g.random.chance(0.7) ? g.operand(bias_dim) : kNoTensor;
  std::vector<TensorId> in{n.x, n.scale, bias, epsilon(g)};
  const auto wanted = [&](double probability) { return Result{g.random.chance(probability)}; };
  const double p = statistics ? 1 : g.random.pick({0.0, 0.0, 0.5});
  std::vector<Result> out{{}};
  if (op != OpKind::rmsnorm) out.push_back(wanted(p));
  out.push_back(wanted(p));
  if (op == OpKind::batchnorm) {
    const Dims s = shapes::statistics_dim(op, g.dim(n.x), {}, 0);
    const bool running = g.random.chance(0.5);
    for (int i = 0; i < 2; ++i) in.push_back(running ? g.operand(s) : kNoTensor);
    const bool input = g.random.chance(0.2);
    in.push_back(!running ? kNoTensor : input ? g.input({1}) : g.scalar(0.1, f32));
    for (int i = 0; i < 2; ++i) out.push_back({running && g.random.chance(0.85)});
  }
  const bool training = statistics || p > 0;
  return g.add(op,
               forward_attributes(n, training ? ForwardPhase::training : ForwardPhase::inference),
               in, out);
}

}  // namespace

void grow_norm(Grower& g) {
  const Norm n = draw_norm(g);
  add_forward(g, n, g.random.chance(0.4));
}

void grow_norm_backward(Grower& g) {
  const Norm n = draw_norm(g);
  const bool rms = n.kind.forward == OpKind::rmsnorm;
  const Dims x = g.dim(n.x);
  const TensorId dy = g.operand(x);
  std::vector<TensorId> in{dy, n.x, n.scale};
  if (g.nodes_left() > 1 && g.random.chance(0.5)) {
    const auto forward = add_forward(g, n, true);
    for (int i = 1; i <= (rms ? 1 : 2); ++i) in.push_back(forward[static_cast<std::size_t>(i)]);
  } else {
    const Dims s = shapes::statistics_dim(n.kind.backward, x, g.dim(n.scale), n.groups);
    for (int i = 1; i <= (rms ? 1 : 2); ++i)
      in.push_back(g.random.chance(0.8) ? g.input(s) : g.operand(s));
  }
  Attributes a = NoAttributes{};
  if (n.kind.forward == OpKind::groupnorm)
    a = GroupNormBackwardAttributes{g.random.chance(0.5) ? n.groups : 0};
  const bool dscale = g.random.chance(0.75), dbias = g.random.chance(0.6);
  const bool dx = (!dscale && !dbias) || g.random.chance(0.85);
  g.add(n.kind.backward, a, in, {{dx}, {dscale}, {dbias}});
}

void grow_batchnorm_inference(Grower& g) {
  const TensorId x = g.primary([](const Dims& d) { return d.size() >= 2; }, g.term_limit(),
                               [&] { return norm_input(g, OpKind::batchnorm); });
  Dims s = g.ones(g.dim(x).size());
  s[1] = g.dim(x)[1];
  const TensorId mean = g.operand(s), inv_variance = g.input(s), scale = g.operand(s);
  const TensorId bias = g.random.chance(0.6) ? g.operand(s) : kNoTensor;
  g.add(OpKind::batchnorm_inference, NoAttributes{}, {x, mean, inv_variance, scale, bias}, {{}});
}

}  // namespace sinter::test
