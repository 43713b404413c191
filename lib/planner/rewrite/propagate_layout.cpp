// Where intermediate results lie: as what they are computed from, so that channels that are last in
// memory stay last.
//
//     x (NHWC) -> conv -> (NCHW) -> relu -> y        =>        x (NHWC) -> conv -> (NHWC) -> relu
//     -> y
#include <algorithm>

#include "planner/rewrite/pass.hpp"

namespace sinter {
namespace {

// Strides of packed elements whose dims lie in the order of x's; nullopt where x broadcasts.
std::optional<Dims> ordered_as(const Rewriter& g, TensorId x, const Dims& dim) {
  const auto at = g.location(x);
  if (!at) return std::nullopt;
  std::vector<int> order;  // innermost first
  for (int i = dim.size() - 1; i >= 0; --i) order.push_back(i);
  std::stable_sort(order.begin(), order.end(),
                   [&](int a, int b) { return at->stride[a] < at->stride[b]; });
  for (int i : order)
    if (at->stride[i] == 0 && dim[i] > 1) return std::nullopt;
  return packed_in(order, dim);
}

bool takes_order(OpKind op) { return may_be_ordered(op) || op == OpKind::concatenate; }

// Whether a reader of what lies with these strides is none the worse for them.
bool reads_order(const Rewriter& g, const Node& reader, const Dims& stride) {
  if (reader.op != OpKind::concatenate && !is_view_op(reader.op)) return reads_any_order(reader.op);
  const TensorId whole = reader.outputs[0];
  if (!g.is_virtual(whole)) return false;
  if (puts_in_order(g, reader, stride)) return true;
  if (reader.op == OpKind::slice)
    return std::ranges::all_of(g.readers(whole), [&](NodeId r) {
      const Node& n = g.node(r);
      return !is_view_op(n.op) && reads_order(g, n, stride);
    });
  if (reader.op != OpKind::concatenate && reader.op != OpKind::reshape) return false;
  return std::ranges::all_of(g.readers(whole),
                             [&](NodeId r) { return reads_any_order(g.node(r).op); });
}

// Whether reshapes of `y` (a groupnorm's channels, joined again) are views where it lies so.
bool stay_views(const Rewriter& g, TensorId y, const Dims& stride) {
  return std::ranges::all_of(g.readers(y), [&](NodeId r) {
    const Node& n = g.node(r);
    return n.op != OpKind::reshape ||
           reshape_strides(g[y].dim, stride, g[n.outputs[0]].dim).has_value();
  });
}

bool propagate_to(Rewriter& g, const Node& n, TensorId y) {
  if (y < 0 || !g.is_virtual(y) || !takes_order(n.op) || g[y].dim.size() < 3) return false;
  const bool same_dims = n.op == OpKind::pointwise;
  for (TensorId x : n.inputs) {
    if (x < 0 || g[x].dim.size() != g[y].dim.size() || (same_dims && g[x].dim != g[y].dim))
      continue;
    const auto stride = ordered_as(g, x, g[y].dim);
    // Of a concatenation with padding the parts that broadcast say nothing.
    if (!stride && n.op == OpKind::concatenate) continue;
    if (!stride || !stay_views(g, y, *stride)) return false;
    for (NodeId r : g.readers(y))
      if (!reads_order(g, g.node(r), *stride)) return false;
    g.set_stride(y, *stride);
    return true;
  }
  return false;
}

// A pooling's Index lies as its result does.
bool propagate_layout(MovedViews& views, NodeId id) {
  const Node& n = views.g.node(id);
  bool moved = false;
  for (std::size_t i = 0; i < n.outputs.size(); ++i)
    moved |= propagate_to(views.g, n, n.outputs[i]);
  return moved;
}

}  // namespace

extern constinit const Pass propagate_layout_pass{
    "propagate_layout",
    "A virtual result that may lie in any order of its dims lies in the order of its first operand "
    "of the same rank.",
    takes_order, propagate_layout};

}  // namespace sinter
