// A softmax that is written in another order becomes max, exponential, sum, quotient and product,
// as kernels of attention know it.
//
//     exp -> matmul with v -> / sum         =>  exp -> / sum -> matmul with v
//     where(seen, x, -inf) -> * scale       =>  x -> * scale -> where(seen, .., -inf)
//     exp(x - (max + log(sum)))             =>  exp(x - max) / sum
//     exp(x) / sum                          =>  exp(x - max(x)) / sum
//     q -> * scale -> matmul with k         =>  q -> matmul with k -> * scale
#include <algorithm>
#include <cmath>

#include "plan/large_scores.hpp"
#include "planner/rewrite/pass.hpp"

namespace sinter {
namespace {

using M = PointwiseMode;

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
// bits: other numbers are rounded then. Nor where the product reads weights that are stored, which
// it may not round; nor where rows have none: a sum of nothing is 0, and 0 / 0 no product of
// nothing.
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
    if (!has_mode(g, e, M::exp) || g.type(e) != DataType::f32 || !g.is_virtual(e) ||
        !sums_rows(g, total, e) || info(g.options().io).bytes != 2 || g[e].dim.back() == 0)
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
      if (!g[number].has_value || g[number].bound_value || !(g[number].value <= kMaskNumber) ||
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

// The sum of the rows of exponentials, which it sums; kNoTensor where `total` is no such sum.
TensorId exponentials_of(const Rewriter& g, TensorId total) {
  const Node* const sum = total >= 0 ? g.made_by(total, OpKind::reduction) : nullptr;
  if (!sum) return kNoTensor;
  const TensorId e = sum->inputs[0];
  return has_mode(g, e, M::exp) && g.type(e) == DataType::f32 && sums_rows(g, total, e) ? e
                                                                                        : kNoTensor;
}

// Weights that are exponentials of distances to the logarithm of the sum, which no type rounds on
// the way.
bool divide_by_sum(MovedViews& views, NodeId id) {
  Rewriter& g = views.g;
  const Node n = g.node(id);
  const TensorId y = n.outputs[0];
  if (g.in_region(id) || !has_mode(g, y, M::exp) || !in_f32(g, n) || g.type(y) != DataType::f32 ||
      !has_mode(g, n.inputs[0], M::sub))
    return false;
  const TensorId x = input(g, n.inputs[0], 0), logarithm = input(g, n.inputs[0], 1);
  const auto rounded = [&](TensorId t) { return g.type(t) != DataType::f32; };
  if (!has_mode(g, logarithm, M::add) || rounded(logarithm) || rounded(n.inputs[0])) return false;
  for (std::size_t side : {0u, 1u}) {
    const TensorId log = input(g, logarithm, side), largest = input(g, logarithm, 1 - side);
    if (!has_mode(g, log, M::log) || rounded(log)) continue;
    const TensorId total = input(g, log, 0), e = exponentials_of(g, total);
    if (e < 0 || e == y || g[e].dim != g[y].dim || !has_mode(g, input(g, e, 0), M::sub) ||
        rounded(input(g, e, 0)) || input(g, input(g, e, 0), 0) != x ||
        input(g, input(g, e, 0), 1) != largest)
      continue;
    PointwiseAttributes quotient;
    quotient.mode = M::div;
    g.make(y, OpKind::pointwise, quotient, {e, total}, id);
    return true;
  }
  return false;
}

// Exponentials that are divided by their sum and are not taken of distances to the largest score:
// of these where a product reads them. What would overflow does not.
bool subtract_largest(MovedViews& views, NodeId id) {
  Rewriter& g = views.g;
  const Node n = g.node(id);
  const TensorId y = n.outputs[0];
  if (g.in_region(id) || !has_mode(g, y, M::div) || !in_f32(g, n) || g[y].output) return false;
  const TensorId e = n.inputs[0], total = n.inputs[1];
  if (exponentials_of(g, total) != e || g[e].dim != g[y].dim || g[e].output || g[total].output ||
      g.readers(e).size() != 2 || g.readers(total).size() != 1 || info(g.options().io).bytes != 2)
    return false;
  const auto& readers = g.readers(y);
  if (readers.empty() || !std::all_of(readers.begin(), readers.end(), [&](NodeId r) {
        return g.node(r).op == OpKind::matmul && g.node(r).inputs[0] == y;
      }))
    return false;
  const TensorId x = input(g, e, 0);
  if (!g.is_virtual(x) || g.type(x) != DataType::f32 || g[x].dim != g[e].dim ||
      has_mode(g, x, M::sub))
    return false;
  const NodeId sum = g.producer(total), exponential = g.producer(e);
  Dims row = g[x].dim;
  row.back() = 1;
  const auto made = [&](const char* suffix, const Dims& dim, OpKind op, Attributes attributes,
                        std::vector<TensorId> inputs, NodeId like) {
    const TensorId t = g.tensor_like(x, dim, DataType::f32, suffix);
    g.make(t, op, std::move(attributes), std::move(inputs), like);
    return t;
  };
  const auto mode = [](M m) {
    PointwiseAttributes a;
    a.mode = m;
    return a;
  };
  ReductionAttributes of_rows = std::get<ReductionAttributes>(g.node(sum).attributes),
                      most = of_rows;
  most.mode = ReductionMode::max;
  const TensorId largest = made("_largest", row, OpKind::reduction, most, {x}, sum),
                 shifted = made("_shifted", g[x].dim, OpKind::pointwise, mode(M::sub), {x, largest},
                                exponential),
                 weights = made("_exp", g[x].dim, OpKind::pointwise, mode(M::exp), {shifted},
                                exponential),
                 sums = made("_sums", row, OpKind::reduction, of_rows, {weights}, sum);
  g.make(y, OpKind::pointwise, n.attributes, {weights, sums}, id);
  return true;
}

bool is_number(const Rewriter& g, TensorId t) {
  return t >= 0 && g[t].has_value && !g[t].bound_value && std::isfinite(g[t].value) &&
         g.type(t) == DataType::f32;
}

// The type of what is only moved to become `t`.
DataType moved_type(const Rewriter& g, TensorId t) {
  while (g.producer(t) >= 0 && is_view_op(g.node(g.producer(t)).op)) t = input(g, t, 0);
  return g.type(t);
}

// An operand of a product that is a tensor of 16 bits times a number, which would have to be
// written to memory: the number is multiplied with the sums, and with one that these are multiplied
// with.
bool scale_sums(MovedViews& views, NodeId id) {
  Rewriter& g = views.g;
  const Node n = g.node(id);
  const TensorId y = n.outputs[0];
  if (g.in_region(id) || !has_mode(g, y, M::mul) || !g.is_virtual(y) || !in_f32(g, n) ||
      g.type(y) != DataType::f32 || g.readers(y).size() != 1)
    return false;
  const NodeId reader = g.readers(y)[0];
  const Node product = g.node(reader);
  if (product.op != OpKind::matmul || g.in_region(reader) || !in_f32(g, product) ||
      product.inputs[0] == product.inputs[1])
    return false;
  for (std::size_t side : {0u, 1u}) {
    const TensorId x = n.inputs[side], by = n.inputs[1 - side];
    if (!is_number(g, by) || info(moved_type(g, x)).bytes != 2 || !is_floating(moved_type(g, x)) ||
        g[x].dim != g[y].dim)
      continue;
    std::vector<TensorId> inputs = product.inputs;
    std::replace(inputs.begin(), inputs.end(), y, x);
    TensorId z = product.outputs[0], factor = by;
    NodeId scaling = id;
    if (const auto& readers = g.readers(z);
        g.is_virtual(z) && g.type(z) == DataType::f32 && readers.size() == 1) {
      const Node& next = g.node(readers[0]);
      const bool scales = has_mode(g, next.outputs[0], M::mul) && in_f32(g, next) &&
                          g[next.outputs[0]].dim == g[z].dim && !g.in_region(readers[0]);
      for (std::size_t other : {0u, 1u})
        if (scales && next.inputs[other] == z && is_number(g, next.inputs[1 - other])) {
          factor = g.scalar(g[by].value * g[next.inputs[1 - other]].value, DataType::f32);
          scaling = readers[0];
        }
    }
    if (scaling != id) z = g.node(scaling).outputs[0];
    const TensorId sums = g.tensor_like(product.outputs[0], g[z].dim, DataType::f32, "_sums");
    g.make(sums, OpKind::matmul, product.attributes, std::move(inputs), reader);
    g.make(z, OpKind::pointwise, n.attributes, {sums, factor}, scaling);
    return true;
  }
  return false;
}

bool order_softmax(MovedViews& views, NodeId id) {
  return divide_first(views, id) || mask_last(views, id) || divide_by_sum(views, id) ||
         subtract_largest(views, id) || scale_sums(views, id);
}

}  // namespace

extern constinit const Pass order_softmax_pass{
    "order_softmax",
    "Weights are exponentials of distances to the largest score, divided by their sum before they "
    "are multiplied; scales stand behind the product and before masks.",
    at_pointwise, order_softmax};

}  // namespace sinter
