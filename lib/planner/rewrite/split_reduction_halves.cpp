// Rows whose halves are computed beside each other (the rotary embedding of a norm's result, and
// its gradient, of which that of a norm is computed).
//
//     x -> square -> mean of rows -> m          x's left half  -> square -> sum --.
//                                        =>                                       + -> / n -> m
//                                               x's right half -> square -> sum --'
//
//     f(a) --.                                  f(a) -> sum --.
//             concatenate -> sum -> y     =>                   + -> y
//     g(b) --'                                  g(b) -> sum --'
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

// The two computed halves that a tensor joins, where all that read it can read these instead.
std::vector<TensorId> joined_halves(const MovedViews& views, TensorId t) {
  const Rewriter& g = views.g;
  const Node* const c = g.made_by(t, OpKind::concatenate);
  if (!c || !g.is_virtual(t) || c->inputs.size() != 2 || g.in_region(g.producer(t))) return {};
  const Dims& full = g[t].dim;
  if (count(full) == 0) return {};
  Dims half = full;
  half.back() /= 2;
  for (TensorId x : c->inputs)
    if (g[x].dim != half || 2 * half.back() != full.back() || !views.recomputed(x) ||
        !reads_alike(g, t, x))
      return {};
  const auto reads_halves = [&](NodeId r) {
    const Node& n = g.node(r);
    return !g.in_region(r) && (computes_over(g, n, t) || n.op == OpKind::reduction);
  };
  return std::ranges::all_of(g.readers(t), reads_halves) ? c->inputs : std::vector<TensorId>{};
}

// Makes `y`, of rows of the reduction `like`, from what it gives of their halves.
void combine(Rewriter& g, TensorId y, NodeId like, const std::vector<TensorId>& halves) {
  using M = ReductionMode;
  const Node n = g.node(like);
  ReductionAttributes a = *std::get_if<ReductionAttributes>(&n.attributes);
  const M mode = *a.mode;
  if (mode == M::avg) a.mode = M::add;  // divided once, so that sums without roundings stay exact
  std::vector<TensorId> parts;
  for (TensorId half : halves) {
    parts.push_back(g.tensor_like(y, g[y].dim, g.partial_type(n, y), "_of_half"));
    g.make(parts.back(), OpKind::reduction, a, {half}, like);
  }
  PointwiseAttributes both{.mode = PointwiseMode::add};
  if (mode == M::min) both.mode = PointwiseMode::min;
  if (mode == M::max || mode == M::amax) both.mode = PointwiseMode::max;
  if (mode != M::avg) {
    g.make(y, OpKind::pointwise, both, parts, like);
    return;
  }
  const TensorId sum = g.tensor_like(y, g[y].dim, g.partial_type(n, y), "_of_both");
  const auto terms = static_cast<double>(count(g[n.inputs[0]].dim) / count(g[y].dim));
  g.make(sum, OpKind::pointwise, both, parts, like);
  g.make(y, OpKind::pointwise, PointwiseAttributes{.mode = PointwiseMode::div},
         {sum, g.scalar(terms, g.partial_type(n, y))}, like);
}

bool split_reduction_halves(MovedViews& views, NodeId id) {
  Rewriter& g = views.g;
  using M = ReductionMode;
  const Node n = g.node(id);
  const TensorId t = n.inputs[0], y = n.outputs[0];
  const M mode = *std::get_if<ReductionAttributes>(&n.attributes)->mode;
  const Dims full = g[t].dim;
  Dims rows = full, half = full;
  rows.back() = 1;
  half.back() /= 2;
  if (mode == M::mul || mode == M::norm2 || mode == M::mul_no_zeros) return false;
  if (const auto joined = joined_halves(views, t); !joined.empty()) {
    if (g[y].dim.size() == rows.size() && g[y].dim.back() == 1 && g.is_virtual(y)) {
      combine(g, y, id, joined);
      return true;
    }
    if (g[y].dim.size() != rows.size() || g[y].dim.back() != full.back()) return false;
    std::vector<TensorId> halves;
    for (TensorId x : joined) {
      Dims dim = g[y].dim;
      dim.back() /= 2;
      halves.push_back(g.tensor_like(y, dim, g.type(y), "_of_half"));
      g.make(halves.back(), n.op, n.attributes, {x}, id);
    }
    g.make(y, OpKind::concatenate, ConcatenateAttributes{.axis = rows.size() - 1}, halves, id);
    return true;
  }
  if (g[y].dim != rows || !g.is_virtual(y) || full.back() < 2 || !reaches(g, y, half)) return false;
  int budget = kMostChained;
  const std::vector<NodeId> slices = halves_of_source(views, t, full, budget);
  if (slices.empty()) return false;
  for (NodeId s : slices) {
    budget = kMostChained;
    if (!views.hoists(t, views.of_node(s), budget)) return false;
  }
  std::vector<TensorId> halves;
  for (NodeId s : slices) halves.push_back(views.hoisted(t, views.of_node(s), id));
  combine(g, y, id, halves);
  return true;
}

}  // namespace

extern constinit const Pass split_reduction_halves_pass{
    "split_reduction_halves",
    "Where halves of rows are read, a reduction of the rows is that of the reductions of both "
    "halves, so that one kernel runs over halves.",
    at_reductions, split_reduction_halves};

}  // namespace sinter
