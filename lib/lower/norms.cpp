// The normalisations and their gradients: one formula each, over axes that the operation chooses.
// GRAPH_JSON.md: biased variance, epsilon inside the square root; the variance is the mean of
// squared distances from the mean (two passes), which does not cancel.
#include "lower/expansion.hpp"

namespace sinter::lowering {

namespace {

bool is_rms(OpKind op) { return op == OpKind::rmsnorm || op == OpKind::rmsnorm_backward; }

// The view of a node's tensors in which statistics are plain reductions: groupnorm splits the
// channels of [N, C, ..] to [N, groups, C / groups, ..], the others are left as they are.
class View {
 public:
  View(OpKind op, const Dims& x, const Dims& scale, std::int64_t groups)
      : split_(op == OpKind::groupnorm || op == OpKind::groupnorm_backward),
        groups_(groups),
        statistics_(shapes::statistics_dim(op, x, scale, groups)) {
    if (split_) statistics_.insert(2, 1);
  }
  // Kept extents of MEAN and INV_VARIANCE.
  const Dims& statistics() const { return statistics_; }
  // X, DY, SCALE and BIAS.
  Tensor channels(Tensor t) const {
    if (!split_ || !t) return t;
    Dims d = t.dim();
    d.insert(2, d[1] / groups_);
    d[1] = groups_;
    return reshape(t, d);
  }
  Tensor given_statistics(Tensor t) const { return split_ ? reshape(t, statistics_) : t; }
  Tensor joined(Tensor t, const Dims& dim) const { return t.dim() == dim ? t : reshape(t, dim); }

 private:
  bool split_;
  std::int64_t groups_;
  Dims statistics_;
};

// epsilon and MOMENTUM have one element, but perhaps more dims than X: the result keeps its own.
Tensor plus_scalar(Tensor x, Tensor scalar) {
  const Dims dim = x.dim();
  const Tensor r = x + scalar;
  return r.dim() == dim ? r : reshape(r, dim);
}
Tensor times_scalar(Tensor x, Tensor scalar) {
  const Dims dim = x.dim();
  const Tensor r = x * scalar;
  return r.dim() == dim ? r : reshape(r, dim);
}

// An empty X takes any SCALE; there is nothing that it could scale.
bool applies(Tensor scale, Tensor x) {
  return scale && detail::broadcasts_to(scale.dim(), x.dim());
}

// next = (1 - MOMENTUM) previous + MOMENTUM now.
Tensor running(Tensor previous, Tensor now, Tensor momentum) {
  return times_scalar(previous, 1.0 - momentum) + times_scalar(now, momentum);
}

void batchnorm_running(Expansion& e, const Tensor x, Tensor mean, Tensor variance) {
  if (e.wants(3)) e.result(3, running(e.input(4), mean, e.input(6)));
  if (!e.wants(4)) return;
  // One element a channel has no unbiased variance: 0 times infinity gives NaN.
  const double n = static_cast<double>(count(x.dim())) / static_cast<double>(count(mean.dim()));
  const Tensor unbiased = e.named("unbiased_variance", variance * (n / (n - 1)));
  e.result(4, running(e.input(5), unbiased, e.input(6)));
}

std::int64_t forward_groups(Expansion& e) {
  return e.node().op == OpKind::groupnorm ? e.attributes<GroupNormAttributes>().groups : 0;
}
std::int64_t backward_groups(Expansion& e, Tensor inv) {
  if (e.node().op != OpKind::groupnorm_backward) return 0;
  const auto groups = e.attributes<GroupNormBackwardAttributes>().groups;
  return groups ? groups : inv.dim()[1];
}

// Summed over the axes that SCALE (of these dims) does not have, in the dims of SCALE.
Tensor reduced_to_scale(Expansion& e, Tensor t, const Dims& scale, const Dims& result) {
  if (!detail::broadcasts_to(scale, t.dim())) return e.filled(0, result);
  Dims kept = t.dim();
  for (int i = 0; i < kept.size(); ++i) kept[i] = detail::aligned(scale, kept.size(), i);
  const Tensor r = t.dim() == kept ? identity(t) : sum(t, kept);
  return r.dim() == result ? r : reshape(r, result);
}

// The dims of a sum over the axes that neither SCALE nor the statistics keep.
Dims summed_for_both(const Dims& full, const Dims& scale, const Dims& kept) {
  Dims common = full;
  for (int i = 0; i < full.size(); ++i)
    if (full[i] != kept[i] && full[i] != detail::aligned(scale, full.size(), i)) common[i] = 1;
  return common;
}

}  // namespace

void norm(Expansion& e) {
  const OpKind op = e.node().op;
  const View view(op, e.input(0).dim(), e.input(1).dim(), forward_groups(e));
  const Dims& kept = view.statistics();
  const Tensor x = view.channels(e.input(0));
  Tensor mean, centred = x;
  if (!is_rms(op)) {
    mean = e.named("mean", average(x, kept));
    centred = e.named("centred", x - mean);
  }
  const Tensor variance = e.named(is_rms(op) ? "mean_square" : "variance",
                                  average(e.named("square", centred * centred), kept));
  const Tensor inv =
      e.named("inv_variance", rsqrt(e.named("stabilised", plus_scalar(variance, e.input(3)))));
  if (e.wants(0)) {
    Tensor y = e.named("normalised", centred * inv);
    const Tensor scale = view.channels(e.input(1)), bias = view.channels(e.input(2));
    if (applies(scale, x)) y = e.named("scaled", y * scale);
    if (applies(bias, x)) y = y + bias;
    e.result(0, view.joined(y, e.output_dim(0)));
  }
  const int inv_port = is_rms(op) ? 1 : 2;
  if (!is_rms(op) && e.wants(1)) e.result(1, view.joined(mean, e.output_dim(1)));
  if (e.wants(inv_port)) e.result(inv_port, view.joined(inv, e.output_dim(inv_port)));
  if (op == OpKind::batchnorm) batchnorm_running(e, x, mean, variance);
}

void batchnorm_inference(Expansion& e) {
  const Tensor x = e.input(0), scale = e.input(3), bias = e.input(4);
  Tensor y = e.named("normalised", e.named("centred", x - e.input(1)) * e.input(2));
  if (applies(scale, x)) y = e.named("scaled", y * scale);
  e.result(0, applies(bias, x) ? y + bias : y);
}

// With xhat = (x - mean) inv and g = dy scale, over the normalised axes:
// DX = inv (g - mean(g) - xhat mean(g xhat)), DSCALE = sum(dy xhat), DBIAS = sum(dy).
// rmsnorm has no mean, so neither the term mean(g).
void norm_backward(Expansion& e) {
  const bool rms = is_rms(e.node().op);
  const Tensor given_inv = e.input(rms ? 3 : 4);
  const View view(e.node().op, e.input(1).dim(), e.input(2).dim(), backward_groups(e, given_inv));
  const Dims& kept = view.statistics();
  const Tensor dy = view.channels(e.input(0)), x = view.channels(e.input(1)),
               scale = view.channels(e.input(2)), inv = view.given_statistics(given_inv);
  const auto normalise = [&] {
    Tensor centred = x;
    if (!rms) centred = e.named("centred", x - view.given_statistics(e.input(3)));
    return e.named("normalised", centred * inv);
  };
  const Tensor normalised = normalise();
  const Tensor dy_normalised = e.named("dy_normalised", dy * normalised);
  // Where SCALE's sums and the statistics' have axes in common, those are summed up once.
  const Dims common = applies(scale, dy) ? summed_for_both(dy.dim(), scale.dim(), kept) : dy.dim();
  const bool twice = e.wants(0) && count(common) < count(dy.dim());
  Tensor of_scale = dy_normalised, of_bias = dy;
  if (twice) {
    of_scale = e.named("sum_dy_normalised", sum(dy_normalised, common));
    of_bias = e.named("sum_dy", sum(dy, common));
  }
  const auto mean_scaled = [&](Tensor t, Tensor of_common) {
    if (!twice) return average(t, kept);
    const Tensor scaled = of_common * scale;
    const auto n = static_cast<double>(count(dy.dim())) / static_cast<double>(count(common));
    return (scaled.dim() == kept ? scaled : average(scaled, kept)) * (1 / n);
  };
  if (e.wants(0)) {
    const Tensor g = applies(scale, dy) ? e.named("scaled", dy * scale) : dy;
    const Tensor slope = e.named(
        "slope", mean_scaled(twice ? g : e.named("scaled_normalised", g * normalised), of_scale));
    Tensor inner = g;
    if (!rms) inner = e.named("unshifted", g - e.named("shift", mean_scaled(g, of_bias)));
    // Made again where the sums are another kernel's: that moves less than to keep it in memory.
    const Tensor again = twice ? normalise() : normalised;
    inner = e.named("unsloped", inner - e.named("sloped", again * slope));
    e.result(0, view.joined(inv * inner, e.output_dim(0)));
  }
  if (e.wants(1)) e.result(1, reduced_to_scale(e, of_scale, scale.dim(), e.output_dim(1)));
  if (e.wants(2)) e.result(2, reduced_to_scale(e, of_bias, scale.dim(), e.output_dim(2)));
}

}  // namespace sinter::lowering
