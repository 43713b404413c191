// A conversion to a type that holds all values of what it converts is not needed by who computes.
//
//     i8 -> identity -> (bf16) -> matmul        =>        i8 -> matmul
//     bf16 -> identity -> (f32) -> add          =>        bf16 -> add
#include "lower/op_kinds.hpp"
#include "planner/rewrite/pass.hpp"

namespace sinter {
namespace {

// Tensor cores multiply numbers of 16 bits of one type: another one is better rounded, as a virtual
// f32 may be. (4096 cubed, f16 weights as f32 and bf16 rows: 466 us estimated, 229 so.)
bool multiplied_with_another(const Rewriter& g, const Node& reader, TensorId x) {
  return is_matmul(reader.op) && info(g.type(x)).bytes == 2 &&
         std::ranges::any_of(reader.inputs, [&](TensorId t) {
           return t >= 0 && info(g.type(t)).bytes == 2 && g.type(t) != g.type(x);
         });
}

bool read_unconverted(MovedViews& views, NodeId id) {
  Rewriter& g = views.g;
  const Node n = g.node(id);
  const TensorId x = n.inputs[0], y = n.outputs[0];
  // What is true or false is seldom stored as such: products want numbers.
  if (!is_identity(n) || !g.is_virtual(y) || g.in_region(id) || g[x].has_value ||
      g[x].dim != g[y].dim || g.type(x) == g.type(y) || g.type(x) == DataType::boolean ||
      !is_floating(g.type(y)) || !reads_alike(g, y, x))
    return false;
  bool found = false;
  for (NodeId r : std::vector<NodeId>(g.readers(y))) {
    const Node& reader = g.node(r);
    if (g.in_region(r) || (!is_matmul(reader.op) && reader.op != OpKind::pointwise) ||
        multiplied_with_another(g, reader, x))
      continue;
    for (std::size_t i = 0; i < reader.inputs.size(); ++i)
      if (reader.inputs[i] == y) g.set_input(r, static_cast<int>(i), x);
    found = true;
  }
  return found;
}

}  // namespace

extern constinit const Pass read_unconverted_pass{
    "read_unconverted",
    "A product or an elementwise node reads what a conversion that rounds nothing converts, so "
    "that a kernel loads it in its own, narrower type.",
    at_pointwise, read_unconverted};

}  // namespace sinter
