// Rows whose halves are computed beside each other (the rotary embedding of a norm's result).
//
//     x -> square -> mean of rows -> m          x's left half  -> square -> sum --.
//                                        =>                                       + -> / n -> m
//                                               x's right half -> square -> sum --'
#include <algorithm>

#include "planner/rewrite/halves.hpp"
#include "planner/rewrite/pass.hpp"

namespace sinter {
namespace {

// The two halves of what the row is computed from, where nothing else is read of it.
std::vector<NodeId> halves_of_source(const MovedViews& views, TensorId t, const Dims& full,
                                     int& budget) {
  const Rewriter& g = views.g;
  if (!views.recomputed(t)) {
    if ((!views.in_memory(t) && !views.stored_anyway(t)) || g[t].dim != full) return {};
    std::vector<NodeId> slices;
    for (NodeId r : g.readers(t))
      if (g.node(r).op == OpKind::slice) slices.push_back(r);
    return slices.size() == 2 && are_halves(g, t, slices) ? slices : std::vector<NodeId>{};
  }
  if (--budget < 0) return {};
  for (TensorId x : g.node(g.producer(t)).inputs)
    if (x >= 0)
      if (auto slices = halves_of_source(views, x, full, budget); !slices.empty()) return slices;
  return {};
}

// Whether something of these dims is computed from a value of the row.
bool reaches(const Rewriter& g, TensorId row, const Dims& dim) {
  std::vector<TensorId> values{row};
  for (std::size_t i = 0; i < values.size() && values.size() < kMostChained; ++i)
    for (NodeId r : g.readers(values[i])) {
      const TensorId z = g.node(r).outputs[0];
      if (!elementwise(g, z)) continue;
      if (g[z].dim == dim) return true;
      if (g[z].dim == g[row].dim) values.push_back(z);
    }
  return false;
}

bool split_reduction_halves(MovedViews& views, NodeId id) {
  Rewriter& g = views.g;
  using M = ReductionMode;
  const Node n = g.node(id);
  const TensorId t = n.inputs[0], y = n.outputs[0];
  ReductionAttributes a = *std::get_if<ReductionAttributes>(&n.attributes);
  const M mode = *a.mode;
  const Dims full = g[t].dim;
  Dims rows = full, half = full;
  rows.back() = 1;
  half.back() /= 2;
  if (g[y].dim != rows || !g.is_virtual(y) || full.back() < 2 || !reaches(g, y, half)) return false;
  if (mode == M::mul || mode == M::norm2 || mode == M::mul_no_zeros) return false;
  int budget = kMostChained;
  const std::vector<NodeId> slices = halves_of_source(views, t, full, budget);
  if (slices.empty()) return false;
  std::vector<TensorId> parts;
  for (NodeId s : slices) {
    const View v = views.of_node(s);
    budget = kMostChained;
    if (!views.hoists(t, v, budget)) return false;
  }
  if (mode == M::avg) a.mode = M::add;  // divided once, so that sums without roundings stay exact
  for (NodeId s : slices) {
    const View v = views.of_node(s);
    parts.push_back(g.tensor_like(y, rows, g.partial_type(n, y), "_of_half"));
    g.make(parts.back(), OpKind::reduction, a, {views.hoisted(t, v, id)}, id);
  }
  PointwiseAttributes combine{.mode = PointwiseMode::add};
  if (mode == M::min) combine.mode = PointwiseMode::min;
  if (mode == M::max || mode == M::amax) combine.mode = PointwiseMode::max;
  if (mode != M::avg) {
    g.make(y, OpKind::pointwise, combine, parts, id);
    return true;
  }
  const TensorId both = g.tensor_like(y, rows, g.partial_type(n, y), "_of_both");
  g.make(both, OpKind::pointwise, combine, parts, id);
  g.make(y, OpKind::pointwise, PointwiseAttributes{.mode = PointwiseMode::div},
         {both, g.scalar(static_cast<double>(full.back()), g.partial_type(n, y))}, id);
  return true;
}

}  // namespace

extern constinit const Pass split_reduction_halves_pass{
    "split_reduction_halves",
    "Where halves of rows are read, a reduction of the rows is that of the reductions of both "
    "halves, so that one kernel runs over halves.",
    at_reductions, split_reduction_halves};

}  // namespace sinter
