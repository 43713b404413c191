// Where intermediate images lie: with their channels last, as tensor cores multiply them.
//
//     x (NCHW) -> relu -> (NCHW) -> conv -> (NCHW) -> tanh -> conv -> y (NCHW)
//  => x (NCHW) -> relu -> (NHWC) -> conv -> (NHWC) -> tanh -> conv -> y (NCHW)
#include <algorithm>

#include "planner/rewrite/pass.hpp"

namespace sinter {
namespace {

bool may_be_image(OpKind op) { return may_be_ordered(op) || op == OpKind::concatenate; }

// Whether a convolution reads it as an image whose channels it sums over.
bool is_image_of(const Rewriter& g, const Node& n, TensorId y) {
  const auto* const a = std::get_if<ConvAttributes>(&n.attributes);
  if (!a || (n.inputs[0] != y && !(n.op == OpKind::conv_wgrad && n.inputs[1] == y))) return false;
  return a->groups < g[y].dim[1];
}

// Whether all who read a slice of an image read it in any order; `wanted`: that a convolution does.
bool read_in_any_order(const Rewriter& g, TensorId y, bool& wanted) {
  return std::ranges::all_of(g.readers(y), [&](NodeId r) {
    const Node& reader = g.node(r);
    wanted |= is_image_of(g, reader, y);
    return reads_any_order(reader.op) || reader.op == OpKind::concatenate;
  });
}

// Whether a convolution of one group gives it, with what its kernel computes behind the sums: it
// may store the results in any order.
bool made_by_sums(const Rewriter& g, TensorId y) {
  const NodeId p = before_elementwise(g, y);
  const auto* const a = p < 0 ? nullptr : std::get_if<ConvAttributes>(&g.node(p).attributes);
  return a && g.node(p).op == OpKind::conv_fprop && a->groups == 1 &&
         g[g.node(p).inputs[0]].dim[1] > 1;
}

bool channels_last(MovedViews& views, NodeId id) {
  Rewriter& g = views.g;
  const Node& n = g.node(id);
  const TensorId y = n.outputs.empty() ? kNoTensor : n.outputs[0];
  if (y < 0 || !g.is_virtual(y) || g[y].dim.size() < 3) return false;
  const Dims& dim = g[y].dim;
  std::vector<int> order{1};
  for (int i = dim.size() - 1; i >= 0; --i)
    if (i != 1) order.push_back(i);
  const Dims last = packed_in(order, dim);
  bool wanted = false;
  for (NodeId r : g.readers(y)) {
    const Node& reader = g.node(r);
    if (reader.op == OpKind::reshape && puts_in_order(g, reader, last) && made_by_sums(g, y)) {
      wanted = true;
      continue;
    }
    if (reader.op == OpKind::slice && g.is_virtual(reader.outputs[0])) {
      if (!read_in_any_order(g, reader.outputs[0], wanted)) return false;
      continue;
    }
    if (!reads_any_order(reader.op) && reader.op != OpKind::concatenate) return false;
    wanted |= is_image_of(g, reader, y);
  }
  if (!wanted) return false;
  g.set_stride(y, last);
  return true;
}

}  // namespace

extern constinit const Pass channels_last_pass{
    "channels_last",
    "A virtual image that a convolution reads lies with its channels last, so that a chain of "
    "convolutions changes the layout of its input and of its result, and no other.",
    may_be_image, channels_last};

}  // namespace sinter
