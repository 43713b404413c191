// Views of the tensors of a graph that is being rewritten: what they show, what of it lies in
// memory anyway, and computing on them instead of on the whole.
#pragma once
#include <array>
#include <optional>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "planner/rewrite/rewriter.hpp"
#include "planner/rewrite/views.hpp"
#include "target/device_model.hpp"

namespace sinter {

// Operations of a chain that is computed on what a view shows.
inline constexpr int kMostChained = 24;

// The pointwise node that makes a tensor element by element from its operands alone, or null.
const Node* elementwise(const Rewriter& g, TensorId t);
// What gives the tensor from which elementwise nodes compute this one over its own dims, each of
// which the next one alone reads: its own producer, where that is no such node; -1: there is none.
NodeId before_elementwise(const Rewriter& g, TensorId t);
// The axis of the indices that a node makes; -1: it makes none.
int index_axis(const Rewriter& g, const Node& n);
// Whether a node that reads `y`, a view of `t`, computes the same of t's own elements: no value is
// rounded on the way, and the arithmetic is not f64 because y is.
bool reads_alike(const Rewriter& g, TensorId y, TensorId t);
// What the two are computed to, element by element, is one tensor.
bool meet(const Rewriter& g, const std::array<TensorId, 2>& tensors);

class MovedViews {
 public:
  MovedViews(const Lowered& lowered, const DeviceModel& device) : g(lowered), device(device) {}

  View of_node(NodeId n) const;
  // A virtual tensor that shows `v` of `t`, made once. `like`: for whose sake, see Rewriter::make.
  TensorId view(TensorId t, const View& v, NodeId like);
  bool made_here(TensorId t) const;
  // The tensor that a view of `t` shows, where there is one: the view of its inverse, a part of a
  // concatenation. Else kNoTensor.
  TensorId shown(TensorId t, const View& v) const;
  // What is read of an operand, which broadcasts to v.from, for a result that `v` shows.
  TensorId operand(TensorId t, const View& v, NodeId like);
  // Whether that costs nothing.
  bool shows(TensorId t, const View& v) const;
  // Whether the caller gives or gets a tensor, or one of which it is a view.
  bool in_memory(TensorId t) const;
  // A product's result, or the end of its epilogue, that several read: an epilogue would have to
  // store it besides.
  bool stored_anyway(TensorId t) const;
  // The node that is computed again on what a view shows, or null.
  const Node* recomputed(TensorId t) const;
  // What of its operands is read where it is: `v`, or of an operand that is converted and
  // broadcasts its own view; nothing where it is not computed again.
  std::optional<View> computed_again(TensorId t, const View& v) const;
  // Whether a tensor holds indices along an axis that a reshape keeps: it is made over other dims.
  bool indexes(TensorId t, const View& v) const { return shown_axis(t, v) >= 0; }
  // Whether what `v` shows of a tensor can be computed from tensors that are in memory anyway, or
  // also from small ones that `stored` says are stored for it.
  enum class Small { computed, stored };
  bool hoists(TensorId t, const View& v, int& budget, Small small = Small::computed) const;
  // Computes it: as a tensor of its own, or as `y`.
  TensorId hoisted(TensorId t, const View& v, NodeId like);
  void hoisted_into(TensorId y, TensorId t, const View& v);

  Rewriter g;
  const DeviceModel& device;  // that outlives this

 private:
  // Whether a tensor of at most so many elements is computed from such or from memory, element by
  // element (sines of positions): a kernel of its own makes it, whoever reads it.
  bool is_table(TensorId t, std::int64_t most, int& nodes) const;
  // Whether a number, whose dims are all 1 and as many as the caller gives it, broadcasts where
  // `to` does.
  bool reads_as_it_is(TensorId t, const Dims& to) const;
  // The axis of these indices over the dims that `v` shows, or -1.
  int shown_axis(TensorId t, const View& v) const;
  TensorId shown_part(const Node& n, const ConcatenateAttributes& c, const SliceAttributes& s,
                      const Dims& dim) const;

  struct Hoisted {
    View view;
    TensorId to;
  };
  std::unordered_set<TensorId> made_;
  std::unordered_map<TensorId, std::vector<Hoisted>> hoisted_;  // by what the view is of
};

}  // namespace sinter
