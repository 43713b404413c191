// A view of what is computed moves up to what lies in memory, where strides do it.
//
//     x -> relu -> slice -> y        =>        x -> slice -> relu -> y
#include <algorithm>

#include "planner/rewrite/pass.hpp"

namespace sinter {
namespace {

// What a reshape shows is reduced along a part of an axis (a norm's result, quantised by blocks):
// by another kernel than whole rows are. That computes it then, from what the rows gave.
bool reduced_in_blocks(const Rewriter& g, TensorId y, const View& v) {
  if (v.op != OpKind::reshape) return false;
  const std::vector<int> axes = joined_axes(v.to, v.from);
  const auto in_blocks = [&](const Node& n) {
    if (n.op != OpKind::reduction || g[n.inputs[0]].dim != v.to) return false;
    const Dims& kept = g[n.outputs[0]].dim;
    for (int i = 1; i < v.to.size(); ++i)
      if (axes[static_cast<std::size_t>(i)] == axes[static_cast<std::size_t>(i - 1)] &&
          v.to[i - 1] > 1 && kept[i - 1] == v.to[i - 1] && v.to[i] > 1 && kept[i] == 1)
        return true;
    return false;
  };
  std::vector<TensorId> same{y};  // element by element
  for (std::size_t i = 0; i < same.size() && i < kMostChained && !axes.empty(); ++i)
    for (NodeId r : g.readers(same[i])) {
      if (in_blocks(g.node(r))) return true;
      const TensorId z = g.node(r).outputs[0];
      if (elementwise(g, z) && g[z].dim == v.to &&
          std::find(same.begin(), same.end(), z) == same.end())
        same.push_back(z);
    }
  return false;
}

bool hoist_view(MovedViews& views, NodeId id) {
  Rewriter& g = views.g;
  const Node n = g.node(id);
  const TensorId t = n.inputs[0], y = n.outputs[0];
  const View v = views.of_node(id);
  if (!views.recomputed(t) && !views.indexes(t, v)) return false;
  const auto& readers = g.readers(t);
  if (!std::all_of(readers.begin(), readers.end(),
                   [&](NodeId r) { return is_view_op(g.node(r).op); }))
    return false;
  // The only movement of a result is where it is written.
  if (g[y].output && n.op != OpKind::slice && readers.size() == 1) return false;
  int budget = kMostChained, again = kMostChained;
  if (!views.hoists(t, v, budget) &&
      !(reduced_in_blocks(g, y, v) && views.hoists(t, v, again, MovedViews::Small::stored)))
    return false;
  if (g.type(t) == g.type(y)) {
    views.hoisted_into(y, t, v);
  } else {
    const TensorId part = g.tensor_like(t, v.to, g.type(t), "_part");
    views.hoisted_into(part, t, v);
    g.make(y, OpKind::pointwise, PointwiseAttributes{}, {part}, id);
  }
  return true;
}

}  // namespace

extern constinit const Pass hoist_view_pass{
    "hoist_view",
    "What a view shows of an elementwise result is computed from the same view of its operands, "
    "where these lie in memory anyway.",
    at_views, hoist_view};

}  // namespace sinter
