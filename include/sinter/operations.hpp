// Named builders for every operation of GRAPH_JSON.md, and operators for the pointwise ones.
// Attributes are designated initialisers; results that are not asked for come back poisoned. A
// pointwise operand may be a number: it becomes an f32 pass-by-value scalar.
#pragma once
#include <initializer_list>

#include "sinter/graph.hpp"

namespace sinter {

// A tensor or a number, with the place of the user's call: implicit conversion happens there.
struct Operand {
  Operand(Tensor t, Where w = Where::current()) : tensor(t), where(w) {}
  Operand(double v, Where w = Where::current()) : value(v), is_value(true), where(w) {}
  Tensor tensor;
  double value = 0;
  bool is_value = false;
  Where where;
};

namespace detail {

inline Graph* graph_of(std::initializer_list<Operand> operands) {
  for (const auto& o : operands)
    if (!o.is_value && o.tensor) return o.tensor.graph();
  return nullptr;
}

// Adds a node whose operands are all present; an operand that is poisoned poisons the results.
// Outputs marked true are new virtual tensors.
inline std::vector<Tensor> add_any_node(OpKind op, Attributes attributes,
                                        std::initializer_list<Operand> operands,
                                        std::vector<TensorId> outputs, NodeOptions options = {},
                                        unsigned optional_from = 64) {
  std::vector<Tensor> results(outputs.size());
  Graph* g = graph_of(operands);
  if (!g) return results;
  std::vector<TensorId> inputs;
  unsigned i = 0;
  Where where;
  for (const auto& o : operands) {
    if (i == 0) where = o.where;
    if (o.is_value) {
      inputs.push_back(g->scalar(o.value, DataType::f32, {}, o.where).id());
    } else if (!o.tensor) {
      if (i < optional_from) return results;
      inputs.push_back(kNoTensor);
    } else if (o.tensor.graph() != g) {
      inputs.push_back(-3);  // refused as foreign
    } else {
      inputs.push_back(o.tensor.id());
    }
    ++i;
  }
  const auto ids = g->add(op, std::move(attributes), std::move(inputs), std::move(outputs),
                          std::move(options), where);
  for (std::size_t j = 0; j < ids.size() && j < results.size(); ++j)
    if (ids[j] >= 0) results[j] = Tensor(g, ids[j]);
  return results;
}

// The same from an attribute struct. An overload of the above would have the compiler look for
// conversions from every struct to every other, which takes it longer than all the rest here.
template <class A>
std::vector<Tensor> add_node(OpKind op, const A& attributes, std::initializer_list<Operand> operands,
                             std::vector<TensorId> outputs, NodeOptions options = {},
                             unsigned optional_from = 64) {
  Attributes any;
  any.emplace<A>(attributes);
  return add_any_node(op, any, operands, std::move(outputs), std::move(options), optional_from);
}

inline constexpr TensorId kNew = Graph::kNewTensor;
// Declares a result whose dims the user gives; poisoned operands give kNoTensor.
inline TensorId declare(std::initializer_list<Operand> operands, const Dims& dim, Where where) {
  Graph* g = graph_of(operands);
  if (!g) return kNoTensor;
  TensorDesc t;
  t.dim = dim;
  t.dim_known = !dim.empty();
  t.where = where;
  return g->declare(t);
}
inline TensorId wanted(bool want) { return want ? kNew : kNoTensor; }

}  // namespace detail

// ---- pointwise

inline Tensor pointwise(PointwiseAttributes a, Operand x) {
  return detail::add_node(OpKind::pointwise, a, {x}, {detail::kNew})[0];
}
inline Tensor pointwise(PointwiseAttributes a, Operand x, Operand y) {
  return detail::add_node(OpKind::pointwise, a, {x, y}, {detail::kNew})[0];
}
inline Tensor pointwise(PointwiseAttributes a, Operand x, Operand y, Operand z) {
  return detail::add_node(OpKind::pointwise, a, {x, y, z}, {detail::kNew})[0];
}

// The builders that pointwise_modes.hpp names; a backward mode takes dy, x. The others follow.
#define SINTER_UNARY(mode_, formula, function, ...) \
  inline Tensor function(Operand x) { return pointwise({.mode = PointwiseMode::mode_}, x); }
#define SINTER_BINARY(mode_, formula, function, ...)        \
  inline Tensor function(Operand a, Operand b) {            \
    return pointwise({.mode = PointwiseMode::mode_}, a, b); \
  }
#define SINTER_OTHER(...)
SINTER_POINTWISE_MODES(SINTER_UNARY, SINTER_BINARY, SINTER_OTHER, SINTER_OTHER)
#undef SINTER_UNARY
#undef SINTER_BINARY
#undef SINTER_OTHER

struct ReluOptions {
  double lower_clip = 0, upper_clip = kInfinity, slope = 0;
};
inline Tensor relu(Operand x, ReluOptions o = {}) {
  return pointwise({.mode = PointwiseMode::relu_fwd, .relu_lower_clip = o.lower_clip,
                    .relu_upper_clip = o.upper_clip, .relu_lower_clip_slope = o.slope}, x);
}
inline Tensor relu_backward(Operand dy, Operand x, ReluOptions o = {}) {
  return pointwise({.mode = PointwiseMode::relu_bwd, .relu_lower_clip = o.lower_clip,
                    .relu_upper_clip = o.upper_clip, .relu_lower_clip_slope = o.slope}, dy, x);
}
inline Tensor elu(Operand x, double alpha = 1) {
  return pointwise({.mode = PointwiseMode::elu_fwd, .elu_alpha = alpha}, x);
}
inline Tensor elu_backward(Operand dy, Operand x, double alpha = 1) {
  return pointwise({.mode = PointwiseMode::elu_bwd, .elu_alpha = alpha}, dy, x);
}
inline Tensor swish(Operand x, double beta = 1) {
  return pointwise({.mode = PointwiseMode::swish_fwd, .swish_beta = beta}, x);
}
inline Tensor swish_backward(Operand dy, Operand x, double beta = 1) {
  return pointwise({.mode = PointwiseMode::swish_bwd, .swish_beta = beta}, dy, x);
}
inline Tensor softplus(Operand x, double beta = 1) {
  return pointwise({.mode = PointwiseMode::softplus_fwd, .softplus_beta = beta}, x);
}
inline Tensor softplus_backward(Operand dy, Operand x, double beta = 1) {
  return pointwise({.mode = PointwiseMode::softplus_bwd, .softplus_beta = beta}, dy, x);
}
// condition != 0 ? a : b
inline Tensor select(Operand condition, Operand a, Operand b) {
  return pointwise({.mode = PointwiseMode::binary_select}, a, b, condition);
}
// The index along `axis`, in the dims of x.
inline Tensor gen_index(Operand x, std::int64_t axis) {
  return pointwise({.mode = PointwiseMode::gen_index, .axis = axis}, x);
}

// ---- contractions

inline Tensor matmul(Operand a, Operand b) {
  return detail::add_node(OpKind::matmul, MatmulAttributes{}, {a, b}, {detail::kNew})[0];
}
inline Tensor conv_fprop(Operand x, Operand w, ConvAttributes attributes = {}) {
  return detail::add_node(OpKind::conv_fprop, attributes, {x, w}, {detail::kNew})[0];
}
// `dim` is the dims of DX, which DY alone does not tell.
inline Tensor conv_dgrad(Operand dy, Operand w, Dims dim, ConvAttributes attributes = {}) {
  return detail::add_node(OpKind::conv_dgrad, attributes, {dy, w},
                          {detail::declare({dy, w}, dim, dy.where)})[0];
}
// `dim` is the dims of DW.
inline Tensor conv_wgrad(Operand dy, Operand x, Dims dim, ConvAttributes attributes = {}) {
  return detail::add_node(OpKind::conv_wgrad, attributes, {dy, x},
                          {detail::declare({dy, x}, dim, dy.where)})[0];
}
inline Tensor moe_grouped_matmul(Operand token, Operand weight, Operand first_token_offset,
                                 Operand token_index = Tensor{}, MoeAttributes attributes = {}) {
  return detail::add_node(OpKind::moe_grouped_matmul, attributes,
                          {token, weight, first_token_offset, token_index}, {detail::kNew}, {},
                          3)[0];
}

// ---- reductions and softmax

// `dim` gives the kept extents, 1 where x is reduced.
inline Tensor reduction(Operand x, ReductionMode mode, Dims dim) {
  return detail::add_node(OpKind::reduction, ReductionAttributes{.mode = mode}, {x},
                          {detail::declare({x}, dim, x.where)})[0];
}

struct SoftmaxOutputs {
  Tensor y, stats;
  operator Tensor() const { return y; }
};
struct SoftmaxOptions {
  std::int64_t axis = -1;
  bool stats = false;  // also the log of the sum of exponentials, 1 on the axis
};
inline SoftmaxOutputs softmax(Operand x, SoftmaxOptions o = {}) {
  auto r = detail::add_node(OpKind::softmax, SoftmaxAttributes{.axis = o.axis}, {x},
                            {detail::kNew, detail::wanted(o.stats)});
  return {r[0], r[1]};
}
inline Tensor softmax_backward(Operand y, Operand dy, std::int64_t axis = -1) {
  return detail::add_node(OpKind::softmax_backward, SoftmaxAttributes{.axis = axis}, {y, dy},
                          {detail::kNew})[0];
}

// ---- norms

struct NormOutputs {
  Tensor y, mean, inv_variance;  // the statistics in training; rmsnorm has no mean
  operator Tensor() const { return y; }
};
inline NormOutputs layernorm(Operand x, Operand scale, Operand bias, Operand epsilon,
                             NormAttributes a = {}) {
  const auto stat = detail::wanted(a.forward_phase == ForwardPhase::training);
  auto r = detail::add_node(OpKind::layernorm, a, {x, scale, bias, epsilon},
                            {detail::kNew, stat, stat}, {}, 2);
  return {r[0], r[1], r[2]};
}
inline NormOutputs adaptive_layernorm(Operand x, Operand scale, Operand bias, Operand epsilon,
                                      NormAttributes a = {}) {
  const auto stat = detail::wanted(a.forward_phase == ForwardPhase::training);
  auto r = detail::add_node(OpKind::adaptive_layernorm, a, {x, scale, bias, epsilon},
                            {detail::kNew, stat, stat}, {}, 2);
  return {r[0], r[1], r[2]};
}
inline NormOutputs instancenorm(Operand x, Operand scale, Operand bias, Operand epsilon,
                                NormAttributes a = {}) {
  const auto stat = detail::wanted(a.forward_phase == ForwardPhase::training);
  auto r = detail::add_node(OpKind::instancenorm, a, {x, scale, bias, epsilon},
                            {detail::kNew, stat, stat}, {}, 2);
  return {r[0], r[1], r[2]};
}
inline NormOutputs groupnorm(Operand x, Operand scale, Operand bias, Operand epsilon,
                             GroupNormAttributes a) {
  const auto stat = detail::wanted(a.forward_phase == ForwardPhase::training);
  auto r = detail::add_node(OpKind::groupnorm, a, {x, scale, bias, epsilon},
                            {detail::kNew, stat, stat}, {}, 2);
  return {r[0], r[1], r[2]};
}
inline NormOutputs rmsnorm(Operand x, Operand scale, Operand bias, Operand epsilon,
                           NormAttributes a = {}) {
  const auto stat = detail::wanted(a.forward_phase == ForwardPhase::training);
  auto r = detail::add_node(OpKind::rmsnorm, a, {x, scale, bias, epsilon}, {detail::kNew, stat},
                            {}, 2);
  return {r[0], {}, r[1]};
}

struct BatchNormOutputs {
  Tensor y, mean, inv_variance, next_running_mean, next_running_var;
  operator Tensor() const { return y; }
};
struct BatchNormRunning {  // give all three or none
  Tensor mean, var, momentum;
};
inline BatchNormOutputs batchnorm(Operand x, Operand scale, Operand bias, Operand epsilon,
                                  BatchNormRunning prev = {}) {
  const auto next = detail::wanted(static_cast<bool>(prev.mean));
  auto r = detail::add_node(OpKind::batchnorm, NoAttributes{},
                            {x, scale, bias, epsilon, prev.mean, prev.var, prev.momentum},
                            {detail::kNew, detail::kNew, detail::kNew, next, next}, {}, 2);
  return {r[0], r[1], r[2], r[3], r[4]};
}
inline Tensor batchnorm_inference(Operand x, Operand mean, Operand inv_variance, Operand scale,
                                  Operand bias = Tensor{}) {
  return detail::add_node(OpKind::batchnorm_inference, NoAttributes{},
                          {x, mean, inv_variance, scale, bias}, {detail::kNew}, {}, 4)[0];
}

struct NormGradients {
  Tensor dx, dscale, dbias;
};
// `op` is the backward kind, e.g. OpKind::layernorm_backward; `mean` is poisoned for rmsnorm.
inline NormGradients norm_backward(OpKind op, Operand dy, Operand x, Operand scale, Operand mean,
                                   Operand inv_variance, std::int64_t groups = 0) {
  const bool rms = op == OpKind::rmsnorm_backward;
  Attributes a;  // none, but for groupnorm
  if (op == OpKind::groupnorm_backward) a.emplace<GroupNormBackwardAttributes>().groups = groups;
  auto r = rms ? detail::add_any_node(op, a, {dy, x, scale, inv_variance},
                                      {detail::kNew, detail::kNew, detail::kNew})
               : detail::add_any_node(op, a, {dy, x, scale, mean, inv_variance},
                                      {detail::kNew, detail::kNew, detail::kNew});
  return {r[0], r[1], r[2]};
}
inline NormGradients layernorm_backward(Operand dy, Operand x, Operand scale, Operand mean,
                                        Operand inv_variance) {
  return norm_backward(OpKind::layernorm_backward, dy, x, scale, mean, inv_variance);
}
inline NormGradients rmsnorm_backward(Operand dy, Operand x, Operand scale, Operand inv_variance) {
  return norm_backward(OpKind::rmsnorm_backward, dy, x, scale, Tensor{}, inv_variance);
}
inline NormGradients adaptive_layernorm_backward(Operand dy, Operand x, Operand scale,
                                                 Operand mean, Operand inv_variance) {
  return norm_backward(OpKind::adaptive_layernorm_backward, dy, x, scale, mean, inv_variance);
}
inline NormGradients instancenorm_backward(Operand dy, Operand x, Operand scale, Operand mean,
                                           Operand inv_variance) {
  return norm_backward(OpKind::instancenorm_backward, dy, x, scale, mean, inv_variance);
}
inline NormGradients groupnorm_backward(Operand dy, Operand x, Operand scale, Operand mean,
                                        Operand inv_variance, std::int64_t groups = 0) {
  return norm_backward(OpKind::groupnorm_backward, dy, x, scale, mean, inv_variance, groups);
}
inline NormGradients batchnorm_backward(Operand dy, Operand x, Operand scale, Operand mean,
                                        Operand inv_variance) {
  return norm_backward(OpKind::batchnorm_backward, dy, x, scale, mean, inv_variance);
}

// ---- attention

struct SdpaInputs {  // the optional ones; a poisoned tensor is an input that is not there
  Tensor bias{}, seq_len_q{}, seq_len_kv{}, seed{}, offset{}, page_table_k{}, page_table_v{},
      sink_token{}, block_mask{}, cu_seq_len_q{}, cu_seq_len_kv{};
};
struct SdpaOutputs {
  Tensor o, stats;
  operator Tensor() const { return o; }
};
inline SdpaOutputs sdpa(Operand q, Operand k, Operand v, SdpaAttributes a = {},
                        const SdpaInputs& i = {}) {
  auto r = detail::add_node(OpKind::sdpa, a,
                            {q, k, v, i.bias, i.seq_len_q, i.seq_len_kv, i.seed, i.offset,
                             i.page_table_k, i.page_table_v, i.sink_token, i.block_mask,
                             i.cu_seq_len_q, i.cu_seq_len_kv},
                            {detail::kNew, detail::wanted(a.generate_stats.value_or(false))}, {},
                            3);
  return {r[0], r[1]};
}
struct SdpaGradients {
  Tensor dq, dk, dv, dbias;  // dbias when there is a bias
};
inline SdpaGradients sdpa_backward(Operand q, Operand k, Operand v, Operand o, Operand d_o,
                                   Operand stats, SdpaAttributes a = {}, const SdpaInputs& i = {}) {
  auto r = detail::add_node(
      OpKind::sdpa_backward, a,
      {q, k, v, o, d_o, stats, i.bias, i.seq_len_q, i.seq_len_kv, i.seed, i.offset, i.page_table_k,
       i.page_table_v, i.sink_token, i.block_mask, i.cu_seq_len_q, i.cu_seq_len_kv},
      {detail::kNew, detail::kNew, detail::kNew, detail::wanted(static_cast<bool>(i.bias))}, {}, 6);
  return {r[0], r[1], r[2], r[3]};
}

// ---- resampling

struct ResampleOutputs {
  Tensor y, index;
  operator Tensor() const { return y; }
};
// Pooling: `dim` stays empty. bilinear and nearest: `dim` is the dims of Y. With generate_index,
// `index` is i32.
inline ResampleOutputs resample(Operand x, ResampleAttributes a, Dims dim = {}) {
  TensorId index = kNoTensor;
  if (a.generate_index.value_or(false)) {
    index = detail::declare({x}, {}, x.where);
    if (index >= 0) x.tensor.graph()->edit(index).data_type = DataType::i32;
  }
  auto r = detail::add_node(OpKind::resample, a, {x}, {detail::declare({x}, dim, x.where), index});
  return {r[0], r[1]};
}
// `dim` is the dims of DX; maxpool needs the forward's `index`, or its `x`.
inline Tensor resample_backward(Operand dy, ResampleAttributes a, Dims dim, Tensor index = {},
                                Tensor x = {}, Tensor y = {}) {
  return detail::add_node(OpKind::resample_backward, a, {dy, x, y, index},
                          {detail::declare({dy}, dim, dy.where)}, {}, 1)[0];
}

// ---- data movement

inline Tensor reshape(Operand x, Dims dim) {
  return detail::add_node(OpKind::reshape, ReshapeAttributes{.dim = dim}, {x}, {detail::kNew})[0];
}
// Axis i of the result is axis permutation[i] of x.
inline Tensor transpose(Operand x, Dims permutation) {
  return detail::add_node(OpKind::transpose, TransposeAttributes{.permutation = permutation}, {x},
                          {detail::kNew})[0];
}
inline Tensor slice(Operand x, SliceAttributes a) {
  return detail::add_node(OpKind::slice, a, {x}, {detail::kNew})[0];
}
inline Tensor concatenate(std::initializer_list<Operand> parts, std::int64_t axis) {
  return detail::add_node(OpKind::concatenate, ConcatenateAttributes{.axis = axis}, parts,
                          {detail::kNew})[0];
}

// ---- random numbers and block scaling

// Philox4x32-10 of Seed and Offset, one element each; `dim` is the dims of the result.
inline Tensor rng(Operand seed, Operand offset, Dims dim, RngAttributes a = {}) {
  return detail::add_node(OpKind::rng, a, {seed, offset},
                          {detail::declare({seed, offset}, dim, seed.where)})[0];
}
struct Quantized {
  Tensor y, scale;
};
// y = x / scale per block of block_size along axis; give y and scale their data types with
// Graph::output or by type arguments here.
inline Quantized block_scale_quantize(Operand x, BlockScaleAttributes a, DataType y_type,
                                      DataType scale_type) {
  auto r = detail::add_node(OpKind::block_scale_quantize, a, {x}, {detail::kNew, detail::kNew});
  if (r[0]) r[0].graph()->edit(r[0].id()).data_type = y_type;
  if (r[1]) r[1].graph()->edit(r[1].id()).data_type = scale_type;
  return {r[0], r[1]};
}
inline Tensor block_scale_dequantize(Operand x, Operand scale, BlockScaleAttributes a) {
  return detail::add_node(OpKind::block_scale_dequantize, a, {x, scale}, {detail::kNew})[0];
}

}  // namespace sinter
