// A concatenation is stored in the type of its parts, where all have the same 16-bit one, and so is
// the largest of windows in that of their elements.
//
//     bf16 --.                                   bf16 --.
//             concatenate -> (f32) -> norm   =>          concatenate -> (bf16) -> norm
//     bf16 --'                                   bf16 --'
//
//     bf16 -> maxpool -> (f32) -> maxpool    =>  bf16 -> maxpool -> (bf16) -> maxpool
#include "lower/op_kinds.hpp"
#include "planner/memory/virtual_concatenation.hpp"
#include "planner/rewrite/pass.hpp"

namespace sinter {
namespace {

bool at_choices(OpKind op) { return op == OpKind::concatenate || op == OpKind::resample; }

// Whether each element of the result is one of the operands', or an infinite one, and nothing else
// is asked.
bool chooses(const Node& n) {
  if (n.op == OpKind::concatenate) return true;
  const auto mode = std::get<ResampleAttributes>(n.attributes).mode.value_or(ResampleMode::maxpool);
  const bool positions = n.outputs.size() > 1 && n.outputs[1] >= 0;
  return !positions && (mode == ResampleMode::nearest || mode == ResampleMode::maxpool);
}

// The type of what a part shows, element by element: f32 views of a 16-bit tensor hold its numbers.
DataType shown_type(const Rewriter& g, TensorId x) {
  while (g.is_virtual(x) && is_view_op(g.node(g.producer(x)).op)) {
    const TensorId from = g.node(g.producer(x)).inputs[0];
    if (!holds(g.type(x), g.type(from))) break;
    x = from;
  }
  return g.type(x);
}

// What computes with it gets the same numbers, of half the bytes.
bool narrow_concatenation(MovedViews& views, NodeId id) {
  Rewriter& g = views.g;
  const Node n = g.node(id);
  const TensorId y = n.outputs[0];
  const DataType type = shown_type(g, n.inputs[0]);
  if (!chooses(n) || !g.is_virtual(y) || g.type(y) != DataType::f32 || g.in_region(id) ||
      (type != DataType::f16 && type != DataType::bf16) ||
      !all_operands(n, kNoTensor, [&](TensorId x) { return shown_type(g, x) == type; }))
    return false;
  // Whoever reads wide views where they lie takes them in their own type.
  if (!all_operands(n, kNoTensor, [&](TensorId x) { return g.type(x) == type; }) &&
      (n.op == OpKind::resample || !parts_in_memory(g, id).empty()))
    return false;
  const TensorId narrow = g.tensor_like(y, g[y].dim, type, "_narrow");
  if (!g[y].stride.empty()) g.set_stride(narrow, g[y].stride);
  g.make(narrow, n.op, n.attributes, n.inputs, id);
  g.redirect(y, narrow);
  return true;
}

}  // namespace

extern constinit const Pass narrow_concatenation_pass{
    "narrow_concatenation",
    "A concatenation that no kernel reads part by part takes no more memory than its parts, and "
    "the largest elements of windows no more than elements.",
    at_choices, narrow_concatenation};

}  // namespace sinter
