// Rewrites of the lowered graph before it is partitioned, as a list of passes. A pass is a function
// of one node that looks around it and changes the graph, or leaves it alone; values, their types
// and their roundings stay, but sums may be added in another order.
#pragma once
#include <algorithm>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "lower/lower.hpp"
#include "planner/rewrite/moved_views.hpp"
#include "target/device_model.hpp"

namespace sinter {

struct Pass {
  std::string_view name;
  std::string_view law;                      // what stays true and what is gained, in one sentence
  bool (*at)(OpKind op);                     // the nodes that it is tried on
  bool (*run)(MovedViews& views, NodeId n);  // false: nothing changed
};

// Passes that work on one graph: those of `repeated` in turn, until none finds anything, and then
// those of `once`, each node once.
struct PassGroup {
  std::span<const Pass*const> repeated, once;
  bool needs_wgmma = false;    // only for devices that have it
  bool makes_regions = false;  // undone where a later group takes one of them apart
};

// In the order in which they run, each group on what the one before it made.
std::span<const PassGroup> rewrite_passes();

// The graph as all of them leave it. Should a rewritten graph be refused by its own checks, the one
// before it is kept and Lowered::wrong_rewrite says so; tests fail where it does.
// `regions`: whether the groups that make some run.
Lowered rewritten(Lowered lowered, const DeviceModel& device, bool regions = true);

// Nothing where no pass of the group finds anything.
std::optional<Lowered> run_passes(const Lowered& lowered, const PassGroup& group,
                                  const DeviceModel& device);
// `unchanged`: the graph as the groups before, that found nothing, have taken it over; left to the
// next one where this one finds nothing either.
std::optional<Lowered> run_passes(const Lowered& lowered, const PassGroup& group,
                                  const DeviceModel& device, std::optional<MovedViews>& unchanged);

// ---- for passes

inline bool at_views(OpKind op) { return is_view_op(op); }
inline bool at_pointwise(OpKind op) { return op == OpKind::pointwise; }
inline bool at_matmuls(OpKind op) { return op == OpKind::matmul; }
inline bool at_reductions(OpKind op) { return op == OpKind::reduction; }

// True where all operands fit, apart from `but`.
template <class Fits>
bool all_operands(const Node& n, TensorId but, const Fits& fits) {
  return std::all_of(n.inputs.begin(), n.inputs.end(),
                     [&](TensorId x) { return x < 0 || x == but || fits(x); });
}

// Neighbours in memory stay neighbours where a view moves elements.
inline bool keeps_neighbours(const Node& movement) {
  const auto* a = std::get_if<TransposeAttributes>(&movement.attributes);
  return !a || a->permutation.back() == a->permutation.size() - 1;
}

// Strides of packed elements whose dims lie in this order, the innermost first.
inline Dims packed_in(const std::vector<int>& order, const Dims& dim) {
  Dims stride = Dims::filled(dim.size(), 1);
  std::int64_t step = 1;
  for (int i : order) {
    stride[i] = step;
    step *= std::max<std::int64_t>(1, dim[i]);
  }
  return stride;
}

// Whether a node's result may lie in any order of its dims, and whether it reads any.
inline bool may_be_ordered(OpKind op) {
  return op == OpKind::pointwise || op == OpKind::conv_fprop || op == OpKind::conv_dgrad ||
         op == OpKind::resample || op == OpKind::resample_backward;
}
inline bool reads_any_order(OpKind op) {
  return may_be_ordered(op) || op == OpKind::reduction || op == OpKind::conv_wgrad;
}

// Where a transpose of what lies so has its dims in the order in which they lie, as the images that
// a norm or a product over the channels reads; or all those of a reshape, as the patches that a
// transformer reads as tokens.
inline bool puts_in_order(const Rewriter& g, const Node& view, const Dims& stride) {
  const TensorId y = view.outputs[0];
  if (const auto* a = std::get_if<TransposeAttributes>(&view.attributes)) {
    Dims turned = stride;
    for (int i = 0; i < turned.size(); ++i) turned[i] = stride[static_cast<int>(a->permutation[i])];
    return turned == packed_strides(g[y].dim);
  }
  if (view.op != OpKind::reshape || !g.is_virtual(y)) return false;
  const auto shaped = reshape_strides(g[view.inputs[0]].dim, stride, g[y].dim);
  return shaped && std::ranges::all_of(g.readers(y), [&](NodeId r) {
           const Node& n = g.node(r);
           return n.op == OpKind::transpose && puts_in_order(g, n, *shaped);
         });
}

// A pointwise node that copies, converts or broadcasts.
inline bool is_identity(const Node& n) {
  return n.op == OpKind::pointwise && n.attributes == Attributes{PointwiseAttributes{}};
}
// A result of f32 that the caller sees and that shows what others made. A product reads it as it is
// stored; another view of the same is a virtual tensor, which products may round (GRAPH_JSON.md).
inline bool shown_as_stored(const Rewriter& g, TensorId t) {
  if (g.producer(t) < 0 || g.is_virtual(t) || g.type(t) != DataType::f32) return false;
  const Node& n = g.node(g.producer(t));
  return is_view_op(n.op) || n.op == OpKind::concatenate || is_identity(n);
}
// A transpose of the last two dims alone.
inline bool swaps_last(const Node& n) {
  const auto* const a = std::get_if<TransposeAttributes>(&n.attributes);
  if (!a || a->permutation.size() < 2) return false;
  const Dims& p = a->permutation;
  for (int i = 0; i < p.size() - 2; ++i)
    if (p[i] != i) return false;
  return p[p.size() - 1] == p.size() - 2;
}

// A pointwise node whose result has the dims of its operand `y`.
inline bool computes_over(const Rewriter& g, const Node& n, TensorId y) {
  const TensorId z = n.outputs[0];
  return elementwise(g, z) && g[z].dim == g[y].dim;
}

}  // namespace sinter
