// The growing random graph: what the makers of the single operations share. It finds or makes
// operands of given dims, draws layouts, types and names, and keeps sizes within the options.
#pragma once
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "sinter/graph.hpp"
#include "support/random.hpp"
#include "support/random_graph.hpp"

namespace sinter::test {

// Elements, an extent of 0 counted as 1: what remains when the empty axis is reduced away. Sizes
// are kept within the options by this number.
constexpr std::int64_t volume(const Dims& dim) {
  std::int64_t n = 1;
  for (auto d : dim) n *= d > 0 ? d : 1;
  return n;
}

// One output port of a node to be added.
struct Result {
  bool wanted = true;
  Dims dim{};                      // declared; empty: inferred
  DataType type = DataType::none;  // none: drawn
};

inline std::int64_t at_least_one(std::int64_t v) { return v < 1 ? 1 : v; }

class Grower {
 public:
  Grower(Graph& graph, const RandomGraphOptions& options, std::uint64_t seed);

  Random random;
  const RandomGraphOptions& options() const { return options_; }
  const Graph& graph() const { return graph_; }
  const Dims& dim(TensorId t) const { return graph_[t].dim; }
  bool exact() const { return options_.exact_only; }
  int nodes_left() const { return nodes_ - static_cast<int>(graph_.nodes().size()); }

  // ---- extents and dims
  std::int64_t extent(std::int64_t most);  // 0 only where the graph has zeros
  std::int64_t extent_from_one(std::int64_t most);
  Dims dims(int rank, std::int64_t most_elements);
  Dims dims() { return dims(rank(1, 8), options_.max_elements); }
  int rank(int low, int high);
  std::int64_t divisor(std::int64_t n);  // of n, any of them; 1 for 0
  Dims ones(int rank) const { return Dims::filled(rank, 1); }
  std::int64_t most() const { return options_.max_elements; }
  // How often an extent may still be multiplied on top of `used` elements; at least 1.
  static std::int64_t room(std::int64_t limit, std::int64_t used) {
    return used <= 0 ? limit : (limit / used > 1 ? limit / used : 1);
  }

  // ---- exact graphs: a bound of the absolute value of each tensor. Limits of operands that are
  // multiplied and of those that are added; infinite in other graphs.
  double factor_limit() const;
  double term_limit() const;
  double magnitude(TensorId t) const { return magnitude_[static_cast<std::size_t>(t)]; }

  // ---- operands
  using Fits = std::function<bool(const Dims&)>;
  std::optional<TensorId> existing(const Fits& fits, double limit);
  // A tensor that fits, or (now and then, or where there is none) a new input of dims
  // `otherwise()`.
  TensorId primary(const Fits& fits, double limit, const std::function<Dims()>& otherwise);
  TensorId operand(const Dims& dim, double limit);
  TensorId operand(const Dims& dim) { return operand(dim, factor_limit()); }
  // Broadcasts with a tensor of dims `dim`; the joined dims stay within the limits.
  TensorId partner(const Dims& dim, double limit);
  // `stride` empty: drawn.
  TensorId input(const Dims& dim, DataType type = DataType::none, const Dims& stride = {});
  // Positions, lengths, seeds: a graph input that no other node reads and whose elements lie apart.
  TensorId index_input(const Dims& dim, DataType type);
  DataType integer_type() { return random.pick({DataType::i32, DataType::i32, DataType::i64}); }
  TensorId scalar(double value, DataType type, int rank = 1);
  TensorId scalar_operand(int max_rank);
  // One integer as a value or an input, for Seed and Offset.
  TensorId seed();
  // 1 + x^2: keeps roots, logarithms and quotients in their domain.
  TensorId positive(TensorId x);

  // ---- nodes
  std::vector<TensorId> add(OpKind op, Attributes attributes, std::vector<TensorId> inputs,
                            const std::vector<Result>& results, double magnitude = 0);
  void finish();  // chooses the outputs
  // Results that follow are packed, computed as the graph says, and no outputs if a node reads
  // them.
  void keep_plain(bool on) { plain_ = on; }

 private:
  Dims strides(const Dims& dim, bool written);
  void alias(const Dims& dim, Dims& stride);
  DataType storage_type();
  DataType result_type(double magnitude);
  std::string new_name();
  std::optional<TensorId> adapted(const Dims& dim, double limit);
  void decorate(TensorDesc& t);
  void keep(TensorId t, double magnitude);

  Graph& graph_;
  const RandomGraphOptions& options_;
  Random names_;
  int nodes_ = 1;
  bool zeros_ = false, chain_ = false, ones_ = false, plain_ = false;
  std::int64_t names_made_ = 0;
  std::vector<TensorId> pool_;     // what later nodes may read
  std::vector<double> magnitude_;  // by tensor
  std::vector<TensorId> inner_;    // results that were kept plain, in order
};

// ---- the makers, one a family of operations
void grow_pointwise(Grower& g);
void grow_reduction(Grower& g);
void grow_softmax(Grower& g);
void grow_softmax_backward(Grower& g);
void grow_rng(Grower& g);
void grow_block_scale_quantize(Grower& g);
void grow_block_scale_dequantize(Grower& g);
void grow_matmul(Grower& g);
void grow_convolution(Grower& g);
void grow_moe(Grower& g);
void grow_norm(Grower& g);
void grow_norm_backward(Grower& g);
void grow_batchnorm_inference(Grower& g);
void grow_sdpa(Grower& g);
void grow_sdpa_backward(Grower& g);
void grow_resample(Grower& g);
void grow_resample_backward(Grower& g);
void grow_reshape(Grower& g);
void grow_transpose(Grower& g);
void grow_slice(Grower& g);
void grow_concatenate(Grower& g);
void grow_written_attention(Grower& g);
void grow_written_norm(Grower& g);
void grow_written_quantize(Grower& g);
void grow_rotation(Grower& g);
void grow_gated(Grower& g);
void grow_convolutions(Grower& g);
void grow_joined_parts(Grower& g);
void grow_sums_of_products(Grower& g);
void grow_chained(Grower& g);
void grow_dequantized(Grower& g);
void grow_halves(Grower& g);
void grow_pooled(Grower& g);
void grow_across(Grower& g);
void grow_convolution_step(Grower& g);
void grow_linear_step(Grower& g);
void grow_experts(Grower& g);
void grow_attention_layer(Grower& g);
void grow_scaled_product(Grower& g);
void grow_class_loss(Grower& g);
void grow_update(Grower& g);
void grow_norm_layer(Grower& g);

// What the graph leaves to its calls (random_graph_calls.cpp); its nodes stay as they are.
void vary_calls(Graph& g, Random random);

// Dims of as many elements as `dim`, of any rank up to 8.
Dims reshaped(Grower& g, const Dims& dim);
// Strides of an image whose channels lie side by side.
Dims channels_last(const Dims& dim);

}  // namespace sinter::test
