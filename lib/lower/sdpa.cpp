// Scaled dot-product attention and its gradient. A row whose columns are all masked gives O = 0,
// Stats = -inf and zero gradients; a masked column is not read, whatever it holds, so that masked
// elements are replaced by `select` and never multiplied away. NaN among the seen scores stays NaN.

#include "lower/attention.hpp"

namespace sinter::lowering {

namespace {

// The softmax of the scores with what makes its Stats.
struct Probabilities {
  Tensor p, stats;
};

Probabilities probabilities(Expansion& e, Attention& attention, Tensor sink) {
  const Dims one = attention.rows(1);
  Tensor s = attention.scores();
  if (const Tensor keep = attention.keep())
    s = e.named("masked_scores", select(keep, s, -kInfinity));
  const Tensor seen = e.named("max", reduction(s, ReductionMode::max, one));
  // A row that sees nothing: exp(s - 0) is 0 for all, and O = 0 / 1 whatever the sink is, NaN too.
  // Without a sink that is where no score is finite and the sum is 0.
  const Tensor largest = sink ? e.named("max_with_sink", max(seen, sink)) : seen;
  const Tensor masked = e.mask(sink ? "row_masked" : "all_masked", equal(seen, -kInfinity));
  const Tensor shift = e.named("shift", select(masked, 0.0, largest));
  const Tensor exponential = e.named("exp", exp(e.named("shifted", s - shift)));
  Tensor total = e.named("sum", sum(exponential, one));
  if (sink)
    total = e.named("sum_with_sink",
                    total + e.named("sink_exp", exp(e.named("sink_shifted", sink - shift))));
  const Tensor nothing = sink ? masked : e.mask("nothing", equal(total, 0.0));
  const Tensor divisor = e.named("divisor", select(nothing, 1.0, total));
  Probabilities r;
  r.p = e.named("probabilities", exponential * e.named("inv_divisor", reciprocal(divisor)));
  if (e.wants(1)) {
    r.stats = shift + e.named("log_sum", log(total));
    if (sink) r.stats = select(masked, -kInfinity, e.named("stats", r.stats));
  }
  return r;
}

// Times a constant.
Tensor scaled(Expansion& e, const std::string& step, Tensor t, double scale) {
  return scale == 1 ? t : e.named(step, t) * scale;
}

// [B, Hq, Skv, D] summed over the heads of Q that share a head, times `scale`: [B, heads, Skv, D].
Tensor summed_groups(Expansion& e, const std::string& step, Tensor t, const Dims& result,
                     double scale) {
  const Dims full = t.dim();
  if (full == result) return scaled(e, step + "_unscaled", t, scale);
  const auto heads = result[1], shared = heads > 0 ? full[1] / heads : 0;
  const Tensor split =
      e.named(step + "_by_group", reshape(t, {full[0], heads, shared, full[2], full[3]}));
  const Tensor summed =
      scaled(e, step + "_unscaled", sum(split, {full[0], heads, 1, full[2], full[3]}), scale);
  return reshape(e.named(step + "_summed", summed), result);
}

// The numbers at these ports multiplied; poisoned where none is connected.
Tensor scales(Expansion& e, const char* step, std::initializer_list<int> ports) {
  Tensor all;
  for (const int port : ports)
    if (const Tensor one = e.input(port)) all = all ? e.named(step, all * one) : one;
  return all;
}

void bias_gradient(Expansion& e, Tensor ds) {
  const Dims bias = e.output_dim(3);
  // A tensor of its own even where the dims are equal: products read dS as a virtual tensor,
  // rounded as they like, whatever dBias is stored as.
  e.result(3, ds.dim() == bias ? identity(ds) : sum(ds, bias));
}

// Of each row, the sum of its weights times their gradients.
Tensor delta_of(Expansion& e, const Attention& attention) {
  return e.named("delta", sum(e.named("do_o", e.input(4) * e.input(3)), attention.rows(1)));
}

// A sink has no value: of each row its score's gradient is P (0 - delta) with P = exp(sink -
// Stats). Rows that see nothing have none.
void sink_gradient(Expansion& e, Tensor delta) {
  const Tensor stats = e.input(5);
  const Tensor p =
      e.named("sink_probability",
              exp(e.named("sink_shifted", e.input(shapes::kSdpaBackwardPorts.sink) - stats)));
  const Tensor seen = select(e.mask("sink_unseen", equal(stats, -kInfinity)), 0.0,
                             e.named("sink_p_delta", p * delta));
  // 0 - x, and not -x: zeros are positive, as those of the other gradients are.
  e.result(4, 0.0 - e.named("sink_sum", sum(e.named("sink_parts", seen), e.output_dim(4))));
}

}  // namespace

void sdpa(Expansion& e) {
  constexpr shapes::SdpaScales s = shapes::kSdpaScales;
  Attention attention(e, shapes::kSdpaPorts);
  attention.scale_products(scales(e, "descale_qk", {s.descale_q, s.descale_k}));
  const auto [p, stats] = probabilities(e, attention, e.input(shapes::kSdpaPorts.sink));
  if (stats) e.result(1, stats);
  if (!e.wants(0) && !e.wants(2)) return;
  // Of f32 and virtual: kernels may round them, before or after the division by their sum, and to
  // f8 where the graph scales them (GRAPH_JSON.md).
  const Tensor weights = attention.after_dropout("probabilities", p);
  Tensor o = attention.values_product(weights, e.has(s.scale_s));
  if (const Tensor factor = scales(e, "descale_o", {s.descale_v, s.scale_s, s.descale_s}))
    o = e.named("unscaled_o", e.named("products", o) * factor);
  e.result(2, e.wants(2) ? reduction(o, ReductionMode::amax, {1, 1, 1, 1}) : Tensor());
  if (e.has(s.scale_o)) o = e.named("unscaled_o", o) * e.input(s.scale_o);
  e.result(0, o);
}

// P = exp(S - Stats) on what is seen; dP = dO V^T; dS = P (dP - sum(dO O)); then
// dQ = attn_scale dS K, dK = attn_scale dS^T Q, dV = P^T dO.
void sdpa_backward(Expansion& e) {
  Attention attention(e, shapes::kSdpaBackwardPorts);
  const bool of_scores = e.wants(0) || e.wants(1) || e.wants(3);
  if (!of_scores && !e.wants(2)) return sink_gradient(e, delta_of(e, attention));
  const Tensor q = e.input(0), d_o = e.input(4), stats = e.input(5);
  const Tensor s = attention.scores();
  Tensor live = e.mask("row_seen", not_equal(stats, -kInfinity));
  if (const Tensor keep = attention.keep()) live = e.mask("live", logical_and(keep, live));
  const Tensor p = e.named("probabilities",
                           select(live, e.named("exp", exp(e.named("shifted", s - stats))), 0.0));
  if (e.wants(2)) {
    const Tensor weights = attention.after_dropout("probabilities", p);
    const Tensor dv = attention.product(e.named("weights_transposed", transposed(weights)), d_o);
    e.result(2, summed_groups(e, "dv", dv, e.output_dim(2), 1));
  }
  if (!of_scores && !e.wants(4)) return;
  const Tensor delta = delta_of(e, attention);
  if (e.wants(4)) sink_gradient(e, delta);
  if (!of_scores) return;
  const Tensor values_t = e.named("values_transposed", transposed(attention.value()));
  const Tensor dp = attention.after_dropout("dp", e.named("dp", matmul(d_o, values_t)));
  Tensor ds =
      e.named("ds", select(live, e.named("p_dp", p * e.named("dp_centred", dp - delta)), 0.0));
  if (e.wants(3)) bias_gradient(e, ds);
  if (!e.wants(0) && !e.wants(1)) return;
  if (const Tensor t = attention.softcap_tanh()) {
    const Tensor slope = e.named("softcap_slope", 1.0 - e.named("tanh_square", t * t));
    ds = e.named("ds_uncapped", select(live, e.named("ds_sloped", ds * slope), 0.0));
  }
  const double scale = attention.attributes().attn_scale;
  if (e.wants(0))
    e.result(0, scaled(e, "dq_unscaled", attention.product(ds, attention.key()), scale));
  if (e.wants(1)) {
    const Tensor dk = attention.product(e.named("ds_transposed", transposed(ds)), q);
    e.result(1, summed_groups(e, "dk", dk, e.output_dim(1), scale));
  }
}

}  // namespace sinter::lowering
