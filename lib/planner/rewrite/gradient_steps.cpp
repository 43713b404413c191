#include "planner/rewrite/gradient_steps.hpp"

#include <cmath>

#include "planner/rewrite/pass.hpp"

namespace sinter {

std::optional<PointwiseMode> mode_of(const Rewriter& g, TensorId t) {
  const Node* const n = t >= 0 ? g.made_by(t, OpKind::pointwise) : nullptr;
  if (!n) return {};
  return std::get<PointwiseAttributes>(n->attributes).mode;
}

namespace {

// Whether a reshape leaves the last two dims as they are.
bool keeps_matrices(const Dims& a, const Dims& b) {
  return a.size() >= 2 && b.size() >= 2 && a.back() == b.back() &&
         a[a.size() - 2] == b[b.size() - 2];
}

}  // namespace

bool GradientSteps::computes_f32(const Node& n) const {
  return fits_f32(n.compute == DataType::none ? g_.options().compute : n.compute);
}
bool GradientSteps::is_real(TensorId t) const {
  return is_floating(g_.type(t)) && fits_f32(g_.type(t));
}
bool GradientSteps::in_f32(TensorId t) const {
  const NodeId p = g_.producer(t);
  return p >= 0 && !g_.in_region(p) && computes_f32(g_.node(p)) && is_real(t);
}
std::optional<double> GradientSteps::number(TensorId t) const {
  if (t < 0 || !g_[t].has_value || g_[t].bound_value || !std::isfinite(g_[t].value)) return {};
  return g_[t].value;
}
bool GradientSteps::converts(const Node& n) const {
  return is_identity(n) && g_[n.inputs[0]].dim == g_[n.outputs[0]].dim && is_real(n.inputs[0]) &&
         is_real(n.outputs[0]);
}
bool GradientSteps::reshapes(const Node& n) const {
  return n.op == OpKind::reshape && is_real(n.inputs[0]) && is_real(n.outputs[0]) &&
         keeps_matrices(g_[n.inputs[0]].dim, g_[n.outputs[0]].dim);
}
bool GradientSteps::transposes(const Node& n) const {
  return n.op == OpKind::transpose && is_real(n.inputs[0]) && is_real(n.outputs[0]) &&
         swaps_last(n);
}

TensorId GradientSteps::bare(TensorId t, DataType& type) const {
  type = DataType::f32;
  for (int i = 0; i < kMostSteps; ++i) {
    if (const DataType here = g_.type(t); here != DataType::f32)
      type = type == DataType::f32 || type == here ? here : DataType::none;
    if (g_.producer(t) < 0) break;
    const Node& n = g_.node(g_.producer(t));
    if (!converts(n) && !reshapes(n)) break;
    t = n.inputs[0];
  }
  return t;
}
TensorId GradientSteps::bare(TensorId t) const {
  DataType type;
  const TensorId x = bare(t, type);
  return type == DataType::f32 ? x : t;
}
TensorId GradientSteps::row(TensorId t, std::int64_t columns) const {
  for (int i = 0; i < kMostSteps && g_.producer(t) >= 0; ++i) {
    const Node& n = g_.node(g_.producer(t));
    const TensorId x = n.inputs[0];
    const bool copies = is_identity(n) && g_.type(x) == DataType::f32 &&
                        g_.type(t) == DataType::f32 &&
                        (g_[x].dim == g_[t].dim ||
                         (g_[x].dim.size() == g_[t].dim.size() &&
                          count(g_[x].dim) * columns == count(g_[t].dim) && g_[x].dim.back() == 1));
    if (!copies && (n.op != OpKind::reshape || g_.type(x) != g_.type(t))) break;
    t = x;
  }
  return t;
}
bool GradientSteps::is_row(TensorId r, TensorId x) const {
  return g_[x].dim.back() > 0 && count(g_[r].dim) * g_[x].dim.back() == count(g_[x].dim) &&
         g_.type(r) == DataType::f32;
}
TensorId GradientSteps::summed(TensorId t, ReductionMode mode) const {
  const Node* const n = t >= 0 ? g_.made_by(t, OpKind::reduction) : nullptr;
  if (!n || !in_f32(t) || std::get<ReductionAttributes>(n->attributes).mode != mode)
    return kNoTensor;
  Dims rows = g_[n->inputs[0]].dim;
  if (rows.size() == 0) return kNoTensor;
  rows.back() = 1;
  return rows == g_[t].dim ? n->inputs[0] : kNoTensor;
}

FactorOf GradientSteps::factor(TensorId t, bool swapped) const {
  FactorOf f{t, swapped, 1};
  for (int i = 0; i < kMostSteps && g_.producer(f.t) >= 0 && !g_[f.t].output; ++i) {
    const Node& n = g_.node(g_.producer(f.t));
    if (g_.in_region(g_.producer(f.t)) || n.inputs[0] < 0 || !is_real(n.inputs[0]) ||
        !holds(g_.type(f.t), g_.type(n.inputs[0])))
      break;
    const std::int64_t group = shares_ && f.group == 1 ? repeats(n) : 1;
    if (transposes(n))
      f.swapped = !f.swapped;
    else if (group > 1)
      f.group = group;
    else if (!converts(n) && !reshapes(n))
      break;
    f.t = n.inputs[0];
  }
  return f;
}
std::int64_t GradientSteps::repeats(const Node& n) const {
  if (!is_identity(n)) return 1;
  return repeats(g_[n.inputs[0]].dim, g_[n.outputs[0]].dim);
}
std::int64_t GradientSteps::repeats(const Dims& from, const Dims& to) {
  if (from.size() != to.size() || from.size() < 3 || !keeps_matrices(from, to)) return 1;
  const int last = from.size() - 3;
  for (int i = 0; i < last; ++i)
    if (from[i] != to[i]) return 1;
  return from[last] == 1 ? to[last] : 1;
}
FactorOf GradientSteps::factor_of(const Node& product, std::size_t port, bool swapped) const {
  const TensorId t = product.inputs[port];
  Dims to = g_[product.outputs[0]].dim;
  const Dims& from = g_[t].dim;
  for (int i = 1; i <= 2; ++i) to[to.size() - i] = from[from.size() - i];
  FactorOf f = factor(t, swapped);
  const std::int64_t group = repeats(from, to);
  if (group > 1) f = {f.group > 1 ? kNoTensor : f.t, f.swapped, group};
  return f;
}
bool GradientSteps::same(const FactorOf& a, const FactorOf& b) const {
  if (a.t < 0 || b.t < 0 || a.group != b.group) return false;
  if (a.t == b.t) return a.swapped == b.swapped;
  const auto x = g_.location(a.t), y = g_.location(b.t);
  if (!x || !y || x->root != y->root || x->offset != y->offset || g_.type(a.t) != g_.type(b.t))
    return false;
  const auto along = [&](const FactorOf& f, Dims dims) {
    if (f.swapped) std::swap(dims[dims.size() - 1], dims[dims.size() - 2]);
    return dims;
  };
  return along(a, g_[a.t].dim) == along(b, g_[b.t].dim) &&
         along(a, x->stride) == along(b, y->stride);
}

}  // namespace sinter
