// The contraction family: products of matrices, convolutions and grouped matmuls.
#pragma once
#include <algorithm>
#include <cstdint>
#include <vector>

#include "plan/spec/body.hpp"

namespace sinter {

enum class ZeroOf : std::uint8_t { neither, a, b };  // operands of a product

// One operand of a product: a body of its own over (batch, m, k) or (batch, n, k), whose last
// statement is the value.
struct ProductOperand {
  Body body;
  // What the values may be rounded to without a change of meaning: their tensor's type, a 16-bit io
  // type or tf32; none: they stay as computed.
  DataType type{};
};

// sum over k of a(batch, m, k) * b(batch, n, k). Where A comes from, its body says:
//   statements of its own     loaded, or computed from what is loaded (prologue)
//   none                      the A of the product before: paired products (gated units)
//   an accumulator statement  the sums of the product before: chained products (attention); that
//                             product's columns are this one's k
struct Product {
  ProductOperand a, b;
};

// What an index of k runs over.
enum class KIndex : std::uint8_t {
  channels,     // elements that are multiplied alike: k of a matmul, channels of a convolution
  filter_tap,   // positions of a convolution's filter in one spatial dim
  pixels,       // conv_wgrad: positions of the image, batch entries included
  scale_block,  // blocks of the index that follows it, each with a scale of its own
};

// moe_grouped_matmul: batch index e is the expert; its rows m run over
// [offsets[e], offsets[e+1]); `index` renumbers rows of A (gather) or of the result (scatter).
struct GroupedRows {
  bool on = false;
  int offsets = -1, index = -1;  // ports with raw integers, packed
  MoeMode mode = MoeMode::none;
  bool gathers() const { return on && mode == MoeMode::gather; }
};

// What the epilogue stores to port `of` is a convolution's result, and the largest of each 2 x 2 of
// its pixels, which lie along the last two indices of m, or their average, goes to `port`. The
// strides of that port's access are half of what lies between the results of neighbouring windows
// along these two, so that they say where the result of each window of even indices lies. `of` and
// `port` may be one: then these are all that is stored.
struct PooledPixels {
  int of = -1, port = -1;
  bool averages = false;
  bool on() const { return port >= 0; }
};

// The indices of the domain are batch, m, n, k in this order, and of chained products behind them
// those that the first product sums over: its columns are k. KernelSpec::body is the epilogue, run
// once an element of (batch, m, n). Its accumulator statements name the product, of those whose
// sums reach the epilogue: of paired products both, of chained ones the last alone. Its values may
// also be reduced over all of m, of n or of both: KernelSpec::cross_row_reductions, in parts of 16
// rows or columns.
struct ContractionSpec {
  int batch = 0, m = 0, n = 0;    // how many indices each group has
  std::vector<KIndex> k_indices;  // of each index of k, the outermost first
  int chained_k = 0;              // indices of the first of chained products' k
  std::vector<Product> products{1};
  DataType accumulate = DataType::f32;  // f32 or f64
  // Whose zero makes a product zero, even with an infinite or NaN factor. `marked_zeros`: only
  // negative ones, by which a copied operand says that there is no factor
  // (planner/rearrange/index_map.hpp).
  ZeroOf zero_dominates = ZeroOf::neither;
  bool marked_zeros = false;
  // Tensor cores add only a few products at a time: the rest is added in f32, rounded to nearest,
  // where they would cut off.
  bool promote_accumulators = false;
  GroupedRows rows;
  PooledPixels pooled;

  int k() const { return static_cast<int>(k_indices.size()); }
  int first_m() const { return batch; }
  int first_n() const { return batch + m; }
  int first_k() const { return batch + m + n; }
  bool has_scale_blocks() const {
    return std::find(k_indices.begin(), k_indices.end(), KIndex::scale_block) != k_indices.end();
  }

  ProductOperand& a() { return products.front().a; }
  const ProductOperand& a() const { return products.front().a; }
  ProductOperand& b(int product = 0) { return products[static_cast<std::size_t>(product)].b; }
  const ProductOperand& b(int product = 0) const {
    return products[static_cast<std::size_t>(product)].b;
  }
  // Two products with the same A.
  bool paired() const { return products.size() == 2 && products[1].a.body.statements.empty(); }
  // The second product's A is made of the first one's sums.
  bool chained() const { return products.size() == 2 && !paired(); }

  Dims group_ends(int rank) const { return {first_m(), first_n(), first_k(), rank}; }
  int result_rank(int) const { return first_k(); }
  template <class Self>
  static auto own_bodies(Self& s) {
    std::vector<decltype(&s.a().body)> all;
    for (auto& p : s.products) all.insert(all.end(), {&p.a.body, &p.b.body});
    return all;
  }
  template <class Self>
  static auto own_ports(Self& s) {
    return std::vector{&s.rows.offsets, &s.rows.index, &s.pooled.of, &s.pooled.port};
  }
};

}  // namespace sinter
