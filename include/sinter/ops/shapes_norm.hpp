// Shape rules of the normalisations and their gradients, and the axes that each normalises over.
#pragma once
#include "sinter/ops/shape_rules.hpp"

namespace sinter::shapes {

// The dims of MEAN and INV_VARIANCE for X of dims x: 1 on the axes that are normalised.
// layernorm, rmsnorm: the axes where SCALE is not 1; adaptive_layernorm: the same without axis 0;
// instancenorm: the spatial axes; batchnorm: all but the channels; groupnorm: [N, groups, 1..].
inline Dims statistics_dim(OpKind op, const Dims& x, const Dims& scale, std::int64_t groups) {
  Dims s = x;
  for (int i = 0; i < x.size(); ++i) {
    bool normalised = false;
    switch (op) {
      case OpKind::instancenorm:
      case OpKind::instancenorm_backward:
        normalised = i >= 2;
        break;
      case OpKind::batchnorm:
      case OpKind::batchnorm_inference:
      case OpKind::batchnorm_backward:
        normalised = i != 1;
        break;
      case OpKind::groupnorm:
      case OpKind::groupnorm_backward:
        if (i == 1) s[1] = groups;
        normalised = i >= 2;
        break;
      case OpKind::adaptive_layernorm:
      case OpKind::adaptive_layernorm_backward:
        normalised = i > 0 && aligned(scale, x.size(), i) != 1;
        break;
      default:
        normalised = aligned(scale, x.size(), i) != 1;
    }
    if (normalised) s[i] = 1;
  }
  return s;
}

inline bool is_channel_norm(OpKind op) {
  return op == OpKind::instancenorm || op == OpKind::groupnorm || op == OpKind::batchnorm ||
         op == OpKind::batchnorm_inference || op == OpKind::instancenorm_backward ||
         op == OpKind::groupnorm_backward || op == OpKind::batchnorm_backward;
}

// SCALE (and BIAS) against X: [1, C, 1..] for the norms over channels, else anything that
// broadcasts over X.
inline bool norm_scale(ShapeRules& r, const Dims& x, int port) {
  if (!r.has(port)) return true;
  const Dims& s = r.dim(port);
  bool fits = broadcasts_to(s, x) || (count(x) == 0 && s.size() <= x.size());
  if (fits && is_channel_norm(r.node().op)) {
    fits = x.size() >= 2 && s.size() == x.size() && s[1] == x[1];
    for (int i = 0; fits && i < s.size(); ++i) fits = i == 1 || s[i] == 1;
  }
  if (fits) return true;
  return r.fail(
      Rule::norm_scale, r.input_name(port), to_string(s),
      text({is_channel_norm(r.node().op) ? "[1, C, 1..] for X " : "dims that broadcast over X ",
            to_string(x)}));
}

inline bool norm_groups(ShapeRules& r, const Dims& x, std::int64_t groups) {
  if (x.size() >= 2 && groups >= 1 && x[1] % groups == 0) return true;
  return r.fail(Rule::norm_groups, "groups", std::to_string(groups),
                text({"a divisor of the channels of X ", to_string(x)}));
}

inline bool norm(ShapeRules& r) {
  const Dims& x = r.dim(0);
  const bool grouped = r.node().op == OpKind::groupnorm;
  const std::int64_t groups = grouped ? r.attributes<GroupNormAttributes>().groups : 0;
  if (grouped && !norm_groups(r, x, groups)) return false;
  if (!norm_scale(r, x, 1) || !norm_scale(r, x, 2) || !r.one_element(3)) return false;
  const Dims s = statistics_dim(r.node().op, x, r.dim(1), groups);
  r.set(0, x);
  for (int port = 1; port < static_cast<int>(r.node().outputs.size()); ++port)
    if (r.wants(port)) r.set(port, s);
  return true;
}

inline bool batchnorm(ShapeRules& r) {
  const Dims& x = r.dim(0);
  if (!norm_scale(r, x, 1) || !norm_scale(r, x, 2) || !r.one_element(3) || !r.one_element(6))
    return false;
  const Dims s = statistics_dim(OpKind::batchnorm, x, {}, 0);
  if (!r.same_dims(4, s, Rule::norm_statistics) || !r.same_dims(5, s, Rule::norm_statistics))
    return false;
  for (int i : {0, 1})  // NEXT_RUNNING_x needs PREV_RUNNING_x and MOMENTUM
    for (int needed : {4 + i, 6})
      if (r.wants(3 + i) && !r.has(needed))
        return r.fail(Rule::norm_running, r.output_name(3 + i),
                      text({r.input_name(needed), " is not connected"}), "",
                      text({"connect ", r.input_name(needed)}));
  r.set(0, x);
  for (int port = 1; port < 5; ++port)
    if (r.wants(port)) r.set(port, s);
  return true;
}

inline bool batchnorm_inference(ShapeRules& r) {
  const Dims& x = r.dim(0);
  if (!norm_scale(r, x, 3) || !norm_scale(r, x, 4)) return false;
  const Dims s = statistics_dim(OpKind::batchnorm, x, {}, 0);
  if (!r.same_dims(1, s, Rule::norm_statistics) || !r.same_dims(2, s, Rule::norm_statistics))
    return false;
  r.set(0, x);
  return true;
}

inline bool norm_backward(ShapeRules& r) {
  const OpKind op = r.node().op;
  const Dims& x = r.dim(1);
  if (!r.same_dims(0, x, Rule::broadcast) || !norm_scale(r, x, 2)) return false;
  const int first = 3, last = r.inputs() - 1;  // [MEAN,] INV_VARIANCE
  std::int64_t groups = 0;
  if (op == OpKind::groupnorm_backward) {
    groups = r.attributes<GroupNormBackwardAttributes>().groups;
    if (groups == 0 && r.dim(last).size() >= 2) groups = r.dim(last)[1];
    if (!norm_groups(r, x, groups)) return false;
  }
  const Dims s = statistics_dim(op, x, r.dim(2), groups);
  for (int port = first; port <= last; ++port)
    if (!r.same_dims(port, s, Rule::norm_statistics)) return false;
  if (!r.wants(0) && !r.wants(1) && !r.wants(2))
    return r.fail(Rule::port_missing, "port DX, DSCALE or DBIAS", "", "", "connect one of them");
  if (r.wants(0)) r.set(0, x);
  for (int port : {1, 2})
    if (r.wants(port)) r.set(port, r.dim(2));
  return true;
}

}  // namespace sinter::shapes
