// Shape rules of pointwise operations, reductions, softmax, random numbers and block scaling.
#pragma once
#include "sinter/ops/shape_rules.hpp"

namespace sinter::shapes {

inline bool pointwise(ShapeRules& r) {
  const auto& a = r.attributes<PointwiseAttributes>();
  const int arity = info(a.mode).arity;
  for (int port = 0; port < 3; ++port)
    if (r.has(port) != (port < arity))
      return r.fail(Rule::pointwise_arity, r.input_name(port),
                    text({name(a.mode), r.has(port) ? " with" : " without", " it"}),
                    text({arity, " operands"}));
  Dims out = r.dim(0);
  for (int port = 1; port < arity; ++port) {
    Dims joined;
    if (!broadcast(out, r.dim(port), joined))
      return r.fail(Rule::broadcast, r.input_name(port), to_string(r.dim(port)),
                    text({"extents equal to those of ", to_string(out), " or 1"}));
    out = joined;
  }
  if (a.mode == PointwiseMode::gen_index) {
    int axis;
    if (!a.axis)
      return r.fail(Rule::attribute_missing, "axis", "", "",
                    "name the axis whose index is generated");
    if (!r.axis("axis", *a.axis, out.size(), axis)) return false;
  }
  // A declared result may be larger than its operands: they broadcast to it.
  const Dims declared = r.declared(0);
  if (!declared.empty() && broadcasts_to(out, declared)) out = declared;
  r.set(0, out);
  return true;
}

inline bool reduction(ShapeRules& r) {
  if (!r.attributes<ReductionAttributes>().mode)
    return r.fail(Rule::attribute_missing, "mode", "", "", "add a mode such as add or max");
  const Dims &x = r.dim(0), y = r.declared(0);
  if (y.empty())
    return r.fail(Rule::tensor_dim_missing, "port Y", "", "",
                  "declare Y with the kept extents, 1 where it is reduced");
  bool fits = y.size() == x.size();
  for (int i = 0; fits && i < x.size(); ++i) fits = y[i] == x[i] || y[i] == 1;
  if (!fits)
    return r.fail(Rule::reduction_shape, "port Y", to_string(y),
                  text({"each extent of ", to_string(x), " or 1"}));
  r.set(0, y);
  return true;
}

inline bool softmax(ShapeRules& r) {
  int axis;
  if (!r.axis("axis", r.attributes<SoftmaxAttributes>().axis, r.dim(0).size(), axis)) return false;
  r.set(0, r.dim(0));
  Dims stats = r.dim(0);
  stats[axis] = 1;
  if (r.wants(1)) r.set(1, stats);
  return true;
}

inline bool softmax_backward(ShapeRules& r) {
  int axis;
  if (!r.axis("axis", r.attributes<SoftmaxAttributes>().axis, r.dim(0).size(), axis)) return false;
  if (!r.same_dims(1, r.dim(0), Rule::broadcast)) return false;
  r.set(0, r.dim(0));
  return true;
}

inline bool rng(ShapeRules& r) {
  const auto& a = r.attributes<RngAttributes>();
  if (!r.one_element(0) || !r.one_element(1) || !r.integer(0) || !r.integer(1)) return false;
  const Dims y = r.declared(0);
  if (y.empty()) return r.fail(Rule::tensor_dim_missing, "port Y", "", "", "declare the dims of Y");
  const auto bad = [&](const char* attribute, double v, const char* allowed) {
    return r.fail(Rule::rng_parameter, attribute, text({v}), allowed);
  };
  if (!(a.probability >= 0 && a.probability <= 1))
    return bad("probability", a.probability, "0 to 1");
  if (!(a.minimum <= a.maximum)) return bad("minimum", a.minimum, "at most maximum");
  // Numbers of f32, in which kernels compute.
  constexpr double most = 3e38;
  if (!(a.maximum - a.minimum <= most)) return bad("maximum", a.maximum, "at most minimum + 3e38");
  if (!(a.stddev >= 0 && a.stddev <= most)) return bad("stddev", a.stddev, "0 to 3e38");
  if (!(a.mean >= -most && a.mean <= most)) return bad("mean", a.mean, "-3e38 to 3e38");
  r.set(0, y);
  return true;
}

// Shared by quantize and dequantize: the dims of Scale for values of dims x.
inline bool block_scale(ShapeRules& r, const Dims& x, Dims& scale) {
  const auto& a = r.attributes<BlockScaleAttributes>();
  int axis;
  if (!r.axis("axis", a.axis, x.size(), axis)) return false;
  if (a.block_size < 1 || x[axis] % a.block_size)
    return r.fail(Rule::block_scale_shape, "block_size", std::to_string(a.block_size),
                  text({"a divisor of the extent ", x[axis]}));
  scale = x;
  scale[axis] /= a.block_size;
  return true;
}

inline bool block_scale_quantize(ShapeRules& r) {
  Dims scale;
  if (!block_scale(r, r.dim(0), scale)) return false;
  r.set(0, r.dim(0));
  r.set(1, scale);
  return true;
}

inline bool block_scale_dequantize(ShapeRules& r) {
  Dims scale;
  if (!block_scale(r, r.dim(0), scale)) return false;
  if (!r.same_dims(1, scale, Rule::block_scale_shape)) return false;
  r.set(0, r.dim(0));
  return true;
}

}  // namespace sinter::shapes
