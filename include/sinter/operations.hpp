// Named builders for every operation of GRAPH_JSON.md, and operators for the pointwise ones.
// Attributes are designated initialisers, and so are a node's name and compute type, the last
// argument of every builder: matmul(x, w, {.name = "q_proj", .compute = tf32}). A number may stand
// wherever a tensor of one element may: it becomes a pass-by-value scalar, i64 where the port takes
// integers (seeds, offsets), else f32. `{}` leaves an optional operand out. One must be a tensor.
//
// Dims of results are inferred; shapes below are those of operands and results. A result is virtual
// until Graph::output() names it, and has the graph's intermediate type unless .type() gives it
// another. Memory order (channels last, transposed weights) is a matter of strides, not of dims.
#pragma once
#include "sinter/operand.hpp"

namespace sinter {

// ---- pointwise: operands broadcast by NumPy's rule

// The general form: the mode's operands IN_0, IN_1, IN_2.
inline Tensor pointwise(PointwiseAttributes a, Operand x, NodeOptions n = {}) {
  return detail::add_node(OpKind::pointwise, a, {x}, {kNewTensor}, std::move(n))[0];
}
inline Tensor pointwise(PointwiseAttributes a, Operand x, Operand y, NodeOptions n = {}) {
  return detail::add_node(OpKind::pointwise, a, {x, y}, {kNewTensor}, std::move(n))[0];
}
inline Tensor pointwise(PointwiseAttributes a, Operand x, Operand y, Operand z,
                        NodeOptions n = {}) {
  return detail::add_node(OpKind::pointwise, a, {x, y, z}, {kNewTensor}, std::move(n))[0];
}

// The builders that pointwise_modes.hpp names; a backward mode takes dy, x. The others follow.
#define SINTER_UNARY(mode_, formula, function, ...)                    \
  inline Tensor function(Operand x, NodeOptions n = {}) {              \
    return pointwise({.mode = PointwiseMode::mode_}, x, std::move(n)); \
  }
#define SINTER_BINARY(mode_, formula, function, ...)                      \
  inline Tensor function(Operand a, Operand b, NodeOptions n = {}) {      \
    return pointwise({.mode = PointwiseMode::mode_}, a, b, std::move(n)); \
  }
#define SINTER_OTHER(...)
SINTER_POINTWISE_MODES(SINTER_UNARY, SINTER_BINARY, SINTER_OTHER, SINTER_OTHER)
#undef SINTER_UNARY
#undef SINTER_BINARY
#undef SINTER_OTHER

inline Tensor operator+(Operand a, Operand b) { return add(a, b); }
inline Tensor operator-(Operand a, Operand b) { return sub(a, b); }
inline Tensor operator*(Operand a, Operand b) { return mul(a, b); }
inline Tensor operator/(Operand a, Operand b) { return div(a, b); }
inline Tensor operator-(Operand x) { return negate(x); }
inline Tensor operator>(Operand a, Operand b) { return greater(a, b); }
inline Tensor operator>=(Operand a, Operand b) { return greater_equal(a, b); }
inline Tensor operator<(Operand a, Operand b) { return less(a, b); }
inline Tensor operator<=(Operand a, Operand b) { return less_equal(a, b); }

struct ReluOptions {
  double lower_clip = 0, upper_clip = kInfinity, slope = 0;
};
inline Tensor relu(Operand x, ReluOptions o = {}, NodeOptions n = {}) {
  return pointwise({.mode = PointwiseMode::relu_fwd,
                    .relu_lower_clip = o.lower_clip,
                    .relu_upper_clip = o.upper_clip,
                    .relu_lower_clip_slope = o.slope},
                   x, std::move(n));
}
inline Tensor relu_backward(Operand dy, Operand x, ReluOptions o = {}, NodeOptions n = {}) {
  return pointwise({.mode = PointwiseMode::relu_bwd,
                    .relu_lower_clip = o.lower_clip,
                    .relu_upper_clip = o.upper_clip,
                    .relu_lower_clip_slope = o.slope},
                   dy, x, std::move(n));
}
inline Tensor elu(Operand x, double alpha = 1, NodeOptions n = {}) {
  return pointwise({.mode = PointwiseMode::elu_fwd, .elu_alpha = alpha}, x, std::move(n));
}
inline Tensor elu_backward(Operand dy, Operand x, double alpha = 1, NodeOptions n = {}) {
  return pointwise({.mode = PointwiseMode::elu_bwd, .elu_alpha = alpha}, dy, x, std::move(n));
}
inline Tensor swish(Operand x, double beta = 1, NodeOptions n = {}) {
  return pointwise({.mode = PointwiseMode::swish_fwd, .swish_beta = beta}, x, std::move(n));
}
inline Tensor swish_backward(Operand dy, Operand x, double beta = 1, NodeOptions n = {}) {
  return pointwise({.mode = PointwiseMode::swish_bwd, .swish_beta = beta}, dy, x, std::move(n));
}
inline Tensor softplus(Operand x, double beta = 1, NodeOptions n = {}) {
  return pointwise({.mode = PointwiseMode::softplus_fwd, .softplus_beta = beta}, x, std::move(n));
}
inline Tensor softplus_backward(Operand dy, Operand x, double beta = 1, NodeOptions n = {}) {
  return pointwise({.mode = PointwiseMode::softplus_bwd, .softplus_beta = beta}, dy, x,
                   std::move(n));
}
// condition != 0 ? a : b
inline Tensor select(Operand condition, Operand a, Operand b, NodeOptions n = {}) {
  return pointwise({.mode = PointwiseMode::binary_select}, a, b, condition, std::move(n));
}
// The index along `axis`, in the dims of x.
inline Tensor gen_index(Operand x, std::int64_t axis, NodeOptions n = {}) {
  return pointwise({.mode = PointwiseMode::gen_index, .axis = axis}, x, std::move(n));
}

// The same without a tensor, in these dims, for masks and biases of positions: the column is
// gen_index(graph, {1, 1, rows, columns}, 3).
inline Tensor gen_index(Graph& graph, const Dims& dim, std::int64_t axis, NodeOptions n = {},
                        Where where = Where::current()) {
  const Tensor zero = graph.scalar(0, DataType::f32, {}, where).of_rank(dim.size(), where);
  const Operand any(zero, where);
  return detail::add_node(OpKind::pointwise,
                          PointwiseAttributes{.mode = PointwiseMode::gen_index, .axis = axis},
                          {any}, {detail::declare({any}, dim, where)}, std::move(n))[0];
}

// ---- contractions

// a [.., M, K], b [.., K, N] to [.., M, N]. Batch dims broadcast, or b's divide a's (grouped
// heads).
inline Tensor matmul(Operand a, Operand b, NodeOptions n = {}) {
  return detail::add_node(OpKind::matmul, MatmulAttributes{}, {a, b}, {kNewTensor},
                          std::move(n))[0];
}
// x [N, C, spatial..], w [K, C / groups, filter..] to [N, K, spatial..]; 1 to 6 spatial dims.
inline Tensor conv_fprop(Operand x, Operand w, ConvAttributes attributes = {}, NodeOptions n = {}) {
  return detail::add_node(OpKind::conv_fprop, attributes, {x, w}, {kNewTensor}, std::move(n))[0];
}
// The gradient by x. `dim` is the dims of x, which dy alone does not tell.
inline Tensor conv_dgrad(Operand dy, Operand w, Dims dim, ConvAttributes attributes = {},
                         NodeOptions n = {}) {
  return detail::add_node(OpKind::conv_dgrad, attributes, {dy, w},
                          {detail::declare({dy, w}, dim, dy.where)}, std::move(n))[0];
}
// The gradient by w. `dim` is the dims of w.
inline Tensor conv_wgrad(Operand dy, Operand x, Dims dim, ConvAttributes attributes = {},
                         NodeOptions n = {}) {
  return detail::add_node(OpKind::conv_wgrad, attributes, {dy, x},
                          {detail::declare({dy, x}, dim, dy.where)}, std::move(n))[0];
}
// token [1, T, K], weight [E, K, N], first_token_offset [E + 1]: rows from offset e up to offset
// e + 1 are multiplied by weight e. MoeMode::gather and scatter need token_index.
inline Tensor moe_grouped_matmul(Operand token, Operand weight, Operand first_token_offset,
                                 Operand token_index = {}, MoeAttributes attributes = {},
                                 NodeOptions n = {}) {
  return detail::add_node(OpKind::moe_grouped_matmul, attributes,
                          {token, weight, first_token_offset, token_index}, {kNewTensor},
                          std::move(n), 3)[0];
}

// ---- reductions and softmax

// `dim` has the rank of x: its extent where an axis is kept, 1 where it is reduced.
inline Tensor reduction(Operand x, ReductionMode mode, Dims dim, NodeOptions n = {}) {
  return detail::add_node(OpKind::reduction, ReductionAttributes{.mode = mode}, {x},
                          {detail::declare({x}, dim, x.where)}, std::move(n))[0];
}

struct SoftmaxOutputs {
  Tensor y, stats;
  operator Tensor() const { return y; }
};
struct SoftmaxOptions {
  std::int64_t axis = -1;
  bool stats = false;  // also the natural log of the sum of exponentials, extent 1 on the axis
};
// log-softmax is x - stats.
inline SoftmaxOutputs softmax(Operand x, SoftmaxOptions o = {}, NodeOptions n = {}) {
  auto r = detail::add_node(OpKind::softmax, SoftmaxAttributes{.axis = o.axis}, {x},
                            {kNewTensor, detail::wanted(o.stats)}, std::move(n));
  return {r[0], detail::or_absent(r, 1, o.stats, "set .stats = true")};
}
inline Tensor softmax_backward(Operand y, Operand dy, std::int64_t axis = -1, NodeOptions n = {}) {
  return detail::add_node(OpKind::softmax_backward, SoftmaxAttributes{.axis = axis}, {y, dy},
                          {kNewTensor}, std::move(n))[0];
}

// ---- norms: epsilon is one element, a number or a tensor, and stands inside the square root

struct NormOutputs {
  // The statistics are results with .forward_phase = ForwardPhase::training; rmsnorm has no mean.
  // inv_variance is 1 / sqrt(variance + epsilon). Their dims are x's, 1 on normalised axes.
  Tensor y, mean, inv_variance;
  operator Tensor() const { return y; }
};
namespace detail {
template <class A>
NormOutputs norm(OpKind op, const A& a, std::initializer_list<Operand> operands, NodeOptions n) {
  constexpr const char* option = "set .forward_phase = ForwardPhase::training";
  const bool training = a.forward_phase == ForwardPhase::training, mean = op != OpKind::rmsnorm;
  std::vector<TensorId> outputs(mean ? 3 : 2, wanted(training));
  outputs[0] = kNewTensor;
  const auto r = add_node(op, a, operands, std::move(outputs), std::move(n), 2);
  return {r[0],
          mean ? or_absent(r, 1, training, option)
               : Tensor::absent(r[0].graph(), "take a norm that has a mean, such as layernorm,"),
          or_absent(r, r.size() - 1, training, option)};
}
}  // namespace detail
// scale and bias broadcast over x; the axes where scale's extent is not 1 are normalised: [1, 1, D]
// or [D] for the last one of x [B, S, D].
inline NormOutputs layernorm(Operand x, Operand scale, Operand bias, Operand epsilon,
                             NormAttributes a = {}, NodeOptions n = {}) {
  return detail::norm(OpKind::layernorm, a, {x, scale, bias, epsilon}, std::move(n));
}
// scale and bias [B, 1.., D], of each image its own: axis 0 is not normalised.
inline NormOutputs adaptive_layernorm(Operand x, Operand scale, Operand bias, Operand epsilon,
                                      NormAttributes a = {}, NodeOptions n = {}) {
  return detail::norm(OpKind::adaptive_layernorm, a, {x, scale, bias, epsilon}, std::move(n));
}
// Per image and channel of x [N, C, spatial..]; scale and bias [1, C, 1..].
inline NormOutputs instancenorm(Operand x, Operand scale, Operand bias, Operand epsilon,
                                NormAttributes a = {}, NodeOptions n = {}) {
  return detail::norm(OpKind::instancenorm, a, {x, scale, bias, epsilon}, std::move(n));
}
// Per image and group of channels; scale and bias [1, C, 1..], statistics [N, groups, 1..].
inline NormOutputs groupnorm(Operand x, Operand scale, Operand bias, Operand epsilon,
                             GroupNormAttributes a, NodeOptions n = {}) {
  return detail::norm(OpKind::groupnorm, a, {x, scale, bias, epsilon}, std::move(n));
}
// As layernorm, without subtracting the mean; `{}` for no bias.
inline NormOutputs rmsnorm(Operand x, Operand scale, Operand bias, Operand epsilon,
                           NormAttributes a = {}, NodeOptions n = {}) {
  return detail::norm(OpKind::rmsnorm, a, {x, scale, bias, epsilon}, std::move(n));
}

struct BatchNormOutputs {
  Tensor y, mean, inv_variance, next_running_mean, next_running_var;
  operator Tensor() const { return y; }
};
struct BatchNormRunning {  // give all three or none
  Operand mean{}, var{}, momentum{};
};
// Training: per channel of x [N, C, spatial..]; scale, bias, running mean and variance [1, C, 1..].
// next = (1 - momentum) previous + momentum new.
inline BatchNormOutputs batchnorm(Operand x, Operand scale, Operand bias, Operand epsilon,
                                  BatchNormRunning prev = {}, NodeOptions n = {}) {
  constexpr const char* option = "give the running mean, variance and momentum";
  const bool running = static_cast<bool>(prev.mean);
  const auto next = detail::wanted(running);
  auto r = detail::add_node(OpKind::batchnorm, NoAttributes{},
                            {x, scale, bias, epsilon, prev.mean, prev.var, prev.momentum},
                            {kNewTensor, kNewTensor, kNewTensor, next, next}, std::move(n), 2);
  return {r[0], r[1], r[2], detail::or_absent(r, 3, running, option),
          detail::or_absent(r, 4, running, option)};
}
// (x - mean) inv_variance scale + bias: inv_variance is 1 / sqrt(variance + epsilon).
inline Tensor batchnorm_inference(Operand x, Operand mean, Operand inv_variance, Operand scale,
                                  Operand bias = {}, NodeOptions n = {}) {
  return detail::add_node(OpKind::batchnorm_inference, NoAttributes{},
                          {x, mean, inv_variance, scale, bias}, {kNewTensor}, std::move(n), 4)[0];
}

// Statistics are those that the forward gives in training. Gradients that nothing uses are not
// computed.
struct NormGradients {
  Tensor dx, dscale, dbias;
};
// `op` is the backward kind, e.g. OpKind::layernorm_backward; `mean` is poisoned for rmsnorm.
inline NormGradients norm_backward(OpKind op, Operand dy, Operand x, Operand scale, Operand mean,
                                   Operand inv_variance, std::int64_t groups = 0,
                                   NodeOptions n = {}) {
  const bool rms = op == OpKind::rmsnorm_backward;
  Attributes a;  // none, but for groupnorm
  if (op == OpKind::groupnorm_backward) a.emplace<GroupNormBackwardAttributes>().groups = groups;
  auto r = rms ? detail::add_any_node(op, a, {dy, x, scale, inv_variance},
                                      {kNewTensor, kNewTensor, kNewTensor}, std::move(n))
               : detail::add_any_node(op, a, {dy, x, scale, mean, inv_variance},
                                      {kNewTensor, kNewTensor, kNewTensor}, std::move(n));
  return {r[0], r[1], r[2]};
}
inline NormGradients layernorm_backward(Operand dy, Operand x, Operand scale, Operand mean,
                                        Operand inv_variance, NodeOptions n = {}) {
  return norm_backward(OpKind::layernorm_backward, dy, x, scale, mean, inv_variance, 0,
                       std::move(n));
}
inline NormGradients rmsnorm_backward(Operand dy, Operand x, Operand scale, Operand inv_variance,
                                      NodeOptions n = {}) {
  return norm_backward(OpKind::rmsnorm_backward, dy, x, scale, {}, inv_variance, 0, std::move(n));
}
inline NormGradients adaptive_layernorm_backward(Operand dy, Operand x, Operand scale, Operand mean,
                                                 Operand inv_variance, NodeOptions n = {}) {
  return norm_backward(OpKind::adaptive_layernorm_backward, dy, x, scale, mean, inv_variance, 0,
                       std::move(n));
}
inline NormGradients instancenorm_backward(Operand dy, Operand x, Operand scale, Operand mean,
                                           Operand inv_variance, NodeOptions n = {}) {
  return norm_backward(OpKind::instancenorm_backward, dy, x, scale, mean, inv_variance, 0,
                       std::move(n));
}
inline NormGradients groupnorm_backward(Operand dy, Operand x, Operand scale, Operand mean,
                                        Operand inv_variance, std::int64_t groups = 0,
                                        NodeOptions n = {}) {
  return norm_backward(OpKind::groupnorm_backward, dy, x, scale, mean, inv_variance, groups,
                       std::move(n));
}
inline NormGradients batchnorm_backward(Operand dy, Operand x, Operand scale, Operand mean,
                                        Operand inv_variance, NodeOptions n = {}) {
  return norm_backward(OpKind::batchnorm_backward, dy, x, scale, mean, inv_variance, 0,
                       std::move(n));
}

// ---- attention: O = softmax(attn_scale Q K^T + bias, masked) V
//
// q [B, Hq, Sq, D], k [B, Hk, Skv, D], v [B, Hv, Skv, Dv], o [B, Hq, Sq, Dv]; Hk and Hv divide Hq
// (grouped-query attention). attn_scale is 1 unless given: 1 / sqrt(D) is the caller's. A bias that
// nodes make of indices and small tensors is computed with the scores where that is estimated to be
// faster; others pass through memory. alibi_mask and bounds take no memory.

struct SdpaInputs {  // all optional; lengths, seeds, offsets and tables are i32 or i64
  Operand bias{};    // 4 dims that broadcast to [B, Hq, Sq, Skv]
  Operand seq_len_q{}, seq_len_kv{};       // [B, 1, 1, 1], read with .padding_mask = true
  Operand seed{}, offset{};                // of dropout, one element each
  Operand page_table_k{}, page_table_v{};  // [B, 1, pages, 1]; k and v are [blocks, H, block, D]
  Operand sink_token{};                    // [1, Hq, 1, 1], one more score a row
  Operand block_mask{};  // u8 [B, Hq, ceil(Sq / 128), ceil(Skv / 1024)], a bit a tile of 128 keys
  Operand cu_seq_len_q{}, cu_seq_len_kv{};  // [N + 1, 1, 1, 1]: N packed sequences, B is 1
  // Forward alone: what f8 operands, weights and o are multiplied by.
  Operand descale_q{}, descale_k{}, descale_v{}, descale_s{}, scale_s{}, scale_o{};
};
struct SdpaOutputs {
  // stats: natural log of the sum of exponentials [B, Hq, Sq, 1], with .generate_stats = true.
  Tensor o, stats;
  operator Tensor() const { return o; }
};
struct SdpaFp8Outputs {
  Tensor o, stats, amax_o;
};
// Also Amax_O [1, 1, 1, 1], from which the next scale_o is made.
inline SdpaFp8Outputs sdpa_fp8(Operand q, Operand k, Operand v, SdpaAttributes a = {},
                               const SdpaInputs& i = {}, NodeOptions n = {}, bool amax = true) {
  const bool stats = a.generate_stats.value_or(false);
  auto r =
      detail::add_node(OpKind::sdpa, a,
                       {q,
                        k,
                        v,
                        i.bias,
                        i.seq_len_q,
                        i.seq_len_kv,
                        i.seed,
                        i.offset,
                        i.page_table_k,
                        i.page_table_v,
                        i.sink_token,
                        i.block_mask,
                        i.cu_seq_len_q,
                        i.cu_seq_len_kv,
                        i.descale_q,
                        i.descale_k,
                        i.descale_v,
                        i.descale_s,
                        i.scale_s,
                        i.scale_o},
                       {kNewTensor, detail::wanted(stats), detail::wanted(amax)}, std::move(n), 3);
  const Tensor given = detail::or_absent(r, 1, stats, "set .generate_stats = true");
  return {r[0], given, amax ? r[2] : Tensor()};
}
inline SdpaOutputs sdpa(Operand q, Operand k, Operand v, SdpaAttributes a = {},
                        const SdpaInputs& i = {}, NodeOptions n = {}) {
  const auto [o, stats, amax] = sdpa_fp8(q, k, v, a, i, std::move(n), false);
  return {o, stats};
}
struct SdpaGradients {
  Tensor dq, dk, dv, dbias, dsink_token;  // the last two when there is a bias, and a sink
};
// The forward's operands, attributes and inputs but for scales, its o and stats, and dO.
inline SdpaGradients sdpa_backward(Operand q, Operand k, Operand v, Operand o, Operand d_o,
                                   Operand stats, SdpaAttributes a = {}, const SdpaInputs& i = {},
                                   NodeOptions n = {}) {
  auto r = detail::add_node(
      OpKind::sdpa_backward, a,
      {q, k, v, o, d_o, stats, i.bias, i.seq_len_q, i.seq_len_kv, i.seed, i.offset, i.page_table_k,
       i.page_table_v, i.sink_token, i.block_mask, i.cu_seq_len_q, i.cu_seq_len_kv},
      {kNewTensor, kNewTensor, kNewTensor, detail::wanted(static_cast<bool>(i.bias)),
       detail::wanted(static_cast<bool>(i.sink_token))},
      std::move(n), 6);
  return {r[0], r[1], r[2], detail::or_absent(r, 3, static_cast<bool>(i.bias), "connect a bias"),
          detail::or_absent(r, 4, static_cast<bool>(i.sink_token), "connect a sink token")};
}

// ---- resampling: x [N, C, spatial..]

struct ResampleOutputs {
  Tensor y, index;
  operator Tensor() const { return y; }
};
// Pooling: `dim` stays empty. bilinear and nearest: `dim` is the dims of Y. With generate_index,
// `index` is i32.
inline ResampleOutputs resample(Operand x, ResampleAttributes a, Dims dim = {},
                                NodeOptions n = {}) {
  TensorId index = kNoTensor;
  const bool indexed = a.generate_index.value_or(false);
  if (indexed) {
    index = detail::declare({x}, {}, x.where);
    if (index >= 0) detail::GraphEditor(*x.tensor.graph()).edit(index).data_type = DataType::i32;
  }
  auto r = detail::add_node(OpKind::resample, a, {x}, {detail::declare({x}, dim, x.where), index},
                            std::move(n));
  return {r[0], detail::or_absent(r, 1, indexed, "set .generate_index = true")};
}
// `dim` is the dims of DX; maxpool needs the forward's `index`, or its `x`.
inline Tensor resample_backward(Operand dy, ResampleAttributes a, Dims dim, Operand index = {},
                                Operand x = {}, Operand y = {}, NodeOptions n = {}) {
  return detail::add_node(OpKind::resample_backward, a, {dy, x, y, index},
                          {detail::declare({dy}, dim, dy.where)}, std::move(n), 1)[0];
}

// ---- data movement

// Row-major order of the elements, whatever the strides.
inline Tensor reshape(Operand x, Dims dim, NodeOptions n = {}) {
  return detail::add_node(OpKind::reshape, ReshapeAttributes{.dim = dim}, {x}, {kNewTensor},
                          std::move(n))[0];
}
// Axis i of the result is axis permutation[i] of x.
inline Tensor transpose(Operand x, Dims permutation, NodeOptions n = {}) {
  return detail::add_node(OpKind::transpose, TransposeAttributes{.permutation = permutation}, {x},
                          {kNewTensor}, std::move(n))[0];
}
// Elements start, start + step .. below limit; a list has an entry for each axis of x.
inline Tensor slice(Operand x, SliceAttributes a, NodeOptions n = {}) {
  return detail::add_node(OpKind::slice, a, {x}, {kNewTensor}, std::move(n))[0];
}
inline Tensor concatenate(std::initializer_list<Operand> parts, std::int64_t axis,
                          NodeOptions n = {}) {
  return detail::add_node(OpKind::concatenate, ConcatenateAttributes{.axis = axis}, parts,
                          {kNewTensor}, std::move(n))[0];
}

// ---- random numbers and block scaling

// Philox4x32-10 of Seed and Offset, one element each; `dim` is the dims of the result.
inline Tensor rng(Operand seed, Operand offset, Dims dim, RngAttributes a = {},
                  NodeOptions n = {}) {
  return detail::add_node(OpKind::rng, a, {seed, offset},
                          {detail::declare({seed, offset}, dim, seed.where)}, std::move(n))[0];
}
struct Quantized {
  Tensor y, scale;
};
// y = x / scale per block of block_size along axis; give y and scale their data types with
// Graph::output or by type arguments here.
inline Quantized block_scale_quantize(Operand x, BlockScaleAttributes a, DataType y_type,
                                      DataType scale_type, NodeOptions n = {}) {
  auto r = detail::add_node(OpKind::block_scale_quantize, a, {x}, {kNewTensor, kNewTensor},
                            std::move(n));
  return {r[0].type(y_type), r[1].type(scale_type)};
}
inline Tensor block_scale_dequantize(Operand x, Operand scale, BlockScaleAttributes a,
                                     NodeOptions n = {}) {
  return detail::add_node(OpKind::block_scale_dequantize, a, {x, scale}, {kNewTensor},
                          std::move(n))[0];
}

}  // namespace sinter
