// A softmax that is written in another order becomes max, exponential, sum, quotient and product,
// as kernels of attention know it.
//
//     exp -> matmul with v -> / sum         =>  exp -> / sum -> matmul with v
//     where(seen, x, -inf) -> * scale       =>  x -> * scale -> where(seen, .., -inf)
#include <algorithm>
#include <cmath>

#include "planner/rewrite/pass.hpp"

namespace sinter {
namespace {

using M = PointwiseMode;

bool at_pointwise(OpKind op) { return op == OpKind::pointwise; }

bool has_mode(const Rewriter& g, TensorId t, M mode) {
  const Node* const n = t >= 0 ? elementwise(g, t) : nullptr;
  return n && std::get<PointwiseAttributes>(n->attributes).mode == mode;
}
TensorId input(const Rewriter& g, TensorId t, std::size_t i) {
  return g.node(g.producer(t)).inputs[i];
}

bool in_f32(const Rewriter& g, const Node& n) {
  const DataType compute = n.compute == DataType::none ? g.options().compute : n.compute;
  return fits_f32(compute) && std::all_of(n.inputs.begin(), n.inputs.end(),
                                          [&](TensorId x) { return x < 0 || fits_f32(g.type(x)); });
}

// Whether `total` is the sum of the rows of `e`, or of that and a number more (a sink's weight).
bool sums_rows(const Rewriter& g, TensorId total, TensorId e) {
  Dims row = g[e].dim;
  row.back() = 1;
  if (g[total].dim != row || g.type(total) != DataType::f32) return false;
  if (has_mode(g, total, M::add))
    return sums_rows(g, input(g, total, 0), e) || sums_rows(g, input(g, total, 1), e);
  const Node* const sum = g.made_by(total, OpKind::reduction);
  return sum && sum->inputs[0] == e &&
         std::get<ReductionAttributes>(sum->attributes).mode == ReductionMode::add;
}

// Results that are divided by the sums of their rows' weights. Not where these are declared with 16
// bits: other numbers are rounded then.
bool divide_first(MovedViews& views, NodeId id) {
  Rewriter& g = views.g;
  const Node n = g.node(id);
  const TensorId y = n.outputs[0];
  if (g.in_region(id) || !in_f32(g, n)) return false;
  const bool divides = has_mode(g, y, M::div);
  if (!divides && !has_mode(g, y, M::mul)) return false;
  for (std::size_t side : {0u, 1u}) {
    if (side == 1 && divides) break;
    const TensorId o = n.inputs[side], by = n.inputs[1 - side];
    const TensorId total = divides                          ? by
                           : has_mode(g, by, M::reciprocal) ? input(g, by, 0)
                                                            : kNoTensor;
    const NodeId second = g.producer(o);
    if (total < 0 || second < 0 || g.node(second).op != OpKind::matmul || !g.is_virtual(o) ||
        g.readers(o).size() != 1 || g.in_region(second) || g[o].dim != g[y].dim)
      continue;
    const Node product = g.node(second);
    const TensorId e = product.inputs[0];
    if (!has_mode(g, e, M::exp) || g.type(e) != DataType::f32 || !sums_rows(g, total, e) ||
        info(g.options().io).bytes != 2)
      continue;
    const TensorId quotient = g.tensor_like(e, g[e].dim, DataType::f32, "_divided");
    g.make(quotient, OpKind::pointwise, n.attributes,
           divides ? std::vector<TensorId>{e, total} : std::vector<TensorId>{e, by}, id);
    g.make(y, OpKind::matmul, product.attributes, {quotient, product.inputs[1]}, second);
    return true;
  }
  return false;
}

// A mask's number times a constant is a number, too.
bool mask_last(MovedViews& views, NodeId id) {
  constexpr double kLarge = -8192;  // what masks are at most
  Rewriter& g = views.g;
  const Node n = g.node(id);
  const TensorId y = n.outputs[0];
  const bool divides = has_mode(g, y, M::div);
  if (g.in_region(id) || (!divides && !has_mode(g, y, M::mul)) || !in_f32(g, n)) return false;
  for (std::size_t side : {0u, 1u}) {
    if (side == 1 && divides) break;
    const TensorId masked = n.inputs[side], by = n.inputs[1 - side];
    if (!g[by].has_value || g[by].bound_value || !(g[by].value > 0) || std::isinf(g[by].value) ||
        g.type(by) != DataType::f32 || !g.is_virtual(masked) || g.readers(masked).size() != 1 ||
        !has_mode(g, masked, M::binary_select) || g[masked].dim != g[y].dim)
      continue;
    const Node select = g.node(g.producer(masked));
    if (g.in_region(g.producer(masked))) continue;
    for (std::size_t hidden : {1u, 0u}) {
      const TensorId number = select.inputs[hidden], x = select.inputs[1 - hidden];
      if (!g[number].has_value || g[number].bound_value || !(g[number].value <= kLarge) ||
          g[x].dim != g[y].dim || g.type(x) != g.type(masked) || g.type(y) != DataType::f32)
        continue;
      const auto scale = static_cast<float>(g[by].value), of = static_cast<float>(g[number].value);
      const TensorId scaled = g.tensor_like(y, g[y].dim, g.type(y), "_seen");
      std::vector<TensorId> inputs = n.inputs;
      inputs[side] = x;
      g.make(scaled, OpKind::pointwise, n.attributes, std::move(inputs), id);
      std::vector<TensorId> seen = select.inputs;
      seen[1 - hidden] = scaled;
      seen[hidden] =
          g.scalar(static_cast<double>(divides ? of / scale : of * scale), DataType::f32);
      g.make(y, OpKind::pointwise, select.attributes, std::move(seen), g.producer(masked));
      return true;
    }
  }
  return false;
}

bool order_softmax(MovedViews& views, NodeId id) {
  return divide_first(views, id) || mask_last(views, id);
}

}  // namespace

extern constinit const Pass order_softmax_pass{
    "order_softmax",
    "Weights that are divided behind their product, and masked scores that are scaled, are divided "
    "before and scaled before.",
    at_pointwise, order_softmax};

}  // namespace sinter
