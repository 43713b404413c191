// Every operation: its name in graph JSON, its ports and its attributes, one row each.
#pragma once
#include "sinter/ops/attributes.hpp"

namespace sinter {

// THE list of operations, one row each:
//   PRIMITIVE(name, inputs, outputs, attributes, shape rule)             planned and computed as it is
//   COMPOSITE(name, inputs, outputs, attributes, shape rule, expansion)  written in others by lib/lower
//   VARIADIC(...)  like PRIMITIVE, with inputs IN_0, IN_1, ... without end
//   INTERNAL(...)  like PRIMITIVE, made by expansions; no graph file holds them
// The enumeration, the table of ports, the dispatch to shape rules (shapes_*.hpp) and expansions
// (lib/lower) and the table of GRAPH_JSON.md are made from it. Inputs and outputs are port tables
// that stand below.
// clang-format off
#define SINTER_OPERATIONS(PRIMITIVE, COMPOSITE, VARIADIC, INTERNAL) \
  PRIMITIVE(matmul, A_B, C, MatmulAttributes, matmul) \
  PRIMITIVE(conv_fprop, X_W, Y, ConvAttributes, conv_fprop) \
  PRIMITIVE(conv_dgrad, DY_W, DX, ConvAttributes, conv_dgrad) \
  PRIMITIVE(conv_wgrad, DY_X, DW, ConvAttributes, conv_wgrad) \
  PRIMITIVE(pointwise, IN, OUT, PointwiseAttributes, pointwise) \
  PRIMITIVE(reduction, X, Y, ReductionAttributes, reduction) \
  COMPOSITE(softmax, X, softmax_out, SoftmaxAttributes, softmax, softmax) \
  COMPOSITE(softmax_backward, Y_DY, DX, SoftmaxAttributes, softmax_backward, softmax_backward) \
  COMPOSITE(layernorm, norm_in, norm_out, NormAttributes, norm, norm) \
  COMPOSITE(rmsnorm, norm_in, rms_out, NormAttributes, norm, norm) \
  COMPOSITE(adaptive_layernorm, norm_in, norm_out, NormAttributes, norm, norm) \
  COMPOSITE(instancenorm, norm_in, norm_out, NormAttributes, norm, norm) \
  COMPOSITE(groupnorm, norm_in, norm_out, GroupNormAttributes, norm, norm) \
  COMPOSITE(batchnorm, batchnorm_in, batchnorm_out, NoAttributes, batchnorm, norm) \
  COMPOSITE(batchnorm_inference, inference_in, Y, NoAttributes, batchnorm_inference, batchnorm_inference) \
  COMPOSITE(layernorm_backward, norm_backward_in, norm_backward_out, NoAttributes, norm_backward, norm_backward) \
  COMPOSITE(rmsnorm_backward, rms_backward_in, norm_backward_out, NoAttributes, norm_backward, norm_backward) \
  COMPOSITE(adaptive_layernorm_backward, norm_backward_in, norm_backward_out, NoAttributes, norm_backward, norm_backward) \
  COMPOSITE(instancenorm_backward, norm_backward_in, norm_backward_out, NoAttributes, norm_backward, norm_backward) \
  COMPOSITE(groupnorm_backward, norm_backward_in, norm_backward_out, GroupNormBackwardAttributes, norm_backward, norm_backward) \
  COMPOSITE(batchnorm_backward, norm_backward_in, norm_backward_out, NoAttributes, norm_backward, norm_backward) \
  COMPOSITE(sdpa, sdpa_in, sdpa_out, SdpaAttributes, sdpa, sdpa) \
  COMPOSITE(sdpa_backward, sdpa_backward_in, sdpa_backward_out, SdpaAttributes, sdpa_backward, sdpa_backward) \
  PRIMITIVE(resample, X, resample_out, ResampleAttributes, resample) \
  COMPOSITE(resample_backward, resample_backward_in, DX, ResampleAttributes, resample_backward, resample_backward) \
  PRIMITIVE(reshape, X, Y, ReshapeAttributes, reshape) \
  PRIMITIVE(transpose, X, Y, TransposeAttributes, transpose) \
  PRIMITIVE(slice, X, Y, SliceAttributes, slice) \
  VARIADIC(concatenate, concatenate_in, Y, ConcatenateAttributes, concatenate) \
  PRIMITIVE(rng, seed_offset, Y, RngAttributes, rng) \
  COMPOSITE(block_scale_quantize, X, Y_Scale, BlockScaleAttributes, block_scale_quantize, block_scale_quantize) \
  COMPOSITE(block_scale_dequantize, X_Scale, Y, BlockScaleAttributes, block_scale_dequantize, block_scale_dequantize) \
  PRIMITIVE(moe_grouped_matmul, moe_in, Y, MoeAttributes, moe_grouped_matmul) \
  INTERNAL(page_gather, page_in, Y, NoAttributes, page_gather) \
  INTERNAL(block_mask, mask_in, Y, NoAttributes, block_mask)
// clang-format on

#define SINTER_OPERATION(name, ...) name,
enum class OpKind : std::uint8_t {
  SINTER_OPERATIONS(SINTER_OPERATION, SINTER_OPERATION, SINTER_OPERATION, SINTER_OPERATION)
  last_,
};
#undef SINTER_OPERATION

struct Port {
  std::string_view name;
  bool required = true;
  DataType type = DataType::none;  // of an output that declares none; none: what the graph says
};

// The rows of a port table. (A std::span would take the compiler longer than all the tables.)
struct Ports {
  template <std::size_t count>
  constexpr Ports(const Port (&ports)[count]) : first_(ports), count_(count) {}
  constexpr std::size_t size() const { return count_; }
  constexpr const Port& operator[](std::size_t i) const { return first_[i]; }
  constexpr const Port* begin() const { return first_; }
  constexpr const Port* end() const { return first_ + count_; }

 private:
  const Port* first_;
  std::size_t count_;
};

struct OpInfo {
  std::string_view name;
  Ports inputs, outputs;
  int attributes;            // which alternative of Attributes it takes
  bool internal = false;     // not part of GRAPH_JSON.md
  bool variadic = false;     // inputs IN_0, IN_1, ... without end (concatenate)
};

namespace detail {
template <class A, class... All>
constexpr int index_in(const std::variant<All...>*) {
  int i = 0;
  (void)((std::is_same_v<A, All> ? true : (++i, false)) || ...);
  return i;
}
template <class A>
inline constexpr int kIs = index_in<A>(static_cast<const Attributes*>(nullptr));
}  // namespace detail
using detail::kIs;

namespace ports {
inline constexpr Port A_B[] = {{"A"}, {"B"}}, C[] = {{"C"}}, X_W[] = {{"X"}, {"W"}}, Y[] = {{"Y"}},
    DY_W[] = {{"DY"}, {"W"}}, DX[] = {{"DX"}}, DY_X[] = {{"DY"}, {"X"}}, DW[] = {{"DW"}},
    IN[] = {{"IN_0"}, {"IN_1", false}, {"IN_2", false}}, OUT[] = {{"OUT_0"}}, X[] = {{"X"}},
    softmax_out[] = {{"Y"}, {"Stats", false}}, Y_DY[] = {{"Y"}, {"DY"}},
    norm_in[] = {{"X"}, {"SCALE"}, {"BIAS", false}, {"epsilon"}},
    norm_out[] = {{"Y"}, {"MEAN", false}, {"INV_VARIANCE", false}},
    rms_out[] = {{"Y"}, {"INV_VARIANCE", false}},
    batchnorm_in[] = {{"X"}, {"SCALE"}, {"BIAS", false}, {"epsilon"},
                      {"PREV_RUNNING_MEAN", false}, {"PREV_RUNNING_VAR", false},
                      {"MOMENTUM", false}},
    batchnorm_out[] = {{"Y"}, {"MEAN", false}, {"INV_VARIANCE", false},
                       {"NEXT_RUNNING_MEAN", false}, {"NEXT_RUNNING_VAR", false}},
    inference_in[] = {{"X"}, {"MEAN"}, {"INV_VARIANCE"}, {"SCALE"}, {"BIAS", false}},
    norm_backward_in[] = {{"DY"}, {"X"}, {"SCALE"}, {"MEAN"}, {"INV_VARIANCE"}},
    rms_backward_in[] = {{"DY"}, {"X"}, {"SCALE"}, {"INV_VARIANCE"}},
    norm_backward_out[] = {{"DX", false}, {"DSCALE", false}, {"DBIAS", false}},
    sdpa_in[] = {{"Q"}, {"K"}, {"V"}, {"Bias", false}, {"SEQ_LEN_Q", false},
                 {"SEQ_LEN_KV", false}, {"Seed", false}, {"Offset", false},
                 {"Page_table_K", false}, {"Page_table_V", false}, {"SINK_TOKEN", false},
                 {"Block_mask", false}, {"CU_SEQ_LEN_Q", false}, {"CU_SEQ_LEN_KV", false},
                 {"Descale_Q", false}, {"Descale_K", false}, {"Descale_V", false},
                 {"Descale_S", false}, {"Scale_S", false}, {"Scale_O", false}},
    sdpa_out[] = {{"O"}, {"Stats", false, DataType::f32}, {"Amax_O", false, DataType::f32}},
    sdpa_backward_in[] = {{"Q"}, {"K"}, {"V"}, {"O"}, {"dO"}, {"Stats"}, {"Bias", false},
                          {"SEQ_LEN_Q", false}, {"SEQ_LEN_KV", false}, {"Seed", false},
                          {"Offset", false}, {"Page_table_K", false}, {"Page_table_V", false},
                          {"SINK_TOKEN", false}, {"Block_mask", false},
                          {"CU_SEQ_LEN_Q", false}, {"CU_SEQ_LEN_KV", false}},
    sdpa_backward_out[] = {{"dQ", false}, {"dK", false}, {"dV", false}, {"dBias", false},
                           {"dSINK_TOKEN", false}},
    resample_out[] = {{"Y"}, {"Index", false}},
    resample_backward_in[] = {{"DY"}, {"X", false}, {"Y", false}, {"Index", false}},
    concatenate_in[] = {{"IN_0"}}, seed_offset[] = {{"Seed"}, {"Offset"}},
    Y_Scale[] = {{"Y"}, {"Scale"}}, X_Scale[] = {{"X"}, {"Scale"}},
    moe_in[] = {{"Token"}, {"Weight"}, {"FirstTokenOffset"}, {"TokenIndex", false}},
    page_in[] = {{"X"}, {"Page_table"}}, mask_in[] = {{"Block_mask"}};
}  // namespace ports

inline constexpr OpInfo kOps[] = {
#define SINTER_PRIMITIVE(name, inputs, outputs, attributes, ...) \
  {#name, ports::inputs, ports::outputs, kIs<attributes>},
#define SINTER_VARIADIC(name, inputs, outputs, attributes, ...) \
  {#name, ports::inputs, ports::outputs, kIs<attributes>, false, true},
#define SINTER_INTERNAL(name, inputs, outputs, attributes, ...) \
  {#name, ports::inputs, ports::outputs, kIs<attributes>, true},
    SINTER_OPERATIONS(SINTER_PRIMITIVE, SINTER_PRIMITIVE, SINTER_VARIADIC, SINTER_INTERNAL)
#undef SINTER_PRIMITIVE
#undef SINTER_VARIADIC
#undef SINTER_INTERNAL
};
static_assert(std::size(kOps) == static_cast<std::size_t>(OpKind::last_));

inline constexpr std::size_t kMostOutputs = [] {  // of any operation
  std::size_t most = 0;
  for (const auto& op : kOps) most = op.outputs.size() > most ? op.outputs.size() : most;
  return most;
}();

constexpr const OpInfo& info(OpKind k) { return kOps[static_cast<int>(k)]; }
constexpr std::string_view name(OpKind k) { return info(k).name; }
constexpr std::optional<OpKind> op_from_name(std::string_view text) {
  for (int i = 0; i < static_cast<int>(OpKind::last_); ++i)
    if (kOps[i].name == text && !kOps[i].internal) return static_cast<OpKind>(i);
  return std::nullopt;
}

// Operations that add up many products or elements.
constexpr bool sums(OpKind k) {
  return k == OpKind::matmul || k == OpKind::conv_fprop || k == OpKind::conv_dgrad ||
         k == OpKind::conv_wgrad || k == OpKind::moe_grouped_matmul || k == OpKind::reduction;
}

// Position of a port by name, -1 when there is none of it. Concatenate's IN_0, IN_1, ... are all.
constexpr int input_index(OpKind k, std::string_view port) {
  const auto& op = info(k);
  if (op.variadic) {
    if (port.size() < 4 || port.size() > 8 || port.substr(0, 3) != "IN_") return -1;
    int index = 0;
    for (char c : port.substr(3)) {
      if (c < '0' || c > '9') return -1;
      index = 10 * index + (c - '0');
    }
    return port.size() > 4 && port[3] == '0' ? -1 : index;
  }
  for (int i = 0; i < static_cast<int>(op.inputs.size()); ++i)
    if (op.inputs[static_cast<std::size_t>(i)].name == port) return i;
  return -1;
}
constexpr int output_index(OpKind k, std::string_view port) {
  const auto outputs = info(k).outputs;
  for (int i = 0; i < static_cast<int>(outputs.size()); ++i)
    if (outputs[static_cast<std::size_t>(i)].name == port) return i;
  return -1;
}

// Whether an input holds positions, lengths or seeds, so that its integer type says nothing about
// the arithmetic of the node. (rng's Seed and Offset are its operands: it computes in f64.)
constexpr bool is_index_port(OpKind k, int port) {
  switch (k) {
    // SEQ_LEN_Q to Page_table_V, CU_SEQ_LEN_Q and CU_SEQ_LEN_KV
    case OpKind::sdpa: return (port >= 4 && port <= 9) || port == 12 || port == 13;
    case OpKind::sdpa_backward: return (port >= 7 && port <= 12) || port >= 15;  // the same
    case OpKind::resample_backward: return port == 3;             // Index
    case OpKind::moe_grouped_matmul: return port >= 2;            // FirstTokenOffset, TokenIndex
    case OpKind::page_gather: return port == 1;                   // Page_table
    default: return false;
  }
}

// ---- pointwise modes: operands and attributes of each

struct PointwiseParameters {
  int params;  // how many of the attributes below the formula takes after its operands
  double PointwiseAttributes::*param[3];
};
namespace pointwise_parameters {
using P = PointwiseAttributes;
inline constexpr PointwiseParameters none{0, {}},
    relu{3, {&P::relu_lower_clip, &P::relu_upper_clip, &P::relu_lower_clip_slope}},
    elu{1, {&P::elu_alpha}}, swish{1, {&P::swish_beta}}, softplus{1, {&P::softplus_beta}};
}  // namespace pointwise_parameters

struct PointwiseInfo : PointwiseParameters {
  int arity;
};
inline constexpr PointwiseInfo kPointwiseModes[] = {
#define SINTER_UNARY(...) {pointwise_parameters::none, 1},
#define SINTER_BINARY(...) {pointwise_parameters::none, 2},
#define SINTER_OTHER(mode, formula, operands, parameters, ...) \
  {pointwise_parameters::parameters, operands},
    SINTER_POINTWISE_MODES(SINTER_UNARY, SINTER_BINARY, SINTER_OTHER, SINTER_UNARY)
#undef SINTER_UNARY
#undef SINTER_BINARY
#undef SINTER_OTHER
};
constexpr const PointwiseInfo& info(PointwiseMode m) {
  return kPointwiseModes[static_cast<int>(m)];
}

}  // namespace sinter
