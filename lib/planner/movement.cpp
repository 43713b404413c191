#include "planner/movement.hpp"

#include <algorithm>

#include "planner/rewriter.hpp"
#include "planner/views.hpp"

namespace sinter {
namespace {

constexpr int kMostNodes = 24;  // of a chain that is computed on what a view shows
constexpr int kMostParts = 8;   // of a concatenation that what reads it is computed by part

// The pointwise node that makes a tensor element by element from its operands alone.
const Node* elementwise(const Rewriter& g, TensorId t) {
  const Node* n = g.made_by(t, OpKind::pointwise);
  if (!n) return nullptr;
  const bool index =
      std::get_if<PointwiseAttributes>(&n->attributes)->mode == PointwiseMode::gen_index;
  return index ? nullptr : n;
}

class Movement {
 public:
  explicit Movement(const Lowered& lowered) : g_(lowered) {}

  Lowered run() {
    // Every rewrite moves a movement past a node, or makes what needs no other, so this ends.
    for (bool changed = true; changed;) {
      changed = false;
      for (NodeId n = 0; n < g_.nodes(); ++n)
        if (g_.live(n) && !g_.node(n).outputs.empty() && g_.node(n).outputs[0] >= 0)
          changed |= rewrite(n);
    }
    for (NodeId n = 0; n < g_.nodes(); ++n)
      if (g_.live(n)) keep_order(n);
    return g_.finish();
  }

 private:
  bool rewrite(NodeId n) {
    const OpKind op = g_.node(n).op;
    if (op == OpKind::concatenate) return sink_concatenation(n);
    if (op == OpKind::reduction) return reduce_in_two_steps(n);
    if (!is_view_op(op)) return false;
    return undo(n) || convert_apart(n) || halve_product(n) || hoist(n) || sink(n) || store_twice(n);
  }

  View view_of_node(NodeId n) const {
    const Node& v = g_.node(n);
    return {v.op, v.attributes, g_[v.inputs[0]].dim, g_[v.outputs[0]].dim};
  }

  // ---- views of tensors, each made once

  TensorId view(TensorId t, const View& v, NodeId like) {
    for (NodeId r : g_.readers(t)) {
      const Node& n = g_.node(r);
      if (n.op != v.op || !(n.attributes == v.attributes)) continue;
      const TensorId y = n.outputs[0];
      const bool same =
          holds(g_.type(y), g_.type(t)) && fits_f32(g_.type(y)) == fits_f32(g_.type(t));
      if (same && g_.is_virtual(y) && g_[y].dim == v.to) return y;
    }
    const std::string_view suffix = v.op == OpKind::slice       ? "_part"
                                    : v.op == OpKind::transpose ? "_turned"
                                                                : "_shaped";
    const TensorId y = g_.tensor_like(t, v.to, g_.type(t), suffix);
    g_.make(y, v.op, v.attributes, {t}, like);
    made_.push_back(y);
    return y;
  }

  // The tensor that a view of `t` shows, where there is one: the view of its inverse, a part of a
  // concatenation.
  TensorId shown(TensorId t, const View& v) const {
    const NodeId p = g_.producer(t);
    if (p < 0) return kNoTensor;
    const Node& n = g_.node(p);
    if (v.op == OpKind::slice) {
      const auto* c = std::get_if<ConcatenateAttributes>(&n.attributes);
      return c ? shown_part(n, *c, *std::get_if<SliceAttributes>(&v.attributes), v.to) : kNoTensor;
    }
    if (n.op != v.op || g_[n.inputs[0]].dim != v.to) return kNoTensor;
    const View back = inverse(view_of_node(p));
    const bool undone = v.op == OpKind::reshape || back.attributes == v.attributes;
    return undone && g_.type(n.inputs[0]) == g_.type(t) ? n.inputs[0] : kNoTensor;
  }

  TensorId shown_part(const Node& n, const ConcatenateAttributes& c, const SliceAttributes& s,
                      const Dims& dim) const {
    const TensorId y = n.outputs[0];
    const int axis = static_cast<int>(*c.axis < 0 ? *c.axis + g_[y].dim.size() : *c.axis);
    std::int64_t start = 0;
    for (TensorId x : n.inputs) {
      if (start == s.start[axis] && g_[x].dim == dim && g_.type(x) == g_.type(y) &&
          (s.step.empty() || s.step[axis] == 1))
        return x;
      start += g_[x].dim[axis];
    }
    return kNoTensor;
  }

  TensorId operand(TensorId t, const View& v, NodeId like) {
    const auto o = *operand_view(v, g_[t].dim);
    if (!o.view) return t;
    if (o.dim == g_[t].dim) {
      const TensorId s = shown(t, *o.view);
      return s != kNoTensor ? s : view(t, *o.view, like);
    }
    const View ranked{OpKind::reshape, ReshapeAttributes{o.dim}, g_[t].dim, o.dim};
    return view(view(t, ranked, like), *o.view, like);
  }

  // Whether that view of an operand costs nothing.
  bool shows(TensorId t, const View& v) const {
    const auto o = operand_view(v, g_[t].dim);
    if (!o || !o->view) return o.has_value();
    if (g_[t].has_value) return false;
    if (o->dim == g_[t].dim && shown(t, *o->view) != kNoTensor) return true;
    if (o->view->op != OpKind::reshape) return true;
    const auto at = g_.location(t);
    return at && reshape_strides(g_[t].dim, at->stride, o->view->to);
  }

  // ---- a view of what is computed: what it shows is computed instead

  // Whether what `v` shows of a tensor can be computed from tensors that are in memory anyway.
  bool hoists(TensorId t, const View& v, int& budget) const {
    const auto o = operand_view(v, g_[t].dim);
    if (!o) return false;
    if (!o->view) return true;  // the same for all that the view shows
    if (const Node* n = recomputed(t)) {
      if (g_[t].dim != v.from || --budget < 0) return false;
      return std::all_of(n->inputs.begin(), n->inputs.end(),
                         [&](TensorId x) { return x < 0 || hoists(x, v, budget); });
    }
    if (in_memory(t)) return shows(t, v);
    return o->dim == g_[t].dim && shown(t, *o->view) != kNoTensor;
  }

  // The node that is computed again on what a view shows.
  const Node* recomputed(TensorId t) const {
    return g_.is_virtual(t) ? elementwise(g_, t) : nullptr;
  }

  // What the caller gives or gets, or a view of it.
  bool in_memory(TensorId t) const {
    const auto at = g_.location(t);
    return at && !g_.is_virtual(at->root);
  }

  TensorId hoisted(TensorId t, const View& v, NodeId like) {
    const auto o = *operand_view(v, g_[t].dim);
    if (!o.view) return t;
    if (!recomputed(t)) return operand(t, v, like);
    for (const auto& [from, view, to] : hoisted_)
      if (from == t && view.op == v.op && view.attributes == v.attributes && view.to == v.to)
        return to;
    const TensorId y = g_.tensor_like(t, v.to, g_.type(t), "_part");
    hoisted_into(y, t, v);
    hoisted_.push_back({t, v, y});
    return y;
  }

  void hoisted_into(TensorId y, TensorId t, const View& v) {
    const NodeId p = g_.producer(t);
    const Node n = g_.node(p);
    std::vector<TensorId> inputs;
    for (TensorId x : n.inputs) inputs.push_back(x < 0 ? x : hoisted(x, v, p));
    g_.make(y, n.op, n.attributes, std::move(inputs), p);
  }

  bool hoist(NodeId id) {
    const Node n = g_.node(id);
    const TensorId t = n.inputs[0], y = n.outputs[0];
    if (!recomputed(t)) return false;
    const auto& readers = g_.readers(t);
    if (!std::all_of(readers.begin(), readers.end(),
                     [&](NodeId r) { return is_view_op(g_.node(r).op); }))
      return false;
    // The only movement of a result is where it is written.
    if (g_[y].output && n.op != OpKind::slice && readers.size() == 1) return false;
    const View v = view_of_node(id);
    int budget = kMostNodes;
    if (!hoists(t, v, budget)) return false;
    if (g_.type(t) == g_.type(y)) {
      hoisted_into(y, t, v);
    } else {
      const TensorId part = g_.tensor_like(t, v.to, g_.type(t), "_part");
      hoisted_into(part, t, v);
      g_.make(y, OpKind::pointwise, PointwiseAttributes{}, {part}, id);
    }
    return true;
  }

  // ---- both halves of a product that meet again (gated units): two products that share A

  // Biases and the like may stand between the product and its halves.
  bool halve_product(NodeId id) {
    const Node& n = g_.node(id);
    TensorId t = n.inputs[0];
    if (n.op != OpKind::slice || !g_.is_virtual(t)) return false;
    const std::vector<NodeId> halves = g_.readers(t);
    if (halves.size() != 2 || !meets(halves) || !are_halves(t, halves)) return false;
    const auto other_than_products = [&](TensorId x) {
      return x < 0 || in_memory(x) || g_[x].has_value;
    };
    const Node* p = elementwise(g_, t);
    TensorId product = t;
    for (int budget = kMostNodes; p && --budget > 0; p = elementwise(g_, product)) {
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
    const Node* matmul = g_.made_by(product, OpKind::matmul);
    if (!matmul || !g_.is_virtual(product)) return false;
    for (NodeId h : halves) make_half(h, product);
    return true;
  }

  // The two cut the last axis in the middle.
  bool are_halves(TensorId t, const std::vector<NodeId>& slices) const {
    const Dims& dim = g_[t].dim;
    const int last = dim.size() - 1;
    std::int64_t starts = 0;
    for (NodeId n : slices) {
      const auto* a = std::get_if<SliceAttributes>(&g_.node(n).attributes);
      if (!a || g_.type(g_.node(n).outputs[0]) != g_.type(t)) return false;
      Dims half = dim;
      half[last] /= 2;
      if (g_[g_.node(n).outputs[0]].dim != half || (!a->step.empty() && a->step[last] != 1))
        return false;
      starts += a->start[last];
    }
    return starts * 2 == dim[last] && dim[last] > 0;
  }

  // What both are computed to, element by element, is one tensor.
  bool meets(const std::vector<NodeId>& nodes) const {
    std::vector<std::vector<TensorId>> reached;
    for (NodeId n : nodes) {
      std::vector<TensorId> r{g_.node(n).outputs[0]};
      for (std::size_t i = 0; i < r.size() && r.size() < kMostNodes; ++i)
        for (NodeId reader : g_.readers(r[i]))
          if (const TensorId z = g_.node(reader).outputs[0];
              elementwise(g_, z) && std::count(r.begin(), r.end(), z) == 0)
            r.push_back(z);
      reached.push_back(std::move(r));
    }
    return std::any_of(reached[0].begin(), reached[0].end(), [&](TensorId z) {
      return std::count(reached[1].begin(), reached[1].end(), z) > 0;
    });
  }

  // Makes the slice by a product of B's slice, and what stood between them.
  void make_half(NodeId slice, TensorId product) {
    const View v = view_of_node(slice);
    const TensorId t = g_.node(slice).inputs[0], y = g_.node(slice).outputs[0];
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
        inputs[1] = view(inputs[1], {OpKind::slice, s, g_[inputs[1]].dim, dim}, like);
      } else {
        for (TensorId& x : inputs) {
          if (x < 0) continue;
          if (g_[x].has_value || in_memory(x)) {
            x = operand(x, v, like);
            continue;
          }
          const TensorId part = g_.tensor_like(x, v.to, g_.type(x), "_part");
          self(self, x, part);
          x = part;
        }
      }
      g_.make(to, n.op, n.attributes, std::move(inputs), like);
    };
    half(half, t, y);
  }

  // ---- a reshape or transpose of what is computed, or that needs a copy: what reads it is
  // computed before

  bool sink(NodeId id) {
    const Node n = g_.node(id);
    const TensorId t = n.inputs[0], y = n.outputs[0];
    if (n.op == OpKind::slice || std::count(made_.begin(), made_.end(), y) > 0) return false;
    const bool exact = g_.is_virtual(y) ? holds(g_.type(y), g_.type(t)) : g_.type(y) == g_.type(t);
    const bool copied = in_memory(t) && !g_.location(y);
    if (!exact || (in_memory(t) && !copied) || count(g_[y].dim) == 0) return false;
    if (!copied && (!g_.is_virtual(t) || g_.readers(t).size() != 1)) return false;
    // Neighbours in memory stay neighbours.
    if (const auto* a = std::get_if<TransposeAttributes>(&n.attributes))
      if (a->permutation.back() != a->permutation.size() - 1) return false;
    const View v = view_of_node(id), back = inverse(v);
    const std::vector<NodeId> readers = g_.readers(y);
    for (NodeId r : readers)
      if (!reduces(r, back) && !(computes_over(r, y) && every_other_operand(r, y, [&](TensorId x) {
                                   return shows(x, back);
                                 })))
        return false;
    for (NodeId r : readers) {
      const Node p = g_.node(r);
      const TensorId z = p.outputs[0];
      const Dims dim = operand_view(back, g_[z].dim)->to;
      const TensorId before = g_.tensor_like(z, dim, g_.type(z), "_shaped");
      std::vector<TensorId> inputs;
      for (TensorId x : p.inputs) inputs.push_back(x == y ? t : x < 0 ? x : operand(x, back, r));
      g_.make(before, p.op, p.attributes, std::move(inputs), r);
      const bool turns = n.op == OpKind::transpose;
      g_.make(z, n.op, turns ? v.attributes : ReshapeAttributes{g_[z].dim}, {before}, id);
    }
    return !readers.empty();
  }

  // A reduction over whole groups of the dims that are moved.
  bool reduces(NodeId r, const View& back) const {
    const Node& n = g_.node(r);
    return n.op == OpKind::reduction && operand_view(back, g_[n.outputs[0]].dim);
  }

  // A pointwise node whose result has the dims of its operand `y`.
  bool computes_over(NodeId r, TensorId y) const {
    const TensorId z = g_.node(r).outputs[0];
    return elementwise(g_, z) && g_[z].dim == g_[y].dim;
  }

  template <class Holds>
  bool every_other_operand(NodeId r, TensorId y, const Holds& fits) const {
    const auto& inputs = g_.node(r).inputs;
    return std::all_of(inputs.begin(), inputs.end(),
                       [&](TensorId x) { return x < 0 || x == y || fits(x); });
  }

  // ---- a concatenation: what reads it is computed by part

  bool sink_concatenation(NodeId id) {
    const Node n = g_.node(id);
    const TensorId y = n.outputs[0];
    if (!g_.is_virtual(y) || n.inputs.size() > kMostParts || count(g_[y].dim) == 0) return false;
    const std::vector<NodeId> readers = g_.readers(y);
    for (NodeId r : readers)
      if (!computes_over(r, y)) return false;
    for (TensorId x : n.inputs)
      if (!holds(g_.type(y), g_.type(x))) return false;
    const auto& c = *std::get_if<ConcatenateAttributes>(&n.attributes);
    const int axis = static_cast<int>(*c.axis < 0 ? *c.axis + g_[y].dim.size() : *c.axis);
    for (NodeId r : readers) {
      const Node p = g_.node(r);
      const TensorId z = p.outputs[0];
      std::vector<TensorId> parts;
      std::int64_t start = 0;
      for (TensorId x : n.inputs) {
        SliceAttributes s{Dims::filled(g_[y].dim.size(), 0), g_[y].dim, {}};
        s.start[axis] = start;
        s.limit[axis] = start += g_[x].dim[axis];
        const View part{OpKind::slice, s, g_[y].dim, g_[x].dim};
        std::vector<TensorId> inputs;
        for (TensorId o : p.inputs) inputs.push_back(o == y ? x : o < 0 ? o : operand(o, part, r));
        parts.push_back(g_.tensor_like(z, g_[x].dim, g_.type(z), "_part"));
        g_.make(parts.back(), p.op, p.attributes, std::move(inputs), r);
      }
      g_.make(z, OpKind::concatenate, c, std::move(parts), id);
    }
    return true;
  }

  // ---- a view that shows another tensor

  bool undo(NodeId id) {
    const Node& n = g_.node(id);
    const TensorId y = n.outputs[0], x = shown(n.inputs[0], view_of_node(id));
    if (x == kNoTensor || !g_.is_virtual(y) || g_.type(x) != g_.type(y)) return false;
    g_.redirect(y, x);
    return true;
  }

  // ---- a view that changes the type

  // One that rounds is a view and a conversion.
  bool convert_apart(NodeId id) {
    const Node n = g_.node(id);
    const TensorId t = n.inputs[0], y = n.outputs[0];
    if (!g_.is_virtual(y) || holds(g_.type(y), g_.type(t))) return false;
    const TensorId v = g_.tensor_like(y, g_[y].dim, g_.type(t), "_unrounded");
    g_.make(v, n.op, n.attributes, {t}, id);
    g_.make(y, OpKind::pointwise, PointwiseAttributes{}, {v}, id);
    return true;
  }

  // ---- a result that is stored as it is and moved

  // The kernel that computes it stores it twice, but by columns only if it has no reductions.
  bool store_twice(NodeId id) {
    const Node n = g_.node(id);
    const TensorId t = n.inputs[0], y = n.outputs[0];
    if (!g_[y].output || n.op == OpKind::slice || !elementwise(g_, t)) return false;
    const auto& readers = g_.readers(t);
    if (!g_[t].output && readers.size() == 1) return false;
    if (const auto* a = std::get_if<TransposeAttributes>(&n.attributes))
      if (a->permutation.back() != a->permutation.size() - 1) {
        int budget = kMostNodes;
        if (!alone(t, budget)) return false;
        for (NodeId r : readers)
          if (!is_view_op(g_.node(r).op) && g_.node(r).op != OpKind::pointwise) return false;
      }
    if (!g_[t].output && !holds(g_.type(y), g_.type(t))) return false;
    const TensorId copy = g_.tensor_like(t, g_[t].dim, g_.type(t), "_again");
    g_.make(copy, OpKind::pointwise, PointwiseAttributes{}, {t}, id);
    g_.make(y, n.op, n.attributes, {copy}, id);
    return true;
  }

  // Computed element by element from the graph's inputs.
  bool alone(TensorId t, int& budget) const {
    if (g_.producer(t) < 0) return true;
    const Node& n = g_.node(g_.producer(t));
    if (n.op != OpKind::pointwise || --budget < 0) return false;
    return std::all_of(n.inputs.begin(), n.inputs.end(),
                       [&](TensorId x) { return x < 0 || alone(x, budget); });
  }

  // ---- a reduction to less than the rows of the kernel that makes its operand

  bool reduce_in_two_steps(NodeId id) {
    const Node n = g_.node(id);
    const TensorId t = n.inputs[0], y = n.outputs[0];
    const auto mode = *std::get_if<ReductionAttributes>(&n.attributes)->mode;
    if (mode == ReductionMode::norm2 || mode == ReductionMode::mul_no_zeros) return false;
    int budget = 4 * kMostNodes;
    const Dims rows = rows_of(t, g_[t].dim, g_[y].dim, budget);
    if (rows.empty()) return false;
    ReductionAttributes rest = *std::get_if<ReductionAttributes>(&n.attributes);
    if (mode == ReductionMode::amax) rest.mode = ReductionMode::max;
    if (mode == ReductionMode::norm1) rest.mode = ReductionMode::add;
    const bool wide = !fits_f32(n.compute == DataType::none ? g_.type(y) : n.compute) ||
                      !fits_f32(g_.type(t)) || !fits_f32(g_.type(y));
    const TensorId part = g_.tensor_like(y, rows, wide ? DataType::f64 : DataType::f32, "_of_rows");
    g_.make(part, OpKind::reduction, n.attributes, {t}, id);
    g_.make(y, OpKind::reduction, rest, {part}, id);
    return true;
  }

  // The dims of a reduction's result from which `t` is computed over `domain`, where a reduction to
  // `to` takes more axes; empty where there is none.
  Dims rows_of(TensorId t, const Dims& domain, const Dims& to, int& budget) const {
    const Node* n = elementwise(g_, t);
    if (!n || g_[t].output || --budget < 0) return {};
    for (TensorId x : n->inputs) {
      if (x < 0) continue;
      const Node* r = g_.made_by(x, OpKind::reduction);
      const Dims& kept = g_[x].dim;
      if (!r || g_[r->inputs[0]].dim != domain || kept == to || kept == domain) {
        const Dims rows = r ? Dims{} : rows_of(x, domain, to, budget);
        if (!rows.empty()) return rows;
        continue;
      }
      bool refines = true;
      for (int i = 0; i < kept.size(); ++i) refines = refines && (to[i] == 1 || to[i] == kept[i]);
      if (refines) return kept;
    }
    return {};
  }

  // ---- where intermediate results lie

  // As what they are computed from: channels that are last in memory stay last.
  void keep_order(NodeId id) {
    const Node& n = g_.node(id);
    const TensorId y = n.outputs.empty() ? kNoTensor : n.outputs[0];
    const auto any_order = [](OpKind op) {
      return op == OpKind::pointwise || op == OpKind::reduction || op == OpKind::conv_fprop ||
             op == OpKind::conv_dgrad || op == OpKind::conv_wgrad || op == OpKind::resample;
    };
    if (y < 0 || !g_.is_virtual(y) || !any_order(n.op) || n.op == OpKind::reduction ||
        n.op == OpKind::conv_wgrad || g_[y].dim.size() < 3)
      return;
    for (NodeId r : g_.readers(y))
      if (!any_order(g_.node(r).op)) return;
    const bool same_dims = n.op == OpKind::pointwise;
    for (TensorId x : n.inputs) {
      if (x < 0 || g_[x].dim.size() != g_[y].dim.size() || (same_dims && g_[x].dim != g_[y].dim))
        continue;
      if (const auto stride = ordered_as(x, g_[y].dim)) g_.set_stride(y, *stride);
      return;
    }
  }

  // Strides of packed elements whose dims lie in the order of x's; nullopt where x broadcasts.
  std::optional<Dims> ordered_as(TensorId x, const Dims& dim) const {
    const auto at = g_.location(x);
    if (!at) return std::nullopt;
    std::vector<int> order;  // innermost first
    for (int i = dim.size() - 1; i >= 0; --i) order.push_back(i);
    std::stable_sort(order.begin(), order.end(),
                     [&](int a, int b) { return at->stride[a] < at->stride[b]; });
    Dims stride = Dims::filled(dim.size(), 1);
    std::int64_t step = 1;
    for (int i : order) {
      if (at->stride[i] == 0 && dim[i] > 1) return std::nullopt;
      stride[i] = step;
      step *= std::max<std::int64_t>(1, dim[i]);
    }
    return stride;
  }

  struct Hoisted {
    TensorId from;
    View view;
    TensorId to;
  };

  Rewriter g_;
  std::vector<TensorId> made_;  // views that stay where they are
  std::vector<Hoisted> hoisted_;
};

}  // namespace

Lowered move_data_movement(const Lowered& lowered) { return Movement(lowered).run(); }

}  // namespace sinter
