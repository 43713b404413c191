// Every rule that a graph, a document, a plan or a call can break. One row a rule: the id that
// programs match on, and the sentence that people read.
#pragma once
#include <cstdint>
#include <string_view>

namespace sinter {

enum class Rule : std::uint8_t {
  tensor_name, tensor_rank, tensor_extent, tensor_size, tensor_stride, tensor_overlap,
  tensor_data_type, tensor_alignment, tensor_uid, tensor_value, tensor_dim_missing, tensor_foreign,
  tensor_role, graph_no_output, graph_cycle, graph_producer, node_output_dim,
  port_missing, port_unknown, port_scalar, port_type,
  attribute_unknown, attribute_missing, attribute_value, attribute_length,
  broadcast, matmul_rank, matmul_contraction, matmul_batch, conv_rank, conv_channels, conv_groups,
  conv_extent, pointwise_arity, reduction_shape, axis_range, norm_scale, norm_statistics,
  norm_groups, norm_running, sdpa_shape, sdpa_mask, sdpa_dropout, sdpa_paged, sdpa_stats,
  resample_shape, resample_mode, resample_backward, reshape_count, transpose_permutation,
  slice_range, concatenate_shape, rng_parameter, block_scale_shape, moe_shape,
  json_syntax, json_depth, json_type, json_duplicate, json_field, json_format, json_number,
  file_error, array_format, binding_missing, binding_unknown, binding_null, binding_alignment,
  workspace, device_missing, device_error, compiler_missing, compiler_error, plan_format,
  plan_target, tuning, last_,
};

struct RuleInfo {
  std::string_view id;
  const char* says;  // measuring the sentences is work for every compiler that reads them
};

inline constexpr RuleInfo kRules[] = {
    {"tensor-name", "has a name that another tensor of the graph has"},
    {"tensor-rank", "must have 1 to 8 dims"},
    {"tensor-extent", "has an extent out of range"},
    {"tensor-size", "has more elements than can be addressed"},
    {"tensor-stride", "has strides that do not fit"},
    {"tensor-overlap", "is written, so its elements must not share memory"},
    {"tensor-data-type", "has a data type that is not allowed here"},
    {"tensor-alignment", "has an alignment that is not a power of two"},
    {"tensor-uid", "has a uid that another tensor of the graph has"},
    {"tensor-value", "is a pass-by-value scalar and must have one element and no producer"},
    {"tensor-dim-missing", "is a graph input and must have dim or value"},
    {"tensor-foreign", "belongs to another graph or to none"},
    {"tensor-role", "cannot be a graph output, because no node produces it"},
    {"graph-no-output", "the graph has no output"},
    {"graph-cycle", "depends on its own result"},
    {"graph-producer", "is produced by more than one node"},
    {"node-output-dim", "is declared with dims that differ from what the node produces"},
    {"port-missing", "is a required port that is not connected"},
    {"port-unknown", "is not a port of this operation"},
    {"port-scalar", "must have exactly one element"},
    {"port-type", "has a data type that this port does not take"},
    {"attribute-unknown", "is not an attribute of this operation"},
    {"attribute-missing", "is a required attribute"},
    {"attribute-value", "has a value that is not allowed"},
    {"attribute-length", "must have one entry per dimension concerned"},
    {"broadcast", "has dims that do not broadcast with the other operands"},
    {"matmul-rank", "must have at least 2 dims"},
    {"matmul-contraction", "does not match A's last extent with B's second to last"},
    {"matmul-batch", "has batch dims that neither broadcast nor divide"},
    {"conv-rank", "must have 3 to 8 dims, the same for image and filter"},
    {"conv-channels", "has channels that do not fit the filter"},
    {"conv-groups", "must divide the channels and the filters"},
    {"conv-extent", "has a spatial extent that does not fit filter, padding and stride"},
    {"pointwise-arity", "has a wrong number of operands for its mode"},
    {"reduction-shape", "must keep each extent of X or reduce it to 1"},
    {"axis-range", "names a dimension that the tensor does not have"},
    {"norm-scale", "has dims that do not broadcast over X or leave nothing to normalise"},
    {"norm-statistics", "has dims that are not those of the statistics of X"},
    {"norm-groups", "must divide the channels"},
    {"norm-running", "needs PREV_RUNNING_MEAN, PREV_RUNNING_VAR and MOMENTUM together"},
    {"sdpa-shape", "has dims that do not fit Q, K and V"},
    {"sdpa-mask", "is a mask option that is not complete"},
    {"sdpa-dropout", "needs a probability in [0, 1) with both Seed and Offset"},
    {"sdpa-paged", "needs both page tables and SEQ_LEN_KV"},
    {"sdpa-stats", "disagrees with generate_stats"},
    {"resample-shape", "has dims that do not fit the window or the scale"},
    {"resample-mode", "is not available in this mode"},
    {"resample-backward", "needs Index or X for maxpool, and the dims of DX"},
    {"reshape-count", "must hold as many elements as X"},
    {"transpose-permutation", "must name each dimension of X once"},
    {"slice-range", "must satisfy 0 <= start <= limit <= extent and step >= 1"},
    {"concatenate-shape", "must agree with the other inputs on every axis but one"},
    {"rng-parameter", "is out of range for the distribution"},
    {"block-scale-shape", "must divide the axis, with Scale of the divided extent"},
    {"moe-shape", "has dims that do not fit Token, Weight and FirstTokenOffset"},
    {"json-syntax", "is not valid JSON"},
    {"json-depth", "is nested too deeply"},
    {"json-type", "has the wrong JSON type"},
    {"json-duplicate", "is given twice"},
    {"json-field", "is not a field that is known here, or a required one is missing"},
    {"json-format", "is not a document of this format and version"},
    {"json-number", "is a number out of range"},
    {"file-error", "could not be read or written"},
    {"array-format", "is not an array of the tensor's type and dims"},
    {"binding-missing", "has no pointer bound to it"},
    {"binding-unknown", "is not an input or output of the graph, or is bound twice"},
    {"binding-null", "is bound to a null pointer"},
    {"binding-alignment", "is bound to a pointer that is not aligned"},
    {"workspace", "is smaller than the plan needs"},
    {"device-missing", "is not available on this machine"},
    {"device-error", "the driver reported an error"},
    {"compiler-missing", "the run-time compiler NVRTC was not found"},
    {"compiler-error", "the generated kernel did not compile"},
    {"plan-format", "is not a plan of this version, or it is damaged"},
    {"plan-target", "has no code for this device or target"},
    {"tuning", "could not be tuned"},
};
static_assert(std::size(kRules) == static_cast<std::size_t>(Rule::last_));

constexpr const RuleInfo& info(Rule r) { return kRules[static_cast<int>(r)]; }

}  // namespace sinter
