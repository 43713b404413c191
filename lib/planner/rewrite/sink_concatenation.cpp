// What reads a concatenation of computed parts is computed by part, each where the part belongs; of
// rows of scores with a sink, reductions are, too.
//
//     f(a) --.                                   f(a) -> relu --.
//             concatenate -> relu -> y    =>                     concatenate -> y
//     g(b) --'                                   g(b) -> relu --'
//
//     scores --.                                 scores -> max --.
//               concatenate -> max -> m     =>                    max -> m
//     sink ----'                                 sink -----------'
#include <algorithm>

#include "lower/expansion.hpp"
#include "planner/memory/virtual_concatenation.hpp"
#include "planner/rewrite/pass.hpp"

namespace sinter {
namespace {

constexpr int kMostParts = 8;  // of a concatenation that what reads it is computed by part

bool at_concatenations(OpKind op) { return op == OpKind::concatenate; }

int axis_of(const Rewriter& g, const Node& concatenation) {
  return lowering::positive_axis(*std::get<ConcatenateAttributes>(concatenation.attributes).axis,
                                 g[concatenation.outputs[0]].dim);
}

// The result of an elementwise node that reads a concatenation becomes one of what the node gives
// of each part: these.
std::vector<TensorId> compute_by_part(MovedViews& views, NodeId reader, const Node& c) {
  Rewriter& g = views.g;
  const Node p = g.node(reader);
  const TensorId y = c.outputs[0], z = p.outputs[0];
  const int axis = axis_of(g, c);
  std::vector<TensorId> parts;
  std::int64_t start = 0;
  for (TensorId x : c.inputs) {
    SliceAttributes s{Dims::filled(g[y].dim.size(), 0), g[y].dim, {}};
    s.start[axis] = start;
    s.limit[axis] = start += g[x].dim[axis];
    const View part{OpKind::slice, s, g[y].dim, g[x].dim};
    std::vector<TensorId> inputs;
    for (TensorId o : p.inputs)
      inputs.push_back(o == y ? x : o < 0 ? o : views.operand(o, part, reader));
    parts.push_back(g.tensor_like(z, g[x].dim, g.type(z), "_part"));
    g.make(parts.back(), p.op, p.attributes, std::move(inputs), reader);
  }
  g.make(z, OpKind::concatenate, c.attributes, parts, g.producer(y));
  return parts;
}

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
  for (NodeId r : readers) compute_by_part(views, r, n);
  return true;
}

// Rows of computed scores with one number more each (an attention's sink) and their softmax.
class RowsWithSink {
 public:
  explicit RowsWithSink(MovedViews& views) : views_(views), g_(views.g) {}

  bool run(NodeId id) {
    const Node c = g_.node(id);
    if (!joins_sink(c) || !any_reader(c.outputs[0], ReductionMode::max)) return false;
    split(c);
    return true;
  }

 private:
  // Which of two parts along rows is one number; the other is computed.
  std::optional<std::size_t> sink_of(const Node& c) const {
    const TensorId y = c.outputs[0];
    const int last = g_[y].dim.size() - 1;
    if (c.inputs.size() != 2 || !g_.is_virtual(y) || axis_of(g_, c) != last) return {};
    for (std::size_t i : {1u, 0u})
      if (g_[c.inputs[i]].dim[last] == 1 && g_[c.inputs[1 - i]].dim[last] > 1 &&
          g_.is_virtual(c.inputs[1 - i]))
        return i;
    return {};
  }
  bool joins_sink(const Node& c) const {
    return sink_of(c) &&
           all_operands(c, kNoTensor, [&](TensorId x) { return reads_alike(g_, c.outputs[0], x); });
  }
  // A reduction of whole rows whose result no type rounds.
  bool reduces_rows(NodeId r, TensorId y, ReductionMode mode) const {
    const Node& n = g_.node(r);
    const auto* const a = std::get_if<ReductionAttributes>(&n.attributes);
    Dims row = g_[y].dim;
    row.back() = 1;
    return a && a->mode == mode && g_[n.outputs[0]].dim == row && !g_.in_region(r) &&
           g_.type(n.outputs[0]) == DataType::f32;
  }
  bool any_reader(TensorId y, ReductionMode mode) const {
    const auto& readers = g_.readers(y);
    return std::any_of(readers.begin(), readers.end(),
                       [&](NodeId r) { return reduces_rows(r, y, mode); });
  }

  // All that is computed of the rows is computed of the scores and of the number.
  void split(const Node& concatenation) {
    std::vector<Node> left{concatenation};
    for (std::size_t i = 0; i < left.size() && i < kMostChained; ++i) {
      const Node c = left[i];
      const TensorId y = c.outputs[0];
      const std::size_t sink = *sink_of(c);
      for (NodeId r : std::vector<NodeId>(g_.readers(y))) {
        if (g_.in_region(r)) continue;
        if (computes_over(g_, g_.node(r), y)) {
          Node by_part = c;
          by_part.outputs = {g_.node(r).outputs[0]};
          by_part.inputs = compute_by_part(views_, r, c);
          if (joins_sink(by_part)) left.push_back(std::move(by_part));
          continue;
        }
        for (const ReductionMode mode : {ReductionMode::max, ReductionMode::add})
          if (reduces_rows(r, y, mode)) combine(r, c.inputs[1 - sink], c.inputs[sink], mode);
      }
    }
  }
  void combine(NodeId r, TensorId scores, TensorId sink, ReductionMode mode) {
    const Node n = g_.node(r);
    const TensorId y = n.outputs[0];
    const TensorId of_scores = g_.tensor_like(y, g_[y].dim, g_.partial_type(n, y), "_of_scores");
    g_.make(of_scores, n.op, n.attributes, {scores}, r);
    PointwiseAttributes with;
    with.mode = mode == ReductionMode::max ? PointwiseMode::max : PointwiseMode::add;
    g_.make(y, OpKind::pointwise, with, {of_scores, sink}, r);
  }

  MovedViews& views_;
  Rewriter& g_;
};

bool split_sink(MovedViews& views, NodeId id) { return RowsWithSink(views).run(id); }

}  // namespace

extern constinit const Pass split_sink_pass{
    "split_sink",
    "The softmax of rows of computed scores with one number more is that of the scores, whose "
    "largest one and sum take in the number.",
    at_concatenations, split_sink};

extern constinit const Pass sink_concatenation_pass{
    "sink_concatenation",
    "An elementwise node of a concatenation is the concatenation of that node of each part.",
    at_concatenations, sink_concatenation};

}  // namespace sinter
