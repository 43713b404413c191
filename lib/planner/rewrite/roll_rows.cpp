// What is computed row by row and then rolled is computed of the rolled rows, which are read from
// where they lie (the norm in front of an image's shifted windows).
//
//     x -> norm -.-> slice -.                  x -.-> slice -.
//                '-> slice --> concatenate  =>    '-> slice --> concatenate -> norm
#include <algorithm>
#include <map>

#include "lower/expansion.hpp"
#include "planner/memory/virtual_concatenation.hpp"
#include "planner/rewrite/pass.hpp"

namespace sinter {
namespace {

class RolledRows {
 public:
  RolledRows(MovedViews& views, NodeId concatenation)
      : views_(views),
        g_(views.g),
        id_(concatenation),
        node_(g_.node(concatenation)),
        axis_(lowering::positive_axis(*std::get<ConcatenateAttributes>(node_.attributes).axis,
                                      g_[node_.outputs[0]].dim)) {}

  bool run() {
    const TensorId y = node_.outputs[0], t = rolled_tensor();
    if (t == kNoTensor || in_place(t) || !computed(t)) return false;
    for (const auto& [x, made] : to_)
      if (x != t && !std::ranges::all_of(g_.readers(x), [&](NodeId r) {
            return to_.contains(g_.node(r).outputs[0]);
          }))
        return false;
    make(t, y);
    return true;
  }

 private:
  // The tensor of which the parts are slices, all of it and nothing twice, that nobody else reads.
  TensorId rolled_tensor() {
    const TensorId y = node_.outputs[0];
    TensorId t = kNoTensor;
    std::int64_t read = 0;
    for (TensorId part : node_.inputs) {
      const NodeId p = g_.producer(part);
      const auto* const s = p < 0 ? nullptr : std::get_if<SliceAttributes>(&g_.node(p).attributes);
      if (!s || !g_.is_virtual(part) || g_.in_region(p) || g_.readers(part).size() != 1)
        return kNoTensor;
      const TensorId from = g_.node(p).inputs[0];
      if ((t != kNoTensor && from != t) || g_.type(part) != g_.type(from)) return kNoTensor;
      t = from;
      for (int i = 0; i < g_[t].dim.size(); ++i)
        if ((i != axis_ && g_[part].dim[i] != g_[t].dim[i]) ||
            (!s->step.empty() && s->step[i] != 1))
          return kNoTensor;
      slices_.push_back(*s);
      read += g_[part].dim[axis_];
    }
    if (t == kNoTensor || !g_.is_virtual(t) || g_[t].dim != g_[y].dim || g_.type(y) != g_.type(t) ||
        read != g_[t].dim[axis_] || g_.readers(t).size() != node_.inputs.size())
      return kNoTensor;
    auto sorted = slices_;
    std::ranges::sort(sorted, {}, [&](const SliceAttributes& s) { return s.start[axis_]; });
    for (std::size_t i = 1; i < sorted.size(); ++i)
      if (sorted[i].start[axis_] != sorted[i - 1].limit[axis_]) return kNoTensor;
    return t;
  }

  // Whether it lies in memory, or is read from there in parts.
  bool in_place(TensorId t) const {
    return views_.in_memory(t) ||
           (g_.made_by(t, OpKind::concatenate) && !parts_in_memory(g_, g_.producer(t)).empty());
  }
  // The tensor's extent along the axis, as it broadcasts over the rolled one; 1: it has none.
  std::int64_t extent(TensorId t) const {
    const int i = axis_ - (rank() - g_[t].dim.size());
    return i < 0 ? 1 : g_[t].dim[i];
  }
  int rank() const { return g_[node_.outputs[0]].dim.size(); }

  // Whether it is computed from what is in place, position for position along the axis.
  bool computed(TensorId t) {
    if (g_[t].has_value || extent(t) == 1 || to_.contains(t)) return true;
    if (g_[t].dim.size() != rank() || extent(t) != g_[node_.outputs[0]].dim[axis_]) return false;
    if (in_place(t)) return true;
    const NodeId p = g_.producer(t);
    if (p < 0 || !g_.is_virtual(t) || g_.in_region(p) || to_.size() > kMostChained) return false;
    const Node& n = g_.node(p);
    if (!elementwise(g_, t) && (n.op != OpKind::reduction || extent(n.inputs[0]) != extent(t)))
      return false;
    to_[t] = kNoTensor;
    return all_operands(n, kNoTensor, [&](TensorId x) { return computed(x); });
  }

  TensorId rolled(TensorId t) {
    if (g_[t].has_value || extent(t) == 1) return t;
    const auto known = to_.find(t);
    if (known != to_.end() && known->second != kNoTensor) return known->second;
    const TensorId y = g_.tensor_like(t, g_[t].dim, g_.type(t), "_rolled");
    to_[t] = y;
    make(t, y);
    return y;
  }
  void make(TensorId t, TensorId y) {
    if (in_place(t)) {
      std::vector<TensorId> parts;
      for (const SliceAttributes& s : slices_) {
        SliceAttributes part{Dims::filled(rank(), 0), g_[t].dim, {}};
        part.start[axis_] = s.start[axis_];
        part.limit[axis_] = s.limit[axis_];
        Dims dim = g_[t].dim;
        dim[axis_] = s.limit[axis_] - s.start[axis_];
        parts.push_back(views_.view(t, {OpKind::slice, part, g_[t].dim, dim}, id_));
      }
      g_.make(y, OpKind::concatenate, node_.attributes, parts, id_);
      return;
    }
    const NodeId p = g_.producer(t);
    const Node n = g_.node(p);
    std::vector<TensorId> inputs;
    for (TensorId x : n.inputs) inputs.push_back(x < 0 ? x : rolled(x));
    g_.make(y, n.op, n.attributes, std::move(inputs), p);
  }

  MovedViews& views_;
  Rewriter& g_;
  NodeId id_;
  Node node_;
  int axis_;
  std::vector<SliceAttributes> slices_;  // in the order of the parts
  std::map<TensorId, TensorId> to_;      // what is computed, and of the rolled rows
};

bool roll_rows(MovedViews& views, NodeId id) { return RolledRows(views, id).run(); }

}  // namespace

extern constinit const Pass roll_rows_pass{
    "roll_rows",
    "What is computed of rows, and rolled along an axis that keeps them whole, is computed of the "
    "rolled rows, so that a norm reads an image from where it lies.",
    [](OpKind op) { return op == OpKind::concatenate; }, roll_rows};

}  // namespace sinter
