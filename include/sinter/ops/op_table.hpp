// Every operation: its name in graph JSON, its ports and its attributes, one row each.
#pragma once
#include "sinter/ops/attributes.hpp"

namespace sinter {

enum class OpKind : std::uint8_t {
  matmul, conv_fprop, conv_dgrad, conv_wgrad, pointwise, reduction, softmax, softmax_backward,
  layernorm, rmsnorm, adaptive_layernorm, instancenorm, groupnorm, batchnorm, batchnorm_inference,
  layernorm_backward, rmsnorm_backward, adaptive_layernorm_backward, instancenorm_backward,
  groupnorm_backward, batchnorm_backward, sdpa, sdpa_backward, resample, resample_backward, reshape,
  transpose, slice, concatenate, rng, block_scale_quantize, block_scale_dequantize,
  moe_grouped_matmul,
  page_gather, block_mask,  // made by expanding sdpa; no graph file holds them
  last_,
};

struct Port {
  std::string_view name;
  bool required = true;
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
  bool internal = false;     // not part of SPEC.md
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
                 {"Block_mask", false}},
    sdpa_out[] = {{"O"}, {"Stats", false}},
    sdpa_backward_in[] = {{"Q"}, {"K"}, {"V"}, {"O"}, {"dO"}, {"Stats"}, {"Bias", false},
                          {"SEQ_LEN_Q", false}, {"SEQ_LEN_KV", false}, {"Seed", false},
                          {"Offset", false}, {"Page_table_K", false}, {"Page_table_V", false},
                          {"SINK_TOKEN", false}, {"Block_mask", false}},
    sdpa_backward_out[] = {{"dQ", false}, {"dK", false}, {"dV", false}, {"dBias", false}},
    resample_out[] = {{"Y"}, {"Index", false}},
    resample_backward_in[] = {{"DY"}, {"X", false}, {"Y", false}, {"Index", false}},
    concatenate_in[] = {{"IN_0"}}, seed_offset[] = {{"Seed"}, {"Offset"}},
    Y_Scale[] = {{"Y"}, {"Scale"}}, X_Scale[] = {{"X"}, {"Scale"}},
    moe_in[] = {{"Token"}, {"Weight"}, {"FirstTokenOffset"}, {"TokenIndex", false}},
    page_in[] = {{"X"}, {"Page_table"}}, mask_in[] = {{"Block_mask"}};
}  // namespace ports

inline constexpr OpInfo kOps[] = {
    {"matmul", ports::A_B, ports::C, kIs<MatmulAttributes>},
    {"conv_fprop", ports::X_W, ports::Y, kIs<ConvAttributes>},
    {"conv_dgrad", ports::DY_W, ports::DX, kIs<ConvAttributes>},
    {"conv_wgrad", ports::DY_X, ports::DW, kIs<ConvAttributes>},
    {"pointwise", ports::IN, ports::OUT, kIs<PointwiseAttributes>},
    {"reduction", ports::X, ports::Y, kIs<ReductionAttributes>},
    {"softmax", ports::X, ports::softmax_out, kIs<SoftmaxAttributes>},
    {"softmax_backward", ports::Y_DY, ports::DX, kIs<SoftmaxAttributes>},
    {"layernorm", ports::norm_in, ports::norm_out, kIs<NormAttributes>},
    {"rmsnorm", ports::norm_in, ports::rms_out, kIs<NormAttributes>},
    {"adaptive_layernorm", ports::norm_in, ports::norm_out, kIs<NormAttributes>},
    {"instancenorm", ports::norm_in, ports::norm_out, kIs<NormAttributes>},
    {"groupnorm", ports::norm_in, ports::norm_out, kIs<GroupNormAttributes>},
    {"batchnorm", ports::batchnorm_in, ports::batchnorm_out, kIs<NoAttributes>},
    {"batchnorm_inference", ports::inference_in, ports::Y, kIs<NoAttributes>},
    {"layernorm_backward", ports::norm_backward_in, ports::norm_backward_out, kIs<NoAttributes>},
    {"rmsnorm_backward", ports::rms_backward_in, ports::norm_backward_out, kIs<NoAttributes>},
    {"adaptive_layernorm_backward", ports::norm_backward_in, ports::norm_backward_out,
     kIs<NoAttributes>},
    {"instancenorm_backward", ports::norm_backward_in, ports::norm_backward_out, kIs<NoAttributes>},
    {"groupnorm_backward", ports::norm_backward_in, ports::norm_backward_out,
     kIs<GroupNormBackwardAttributes>},
    {"batchnorm_backward", ports::norm_backward_in, ports::norm_backward_out, kIs<NoAttributes>},
    {"sdpa", ports::sdpa_in, ports::sdpa_out, kIs<SdpaAttributes>},
    {"sdpa_backward", ports::sdpa_backward_in, ports::sdpa_backward_out, kIs<SdpaAttributes>},
    {"resample", ports::X, ports::resample_out, kIs<ResampleAttributes>},
    {"resample_backward", ports::resample_backward_in, ports::DX, kIs<ResampleAttributes>},
    {"reshape", ports::X, ports::Y, kIs<ReshapeAttributes>},
    {"transpose", ports::X, ports::Y, kIs<TransposeAttributes>},
    {"slice", ports::X, ports::Y, kIs<SliceAttributes>},
    {"concatenate", ports::concatenate_in, ports::Y, kIs<ConcatenateAttributes>, false, true},
    {"rng", ports::seed_offset, ports::Y, kIs<RngAttributes>},
    {"block_scale_quantize", ports::X, ports::Y_Scale, kIs<BlockScaleAttributes>},
    {"block_scale_dequantize", ports::X_Scale, ports::Y, kIs<BlockScaleAttributes>},
    {"moe_grouped_matmul", ports::moe_in, ports::Y, kIs<MoeAttributes>},
    {"page_gather", ports::page_in, ports::Y, kIs<NoAttributes>, true},
    {"block_mask", ports::mask_in, ports::Y, kIs<NoAttributes>, true},
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

// How many of an operation's inputs, the first ones, hold numbers to compute with; the others are
// lengths, tables, offsets and seeds.
constexpr int data_inputs(OpKind k) {
  switch (k) {
    case OpKind::rng: case OpKind::block_mask: return 0;
    case OpKind::page_gather: return 1;
    case OpKind::moe_grouped_matmul: return 2;
    case OpKind::resample_backward: return 3;
    case OpKind::sdpa: return 4;
    case OpKind::sdpa_backward: return 7;
    default: return 1 << 20;
  }
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
    case OpKind::sdpa: return port >= 4 && port <= 9;             // SEQ_LEN_Q to Page_table_V
    case OpKind::sdpa_backward: return port >= 7 && port <= 12;   // the same
    case OpKind::resample_backward: return port == 3;             // Index
    case OpKind::moe_grouped_matmul: return port >= 2;            // FirstTokenOffset, TokenIndex
    case OpKind::page_gather: return port == 1;                   // Page_table
    default: return false;
  }
}

// ---- pointwise modes: operands and attributes of each

struct PointwiseInfo {
  int arity;
  int params;  // how many of the attributes below the formula takes after its operands
  double PointwiseAttributes::*param[3];
};
constexpr PointwiseInfo info(PointwiseMode m) {
  using P = PointwiseAttributes;
  using M = PointwiseMode;
  switch (m) {
    case M::relu_fwd: case M::relu_bwd:
      return {m == M::relu_fwd ? 1 : 2, 3,
              {&P::relu_lower_clip, &P::relu_upper_clip, &P::relu_lower_clip_slope}};
    case M::elu_fwd: case M::elu_bwd: return {m == M::elu_fwd ? 1 : 2, 1, {&P::elu_alpha}};
    case M::swish_fwd: case M::swish_bwd: return {m == M::swish_fwd ? 1 : 2, 1, {&P::swish_beta}};
    case M::softplus_fwd: case M::softplus_bwd:
      return {m == M::softplus_fwd ? 1 : 2, 1, {&P::softplus_beta}};
    case M::identity: case M::abs: case M::ceil: case M::floor: case M::round: case M::neg:
    case M::sqrt: case M::rsqrt: case M::reciprocal: case M::exp: case M::log: case M::sin:
    case M::cos: case M::tan: case M::erf: case M::logical_not: case M::gen_index:
    case M::tanh_fwd: case M::sigmoid_fwd: case M::gelu_fwd: case M::gelu_approx_tanh_fwd:
      return {1, 0, {}};
    case M::binary_select: return {3, 0, {}};
    default: return {2, 0, {}};
  }
}

}  // namespace sinter
