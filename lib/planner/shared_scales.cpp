#include "planner/shared_scales.hpp"

#include <algorithm>

#include "planner/moved_views.hpp"

namespace sinter {
namespace {

bool is_product(const Node& n) {
  return n.op == OpKind::matmul || n.op == OpKind::moe_grouped_matmul;
}

class Unsharing {
 public:
  explicit Unsharing(const Lowered& lowered) : g_(lowered) {}

  void give_each_its_own(TensorId operand) {
    if (!g_.is_virtual(operand) || scaled_from(operand) == kNoTensor) return;
    const std::vector<NodeId> readers = g_.readers(operand);
    if (readers.size() < 2 || !std::all_of(readers.begin(), readers.end(), [&](NodeId n) {
          return is_product(g_.node(n)) && multiplies_bytes(n);
        }))
      return;
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
      std::vector<TensorId> inputs = n.inputs;
      for (int port : {0, 1})
        if (inputs[static_cast<std::size_t>(port)] == operand)
          inputs[static_cast<std::size_t>(port)] = own;
      g_.make(n.outputs[0], n.op, n.attributes, std::move(inputs), reader);
    }
  }

  NodeId nodes() const { return g_.nodes(); }
  const Node& node(NodeId n) const { return g_.node(n); }
  Lowered finish() const { return g_.finish(); }

 private:
  bool has_bytes(TensorId t) const { return t >= 0 && info(g_.type(t)).bytes == 1; }

  // What a chain of views shows, where they join nothing but blocks that tensor cores settle at
  // once; else none.
  TensorId shown(TensorId t) const {
    constexpr std::int64_t kSettled = 128;
    while (g_.is_virtual(t) && is_view_op(g_.node(g_.producer(t)).op)) {
      const Node& view = g_.node(g_.producer(t));
      const Dims& from = g_[view.inputs[0]].dim;
      if (view.op == OpKind::reshape) {
        const std::vector<int> axes = joined_axes(from, g_[t].dim);
        if (axes.empty()) return kNoTensor;
        for (std::size_t i = 1; i < axes.size(); ++i)
          if (axes[i] >= 0 && axes[i] == axes[i - 1] && from[static_cast<int>(i)] % kSettled != 0)
            return kNoTensor;
      }
      t = view.inputs[0];
    }
    return t;
  }
  // The product of an 8-bit tensor and scales that an operand shows, or none.
  TensorId scaled_from(TensorId operand) const {
    const TensorId t = shown(operand);
    if (t < 0 || !g_.is_virtual(t)) return kNoTensor;
    const Node* n = g_.made_by(t, OpKind::pointwise);
    if (!n) return kNoTensor;
    const auto mode = std::get_if<PointwiseAttributes>(&n->attributes)->mode;
    const bool scales = mode == PointwiseMode::mul || mode == PointwiseMode::div;
    return scales && std::any_of(n->inputs.begin(), n->inputs.end(),
                                 [&](TensorId x) { return has_bytes(x); })
               ? t
               : kNoTensor;
  }
  bool multiplies_bytes(NodeId product) const {
    const Node& n = g_.node(product);
    return std::all_of(n.inputs.begin(), n.inputs.begin() + 2, [&](TensorId x) {
      return has_bytes(shown(x)) || scaled_from(x) != kNoTensor;
    });
  }
  TensorId copied(TensorId t) {
    const NodeId p = g_.producer(t);
    const Node n = g_.node(p);
    std::vector<TensorId> inputs = n.inputs;
    if (is_view_op(n.op)) inputs[0] = copied(inputs[0]);
    const TensorId copy = g_.tensor_like(t, g_[t].dim, g_.type(t), "_again");
    g_.make(copy, n.op, n.attributes, std::move(inputs), p);
    return copy;
  }

  Rewriter g_;
};

}  // namespace

Lowered unshare_scales(const Lowered& lowered) {
  Unsharing unsharing(lowered);
  const DataType io = lowered.graph->options().io;
  // Products of f32 do not multiply 8 bits.
  const NodeId all = io == DataType::f16 || io == DataType::bf16 ? unsharing.nodes() : 0;
  for (NodeId id = 0; id < all; ++id)
    if (is_product(unsharing.node(id)))
      for (TensorId operand : {unsharing.node(id).inputs[0], unsharing.node(id).inputs[1]})
        unsharing.give_each_its_own(operand);
  return unsharing.finish();
}

}  // namespace sinter
