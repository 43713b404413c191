// Where every tensor of the lowered graph lives. Most have a buffer of their own; a transposed,
// sliced or reshaped tensor is, where strides can say so, a view of its source's buffer and costs
// nothing (of a wider type than the source's, it is converted where it is read), and a tensor that
// is only moved into a larger one (a part of a concatenation, the source of a reshape that is a
// graph output) is written there directly.
#pragma once
#include <optional>
#include <vector>

#include "sinter/graph.hpp"

namespace sinter {

struct Location {
  TensorId root = kNoTensor;  // the tensor whose buffer holds it
  Dims stride;                // elements of root's type, by the dims of the tensor itself
  std::int64_t offset = 0;
  DataType type{};  // as stored
};

class Storage {
 public:
  explicit Storage(const Graph& graph);
  const Location& operator[](TensorId t) const { return locations_[static_cast<std::size_t>(t)]; }
  // True for a data-movement node that needs no kernel: its result is a view, or its sources write
  // into it.
  bool folded(NodeId n) const { return folded_[static_cast<std::size_t>(n)]; }
  // Of a concatenation: the inputs that must be copied, by position.
  const std::vector<int>& copies(NodeId n) const { return copies_[static_cast<std::size_t>(n)]; }

 private:
  void place_in_results(const Graph& graph);
  void fold_views(const Graph& graph);
  std::vector<Location> locations_;
  std::vector<bool> folded_, placed_;
  std::vector<std::vector<int>> copies_;
};

bool is_view_op(OpKind op);  // transpose, slice, reshape

// Every value of type `narrow` is one of type `wide`.
bool holds(DataType wide, DataType narrow);

// The view, of dims `y`, that a data-movement node makes of a source of dims `x` at `from`; nullopt
// where it needs a copy.
std::optional<Location> view_of(const Dims& x, const Attributes& attributes, const Dims& y,
                                const Location& from);

// Strides under which the elements that (dim, stride) reach in row-major order are seen as
// `new_dim`; nullopt where that needs a copy.
std::optional<Dims> reshape_strides(const Dims& dim, const Dims& stride, const Dims& new_dim);

}  // namespace sinter
