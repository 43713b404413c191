// What products read beside others is stored a second time, in the type in which they multiply, by
// whoever computes it.
//
//     x -> norm -> (f32) -> + y                   x -> norm -> (f32) -> + y
//                     '---> matmul          =>            '-> identity -> (bf16) -> matmul
//
// What the largest of windows is taken of, in the type to which that is rounded.
//
//     x -> relu -> (f32) -> maxpool -> (bf16)  =>  x -> relu -> (bf16) -> maxpool -> (bf16)
//
// And so is what a kernel of its own moves to where it is rounded.
//
//     x -> norm -> (f32) -> reshape -> (bf16)  =>  x -> norm -> (bf16) -> reshape -> (bf16)
#include <algorithm>

#include "lower/op_kinds.hpp"
#include "planner/rewrite/pass.hpp"

namespace sinter {
namespace {

// The tensor of which an operand is a view.
TensorId viewed(const Rewriter& g, TensorId t) {
  while (g.is_virtual(t) && is_view_op(g.node(g.producer(t)).op))
    t = g.node(g.producer(t)).inputs[0];
  return t;
}

// A product of two operands that it may round to the graph's 16-bit type, or that have it.
bool multiplies_narrow(const Rewriter& g, const Node& n) {
  const DataType io = g.options().io;
  if (io != DataType::f16 && io != DataType::bf16) return false;
  const DataType compute = n.compute == DataType::none ? g.options().compute : n.compute;
  const auto narrow = [&](TensorId x) {
    const TensorId t = viewed(g, x);
    return g.type(t) == io || (g.type(t) == DataType::f32 && g.is_virtual(t));
  };
  return compute == DataType::f32 && narrow(n.inputs[0]) && narrow(n.inputs[1]);
}

// Whether somebody needs the tensor, or a view of it, as it is: the caller does, unless the view
// that he sees has the graph's type.
bool read_by_others(const Rewriter& g, TensorId t) {
  if (g[t].output && g.type(t) != g.options().io) return true;
  const auto& readers = g.readers(t);
  return std::any_of(readers.begin(), readers.end(), [&](NodeId r) {
    const Node& n = g.node(r);
    if (g.in_region(r)) return true;
    return is_view_op(n.op) ? read_by_others(g, n.outputs[0])
                            : !is_contraction(n.op) || !multiplies_narrow(g, n);
  });
}

class Narrow {
 public:
  explicit Narrow(Rewriter& g) : g_(g), io_(g.options().io) {}

  // The operand in the graph's type: a view of a copy of `t`, each made once.
  TensorId shown(TensorId operand, TensorId t) {
    const NodeId p = g_.producer(operand);
    const Node from = operand == t ? Node{} : g_.node(p);
    const TensorId source = operand == t ? t : shown(from.inputs[0], t);
    const OpKind op = operand == t ? OpKind::pointwise : from.op;
    const Attributes attributes = operand == t ? PointwiseAttributes{} : from.attributes;
    for (NodeId r : g_.readers(source)) {
      const Node& n = g_.node(r);
      const TensorId y = n.outputs[0];
      if (n.op == op && n.attributes == attributes && g_.is_virtual(y) && g_.type(y) == io_ &&
          g_[y].dim == g_[operand].dim && g_[y].stride == g_[operand].stride)
        return y;
    }
    const TensorId y = g_.tensor_like(operand, g_[operand].dim, io_, "_narrow");
    if (!g_[operand].stride.empty()) g_.set_stride(y, g_[operand].stride);
    g_.make(y, op, attributes, {source}, p);
    return y;
  }

 private:
  Rewriter& g_;
  const DataType io_;
};

// Values of 8 bits are multiplied as such, and their scales behind the sums.
bool has_bytes(const Rewriter& g, TensorId t) {
  const Node& n = g.node(g.producer(t));
  return std::any_of(n.inputs.begin(), n.inputs.end(),
                     [&](TensorId x) { return x >= 0 && info(g.type(x)).bytes == 1; });
}

bool store_narrow(MovedViews& views, NodeId id) {
  Rewriter& g = views.g;
  const Node n = g.node(id);
  if (g.in_region(id) || !multiplies_narrow(g, n)) return false;
  bool changed = false;
  for (int port : {0, 1}) {
    const TensorId operand = n.inputs[static_cast<std::size_t>(port)], t = viewed(g, operand);
    if (g.type(operand) != DataType::f32 || g.type(t) != DataType::f32 || !g.is_virtual(t) ||
        g.in_region(g.producer(t)) || has_bytes(g, t) || !read_by_others(g, t))
      continue;
    g.set_input(id, port, Narrow(g).shown(operand, t));
    changed = true;
  }
  return changed;
}

// Whether all who read the tensor round it to the graph's 16-bit type first.
bool rounded(const Rewriter& g, TensorId t) {
  const DataType io = g.options().io;
  if (io != DataType::f16 && io != DataType::bf16) return false;
  return g.is_virtual(t) ? g.type(t) == DataType::f32 && !read_by_others(g, t) : g.type(t) == io;
}

bool pool_narrow(MovedViews& views, NodeId id) {
  Rewriter& g = views.g;
  const Node n = g.node(id);
  const auto mode = std::get<ResampleAttributes>(n.attributes).mode;
  const TensorId x = n.inputs[0];
  const bool positions = n.outputs.size() > 1 && n.outputs[1] >= 0;  // of which of equal ones
  if (mode.value_or(ResampleMode::maxpool) != ResampleMode::maxpool || positions ||
      g.type(x) != DataType::f32 || !g.is_virtual(x) || g.in_region(id) || g.producer(x) < 0 ||
      g.in_region(g.producer(x)) || g.readers(x).size() != 1 || !rounded(g, n.outputs[0]))
    return false;
  g.set_input(id, 0, Narrow(g).shown(x, x));
  return true;
}

bool move_narrow(MovedViews& views, NodeId id) {
  Rewriter& g = views.g;
  const Node n = g.node(id);
  const TensorId x = n.inputs[0], y = n.outputs[0];
  const auto at = g.location(x);
  // A chain of views is not walked for each of them.
  if (g.in_region(id) || g.type(x) != DataType::f32 || !g.is_virtual(x) || !at ||
      view_of(g[x].dim, n.attributes, g[y].dim, *at))
    return false;
  const TensorId t = viewed(g, x);
  if (g.type(t) != DataType::f32 || !g.is_virtual(t) || g.in_region(g.producer(t)) ||
      !rounded(g, y))
    return false;
  for (TensorId z = x;; z = g.node(g.producer(z)).inputs[0]) {
    if (g.readers(z).size() != 1) return false;
    if (z == t) break;
  }
  g.set_input(id, 0, Narrow(g).shown(x, t));
  return true;
}

}  // namespace

extern constinit const Pass round_first_pass{
    "round_first",
    "A computed f32 tensor whose largest neighbours alone are read, or that is copied to other "
    "places, and rounded to 16 bits then, is stored in these: rounding keeps the order, so that "
    "the largest is the same.",
    [](OpKind op) { return op == OpKind::resample || is_view_op(op); },
    [](MovedViews& views, NodeId id) {
      return is_view_op(views.g.node(id).op) ? move_narrow(views, id) : pool_narrow(views, id);
    }};

extern constinit const Pass store_narrow_pass{
    "store_narrow",
    "A computed f32 tensor that products read and others, too, is stored besides in the 16-bit "
    "type to which the products may round it, so that no kernel of its own converts it.",
    is_contraction, store_narrow};

}  // namespace sinter
