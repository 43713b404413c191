// Where f32 says the same as the f64 in which nodes with integers are computed.
#include <cmath>

#include "lower/expansion.hpp"
#include "planner/spec/body_builder.hpp"

namespace sinter {

// Of an integer in memory a node asks whether it is 0, as conditions are: f32 says so, too.
bool BodyBuilder::asks_truth(const Node& n) const {
  using M = PointwiseMode;
  const Graph& g = state_.graph();
  const M mode = std::get_if<PointwiseAttributes>(&n.attributes)->mode;
  const bool selects = mode == M::binary_select;
  if ((!selects && mode != M::logical_and && mode != M::logical_or && mode != M::logical_not) ||
      !fits_f32(g.compute(n)))
    return false;
  for (std::size_t i = 0; i < n.inputs.size(); ++i) {
    const TensorId t = n.inputs[i];
    if (t < 0 || fits_f32(g.type(t))) continue;
    if ((selects && i != 2) || is_floating(g.type(t)) || !loads_itself(t)) return false;
  }
  return true;
}

// Whether the value of a tensor is loaded from memory, where it has its own type.
bool BodyBuilder::loads_itself(TensorId t) const {
  const NodeId p = state_.graph()[t].producer;
  // A sum that the kernel has is in no memory, whoever adds it up.
  if (const auto it = raw_.find(t);
      it != raw_.end() &&
      body_.statements[static_cast<std::size_t>(it->second)].kind == StatementKind::accumulator)
    return false;
  return !(p >= 0 && (contains(inside_, p) || state_.recomputed(p))) &&
         !state_.graph()[t].has_value && state_.storage()[t].type == state_.graph().type(t);
}

// Whether a tensor holds indices below 2^24, of whatever type: f32 has them all.
bool BodyBuilder::is_small_index(TensorId t) const {
  const Graph& g = state_.graph();
  const NodeId p = g[t].producer;
  const auto* a = p >= 0 ? std::get_if<PointwiseAttributes>(&state_.node(p).attributes) : nullptr;
  if (!a || a->mode != PointwiseMode::gen_index ||
      !(contains(inside_, p) || state_.recomputed(p)) ||
      g.arithmetic(state_.node(p)) == DataType::f64)
    return false;
  const DataType type = g.type(t);
  return (type == DataType::f32 || type == DataType::i32 || type == DataType::i64) &&
         g[t].dim[lowering::positive_axis(*a->axis, g[t].dim)] <= 1 << 24;
}

bool BodyBuilder::is_small_constant(TensorId t) const {
  const TensorDesc& desc = state_.graph()[t];
  return desc.has_value && !desc.bound_value && std::abs(desc.value) <= 1 << 24 &&
         desc.value == static_cast<double>(static_cast<float>(desc.value));
}

// A comparison of an index or a constant up to 2^24 and an integer in memory (the targets of a
// cross-entropy) is the same in f32: a larger integer is rounded to no less than 2^24. So it is
// with what has no more bits than f32, and so is the choice between two of these (the index of the
// largest value).
bool BodyBuilder::same_in_f32(const Node& n) const {
  using M = PointwiseMode;
  const Graph& g = state_.graph();
  const M mode = std::get_if<PointwiseAttributes>(&n.attributes)->mode;
  const bool compares = mode >= M::cmp_eq && mode <= M::cmp_le;
  if ((!compares && mode != M::binary_select) || g.arithmetic(n) != DataType::f64 ||
      !fits_f32(g.compute(n)))
    return false;
  bool small = !compares;
  for (std::size_t i = 0; i < n.inputs.size(); ++i) {
    const TensorId t = n.inputs[i];
    if (t < 0) continue;
    if (is_small_index(t) || is_small_constant(t))
      small = true;
    else if (!fits_f32(g.type(t)) &&
             ((!compares && i != 2) || is_floating(g.type(t)) || !loads_itself(t)))
      return false;
  }
  return small;
}

}  // namespace sinter
