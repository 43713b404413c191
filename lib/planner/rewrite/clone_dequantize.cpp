// Products that share a scaled 8-bit operand (the activations of a query, a key and a value).
//
//                                   .-> matmul with Wq          X8 * scales -> matmul with Wq
//     X8 * scales -> (bf16, stored)-+-> matmul with Wk    =>    X8 * scales -> matmul with Wk
//                                   '-> matmul with Wv          X8 * scales -> matmul with Wv
//
// Two products that meet again (gated units) keep one copy, as one kernel's.
#include <algorithm>

#include "lower/op_kinds.hpp"
#include "planner/rewrite/pass.hpp"
#include "schedule/contraction/wgmma.hpp"

namespace sinter {
namespace {

class Clones {
 public:
  explicit Clones(Rewriter& g) : g_(g) {}

  // True where the operand's readers got clones.
  bool give_each_its_own(TensorId operand) {
    if (!g_.is_virtual(operand)) return false;
    const std::vector<NodeId> readers = g_.readers(operand);
    if (readers.size() < 2 || !scaled(operand, readers)) return false;
    bool changed = false;
    struct Own {
      NodeId reader;
      TensorId operand;
      bool taken;  // by another product
    };
    std::vector<Own> owned;
    for (NodeId reader : readers) {
      const Node n = g_.node(reader);
      const auto pair = std::find_if(owned.begin(), owned.end(), [&](const Own& o) {
        const Node& other = g_.node(o.reader);
        return !o.taken && n.inputs[0] == operand && other.inputs[0] == operand &&
               meet(g_, {other.outputs[0], n.outputs[0]});
      });
      TensorId own = operand;
      if (pair != owned.end()) {
        pair->taken = true;
        own = pair->operand;
      } else {
        if (!owned.empty()) own = copied(operand);
        owned.push_back({reader, own, false});
      }
      if (own == operand) continue;
      changed = true;
      std::vector<TensorId> inputs = n.inputs;
      for (int port : {0, 1})
        if (inputs[static_cast<std::size_t>(port)] == operand)
          inputs[static_cast<std::size_t>(port)] = own;
      g_.make(n.outputs[0], n.op, n.attributes, std::move(inputs), reader);
    }
    return changed;
  }

 private:
  // What an operand shows: an 8-bit tensor in memory, or its product with scales; of blocks of k as
  // many as tensor cores add up before they are promoted.
  struct Bytes {
    DataType type = DataType::none;  // none: the operand is nothing of the kind
    bool scaled = false, blocks = false, together = false;  // along k
  };
  Bytes bytes_of(NodeId product, int port) const {
    constexpr std::int64_t kAligned = 16, kSmall = 16;
    TensorId t = g_.node(product).inputs[static_cast<std::size_t>(port)];
    int k = g_[t].dim.size() - 1 - port;  // the axis
    if (k < 0 || g_[t].dim[k] % kAligned != 0) return {};
    Bytes bytes;
    while (g_.is_virtual(t) && is_view_op(g_.node(g_.producer(t)).op)) {
      const Node& view = g_.node(g_.producer(t));
      if (const auto* transposed = std::get_if<TransposeAttributes>(&view.attributes)) {
        k = static_cast<int>(transposed->permutation[k]);
      } else if (view.op == OpKind::reshape) {
        const Dims& from = g_[view.inputs[0]].dim;
        const std::vector<int> axes = joined_axes(from, g_[t].dim);
        const auto first = std::find(axes.begin(), axes.end(), k);
        if (first == axes.end()) return {};
        k = static_cast<int>(first - axes.begin());
        if (first + 1 != axes.end() && first[1] == *first) {
          bytes.blocks = true;
          if (from[++k] % kStageLine != 0) return {};
        }
      } else {
        return {};
      }
      t = view.inputs[0];
    }
    TensorId values = t;
    if (const Node* n = g_.is_virtual(t) ? g_.made_by(t, OpKind::pointwise) : nullptr) {
      const auto mode = std::get_if<PointwiseAttributes>(&n->attributes)->mode;
      if (mode != PointwiseMode::mul && mode != PointwiseMode::div) return {};
      values = kNoTensor;
      for (TensorId x : n->inputs)
        if (x >= 0 && g_[x].dim == g_[t].dim && info(g_.type(x)).bytes == 1)
          values = x;
        else if (x >= 0 && kSmall * count(g_[x].dim) > count(g_[t].dim))
          return {};
      if (values == kNoTensor) return {};
      bytes.scaled = true;
    }
    const auto at = g_.location(values);
    if (!at) return {};
    bytes.together = at->stride[k] == 1;
    bytes.type = g_.type(values);
    return bytes;
  }
  bool multiplies_bytes(NodeId product) const {
    const Bytes a = bytes_of(product, 0), b = bytes_of(product, 1);
    if (a.type == DataType::none || b.type == DataType::none) return false;
    if ((a.blocks || b.blocks) && !(is_floating(a.type) && a.together && b.together)) return false;
    return multiplied_as_bytes(a.type, b.type);
  }
  // As an operand of those that read it.
  bool scaled(TensorId operand, const std::vector<NodeId>& readers) const {
    return std::all_of(readers.begin(), readers.end(), [&](NodeId n) {
      const Node& product = g_.node(n);
      return is_matmul(product.op) && multiplies_bytes(n) &&
             bytes_of(n, product.inputs[0] == operand ? 0 : 1).scaled;
    });
  }
  // What scales the operand, made again, and the views between them.
  TensorId copied(TensorId t) {
    std::vector<TensorId> views{t};  // from the result to what is made again
    while (is_view_op(g_.node(g_.producer(views.back())).op))
      views.push_back(g_.node(g_.producer(views.back())).inputs[0]);
    TensorId copy = kNoTensor;
    for (std::size_t i = views.size(); i-- > 0;) {
      const NodeId p = g_.producer(views[i]);
      const Node n = g_.node(p);
      std::vector<TensorId> inputs = n.inputs;
      if (copy != kNoTensor) inputs[0] = copy;
      copy = g_.tensor_like(views[i], g_[views[i]].dim, g_.type(views[i]), suffix::again);
      g_.make(copy, n.op, n.attributes, std::move(inputs), p);
    }
    return copy;
  }

  Rewriter& g_;
};

bool at_products(OpKind op) { return is_matmul(op); }

bool clone_dequantize(MovedViews& views, NodeId id) {
  Rewriter& g = views.g;
  // Products of f32 do not multiply 8 bits.
  const DataType io = g.options().io;
  if (io != DataType::f16 && io != DataType::bf16) return false;
  Clones clones(g);
  bool changed = false;
  for (int port : {0, 1})
    changed |= clones.give_each_its_own(g.node(id).inputs[static_cast<std::size_t>(port)]);
  return changed;
}

}  // namespace

extern constinit const Pass clone_dequantize_pass{
    "clone_dequantize",
    "Each product that multiplies a scaled 8-bit tensor with another of 8 bits has its own copy of "
    "the nodes that scale it: it loads the 8 bits and scales its sums, and nothing is written "
    "between.",
    at_products, clone_dequantize};

}  // namespace sinter
