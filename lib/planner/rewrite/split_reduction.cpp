// A reduction to less than the rows of the kernel that makes its operand is done in two steps, of
// which that kernel takes the first (a mean of a norm's result, the gradient of a scale).
//
//     [B, S, D] norm -> sum to [1, 1, 1]    =>    norm -> sum to [B, S, 1] -> sum to [1, 1, 1]
//
// A mean is divided once, behind both sums: means of rows that are rounded would make one that is
// inexact of sums that are exact.
// Those of attention stay: its kernel takes the region as it is (dBias).
#include <algorithm>

#include "planner/rewrite/pass.hpp"

namespace sinter {
namespace {

// The dims of a reduction's result from which `t` is computed over `domain`, where a reduction to
// `to` takes more axes; empty where there is none.
Dims rows_of(const Rewriter& g, TensorId t, const Dims& domain, const Dims& to, int& budget) {
  const Node* n = elementwise(g, t);
  if (!n || g[t].output || --budget < 0) return {};
  for (TensorId x : n->inputs) {
    if (x < 0) continue;
    const Node* r = g.made_by(x, OpKind::reduction);
    const Dims& kept = g[x].dim;
    if (!r || g[r->inputs[0]].dim != domain || kept == to || kept == domain) {
      const Dims rows = r ? Dims{} : rows_of(g, x, domain, to, budget);
      if (!rows.empty()) return rows;
      continue;
    }
    bool refines = true;
    for (int i = 0; i < kept.size(); ++i) refines = refines && (to[i] == 1 || to[i] == kept[i]);
    if (refines) return kept;
  }
  return {};
}

bool split_reduction(MovedViews& views, NodeId id) {
  Rewriter& g = views.g;
  const Node n = g.node(id);
  const TensorId t = n.inputs[0], y = n.outputs[0];
  const auto mode = *std::get_if<ReductionAttributes>(&n.attributes)->mode;
  if (g.in_region(id)) return false;
  if (mode == ReductionMode::norm2 || mode == ReductionMode::mul_no_zeros) return false;
  int budget = 4 * kMostChained;
  const Dims rows = rows_of(g, t, g[t].dim, g[y].dim, budget);
  if (rows.empty() || count(g[t].dim) == 0) return false;
  ReductionAttributes first = *std::get_if<ReductionAttributes>(&n.attributes), rest = first;
  const bool average = mode == ReductionMode::avg;
  if (average) first.mode = ReductionMode::add;
  if (average || mode == ReductionMode::norm1) rest.mode = ReductionMode::add;
  const DataType type = g.partial_type(n, y);
  const TensorId part = g.tensor_like(y, rows, type, "_of_rows");
  g.make(part, OpKind::reduction, first, {t}, id);
  if (!average) {
    g.make(y, OpKind::reduction, rest, {part}, id);
    return true;
  }
  const TensorId sum = g.tensor_like(y, g[y].dim, type, "_of_all");
  const std::int64_t length = count(g[t].dim) / std::max<std::int64_t>(count(g[y].dim), 1);
  g.make(sum, OpKind::reduction, rest, {part}, id);
  g.make(y, OpKind::pointwise, PointwiseAttributes{.mode = PointwiseMode::div},
         {sum, g.scalar(static_cast<double>(length), type, g[y].dim.size())}, id);
  return true;
}

}  // namespace

extern constinit const Pass split_reduction_pass{
    "split_reduction",
    "A reduction of a row kernel's values over more axes than its rows is the reduction of the "
    "rows' own reductions.",
    at_reductions, split_reduction};

}  // namespace sinter
