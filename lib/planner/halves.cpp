#include "planner/halves.hpp"

#include <algorithm>

#include "fusion_patterns/pattern.hpp"

namespace sinter {
namespace {

// Looks for halves and makes them, in the graph that `views` rewrites.
class Halves {
 public:
  explicit Halves(MovedViews& v) : views_(v), g_(v.g) {}

  // ---- both halves of a product that meet again (gated units): two products that share A

  // Biases and the like may stand between the product and its halves.
  bool halve_product(NodeId id) {
    const Node& n = g_.node(id);
    TensorId t = n.inputs[0];
    if (n.op != OpKind::slice || !g_.is_virtual(t)) return false;
    const std::vector<NodeId> halves = g_.readers(t);
    if (halves.size() != 2 || !are_halves(t, halves)) return false;
    const auto result = [&](int i) {
      return g_.node(halves[static_cast<std::size_t>(i)]).outputs[0];
    };
    if (!meet(g_, {result(0), result(1)})) return false;
    for (NodeId h : halves)
      if (g_.type(g_.node(h).outputs[0]) != g_.type(t)) return false;
    const auto other_than_products = [&](TensorId x) {
      return x < 0 || views_.in_memory(x) || g_[x].has_value;
    };
    const Node* p = elementwise(g_, t);
    TensorId product = t;
    for (int budget = kMostChained; p && --budget > 0; p = elementwise(g_, product)) {
      TensorId next = kNoTensor;
      for (TensorId x : p->inputs)
        if (!other_than_products(x)) {
          if (next != kNoTensor && next != x) return false;
          next = x;
        }
      if (next == kNoTensor || !g_.is_virtual(next) || g_[next].dim != g_[product].dim ||
          g_.readers(next).size() != 1)
        return false;
      product = next;
    }
    if (!g_.is_virtual(product) || !is_matmul(g_.node(g_.producer(product)).op)) return false;
    for (NodeId h : halves) make_half(h, product);
    return true;
  }

  // The two cut the last axis in the middle.
  bool are_halves(TensorId t, const std::vector<NodeId>& slices) const {
    const Dims& dim = g_[t].dim;
    const int last = dim.size() - 1;
    bool first = false, second = false;
    for (NodeId n : slices) {
      const auto* a = std::get_if<SliceAttributes>(&g_.node(n).attributes);
      if (!a) return false;
      Dims half = dim;
      half[last] /= 2;
      if (g_[g_.node(n).outputs[0]].dim != half || (!a->step.empty() && a->step[last] != 1))
        return false;
      first |= a->start[last] == 0;
      second |= 2 * a->start[last] == dim[last];
    }
    return first && second && count(dim) > 0;
  }

  // Makes the slice by a product of B's slice, and what stood between them.
  void make_half(NodeId slice, TensorId product) {
    const View v = views_.of_node(slice);
    const TensorId t = g_.node(slice).inputs[0], y = g_.node(slice).outputs[0];
    std::vector<std::pair<TensorId, TensorId>> made;
    const auto half = [&](const auto& self, TensorId from, TensorId to) -> void {
      const NodeId like = g_.producer(from);
      const Node n = g_.node(like);
      std::vector<TensorId> inputs = n.inputs;
      if (from == product) {
        const Dims& b = g_[inputs[1]].dim;
        SliceAttributes s{Dims::filled(b.size(), 0), b, {}};
        const auto& whole = *std::get_if<SliceAttributes>(&v.attributes);
        Dims dim = b;
        s.start[b.size() - 1] = whole.start[v.from.size() - 1];
        s.limit[b.size() - 1] = whole.limit[v.from.size() - 1];
        dim[b.size() - 1] = v.to[v.to.size() - 1];
        inputs[1] = views_.view(inputs[1], {OpKind::slice, s, g_[inputs[1]].dim, dim}, like);
      } else {
        for (TensorId& x : inputs) {
          if (x < 0) continue;
          if (g_[x].has_value || views_.in_memory(x)) {
            x = views_.operand(x, v, like);
            continue;
          }
          const auto known =
              std::find_if(made.begin(), made.end(), [&](const auto& m) { return m.first == x; });
          if (known != made.end()) {
            x = known->second;
            continue;
          }
          const TensorId part = g_.tensor_like(x, v.to, g_.type(x), "_part");
          made.emplace_back(x, part);
          self(self, x, part);
          x = part;
        }
      }
      g_.make(to, n.op, n.attributes, std::move(inputs), like);
    };
    half(half, t, y);
  }

  // ---- rows whose halves are computed beside each other (rotary embedding of a norm's result)

  // Both halves are reduced, too, so that one kernel runs over them.
  bool reduce_halves(NodeId id) {
    using M = ReductionMode;
    const Node n = g_.node(id);
    const TensorId t = n.inputs[0], y = n.outputs[0];
    ReductionAttributes a = *std::get_if<ReductionAttributes>(&n.attributes);
    const M mode = *a.mode;
    const Dims full = g_[t].dim;
    Dims rows = full, half = full;
    rows.back() = 1;
    half.back() /= 2;
    if (g_[y].dim != rows || !g_.is_virtual(y) || full.back() < 2 || !reaches(y, half))
      return false;
    if (mode == M::mul || mode == M::norm2 || mode == M::mul_no_zeros) return false;
    int budget = kMostChained;
    const std::vector<NodeId> slices = halves_of_source(t, full, budget);
    if (slices.empty()) return false;
    std::vector<TensorId> parts;
    for (NodeId s : slices) {
      const View v = views_.of_node(s);
      budget = kMostChained;
      if (!views_.hoists(t, v, budget)) return false;
    }
    for (NodeId s : slices) {
      const View v = views_.of_node(s);
      parts.push_back(g_.tensor_like(y, rows, g_.partial_type(n, y), "_of_half"));
      g_.make(parts.back(), OpKind::reduction, a, {views_.hoisted(t, v, id)}, id);
    }
    PointwiseAttributes combine{.mode = PointwiseMode::add};
    if (mode == M::min) combine.mode = PointwiseMode::min;
    if (mode == M::max || mode == M::amax) combine.mode = PointwiseMode::max;
    if (mode != M::avg) {
      g_.make(y, OpKind::pointwise, combine, parts, id);
      return true;
    }
    const TensorId both = g_.tensor_like(y, rows, g_.partial_type(n, y), "_of_both");
    g_.make(both, OpKind::pointwise, combine, parts, id);
    g_.make(y, OpKind::pointwise, PointwiseAttributes{.mode = PointwiseMode::mul},
            {both, g_.scalar(0.5, g_.partial_type(n, y))}, id);
    return true;
  }

  // The two halves of what the row is computed from, where nothing else is read of it.
  std::vector<NodeId> halves_of_source(TensorId t, const Dims& full, int& budget) const {
    if (!views_.recomputed(t)) {
      if (!views_.in_memory(t) || g_[t].dim != full) return {};
      std::vector<NodeId> slices;
      for (NodeId r : g_.readers(t))
        if (g_.node(r).op == OpKind::slice) slices.push_back(r);
      return slices.size() == 2 && are_halves(t, slices) ? slices : std::vector<NodeId>{};
    }
    if (--budget < 0) return {};
    for (TensorId x : g_.node(g_.producer(t)).inputs)
      if (x >= 0)
        if (auto slices = halves_of_source(x, full, budget); !slices.empty()) return slices;
    return {};
  }

  // Whether something of these dims is computed from a value of the row.
  bool reaches(TensorId row, const Dims& dim) const {
    std::vector<TensorId> values{row};
    for (std::size_t i = 0; i < values.size() && values.size() < kMostChained; ++i)
      for (NodeId r : g_.readers(values[i])) {
        const TensorId z = g_.node(r).outputs[0];
        if (!elementwise(g_, z)) continue;
        if (g_[z].dim == dim) return true;
        if (g_[z].dim == g_[row].dim) values.push_back(z);
      }
    return false;
  }

 private:
  MovedViews& views_;
  Rewriter& g_;
};

}  // namespace

bool halve_product(MovedViews& views, NodeId n) { return Halves(views).halve_product(n); }
bool reduce_halves(MovedViews& views, NodeId n) { return Halves(views).reduce_halves(n); }

}  // namespace sinter
