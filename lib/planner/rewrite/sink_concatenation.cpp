// What reads a concatenation of computed parts is computed by part, each where the part belongs.
//
//     f(a) --.                                   f(a) -> relu --.
//             concatenate -> relu -> y    =>                     concatenate -> y
//     g(b) --'                                   g(b) -> relu --'
#include <algorithm>

#include "lower/expansion.hpp"
#include "planner/memory/parts.hpp"
#include "planner/rewrite/pass.hpp"

namespace sinter {
namespace {

constexpr int kMostParts = 8;  // of a concatenation that what reads it is computed by part

bool at_concatenations(OpKind op) { return op == OpKind::concatenate; }

bool sink_concatenation(MovedViews& views, NodeId id) {
  Rewriter& g = views.g;
  const Node n = g.node(id);
  const TensorId y = n.outputs[0];
  if (!g.is_virtual(y) || n.inputs.size() > kMostParts || count(g[y].dim) == 0) return false;
  if (!parts_in_memory(g, id).empty()) return false;
  const std::vector<NodeId> readers = g.readers(y);
  for (NodeId r : readers)
    if (!computes_over(g, g.node(r), y)) return false;
  for (TensorId x : n.inputs)
    if (!reads_alike(g, y, x)) return false;
  const auto& c = *std::get_if<ConcatenateAttributes>(&n.attributes);
  const int axis = lowering::positive_axis(*c.axis, g[y].dim);
  for (NodeId r : readers) {
    const Node p = g.node(r);
    const TensorId z = p.outputs[0];
    std::vector<TensorId> parts;
    std::int64_t start = 0;
    for (TensorId x : n.inputs) {
      SliceAttributes s{Dims::filled(g[y].dim.size(), 0), g[y].dim, {}};
      s.start[axis] = start;
      s.limit[axis] = start += g[x].dim[axis];
      const View part{OpKind::slice, s, g[y].dim, g[x].dim};
      std::vector<TensorId> inputs;
      for (TensorId o : p.inputs)
        inputs.push_back(o == y ? x : o < 0 ? o : views.operand(o, part, r));
      parts.push_back(g.tensor_like(z, g[x].dim, g.type(z), "_part"));
      g.make(parts.back(), p.op, p.attributes, std::move(inputs), r);
    }
    g.make(z, OpKind::concatenate, c, std::move(parts), id);
  }
  return true;
}

}  // namespace

extern constinit const Pass sink_concatenation_pass{
    "sink_concatenation",
    "An elementwise node of a concatenation is the concatenation of that node of each part.",
    at_concatenations, sink_concatenation};

}  // namespace sinter
