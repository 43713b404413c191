#include "planner/movement.hpp"

#include <algorithm>

#include "lower/expansion.hpp"
#include "planner/halves.hpp"
#include "planner/moved_views.hpp"
#include "planner/parts.hpp"
#include "planner/redimension.hpp"

namespace sinter {
namespace {

constexpr int kMostGrowth = 8, kMostExtra = 256;  // nodes made for each of the graph's, and besides
constexpr int kMostParts = 8;  // of a concatenation that what reads it is computed by part

// Neighbours in memory stay neighbours.
bool keeps_neighbours(const Node& movement) {
  const auto* a = std::get_if<TransposeAttributes>(&movement.attributes);
  return !a || a->permutation.back() == a->permutation.size() - 1;
}

// Whether a node's result may lie in any order of its dims, and whether it reads any.
bool may_be_ordered(OpKind op) {
  return op == OpKind::pointwise || op == OpKind::conv_fprop || op == OpKind::conv_dgrad ||
         op == OpKind::resample;
}
bool reads_any_order(OpKind op) {
  return may_be_ordered(op) || op == OpKind::reduction || op == OpKind::conv_wgrad;
}

class Movement {
 public:
  explicit Movement(const Lowered& lowered)
      : views_(lowered), g_(views_.g), most_nodes_(kMostGrowth * g_.nodes() + kMostExtra) {}

  Lowered run() {
    // Every rewrite moves a movement past a node, upwards to what lies in memory or downwards to a
    // result, or makes what needs no other; views that were made stay (made_here), and the number
    // of nodes is bounded.
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
    if (g_.nodes() > most_nodes_) return false;
    if (op == OpKind::concatenate) return sink_concatenation(n);
    if (op == OpKind::reduction) return reduce_in_two_steps(n) || reduce_halves(views_, n);
    if (!is_view_op(op)) return false;
    return undo(n) || convert_apart(n) || slice_parts(n) || halve_product(views_, n) ||
           redimension(views_, n) || hoist(n) || compute_part(n) || sink(n) || store_twice(n);
  }

  // A view of what is computed: what it shows is computed instead.
  bool hoist(NodeId id) {
    const Node n = g_.node(id);
    const TensorId t = n.inputs[0], y = n.outputs[0];
    if (!views_.recomputed(t)) return false;
    const auto& readers = g_.readers(t);
    if (!std::all_of(readers.begin(), readers.end(),
                     [&](NodeId r) { return is_view_op(g_.node(r).op); }))
      return false;
    // The only movement of a result is where it is written.
    if (g_[y].output && n.op != OpKind::slice && readers.size() == 1) return false;
    const View v = views_.of_node(id);
    int budget = kMostChained, again = kMostChained;
    if (!views_.hoists(t, v, budget) &&
        !(reduced_in_blocks(y, v) && views_.hoists(t, v, again, MovedViews::Small::stored)))
      return false;
    if (g_.type(t) == g_.type(y)) {
      views_.hoisted_into(y, t, v);
    } else {
      const TensorId part = g_.tensor_like(t, v.to, g_.type(t), "_part");
      views_.hoisted_into(part, t, v);
      g_.make(y, OpKind::pointwise, PointwiseAttributes{}, {part}, id);
    }
    return true;
  }

  // What a reshape shows is reduced along a part of an axis (a norm's result, quantised by blocks):
  // by another kernel than whole rows are. That computes it then, from what the rows gave.
  bool reduced_in_blocks(TensorId y, const View& v) const {
    if (v.op != OpKind::reshape) return false;
    const std::vector<int> axes = joined_axes(v.to, v.from);
    const auto in_blocks = [&](const Node& n) {
      if (n.op != OpKind::reduction || g_[n.inputs[0]].dim != v.to) return false;
      const Dims& kept = g_[n.outputs[0]].dim;
      for (int i = 1; i < v.to.size(); ++i)
        if (axes[static_cast<std::size_t>(i)] == axes[static_cast<std::size_t>(i - 1)] &&
            v.to[i - 1] > 1 && kept[i - 1] == v.to[i - 1] && v.to[i] > 1 && kept[i] == 1)
          return true;
      return false;
    };
    std::vector<TensorId> same{y};  // element by element
    for (std::size_t i = 0; i < same.size() && i < kMostChained && !axes.empty(); ++i)
      for (NodeId r : g_.readers(same[i])) {
        if (in_blocks(g_.node(r))) return true;
        const TensorId z = g_.node(r).outputs[0];
        if (elementwise(g_, z) && g_[z].dim == v.to &&
            std::find(same.begin(), same.end(), z) == same.end())
          same.push_back(z);
      }
    return false;
  }

  // ---- a slice of what nobody else reads: only that is computed (the logits of the last token)

  bool compute_part(NodeId id) {
    const Node n = g_.node(id);
    const TensorId t = n.inputs[0], y = n.outputs[0];
    const auto* s = std::get_if<SliceAttributes>(&n.attributes);
    const bool small = 2 * count(g_[y].dim) <= count(g_[t].dim);
    if (!s || !small || !g_.is_virtual(t) || g_.readers(t).size() != 1 || g_.producer(t) < 0)
      return false;
    for (std::int64_t step : s->step)
      if (step != 1) return false;
    const Node p = g_.node(g_.producer(t));
    std::vector<TensorId> inputs;
    if (elementwise(g_, t)) {
      const View v = views_.of_node(id);
      if (!every_other_operand(g_.producer(t), kNoTensor,
                               [&](TensorId x) { return views_.shows(x, v); }))
        return false;
      for (TensorId x : p.inputs) inputs.push_back(x < 0 ? x : views_.operand(x, v, id));
    } else if (p.op == OpKind::reduction) {
      inputs = {cut(p.inputs[0], n, -1)};
    } else if (p.op == OpKind::matmul) {
      const int rank = g_[t].dim.size();
      inputs = {cut(p.inputs[0], n, rank - 1), cut(p.inputs[1], n, rank - 2)};
    } else {
      return false;
    }
    const bool same = g_.type(t) == g_.type(y);
    const TensorId part = same ? y : g_.tensor_like(t, g_[y].dim, g_.type(t), "_part");
    g_.make(part, p.op, p.attributes, std::move(inputs), g_.producer(t));
    if (!same) g_.make(y, OpKind::pointwise, PointwiseAttributes{}, {part}, id);
    return true;
  }

  // What the slice of a result shows of an operand. Its last dims go with the result's, but for the
  // `whole` one and those of extent 1 in either.
  TensorId cut(TensorId x, const Node& slice, int whole) {
    const auto& s = *std::get_if<SliceAttributes>(&slice.attributes);
    const Dims result = g_[slice.inputs[0]].dim, from = g_[x].dim;
    const int before = result.size() - from.size();
    SliceAttributes part{Dims::filled(from.size(), 0), from, {}};
    Dims to = from;
    for (int i = 0; i < from.size(); ++i) {
      const int r = i + before;
      if (r < 0 || r == whole || from[i] == 1 || result[r] == 1) continue;
      part.start[i] = s.start[r];
      part.limit[i] = s.limit[r];
      to[i] = part.limit[i] - part.start[i];
    }
    return to == from
               ? x
               : views_.view(x, {OpKind::slice, part, from, to}, g_.producer(slice.outputs[0]));
  }

  // ---- a reshape or transpose of what is computed, or that needs a copy: what reads it is
  // computed before

  bool sink(NodeId id) {
    const Node n = g_.node(id);
    const TensorId t = n.inputs[0], y = n.outputs[0];
    if (n.op == OpKind::slice || views_.made_here(y)) return false;
    const bool exact = g_.is_virtual(y) ? holds(g_.type(y), g_.type(t)) : g_.type(y) == g_.type(t);
    const bool copied = views_.in_memory(t) && !g_.location(y);
    if (!exact || (views_.in_memory(t) && !copied) || count(g_[y].dim) == 0) return false;
    if (!copied && (!g_.is_virtual(t) || g_.readers(t).size() != 1)) return false;
    if (!keeps_neighbours(n)) return false;
    const View v = views_.of_node(id), back = inverse(v);
    const std::vector<NodeId> readers = g_.readers(y);
    for (NodeId r : readers)
      if (!reduces(r, back) && !(computes_over(r, y) && every_other_operand(r, y, [&](TensorId x) {
                                   return views_.shows(x, back);
                                 })))
        return false;
    for (NodeId r : readers) {
      const Node p = g_.node(r);
      const TensorId z = p.outputs[0];
      const Dims dim = operand_view(back, g_[z].dim)->to;
      const TensorId before = g_.tensor_like(z, dim, g_.type(z), "_shaped");
      std::vector<TensorId> inputs;
      for (TensorId x : p.inputs)
        inputs.push_back(x == y ? t : x < 0 ? x : views_.operand(x, back, r));
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

  // ---- a concatenation: what reads it is computed by part, unless that reads its parts itself

  bool sink_concatenation(NodeId id) {
    const Node n = g_.node(id);
    const TensorId y = n.outputs[0];
    if (!g_.is_virtual(y) || n.inputs.size() > kMostParts || count(g_[y].dim) == 0) return false;
    if (!parts_in_memory(g_, id).empty()) return false;
    const std::vector<NodeId> readers = g_.readers(y);
    for (NodeId r : readers)
      if (!computes_over(r, y)) return false;
    for (TensorId x : n.inputs)
      if (!holds(g_.type(y), g_.type(x))) return false;
    const auto& c = *std::get_if<ConcatenateAttributes>(&n.attributes);
    const int axis = lowering::positive_axis(*c.axis, g_[y].dim);
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
        for (TensorId o : p.inputs)
          inputs.push_back(o == y ? x : o < 0 ? o : views_.operand(o, part, r));
        parts.push_back(g_.tensor_like(z, g_[x].dim, g_.type(z), "_part"));
        g_.make(parts.back(), p.op, p.attributes, std::move(inputs), r);
      }
      g_.make(z, OpKind::concatenate, c, std::move(parts), id);
    }
    return true;
  }

  // A slice of a concatenation that nobody needs in memory is a concatenation of slices.
  bool slice_parts(NodeId id) {
    const Node n = g_.node(id);
    const TensorId t = n.inputs[0], y = n.outputs[0];
    const auto* s = std::get_if<SliceAttributes>(&n.attributes);
    const Node* joined = g_.made_by(t, OpKind::concatenate);
    if (!s || !joined || !g_.is_virtual(t)) return false;
    std::int64_t read = 0;
    for (NodeId r : g_.readers(t)) {
      const auto* a = std::get_if<SliceAttributes>(&g_.node(r).attributes);
      if (!a || std::any_of(a->step.begin(), a->step.end(), [](auto step) { return step != 1; }))
        return false;
      read += count(g_[g_.node(r).outputs[0]].dim);
    }
    if (read > count(g_[t].dim) || parts_in_memory(g_, g_.producer(t), *s).empty()) return false;
    for (TensorId x : joined->inputs)
      if (!holds(g_.type(t), g_.type(x))) return false;
    const auto c = *std::get_if<ConcatenateAttributes>(&joined->attributes);
    const int axis = lowering::positive_axis(*c.axis, g_[t].dim);
    std::vector<View> views;
    std::vector<TensorId> from;
    std::int64_t start = 0;
    for (TensorId x : joined->inputs) {
      const Dims& dim = g_[x].dim;
      SliceAttributes part{s->start, s->limit, {}};
      part.start[axis] = std::max<std::int64_t>(0, s->start[axis] - start);
      part.limit[axis] = std::min(dim[axis], s->limit[axis] - start);
      start += dim[axis];
      if (part.start[axis] >= part.limit[axis]) continue;
      Dims to = g_[y].dim;
      to[axis] = part.limit[axis] - part.start[axis];
      views.push_back({OpKind::slice, part, dim, to});
      from.push_back(x);
    }
    if (from.size() == 1) {
      g_.make(y, OpKind::slice, views[0].attributes, from, id);
      return true;
    }
    for (std::size_t i = 0; i < from.size(); ++i)
      if (views[i].to != views[i].from) from[i] = views_.view(from[i], views[i], id);
    g_.make(y, OpKind::concatenate, c, std::move(from), id);
    return true;
  }

  // ---- a view that shows another tensor

  bool undo(NodeId id) {
    const Node& n = g_.node(id);
    const TensorId y = n.outputs[0], x = views_.shown(n.inputs[0], views_.of_node(id));
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
    if (!g_[y].output || n.op == OpKind::slice) return false;
    if (!elementwise(g_, t) && !g_.made_by(t, OpKind::reduction)) return false;
    const auto& readers = g_.readers(t);
    if (!g_[t].output && readers.size() == 1) return false;
    if (!keeps_neighbours(n)) {
      int budget = kMostChained;
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
    int budget = 4 * kMostChained;
    const Dims rows = rows_of(t, g_[t].dim, g_[y].dim, budget);
    if (rows.empty()) return false;
    ReductionAttributes rest = *std::get_if<ReductionAttributes>(&n.attributes);
    if (mode == ReductionMode::norm1) rest.mode = ReductionMode::add;
    const TensorId part = g_.tensor_like(y, rows, g_.partial_type(n, y), "_of_rows");
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
    if (y < 0 || !g_.is_virtual(y) || !may_be_ordered(n.op) || g_[y].dim.size() < 3) return;
    for (NodeId r : g_.readers(y))
      if (!reads_any_order(g_.node(r).op)) return;
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

  MovedViews views_;
  Rewriter& g_;
  NodeId most_nodes_;  // nested concatenations would double what reads them again and again
};

}  // namespace

Lowered move_data_movement(const Lowered& lowered) { return Movement(lowered).run(); }

}  // namespace sinter
