// A view that shows another tensor again is that tensor.
//
//     x -> transpose -> transpose -> y           x -> y
//     [a b] -> slice of b -> y            =>     b -> y
//     x -> reshape -> reshape back -> y          x -> y
#include <algorithm>

#include "planner/rewrite/pass.hpp"

namespace sinter {
namespace {

bool cancel_views(MovedViews& views, NodeId id) {
  Rewriter& g = views.g;
  const Node& n = g.node(id);
  const TensorId y = n.outputs[0], x = views.shown(n.inputs[0], views.of_node(id));
  if (x == kNoTensor || !g.is_virtual(y) || g.type(x) != g.type(y)) return false;
  g.redirect(y, x);
  return true;
}

}  // namespace

extern constinit const Pass cancel_views_pass{
    "cancel_views",
    "The view of a view or of a concatenation that shows a whole tensor is read as that tensor.",
    at_views, cancel_views};

}  // namespace sinter
