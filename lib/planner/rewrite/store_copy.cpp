// A result that is stored as it is and moved is stored twice by the kernel that computes it.
//
//     x -> relu -> y                         x -> relu -> y
//             '-> transpose -> z     =>              '-> identity -> transpose -> z
#include <algorithm>

#include "planner/rewrite/pass.hpp"

namespace sinter {
namespace {

// Computed element by element from the graph's inputs.
bool alone(const Rewriter& g, TensorId t, int& budget) {
  if (g.producer(t) < 0) return true;
  const Node& n = g.node(g.producer(t));
  if (n.op != OpKind::pointwise || --budget < 0) return false;
  return std::all_of(n.inputs.begin(), n.inputs.end(),
                     [&](TensorId x) { return x < 0 || alone(g, x, budget); });
}

bool store_copy(MovedViews& views, NodeId id) {
  Rewriter& g = views.g;
  const Node n = g.node(id);
  const TensorId t = n.inputs[0], y = n.outputs[0];
  if (!g[y].output || n.op == OpKind::slice) return false;
  if (!elementwise(g, t) && !g.made_by(t, OpKind::reduction)) return false;
  const auto& readers = g.readers(t);
  if (!g[t].output && readers.size() == 1) return false;
  if (!keeps_neighbours(n)) {
    int budget = kMostChained;
    if (!alone(g, t, budget)) return false;
    for (NodeId r : readers)
      if (!is_view_op(g.node(r).op) && g.node(r).op != OpKind::pointwise) return false;
  }
  if (!g[t].output && !holds(g.type(y), g.type(t))) return false;
  const TensorId copy = g.tensor_like(t, g[t].dim, g.type(t), suffix::again);
  g.make(copy, OpKind::pointwise, PointwiseAttributes{}, {t}, id);
  g.make(y, n.op, n.attributes, {copy}, id);
  return true;
}

}  // namespace

extern constinit const Pass store_copy_pass{
    "store_copy",
    "A graph output that is a transpose or reshape of a result that is needed besides is a copy of "
    "its own, which can lie where the output does.",
    at_views, store_copy};

}  // namespace sinter
