// A slice of a concatenation that nobody needs in memory reads the parts themselves.
//
//     a --.                                       a -> slice --.
//          concatenate -> slice -> y       =>                   concatenate -> y
//     b --'                                       b -> slice --'
#include <algorithm>

#include "lower/expansion.hpp"
#include "planner/memory/virtual_concatenation.hpp"
#include "planner/rewrite/pass.hpp"

namespace sinter {
namespace {

bool slice_parts(MovedViews& views, NodeId id) {
  Rewriter& g = views.g;
  const Node n = g.node(id);
  const TensorId t = n.inputs[0], y = n.outputs[0];
  const auto* s = std::get_if<SliceAttributes>(&n.attributes);
  const Node* joined = g.made_by(t, OpKind::concatenate);
  if (!s || !joined || !g.is_virtual(t)) return false;
  std::int64_t read = 0;
  for (NodeId r : g.readers(t)) {
    const auto* a = std::get_if<SliceAttributes>(&g.node(r).attributes);
    if (!a || std::any_of(a->step.begin(), a->step.end(), [](auto step) { return step != 1; }))
      return false;
    read += count(g[g.node(r).outputs[0]].dim);
  }
  if (read > count(g[t].dim) || parts_in_memory(g, g.producer(t), s).empty()) return false;
  for (TensorId x : joined->inputs)
    if (!holds(g.type(t), g.type(x))) return false;
  const auto c = *std::get_if<ConcatenateAttributes>(&joined->attributes);
  const int axis = lowering::positive_axis(*c.axis, g[t].dim);
  std::vector<View> shown;
  std::vector<TensorId> from;
  std::int64_t start = 0;
  for (TensorId x : joined->inputs) {
    const Dims& dim = g[x].dim;
    SliceAttributes part{s->start, s->limit, {}};
    part.start[axis] = std::max<std::int64_t>(0, s->start[axis] - start);
    part.limit[axis] = std::min(dim[axis], s->limit[axis] - start);
    start += dim[axis];
    if (part.start[axis] >= part.limit[axis]) continue;
    Dims to = g[y].dim;
    to[axis] = part.limit[axis] - part.start[axis];
    shown.push_back({OpKind::slice, part, dim, to});
    from.push_back(x);
  }
  if (from.size() == 1) {
    g.make(y, OpKind::slice, shown[0].attributes, from, id);
    return true;
  }
  for (std::size_t i = 0; i < from.size(); ++i)
    if (shown[i].to != shown[i].from) from[i] = views.view(from[i], shown[i], id);
  g.make(y, OpKind::concatenate, c, std::move(from), id);
  return true;
}

}  // namespace

extern constinit const Pass slice_parts_pass{
    "slice_parts",
    "A slice of a concatenation is the concatenation of slices of its parts, where those lie in "
    "memory and no element is read twice.",
    at_views, slice_parts};

}  // namespace sinter
