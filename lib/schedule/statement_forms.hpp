// In which form a kernel computes each statement of a body: through packs or element by element,
// once for many elements or for each. A pure function of the spec and the packing.
#pragma once
#include <vector>

#include "plan/kernel_spec.hpp"
#include "schedule/packing.hpp"

namespace sinter {

class StatementForms {
 public:
  // `packing`: which ports a thread holds as packs, in families that have them. `prepared`: values
  // that are made once for many elements (same_along); else those of a row.
  StatementForms(const KernelSpec& spec, const Body& body, const Packing* packing = nullptr,
                 std::vector<bool> prepared = {});

  const Statement& statement(int i) const { return body_.statements[static_cast<std::size_t>(i)]; }
  int size() const { return static_cast<int>(body_.statements.size()); }
  const Body& body() const { return body_; }

  // True for a load or a store that goes through the thread's packs.
  bool packed(int i) const;
  // True for one of these whose packs pass through a tile in shared memory.
  bool staged(int i) const;
  // Pointwise: true for a store of what was loaded from packs of the same type: the bits are
  // copied.
  bool copied(int i) const;
  // The ports whose elements lie in the pack of `port`, with its own where there are others.
  std::vector<int> ports_of_pack(int port) const;
  // A load whose elements lie in the pack of another port: that one's load gives them.
  bool part(int i) const;
  // True for a gather whose neighbours are computed when a vector is fetched.
  bool gathered(int i) const;
  // True for random numbers that are drawn for a whole vector.
  bool drawn(int i) const;
  // True for a load of the row that is fetched with its vectors.
  bool of_row(int i) const;
  // True for a value that is the same for a segment of a row, made of reductions over it.
  bool of_segment(int i) const { return of_segment_[static_cast<std::size_t>(i)]; }
  // A result of a segment, whose elements all have it.
  bool one_of_segment(const Statement& store) const;
  // Of what makes or stores a value of a segment; elements store it each for itself where their
  // addresses differ.
  bool runs_once_a_segment(int i) const;
  // The number by which an element is divided, where it is the same for many and prepared once
  // (math::Divisor): the statement that it is, or -1. (40 channels to 240 with a hard swish, which
  // divides by 6, on an H200: 172 us with the branches of x / y, which a quotient of zero takes.)
  int divisor(int i) const;
  // Whether that one is a power of two (math::PowerOfTwo).
  bool is_power_of_two(int divisor) const;
  // Whether a reduction is the largest or the smallest of integers as they lie in memory, which are
  // compared as such: as f64 each takes a conversion and three comparisons.
  bool compares_integers(int reduction) const;
  // Whether a reduction takes the factors of a product. The order of a sum is open, and so is the
  // rounding of the products in it.
  bool sums_products(const Statement& reduce) const;
  // Which operand of an f32 sum is a product that it takes in, so that the two are rounded once, or
  // -1. Of elements between two products of matrices alone.
  void fuse_products() { fuses_products_ = true; }
  int fused_product(const Statement& sum) const;
  // Accumulator 0 is such a product: of the sum and a factor.
  void scale_sum() { scales_sum_ = true; }
  bool scaled(const Statement& s) const;
  // Whether an index is that of the vector's first neighbour, which is converted, as is slow, and
  // the distance from it.
  bool counts_from_vector(int i) const;

 protected:
  const KernelSpec& spec_;
  const Body& body_;
  const Packing* packing_;
  std::vector<bool> prepared_;

 private:
  std::vector<bool> of_segment_;
  bool fuses_products_ = false, scales_sum_ = false;
};

}  // namespace sinter
