// Named builders for every operation of GRAPH_JSON.md, and operators for the pointwise ones.
// Attributes are designated initialisers, and so are a node's name and compute type, the last
// argument of every builder: matmul(x, w, {.name = "q_proj", .compute = tf32}). A number may stand
// wherever a tensor of one element may: it becomes a pass-by-value scalar, i64 where the port takes
// integers (seeds, offsets), else f32. `{}` leaves an optional operand out.
#pragma once
#include <initializer_list>
#include <type_traits>

#include "sinter/graph.hpp"

namespace sinter {

// A tensor or a number, with the place of the user's call: implicit conversion happens there.
struct Operand {
  Operand(Where w = Where::current()) : where(w) {}
  Operand(Tensor t, Where w = Where::current()) : tensor(t), where(w) {}
  template <class Number>
    requires std::is_arithmetic_v<Number>
  Operand(Number v, Where w = Where::current())
      : value(static_cast<double>(v)), is_value(true), where(w) {
    if constexpr (std::is_integral_v<Number>) integer = static_cast<std::int64_t>(v);
  }
  // What an operation with several results gives: its first one.
  template <class Results>
    requires(std::is_class_v<Results> && !std::is_same_v<Results, Tensor> &&
             !std::is_same_v<Results, Operand> && std::is_convertible_v<Results, Tensor>)
  Operand(const Results& r, Where w = Where::current()) : Operand(static_cast<Tensor>(r), w) {}
  explicit operator bool() const { return is_value || tensor; }
  Tensor tensor;
  double value = 0;
  std::int64_t integer = 0;  // the same, where the number was an integer
  bool is_value = false;
  Where where;
};

namespace detail {

inline Graph* graph_of(std::initializer_list<Operand> operands) {
  for (const auto& o : operands)
    if (o.tensor.graph()) return o.tensor.graph();
  return nullptr;
}

// An operand that its operation was not asked for.
inline void report_absent(Graph& g, OpKind op, int port, const Operand& o) {
  Diagnostic d{};
  d.rule = Rule::port_missing;
  d.node = text({name(op), " #", g.nodes().size()});
  d.attribute = info(op).variadic
                    ? text({"port IN_", port})
                    : text({"port ", info(op).inputs[static_cast<std::size_t>(port)].name});
  d.seen = "a result that its operation was not asked for";
  d.fix = text({o.tensor.missing_option(), " there"});
  d.file = o.where.file;
  d.line = o.where.line;
  g.report(std::move(d));
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
    if (o.is_value && (op == OpKind::rng || is_index_port(op, static_cast<int>(i)))) {
      inputs.push_back(g->scalar_integer(o.integer, DataType::i64, {}, o.where).id());
    } else if (o.is_value) {
      inputs.push_back(g->scalar(o.value, DataType::f32, {}, o.where).id());
    } else if (o.tensor.missing_option()) {
      report_absent(*g, op, static_cast<int>(i), o);
      return results;
    } else if (!o.tensor) {
      // What a reported mistake poisoned stays silent; add() reports a port that was forgotten.
      if (i < optional_from && !g->diagnostics().empty()) return results;
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
// A result that was asked for, poisoned or not; else one that says what would have asked for it.
inline Tensor or_absent(const std::vector<Tensor>& results, std::size_t i, bool asked,
                        const char* option) {
  return asked ? results[i] : Tensor::absent(results[0].graph(), option);
}

}  // namespace detail

// ---- pointwise

inline Tensor pointwise(PointwiseAttributes a, Operand x, NodeOptions n = {}) {
  return detail::add_node(OpKind::pointwise, a, {x}, {detail::kNew}, std::move(n))[0];
}
inline Tensor pointwise(PointwiseAttributes a, Operand x, Operand y, NodeOptions n = {}) {
  return detail::add_node(OpKind::pointwise, a, {x, y}, {detail::kNew}, std::move(n))[0];
}
inline Tensor pointwise(PointwiseAttributes a, Operand x, Operand y, Operand z,
                        NodeOptions n = {}) {
  return detail::add_node(OpKind::pointwise, a, {x, y, z}, {detail::kNew}, std::move(n))[0];
}

// The builders that pointwise_modes.hpp names; a backward mode takes dy, x. The others follow.
#define SINTER_UNARY(mode_, formula, function, ...)                           \
  inline Tensor function(Operand x, NodeOptions n = {}) {                     \
    return pointwise({.mode = PointwiseMode::mode_}, x, std::move(n));        \
  }
#define SINTER_BINARY(mode_, formula, function, ...)                          \
  inline Tensor function(Operand a, Operand b, NodeOptions n = {}) {          \
    return pointwise({.mode = PointwiseMode::mode_}, a, b, std::move(n));     \
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
  return pointwise({.mode = PointwiseMode::relu_fwd, .relu_lower_clip = o.lower_clip,
                    .relu_upper_clip = o.upper_clip, .relu_lower_clip_slope = o.slope},
                   x, std::move(n));
}
inline Tensor relu_backward(Operand dy, Operand x, ReluOptions o = {}, NodeOptions n = {}) {
  return pointwise({.mode = PointwiseMode::relu_bwd, .relu_lower_clip = o.lower_clip,
                    .relu_upper_clip = o.upper_clip, .relu_lower_clip_slope = o.slope},
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

// ---- contractions

inline Tensor matmul(Operand a, Operand b, NodeOptions n = {}) {
  return detail::add_node(OpKind::matmul, MatmulAttributes{}, {a, b}, {detail::kNew},
                          std::move(n))[0];
}
inline Tensor conv_fprop(Operand x, Operand w, ConvAttributes attributes = {},
                         NodeOptions n = {}) {
  return detail::add_node(OpKind::conv_fprop, attributes, {x, w}, {detail::kNew},
                          std::move(n))[0];
}
// `dim` is the dims of DX, which DY alone does not tell.
inline Tensor conv_dgrad(Operand dy, Operand w, Dims dim, ConvAttributes attributes = {},
                         NodeOptions n = {}) {
  return detail::add_node(OpKind::conv_dgrad, attributes, {dy, w},
                          {detail::declare({dy, w}, dim, dy.where)}, std::move(n))[0];
}
// `dim` is the dims of DW.
inline Tensor conv_wgrad(Operand dy, Operand x, Dims dim, ConvAttributes attributes = {},
                         NodeOptions n = {}) {
  return detail::add_node(OpKind::conv_wgrad, attributes, {dy, x},
                          {detail::declare({dy, x}, dim, dy.where)}, std::move(n))[0];
}
inline Tensor moe_grouped_matmul(Operand token, Operand weight, Operand first_token_offset,
                                 Operand token_index = {}, MoeAttributes attributes = {},
                                 NodeOptions n = {}) {
  return detail::add_node(OpKind::moe_grouped_matmul, attributes,
                          {token, weight, first_token_offset, token_index}, {detail::kNew},
                          std::move(n), 3)[0];
}

// ---- reductions and softmax

// `dim` gives the kept extents, 1 where x is reduced.
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
  bool stats = false;  // also the log of the sum of exponentials, 1 on the axis
};
inline SoftmaxOutputs softmax(Operand x, SoftmaxOptions o = {}, NodeOptions n = {}) {
  auto r = detail::add_node(OpKind::softmax, SoftmaxAttributes{.axis = o.axis}, {x},
                            {detail::kNew, detail::wanted(o.stats)}, std::move(n));
  return {r[0], detail::or_absent(r, 1, o.stats, "set .stats = true")};
}
inline Tensor softmax_backward(Operand y, Operand dy, std::int64_t axis = -1, NodeOptions n = {}) {
  return detail::add_node(OpKind::softmax_backward, SoftmaxAttributes{.axis = axis}, {y, dy},
                          {detail::kNew}, std::move(n))[0];
}

// ---- norms

struct NormOutputs {
  Tensor y, mean, inv_variance;  // the statistics in training; rmsnorm has no mean
  operator Tensor() const { return y; }
};
namespace detail {
template <class A>
NormOutputs norm(OpKind op, const A& a, std::initializer_list<Operand> operands, NodeOptions n) {
  constexpr const char* option = "set .forward_phase = ForwardPhase::training";
  const bool training = a.forward_phase == ForwardPhase::training, mean = op != OpKind::rmsnorm;
  std::vector<TensorId> outputs(mean ? 3 : 2, wanted(training));
  outputs[0] = kNew;
  const auto r = add_node(op, a, operands, std::move(outputs), std::move(n), 2);
  return {r[0], mean ? or_absent(r, 1, training, option)
                     : Tensor::absent(r[0].graph(), "take a norm that has a mean, such as layernorm,"),
          or_absent(r, r.size() - 1, training, option)};
}
}  // namespace detail
inline NormOutputs layernorm(Operand x, Operand scale, Operand bias, Operand epsilon,
                             NormAttributes a = {}, NodeOptions n = {}) {
  return detail::norm(OpKind::layernorm, a, {x, scale, bias, epsilon}, std::move(n));
}
inline NormOutputs adaptive_layernorm(Operand x, Operand scale, Operand bias, Operand epsilon,
                                      NormAttributes a = {}, NodeOptions n = {}) {
  return detail::norm(OpKind::adaptive_layernorm, a, {x, scale, bias, epsilon}, std::move(n));
}
inline NormOutputs instancenorm(Operand x, Operand scale, Operand bias, Operand epsilon,
                                NormAttributes a = {}, NodeOptions n = {}) {
  return detail::norm(OpKind::instancenorm, a, {x, scale, bias, epsilon}, std::move(n));
}
inline NormOutputs groupnorm(Operand x, Operand scale, Operand bias, Operand epsilon,
                             GroupNormAttributes a, NodeOptions n = {}) {
  return detail::norm(OpKind::groupnorm, a, {x, scale, bias, epsilon}, std::move(n));
}
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
inline BatchNormOutputs batchnorm(Operand x, Operand scale, Operand bias, Operand epsilon,
                                  BatchNormRunning prev = {}, NodeOptions n = {}) {
  constexpr const char* option = "give the running mean, variance and momentum";
  const bool running = static_cast<bool>(prev.mean);
  const auto next = detail::wanted(running);
  auto r = detail::add_node(OpKind::batchnorm, NoAttributes{},
                            {x, scale, bias, epsilon, prev.mean, prev.var, prev.momentum},
                            {detail::kNew, detail::kNew, detail::kNew, next, next}, std::move(n),
                            2);
  return {r[0], r[1], r[2], detail::or_absent(r, 3, running, option),
          detail::or_absent(r, 4, running, option)};
}
inline Tensor batchnorm_inference(Operand x, Operand mean, Operand inv_variance, Operand scale,
                                  Operand bias = {}, NodeOptions n = {}) {
  return detail::add_node(OpKind::batchnorm_inference, NoAttributes{},
                          {x, mean, inv_variance, scale, bias}, {detail::kNew}, std::move(n),
                          4)[0];
}

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
                                      {detail::kNew, detail::kNew, detail::kNew}, std::move(n))
               : detail::add_any_node(op, a, {dy, x, scale, mean, inv_variance},
                                      {detail::kNew, detail::kNew, detail::kNew}, std::move(n));
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
inline NormGradients adaptive_layernorm_backward(Operand dy, Operand x, Operand scale,
                                                 Operand mean, Operand inv_variance,
                                                 NodeOptions n = {}) {
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

// ---- attention

struct SdpaInputs {  // the optional ones; below, what forward multiplies operands, weights, O by
  Operand bias{}, seq_len_q{}, seq_len_kv{}, seed{}, offset{}, page_table_k{}, page_table_v{},
      sink_token{}, block_mask{}, cu_seq_len_q{}, cu_seq_len_kv{};
  Operand descale_q{}, descale_k{}, descale_v{}, descale_s{}, scale_s{}, scale_o{};
};
struct SdpaOutputs {
  Tensor o, stats;
  operator Tensor() const { return o; }
};
struct SdpaFp8Outputs {
  Tensor o, stats, amax_o;
};
// With Amax_O, from which the next scale_o is made.
inline SdpaFp8Outputs sdpa_fp8(Operand q, Operand k, Operand v, SdpaAttributes a = {},
                               const SdpaInputs& i = {}, NodeOptions n = {}, bool amax = true) {
  const bool stats = a.generate_stats.value_or(false);
  auto r = detail::add_node(OpKind::sdpa, a,
                            {q, k, v, i.bias, i.seq_len_q, i.seq_len_kv, i.seed, i.offset,
                             i.page_table_k, i.page_table_v, i.sink_token, i.block_mask,
                             i.cu_seq_len_q, i.cu_seq_len_kv, i.descale_q, i.descale_k, i.descale_v,
                             i.descale_s, i.scale_s, i.scale_o},
                            {detail::kNew, detail::wanted(stats), detail::wanted(amax)},
                            std::move(n), 3);
  const Tensor given = detail::or_absent(r, 1, stats, "set .generate_stats = true");
  return {r[0], given, amax ? r[2] : Tensor()};
}
inline SdpaOutputs sdpa(Operand q, Operand k, Operand v, SdpaAttributes a = {},
                        const SdpaInputs& i = {}, NodeOptions n = {}) {
  const auto [o, stats, amax] = sdpa_fp8(q, k, v, a, i, std::move(n), false);
  return {o, stats};
}
struct SdpaGradients {
  Tensor dq, dk, dv, dbias;  // dbias when there is a bias
};
inline SdpaGradients sdpa_backward(Operand q, Operand k, Operand v, Operand o, Operand d_o,
                                   Operand stats, SdpaAttributes a = {}, const SdpaInputs& i = {},
                                   NodeOptions n = {}) {
  auto r = detail::add_node(
      OpKind::sdpa_backward, a,
      {q, k, v, o, d_o, stats, i.bias, i.seq_len_q, i.seq_len_kv, i.seed, i.offset, i.page_table_k,
       i.page_table_v, i.sink_token, i.block_mask, i.cu_seq_len_q, i.cu_seq_len_kv},
      {detail::kNew, detail::kNew, detail::kNew, detail::wanted(static_cast<bool>(i.bias))},
      std::move(n), 6);
  return {r[0], r[1], r[2], detail::or_absent(r, 3, static_cast<bool>(i.bias), "connect a bias")};
}

// ---- resampling

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
    if (index >= 0) x.tensor.graph()->edit(index).data_type = DataType::i32;
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

inline Tensor reshape(Operand x, Dims dim, NodeOptions n = {}) {
  return detail::add_node(OpKind::reshape, ReshapeAttributes{.dim = dim}, {x}, {detail::kNew},
                          std::move(n))[0];
}
// Axis i of the result is axis permutation[i] of x.
inline Tensor transpose(Operand x, Dims permutation, NodeOptions n = {}) {
  return detail::add_node(OpKind::transpose, TransposeAttributes{.permutation = permutation}, {x},
                          {detail::kNew}, std::move(n))[0];
}
inline Tensor slice(Operand x, SliceAttributes a, NodeOptions n = {}) {
  return detail::add_node(OpKind::slice, a, {x}, {detail::kNew}, std::move(n))[0];
}
inline Tensor concatenate(std::initializer_list<Operand> parts, std::int64_t axis,
                          NodeOptions n = {}) {
  return detail::add_node(OpKind::concatenate, ConcatenateAttributes{.axis = axis}, parts,
                          {detail::kNew}, std::move(n))[0];
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
  auto r = detail::add_node(OpKind::block_scale_quantize, a, {x}, {detail::kNew, detail::kNew},
                            std::move(n));
  return {r[0].type(y_type), r[1].type(scale_type)};
}
inline Tensor block_scale_dequantize(Operand x, Operand scale, BlockScaleAttributes a,
                                     NodeOptions n = {}) {
  return detail::add_node(OpKind::block_scale_dequantize, a, {x, scale}, {detail::kNew},
                          std::move(n))[0];
}

}  // namespace sinter
