// A reshape or transpose of what is computed moves down behind what reads it, so that this joins
// the kernel above.
//
//     x -> matmul -> reshape -> add b -> y        =>        x -> matmul -> add (b reshaped back) ->
//     reshape -> y
#include <algorithm>

#include "planner/rewrite/pass.hpp"

namespace sinter {
namespace {

// A reduction over whole groups of the dims that are moved.
bool reduces(const Rewriter& g, NodeId r, const View& back) {
  const Node& n = g.node(r);
  return n.op == OpKind::reduction && operand_view(back, g[n.outputs[0]].dim);
}

bool sink_view(MovedViews& views, NodeId id) {
  Rewriter& g = views.g;
  const Node n = g.node(id);
  const TensorId t = n.inputs[0], y = n.outputs[0];
  // Attention's kernel takes the region as it is (dK and dV of shared heads).
  if (n.op == OpKind::slice || views.made_here(y) || g.in_region(id)) return false;
  const bool exact = g.is_virtual(y) ? reads_alike(g, y, t) : g.type(y) == g.type(t);
  const bool copied = views.in_memory(t) && !g.location(y);
  if (!exact || (views.in_memory(t) && !copied) || count(g[y].dim) == 0) return false;
  if (!copied && (!g.is_virtual(t) || g.readers(t).size() != 1)) return false;
  if (!keeps_neighbours(n)) return false;
  const View v = views.of_node(id), back = inverse(v);
  const std::vector<NodeId> readers = g.readers(y);
  for (NodeId r : readers)
    if (!reduces(g, r, back) &&
        !(computes_over(g, g.node(r), y) &&
          all_operands(g.node(r), y, [&](TensorId x) { return views.shows(x, back); })))
      return false;
  for (NodeId r : readers) {
    const Node p = g.node(r);
    const TensorId z = p.outputs[0];
    const Dims dim = operand_view(back, g[z].dim)->to;
    const TensorId before = g.tensor_like(z, dim, g.type(z), "_shaped");
    std::vector<TensorId> inputs;
    for (TensorId x : p.inputs)
      inputs.push_back(x == y ? t : x < 0 ? x : views.operand(x, back, r));
    g.make(before, p.op, p.attributes, std::move(inputs), r);
    const bool turns = n.op == OpKind::transpose;
    g.make(z, n.op, turns ? v.attributes : ReshapeAttributes{g[z].dim}, {before}, id);
  }
  return !readers.empty();
}

}  // namespace

extern constinit const Pass sink_view_pass{
    "sink_view",
    "A reshape or transpose is moved behind its readers, which compute over the dims before it, "
    "where their other operands can be seen so at no cost.",
    at_views, sink_view};

}  // namespace sinter
