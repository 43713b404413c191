#include "planner/rewrite/moved_views.hpp"

#include <algorithm>

#include "lower/expansion.hpp"
#include "lower/op_kinds.hpp"
#include "planner/rewrite/pass.hpp"

namespace sinter {

const Node* elementwise(const Rewriter& g, TensorId t) {
  const Node* n = g.made_by(t, OpKind::pointwise);
  if (!n) return nullptr;
  const bool index =
      std::get_if<PointwiseAttributes>(&n->attributes)->mode == PointwiseMode::gen_index;
  return index ? nullptr : n;
}

NodeId before_elementwise(const Rewriter& g, TensorId t) {
  for (int i = 0; i < kMostChained; ++i) {
    if (i > 0 && (!g.is_virtual(t) || g.readers(t).size() != 1)) return -1;
    const Node* const n = elementwise(g, t);
    if (!n) return g.producer(t);
    const auto whole =
        std::ranges::find_if(n->inputs, [&](TensorId x) { return x >= 0 && g[x].dim == g[t].dim; });
    if (whole == n->inputs.end()) return -1;
    t = *whole;
  }
  return -1;
}

int index_axis(const Rewriter& g, const Node& n) {
  const auto* const a = std::get_if<PointwiseAttributes>(&n.attributes);
  if (!a || a->mode != PointwiseMode::gen_index) return -1;
  return lowering::positive_axis(*a->axis, g[n.outputs[0]].dim);
}

bool reads_alike(const Rewriter& g, TensorId y, TensorId t) {
  return holds(g.type(y), g.type(t)) && fits_f32(g.type(y)) == fits_f32(g.type(t));
}

bool meet(const Rewriter& g, const std::array<TensorId, 2>& tensors) {
  std::array<std::vector<TensorId>, 2> reached;
  for (std::size_t i = 0; i < 2; ++i) {
    auto& r = reached[i];
    r.push_back(tensors[i]);
    for (std::size_t at = 0; at < r.size() && r.size() < kMostChained; ++at)
      for (NodeId reader : g.readers(r[at]))
        if (const TensorId z = g.node(reader).outputs[0];
            elementwise(g, z) && std::count(r.begin(), r.end(), z) == 0)
          r.push_back(z);
  }
  return std::any_of(reached[0].begin(), reached[0].end(), [&](TensorId z) {
    return std::count(reached[1].begin(), reached[1].end(), z) > 0;
  });
}

View MovedViews::of_node(NodeId n) const {
  const Node& v = g.node(n);
  return {v.op, v.attributes, g[v.inputs[0]].dim, g[v.outputs[0]].dim};
}

TensorId MovedViews::view(TensorId t, const View& v, NodeId like) {
  for (NodeId r : g.readers(t)) {
    const Node& n = g.node(r);
    if (n.op != v.op || !(n.attributes == v.attributes)) continue;
    if (g.in_region(r) && g.region_of(r) != g.region_of(like)) continue;
    const TensorId y = n.outputs[0];
    if (reads_alike(g, y, t) && g.is_virtual(y) && g[y].dim == v.to) return y;
  }
  const std::string_view shown = v.op == OpKind::slice       ? "_part"
                                 : v.op == OpKind::transpose ? suffix::transposed
                                                             : suffix::shaped;
  const TensorId y = g.tensor_like(t, v.to, g.type(t), shown);
  g.make(y, v.op, v.attributes, {t}, like);
  made_.insert(y);
  return y;
}

TensorId MovedViews::shown(TensorId t, const View& v) const {
  const NodeId p = g.producer(t);
  if (p < 0) return kNoTensor;
  const Node& n = g.node(p);
  if (v.op == OpKind::slice) {
    const auto* c = std::get_if<ConcatenateAttributes>(&n.attributes);
    return c ? shown_part(n, *c, *std::get_if<SliceAttributes>(&v.attributes), v.to) : kNoTensor;
  }
  if (n.op != v.op || g[n.inputs[0]].dim != v.to) return kNoTensor;
  const View back = inverse(of_node(p));
  const bool undone = v.op == OpKind::reshape || back.attributes == v.attributes;
  return undone && g.type(n.inputs[0]) == g.type(t) ? n.inputs[0] : kNoTensor;
}

TensorId MovedViews::shown_part(const Node& n, const ConcatenateAttributes& c,
                                const SliceAttributes& s, const Dims& dim) const {
  const TensorId y = n.outputs[0];
  const int axis = lowering::positive_axis(*c.axis, g[y].dim);
  std::int64_t start = 0;
  for (TensorId x : n.inputs) {
    if (start == s.start[axis] && g[x].dim == dim && g.type(x) == g.type(y) &&
        (s.step.empty() || s.step[axis] == 1))
      return x;
    start += g[x].dim[axis];
  }
  return kNoTensor;
}

TensorId MovedViews::operand(TensorId t, const View& v, NodeId like) {
  const OperandView o = operand_view(v, g[t].dim).value_or(OperandView{});
  if (!o.view || reads_as_it_is(t, o.to)) return t;
  if (g[t].has_value) return g.scalar(g[t].value, g.type(t), o.to.size());
  if (o.dim == g[t].dim) {
    const TensorId s = shown(t, *o.view);
    return s != kNoTensor ? s : view(t, *o.view, like);
  }
  const View ranked{OpKind::reshape, ReshapeAttributes{o.dim}, g[t].dim, o.dim};
  return view(view(t, ranked, like), *o.view, like);
}

bool MovedViews::reads_as_it_is(TensorId t, const Dims& to) const {
  return g[t].has_value && g[t].dim.size() <= to.size() && count(to) == 1;
}

bool MovedViews::shows(TensorId t, const View& v) const {
  const auto o = operand_view(v, g[t].dim);
  if (!o || !o->view) return o.has_value();
  if (g[t].has_value)
    return reads_as_it_is(t, o->to) || (!g[t].bound_value && is_floating(g.type(t)));
  if (o->dim == g[t].dim && shown(t, *o->view) != kNoTensor) return true;
  if (o->view->op != OpKind::reshape) return true;
  const auto at = g.location(t);
  return at && reshape_strides(g[t].dim, at->stride, o->view->to);
}

// ---- a view of what is computed: what it shows is computed instead

bool MovedViews::hoists(TensorId t, const View& v, int& budget, Small small) const {
  constexpr std::int64_t kSmall = 16;  // of so many, one
  const auto o = operand_view(v, g[t].dim);
  if (!o) return false;
  if (!o->view) return true;  // the same for all that the view shows
  if (g[t].has_value) return shows(t, v);
  if (small == Small::stored && g.is_virtual(t) && g[t].dim != v.from &&
      kSmall * count(g[t].dim) <= count(v.from))
    return o->view->op == OpKind::reshape;
  if (indexes(t, v)) return true;
  if (const Node* n = recomputed(t)) {
    int nodes = kMostChained;
    if (v.op == OpKind::slice && is_table(t, count(v.from) / kSmall, nodes)) return true;
    const auto of = computed_again(t, v);
    if (!of || --budget < 0) return false;
    return std::all_of(n->inputs.begin(), n->inputs.end(),
                       [&](TensorId x) { return x < 0 || hoists(x, *of, budget, small); });
  }
  if (in_memory(t) || stored_anyway(t)) return shows(t, v);
  return o->dim == g[t].dim && shown(t, *o->view) != kNoTensor;
}

bool MovedViews::is_table(TensorId t, std::int64_t most, int& nodes) const {
  if (g[t].has_value || in_memory(t)) return true;
  const NodeId p = g.producer(t);
  if (p < 0 || count(g[t].dim) > most || --nodes < 0) return false;
  const Node& n = g.node(p);
  if (n.op != OpKind::pointwise && n.op != OpKind::concatenate && !is_view_op(n.op)) return false;
  return std::all_of(n.inputs.begin(), n.inputs.end(),
                     [&](TensorId x) { return x < 0 || is_table(x, most, nodes); });
}

int MovedViews::shown_axis(TensorId t, const View& v) const {
  const Node* const n =
      v.op == OpKind::reshape && g.is_virtual(t) ? g.made_by(t, OpKind::pointwise) : nullptr;
  const int axis = n ? index_axis(g, *n) : -1;
  const auto o = axis >= 0 ? operand_view(v, g[t].dim) : std::nullopt;
  if (!o || !o->view) return -1;
  return kept_axis({v.op, v.attributes, o->dim, o->to}, axis + o->dim.size() - g[t].dim.size());
}

std::optional<View> MovedViews::computed_again(TensorId t, const View& v) const {
  const Node* const n = recomputed(t);
  if (!n) return {};
  if (g[t].dim == v.from) return v;
  const auto o = operand_view(v, g[t].dim);
  return is_identity(*n) && o && o->dim == g[t].dim && g[n->inputs[0]].dim == g[t].dim
             ? o->view
             : std::nullopt;
}

const Node* MovedViews::recomputed(TensorId t) const {
  return g.is_virtual(t) && !stored_anyway(t) ? elementwise(g, t) : nullptr;
}

bool MovedViews::in_memory(TensorId t) const {
  const auto at = g.location(t);
  return at && !g.is_virtual(at->root);
}

bool MovedViews::stored_anyway(TensorId t) const {
  const auto at = g.location(t);
  if (!at || g.readers(t).size() < 2) return false;
  const NodeId p = before_elementwise(g, at->root);
  return p >= 0 && is_contraction(g.node(p).op);
}

TensorId MovedViews::hoisted(TensorId t, const View& v, NodeId like) {
  const OperandView o = operand_view(v, g[t].dim).value_or(OperandView{});
  if (!o.view) return t;
  const bool indices = indexes(t, v);
  const auto of = indices ? v : computed_again(t, v);
  if (!of) return operand(t, v, like);
  for (const auto& [view, to] : hoisted_[t])
    if (view.op == v.op && view.attributes == v.attributes && view.to == v.to) return to;
  const TensorId y = g.tensor_like(t, o.to, g.type(t), "_part");
  hoisted_into(y, t, *of);
  hoisted_[t].push_back({v, y});
  return y;
}

void MovedViews::hoisted_into(TensorId y, TensorId t, const View& v) {
  const NodeId p = g.producer(t);
  const Node n = g.node(p);
  std::vector<TensorId> inputs;
  if (const int axis = shown_axis(t, v); axis >= 0) {
    PointwiseAttributes a = std::get<PointwiseAttributes>(n.attributes);
    a.axis = axis;
    const int rank = operand_view(v, g[t].dim)->to.size();
    g.make(y, n.op, a, {g.scalar(0, g.type(n.inputs[0]), rank)}, p);
    return;
  }
  for (TensorId x : n.inputs) {
    // What was made for a square's first operand has no reader yet, by which view() would find it.
    const auto before = std::find(n.inputs.begin(), n.inputs.begin() + inputs.size(), x);
    const auto i = static_cast<std::size_t>(before - n.inputs.begin());
    inputs.push_back(x < 0 ? x : i < inputs.size() ? inputs[i] : hoisted(x, v, p));
  }
  g.make(y, n.op, n.attributes, std::move(inputs), p);
}

bool MovedViews::made_here(TensorId t) const { return made_.count(t) > 0; }

}  // namespace sinter
