// Both halves of a product, or of what is computed from one element by element (a bias added), that
// meet again (gated units).
//
//     x, W -> matmul -> + bias -.-> left half  ->  swish --.
//                               '-> right half ->  --------*--> y
// =>
//     x, W's left half  -> matmul -> + bias's left half  -> swish --.
//     x, W's right half -> matmul -> + bias's right half -> --------*--> y
#include <algorithm>

#include "lower/op_kinds.hpp"
#include "planner/rewrite/halves.hpp"
#include "planner/rewrite/pass.hpp"

namespace sinter {
namespace {

// Makes the slice by a product of B's slice, and what stood between them.
void make_half(MovedViews& views, NodeId slice, TensorId product) {
  Rewriter& g = views.g;
  const View v = views.of_node(slice);
  const TensorId t = g.node(slice).inputs[0], y = g.node(slice).outputs[0];
  std::vector<std::pair<TensorId, TensorId>> made;
  const auto half = [&](const auto& self, TensorId from, TensorId to) -> void {
    const NodeId like = g.producer(from);
    const Node n = g.node(like);
    std::vector<TensorId> inputs = n.inputs;
    if (from == product) {
      const Dims& b = g[inputs[1]].dim;
      SliceAttributes s{Dims::filled(b.size(), 0), b, {}};
      const auto& whole = *std::get_if<SliceAttributes>(&v.attributes);
      Dims dim = b;
      s.start[b.size() - 1] = whole.start[v.from.size() - 1];
      s.limit[b.size() - 1] = whole.limit[v.from.size() - 1];
      dim[b.size() - 1] = v.to[v.to.size() - 1];
      inputs[1] = views.view(inputs[1], {OpKind::slice, s, g[inputs[1]].dim, dim}, like);
    } else {
      for (TensorId& x : inputs) {
        if (x < 0) continue;
        if (g[x].has_value || views.in_memory(x)) {
          x = views.operand(x, v, like);
          continue;
        }
        const auto known =
            std::find_if(made.begin(), made.end(), [&](const auto& m) { return m.first == x; });
        if (known != made.end()) {
          x = known->second;
          continue;
        }
        const TensorId part = g.tensor_like(x, v.to, g.type(x), "_part");
        made.emplace_back(x, part);
        self(self, x, part);
        x = part;
      }
    }
    g.make(to, n.op, n.attributes, std::move(inputs), like);
  };
  half(half, t, y);
}

bool split_product_halves(MovedViews& views, NodeId id) {
  Rewriter& g = views.g;
  const Node& n = g.node(id);
  TensorId t = n.inputs[0];
  if (n.op != OpKind::slice || !g.is_virtual(t)) return false;
  const std::vector<NodeId> halves = g.readers(t);
  if (halves.size() != 2 || !are_halves(g, t, halves)) return false;
  const auto result = [&](int i) { return g.node(halves[static_cast<std::size_t>(i)]).outputs[0]; };
  if (!meet(g, {result(0), result(1)})) return false;
  for (NodeId h : halves)
    if (g.type(g.node(h).outputs[0]) != g.type(t)) return false;
  const auto other_than_products = [&](TensorId x) {
    return x < 0 || views.in_memory(x) || g[x].has_value;
  };
  const Node* p = elementwise(g, t);
  TensorId product = t;
  for (int budget = kMostChained; p && --budget > 0; p = elementwise(g, product)) {
    TensorId next = kNoTensor;
    for (TensorId x : p->inputs)
      if (!other_than_products(x)) {
        if (next != kNoTensor && next != x) return false;
        next = x;
      }
    if (next == kNoTensor || !g.is_virtual(next) || g[next].dim != g[product].dim ||
        g.readers(next).size() != 1)
      return false;
    product = next;
  }
  if (!g.is_virtual(product) || !is_matmul(g.node(g.producer(product)).op)) return false;
  // Attention's kernel takes the region as it is (dQ of queries that were rotated by halves).
  if (g.in_region(g.producer(product))) return false;
  if (shown_as_stored(g, g.node(g.producer(product)).inputs[1])) return false;
  for (NodeId h : halves) make_half(views, h, product);
  return true;
}

}  // namespace

extern constinit const Pass split_product_halves_pass{
    "split_product_halves",
    "Halves of a product's columns are products of the halves of its right operand: two that share "
    "the left one, which one kernel computes.",
    at_views, split_product_halves};

}  // namespace sinter
