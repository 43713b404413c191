#include "json/other_names.hpp"

#include <algorithm>

#include "base/edit_distance.hpp"

namespace sinter::json {
namespace {

struct OtherName {
  std::string_view theirs, ours, more = {};
};

// Of the rows of one word the one counts whose `ours` is a name in the place where the word stands.
constexpr OtherName kOtherNames[] = {
    // operations
    {"gemm", "matmul"},
    {"mm", "matmul"},
    {"bmm", "matmul"},
    {"dot", "matmul"},
    {"linear", "matmul"},
    {"attention", "sdpa"},
    {"flash_attention", "sdpa"},
    {"scaled_dot_product_attention", "sdpa"},
    {"conv", "conv_fprop"},
    {"conv1d", "conv_fprop"},
    {"conv2d", "conv_fprop"},
    {"conv3d", "conv_fprop"},
    {"convolution", "conv_fprop"},
    {"reduce", "reduction"},
    {"sum", "reduction", " with the mode 'add'"},
    {"mean", "reduction", " with the mode 'avg'"},
    {"prod", "reduction", " with the mode 'mul'"},
    {"permute", "transpose"},
    {"view", "reshape"},
    {"cat", "concatenate"},
    {"concat", "concatenate"},
    {"split", "slice"},
    {"maxpool2d", "resample", " with the mode 'maxpool'"},
    {"max_pool2d", "resample", " with the mode 'maxpool'"},
    {"maxpool", "resample", " with the mode 'maxpool'"},
    {"upsample", "resample"},
    {"interpolate", "resample"},
    // modes
    {"sum", "add"},
    {"mean", "avg"},
    {"prod", "mul"},
    {"multiply", "mul"},
    {"divide", "div"},
    {"minimum", "min"},
    {"maximum", "max"},
    {"square", "mul", " of the tensor with itself"},
    {"inv", "reciprocal"},
    {"silu", "swish_fwd"},
    {"clamp", "relu_fwd", " with relu_lower_clip and relu_upper_clip"},
    {"clip", "relu_fwd", " with relu_lower_clip and relu_upper_clip"},
    {"leaky_relu", "relu_fwd", " with relu_lower_clip_slope"},
    {"where", "binary_select"},
    {"select", "binary_select"},
    {"eq", "cmp_eq"},
    {"equal", "cmp_eq"},
    {"ne", "cmp_neq"},
    {"not_equal", "cmp_neq"},
    {"lt", "cmp_lt"},
    {"less", "cmp_lt"},
    {"le", "cmp_le"},
    {"gt", "cmp_gt"},
    {"greater", "cmp_gt"},
    {"ge", "cmp_ge"},
    {"and", "logical_and"},
    {"or", "logical_or"},
    {"not", "logical_not"},
    {"copy", "identity"},
    {"cast", "identity", ", whose result has the data type that it declares"},
    {"iota", "gen_index"},
    {"arange", "gen_index"},
    // attributes, and the fields of a tensor
    {"padding", "pre_padding", " and 'post_padding'"},
    {"pad", "pre_padding", " and 'post_padding'"},
    {"kernel_size", "window"},
    {"num_groups", "groups"},
    {"dim", "axis"},
    {"is_causal", "causal_mask"},
    {"scale", "attn_scale"},
    {"dropout_p", "dropout_probability"},
    {"shape", "dim"},
    {"dtype", "data_type"},
};

bool is_among(std::string_view word, std::span<const std::string_view> known) {
  return std::ranges::find(known, word) != known.end();
}

const OtherName* other_name(std::string_view word, std::span<const std::string_view> known) {
  const std::string text = lower_case(word);
  const auto* const row = std::ranges::find_if(
      kOtherNames, [&](const auto& r) { return r.theirs == text && is_among(r.ours, known); });
  return row == std::end(kOtherNames) ? nullptr : row;
}

}  // namespace

std::string meant(std::string_view word, std::span<const std::string_view> known) {
  if (const auto* const row = other_name(word, known))
    return "did you mean '" + std::string(row->ours) + "'" + std::string(row->more);
  return suggestion(word, known);
}

std::string meant_operation(std::string_view word, std::span<const std::string_view> known) {
  if (other_name(word, known)) return meant(word, known);
  const auto pointwise = [](std::string_view mode, std::string_view more) {
    return "did you mean 'pointwise' with the mode '" + std::string(mode) + "'" + std::string(more);
  };
  const std::span<const std::string_view> modes = EnumNames<PointwiseMode>::names;
  const std::string text = lower_case(word);
  for (const std::string& mode : {text, text + "_fwd"})
    if (is_among(mode, modes)) return pointwise(mode, {});
  if (const auto* const row = other_name(word, modes)) return pointwise(row->ours, row->more);
  if (is_among(text, EnumNames<ReductionMode>::names))
    return "did you mean 'reduction' with the mode '" + text + "'";
  return suggestion(word, known);
}

std::string said_elsewhere(OpKind op, std::string_view attribute) {
  const std::string text = lower_case(attribute);
  const auto is_called_so = [&](const Port& port) { return lower_case(port.name) == text; };
  if (std::ranges::any_of(info(op).inputs, is_called_so) ||
      std::ranges::any_of(info(op).outputs, is_called_so))
    return "it is a port: name its tensor in 'inputs' or 'outputs'";
  static constexpr std::string_view axes[] = {"axis", "axes", "dim", "dims", "keepdim", "keepdims"};
  if (op == OpKind::reduction && is_among(text, axes))
    return "Y's dim says the axes: 1 where reduced";
  return {};
}

}  // namespace sinter::json
