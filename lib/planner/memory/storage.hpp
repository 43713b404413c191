// Where every tensor of the lowered graph lives. Most have a buffer of their own; a transposed,
// sliced or reshaped tensor is, where strides can say so, a view of its source's buffer and costs
// nothing (of a wider type than the source's, it is converted where it is read), and a tensor that
// is moved into a larger one (a part of a concatenation, which others may read, too; the source of
// a reshape that is a graph output) is written there directly.
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

// A tensor that a concatenation joins, and where in the result it begins.
struct Part {
  TensorId tensor = kNoTensor;
  Dims start;
};

class Storage {
 public:
  explicit Storage(const Graph& graph);
  const Location& operator[](TensorId t) const { return locations_[static_cast<std::size_t>(t)]; }
  // True for a data-movement node that needs no kernel: its result is a view, its sources write
  // into it, or its readers read its parts.
  bool folded(NodeId n) const { return folded_[static_cast<std::size_t>(n)]; }
  // Of a concatenation: the inputs that must be copied, by position.
  const std::vector<int>& copies(NodeId n) const { return copies_[static_cast<std::size_t>(n)]; }
  // Of a concatenation that is computed element by element: what is read, see
  // virtual_concatenation.hpp.
  const std::vector<Part>& parts(NodeId n) const { return parts_[static_cast<std::size_t>(n)]; }

 private:
  void find_parts(const Graph& graph);
  void place_in_results(const Graph& graph);
  void fold_views(const Graph& graph);
  std::vector<Location> locations_;
  std::vector<bool> folded_, placed_;
  std::vector<std::vector<int>> copies_;
  std::vector<std::vector<Part>> parts_;
};

bool is_view_op(OpKind op);  // transpose, slice, reshape
// Virtual, and no view of what is stored: rewrites put views in front of nodes, whose operands are
// as exact as those of the user's node. A product may round what is computed (GRAPH_JSON.md).
bool is_computed(const Graph& graph, TensorId t);

// Every value of type `narrow` is one of type `wide`.
bool holds(DataType wide, DataType narrow);

// The view, of dims `y`, that a data-movement node makes of a source of dims `x` at `from`; nullopt
// where it needs a copy.
std::optional<Location> view_of(const Dims& x, const Attributes& attributes, const Dims& y,
                                const Location& from);

// The same for the source of a transpose or reshape whose result lies at `to`; nullopt where the
// result's buffer cannot hold it.
std::optional<Location> source_of(const Dims& x, const Node& movement, const Dims& y,
                                  const Location& to);

// Dims without leading ones: what decides whether two tensors run over the same domain.
Dims without_leading_ones(const Dims& d);

// Strides under which the elements that (dim, stride) reach in row-major order are seen as
// `new_dim`; nullopt where that needs a copy.
std::optional<Dims> reshape_strides(const Dims& dim, const Dims& stride, const Dims& new_dim);

inline const Node& node_of(const Graph& g, NodeId n) {
  return g.nodes()[static_cast<std::size_t>(n)];
}

// Where a tensor's elements lie that is no view: in a buffer of its own. `g`: a graph or a
// Rewriter.
template <class G>
Location stored_by_itself(const G& g, TensorId t) {
  const TensorDesc& d = g[t];
  return {t, d.stride.empty() ? packed_strides(d.dim) : d.stride, 0, g.type(t)};
}

// And of the view `t` that `movement` makes of a source at `from`, if strides can do that.
template <class G>
std::optional<Location> seen_through(const G& g, TensorId t, const Node& movement,
                                     const std::optional<Location>& from) {
  const TensorId x = movement.inputs[0];
  if (!from || !holds(g.type(t), g.type(x))) return std::nullopt;
  return view_of(g[x].dim, movement.attributes, g[t].dim, *from);
}

// Where a tensor's elements lie, if what only moves data is done by strides; nullopt where it is
// not.
std::optional<Location> location_of(const Graph& g, TensorId t);

}  // namespace sinter
