// The attributes of every operation: plain structs for designated initialisers. Each lists its
// fields once, in `fields(self, visit)`: JSON, printing and comparison are generic over that list.
#pragma once
#include <cstdint>
#include <optional>
#include <string_view>
#include <variant>

#include "sinter/base/data_type.hpp"
#include "sinter/base/dims.hpp"
#include "sinter/ops/pointwise_modes.hpp"

namespace sinter {

// ---- enumerations and their spellings in graph JSON (an enumerator's row is its value)

// The list of pointwise_modes.hpp as enumerators and, below, as their names.
#define SINTER_MODE(name, ...) name,
enum class PointwiseMode : std::uint8_t {
  SINTER_POINTWISE_MODES(SINTER_MODE, SINTER_MODE, SINTER_MODE, SINTER_MODE)
};
#undef SINTER_MODE
enum class ReductionMode : std::uint8_t {
  add, mul, min, max, amax, avg, norm1, norm2, mul_no_zeros,
};
enum class ConvMode : std::uint8_t { cross_correlation, convolution };
enum class ForwardPhase : std::uint8_t { inference, training };
enum class ResampleMode : std::uint8_t {
  maxpool, avgpool_include_padding, avgpool_exclude_padding, bilinear, nearest,
};
enum class PaddingMode : std::uint8_t { neg_inf_pad, zero_pad, edge_val_pad };
enum class Distribution : std::uint8_t { bernoulli, uniform, normal };
enum class MoeMode : std::uint8_t { none, gather, scatter };

template <class E>
struct EnumNames;  // specialised with `static constexpr std::string_view names[]`
template <> struct EnumNames<PointwiseMode> {
#define SINTER_MODE(name, ...) #name,
  static constexpr std::string_view names[] = {
      SINTER_POINTWISE_MODES(SINTER_MODE, SINTER_MODE, SINTER_MODE, SINTER_MODE)};
#undef SINTER_MODE
};
template <> struct EnumNames<ReductionMode> {
  static constexpr std::string_view names[] = {"add", "mul", "min", "max", "amax", "avg",
                                               "norm1", "norm2", "mul_no_zeros"};
};
template <> struct EnumNames<ConvMode> {
  static constexpr std::string_view names[] = {"cross_correlation", "convolution"};
};
template <> struct EnumNames<ForwardPhase> {
  static constexpr std::string_view names[] = {"inference", "training"};
};
template <> struct EnumNames<ResampleMode> {
  static constexpr std::string_view names[] = {"maxpool", "avgpool_include_padding",
                                               "avgpool_exclude_padding", "bilinear", "nearest"};
};
template <> struct EnumNames<PaddingMode> {
  static constexpr std::string_view names[] = {"neg_inf_pad", "zero_pad", "edge_val_pad"};
};
template <> struct EnumNames<Distribution> {
  static constexpr std::string_view names[] = {"bernoulli", "uniform", "normal"};
};
template <> struct EnumNames<MoeMode> {
  static constexpr std::string_view names[] = {"none", "gather", "scatter"};
};

template <class E>
constexpr std::string_view name(E value) {
  return EnumNames<E>::names[static_cast<int>(value)];
}
template <class E>
constexpr std::optional<E> enum_from_name(std::string_view text) {
  for (int i = 0; i < static_cast<int>(std::size(EnumNames<E>::names)); ++i)
    if (EnumNames<E>::names[i] == text) return static_cast<E>(i);
  return std::nullopt;
}

inline constexpr double kInfinity = __builtin_inf();  // <limits> is long for one number

// ---- the structs. An empty Dims or optional is an attribute that was not given.

#define SINTER_FIELDS(...)                                                        \
  template <class Self, class Visit>                                              \
  static constexpr void fields([[maybe_unused]] Self& self, [[maybe_unused]] Visit&& visit) { \
    __VA_ARGS__                                                                   \
  }
#define SINTER_FIELD(member) visit(#member, self.member);

struct NoAttributes {
  SINTER_FIELDS()
  bool operator==(const NoAttributes&) const = default;
};

struct ConvAttributes {
  Dims pre_padding{}, post_padding{}, stride{}, dilation{};  // per spatial dim; absent: 0, 0, 1, 1
  std::int64_t groups = 1;
  ConvMode mode = ConvMode::cross_correlation;
  SINTER_FIELDS(SINTER_FIELD(pre_padding) SINTER_FIELD(post_padding) SINTER_FIELD(stride)
                    SINTER_FIELD(dilation) SINTER_FIELD(groups) SINTER_FIELD(mode))
  bool operator==(const ConvAttributes&) const = default;
};

struct PointwiseAttributes {
  PointwiseMode mode = PointwiseMode::identity;
  double relu_lower_clip = 0, relu_upper_clip = kInfinity,
         relu_lower_clip_slope = 0, elu_alpha = 1, swish_beta = 1, softplus_beta = 1;
  std::optional<std::int64_t> axis{};  // gen_index only
  SINTER_FIELDS(SINTER_FIELD(mode) SINTER_FIELD(relu_lower_clip) SINTER_FIELD(relu_upper_clip)
                    SINTER_FIELD(relu_lower_clip_slope) SINTER_FIELD(elu_alpha)
                        SINTER_FIELD(swish_beta) SINTER_FIELD(softplus_beta) SINTER_FIELD(axis))
  bool operator==(const PointwiseAttributes&) const = default;
};

struct ReductionAttributes {
  std::optional<ReductionMode> mode{};
  bool deterministic = true;  // every reduction of this library is; false is accepted
  SINTER_FIELDS(SINTER_FIELD(mode) SINTER_FIELD(deterministic))
  bool operator==(const ReductionAttributes&) const = default;
};

struct SoftmaxAttributes {
  std::int64_t axis = -1;
  SINTER_FIELDS(SINTER_FIELD(axis))
  bool operator==(const SoftmaxAttributes&) const = default;
};

struct NormAttributes {
  ForwardPhase forward_phase = ForwardPhase::inference;
  SINTER_FIELDS(SINTER_FIELD(forward_phase))
  bool operator==(const NormAttributes&) const = default;
};

struct GroupNormAttributes {
  ForwardPhase forward_phase = ForwardPhase::inference;
  std::int64_t groups = 0;
  SINTER_FIELDS(SINTER_FIELD(forward_phase) SINTER_FIELD(groups))
  bool operator==(const GroupNormAttributes&) const = default;
};

struct GroupNormBackwardAttributes {
  std::int64_t groups = 0;  // 0: as many as INV_VARIANCE has
  SINTER_FIELDS(SINTER_FIELD(groups))
  bool operator==(const GroupNormBackwardAttributes&) const = default;
};

// Scores are Q K^T times attn_scale, then softcap, Bias, ALiBi and masks, in this order. Of row r a
// key c lies on the diagonal where c = r, or c = r + keys - queries (of a sequence, where it has
// lengths) with causal_mask_bottom_right.
struct SdpaAttributes {
  double attn_scale = 1;
  bool causal_mask = false, causal_mask_bottom_right = false;  // right_bound 0
  std::optional<std::int64_t> left_bound{};                      // c > diagonal - left_bound
  std::optional<std::int64_t> right_bound{};                     // c <= diagonal + right_bound
  bool padding_mask = false;  // keys and rows past SEQ_LEN_KV and SEQ_LEN_Q are masked
  bool alibi_mask = false;    // adds a head's slope times c - r
  double dropout_probability = 0;  // of a weight to become 0; others are divided by 1 minus it
  double softcap = 0;              // scores become softcap tanh(score / softcap); 0: none
  std::optional<bool> generate_stats{};  // absent: as the Stats output is connected
  bool deterministic = false;  // gradients have the same bits in each run
  SINTER_FIELDS(SINTER_FIELD(attn_scale) SINTER_FIELD(causal_mask)
                    SINTER_FIELD(causal_mask_bottom_right) SINTER_FIELD(left_bound)
                        SINTER_FIELD(right_bound) SINTER_FIELD(padding_mask)
                            SINTER_FIELD(alibi_mask) SINTER_FIELD(dropout_probability)
                                SINTER_FIELD(softcap) SINTER_FIELD(generate_stats)
                                    SINTER_FIELD(deterministic))
  bool operator==(const SdpaAttributes&) const = default;
};

struct ResampleAttributes {
  std::optional<ResampleMode> mode{};
  Dims window{}, stride{}, pre_padding{}, post_padding{};  // per spatial dim; pooling needs window
  std::optional<PaddingMode> padding_mode{};       // absent: neg_inf_pad or zero_pad, by mode
  std::optional<bool> generate_index{};              // absent: as the Index output is connected
  SINTER_FIELDS(SINTER_FIELD(mode) SINTER_FIELD(window) SINTER_FIELD(stride)
                    SINTER_FIELD(pre_padding) SINTER_FIELD(post_padding)
                        SINTER_FIELD(padding_mode) SINTER_FIELD(generate_index))
  bool operator==(const ResampleAttributes&) const = default;
};

struct ReshapeAttributes {
  Dims dim{};  // absent: the dims declared for Y
  SINTER_FIELDS(SINTER_FIELD(dim))
  bool operator==(const ReshapeAttributes&) const = default;
};

struct TransposeAttributes {
  Dims permutation{};  // Y's axis i is X's axis permutation[i]
  SINTER_FIELDS(SINTER_FIELD(permutation))
  bool operator==(const TransposeAttributes&) const = default;
};

struct SliceAttributes {
  Dims start{}, limit{}, step{};  // per dim; step absent: 1
  SINTER_FIELDS(SINTER_FIELD(start) SINTER_FIELD(limit) SINTER_FIELD(step))
  bool operator==(const SliceAttributes&) const = default;
};

struct ConcatenateAttributes {
  std::optional<std::int64_t> axis{};
  SINTER_FIELDS(SINTER_FIELD(axis))
  bool operator==(const ConcatenateAttributes&) const = default;
};

struct RngAttributes {
  Distribution distribution = Distribution::bernoulli;
  double probability = 0.5, minimum = 0, maximum = 1, mean = 0, stddev = 1;
  SINTER_FIELDS(SINTER_FIELD(distribution) SINTER_FIELD(probability) SINTER_FIELD(minimum)
                    SINTER_FIELD(maximum) SINTER_FIELD(mean) SINTER_FIELD(stddev))
  bool operator==(const RngAttributes&) const = default;
};

struct BlockScaleAttributes {
  std::int64_t block_size = 0;
  std::int64_t axis = -1;
  SINTER_FIELDS(SINTER_FIELD(block_size) SINTER_FIELD(axis))
  bool operator==(const BlockScaleAttributes&) const = default;
};

struct MoeAttributes {
  MoeMode mode = MoeMode::none;
  std::int64_t top_k = 1;
  SINTER_FIELDS(SINTER_FIELD(mode) SINTER_FIELD(top_k))
  bool operator==(const MoeAttributes&) const = default;
};

// Matmul has no attribute of GRAPH_JSON.md; these are set by expansions alone. `zero_dominates`:
// a zero of A makes its product zero whatever B holds, because masked columns are not read.
// `of_attention`: A is made of an attention's weights, which may be rounded as B's type says;
// `f8_weights`: to f8 where B is f8.
struct MatmulAttributes {
  bool zero_dominates = false, of_attention = false, f8_weights = false;
  SINTER_FIELDS()
  bool operator==(const MatmulAttributes&) const = default;
};

#undef SINTER_FIELDS
#undef SINTER_FIELD

using Attributes =
    std::variant<NoAttributes, MatmulAttributes, ConvAttributes, PointwiseAttributes,
                 ReductionAttributes, SoftmaxAttributes, NormAttributes, GroupNormAttributes,
                 GroupNormBackwardAttributes, SdpaAttributes, ResampleAttributes, ReshapeAttributes,
                 TransposeAttributes, SliceAttributes, ConcatenateAttributes, RngAttributes,
                 BlockScaleAttributes, MoeAttributes>;

}  // namespace sinter
