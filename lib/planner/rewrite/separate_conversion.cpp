// A view whose result cannot hold what it shows rounds, which strides cannot do.
//
//     f32 -> slice -> bf16        =>        f32 -> slice -> f32 -> identity -> bf16
#include <algorithm>

#include "planner/rewrite/pass.hpp"

namespace sinter {
namespace {

bool separate_conversion(MovedViews& views, NodeId id) {
  Rewriter& g = views.g;
  const Node n = g.node(id);
  const TensorId t = n.inputs[0], y = n.outputs[0];
  // Those of attention stay: its kernel takes the region as it is (dK and dV of shared heads).
  if (!g.is_virtual(y) || holds(g.type(y), g.type(t)) || g.in_region(id)) return false;
  const TensorId v = g.tensor_like(y, g[y].dim, g.type(t), "_unrounded");
  g.make(v, n.op, n.attributes, {t}, id);
  g.make(y, OpKind::pointwise, PointwiseAttributes{}, {v}, id);
  return true;
}

}  // namespace

extern constinit const Pass separate_conversion_pass{
    "separate_conversion", "A view that rounds is a view and a pointwise conversion behind it.",
    at_views, separate_conversion};

}  // namespace sinter
