// A kernel with reductions whose result is split into more dims and moved by whole rows (a norm and
// the windows of an image), where strides of the result cannot undo the split.
//
//     x [B, HW, C] -> norm -> reshape [B, h, 8, w, 8, C] -> transpose -> y
// =>
//     x [B, h, 8, w, 8, C] (a view) -> norm -> transpose -> y
//
// The same where the last axis is split in segments that are reduced (a scale for each block of
// what is quantised):
//
//     x [B, C] -> norm -> reshape [B, C / 32, 32] -> reduction [B, C / 32, 1]
// =>
//     x [B, C / 32, 32] (a view) -> norm over the last two dims -> reduction [B, C / 32, 1]
//
// And where whole rows are turned and then halved (heads that are normalised and rotated):
//
//     x [B, S, H, D] -> norm -> transpose [B, H, S, D] -> slices [B, H, S, D / 2]
// =>
//     x [B, H, S, D] (a view) -> norm -> slices [B, H, S, D / 2]
#include <algorithm>
#include <bit>

#include "lower/op_kinds.hpp"
#include "planner/rewrite/halves.hpp"
#include "planner/rewrite/pass.hpp"

namespace sinter {
namespace {

constexpr std::size_t kMostNodes = 4 * kMostChained;
constexpr std::int64_t kMostSegment = 256;  // eight elements of each thread of a warp

bool among(const std::vector<TensorId>& tensors, TensorId t) {
  return std::find(tensors.begin(), tensors.end(), t) != tensors.end();
}

// Axes of `dim` along which something is.
int long_axes(const Dims& dim) {
  return static_cast<int>(std::count_if(dim.begin(), dim.end(), [](auto e) { return e != 1; }));
}

class Cluster {
 public:
  Cluster(MovedViews& views, NodeId reshape)
      : views_(views), g_(views.g), reshape_(reshape), view_(views.of_node(reshape)) {}

  bool run() {
    const Node n = g_.node(reshape_);
    const TensorId t = n.inputs[0], y = n.outputs[0];
    if (!g_.is_virtual(y) || !elementwise(g_, t)) return false;
    if (n.op == OpKind::reshape) {
      segments_ = cut_in_segments(y);
      if (!segments_ && !copied(t, y)) return false;
    } else if (n.op != OpKind::transpose || !keeps_neighbours(n) || !halved(y)) {
      return false;
    }
    if (!collect(t) || !reduced_ || !read_alone(t)) return false;
    std::vector<TensorId> made;  // of cluster_
    for (TensorId x : cluster_) {
      const Dims dim = operand_view(view_, g_[x].dim)->to;
      made.push_back(x == t && g_.type(t) == g_.type(y)
                         ? y
                         : g_.tensor_like(x, dim, g_.type(x), suffix::shaped));
    }
    const auto over_new_dims = [&](TensorId x, NodeId like) {
      for (std::size_t i = 0; i < cluster_.size(); ++i)
        if (cluster_[i] == x) return made[i];
      return views_.operand(x, view_, like);
    };
    for (std::size_t i = 0; i < cluster_.size(); ++i) {
      const NodeId like = g_.producer(cluster_[i]);
      const Node p = g_.node(like);
      std::vector<TensorId> inputs;
      for (TensorId x : p.inputs) inputs.push_back(x < 0 ? x : over_new_dims(x, like));
      g_.make(made[i], p.op, p.attributes, std::move(inputs), like);
    }
    for (std::size_t i = 0; i < cluster_.size(); ++i) {
      const TensorId x = cluster_[i];
      if (x == t && made[i] != y)
        g_.make(y, OpKind::pointwise, PointwiseAttributes{}, {made[i]}, reshape_);
      if (!g_[x].output) continue;
      // Of its own, so that it lies where the output does.
      const TensorId copy = g_.tensor_like(made[i], g_[made[i]].dim, g_.type(x), suffix::again);
      const NodeId like = g_.producer(x);
      g_.make(copy, OpKind::pointwise, PointwiseAttributes{}, {made[i]}, like);
      const View back = inverse({view_.op, view_.attributes, g_[x].dim, g_[copy].dim});
      g_.make(x, back.op, back.attributes, {copy}, like);
    }
    return true;
  }

 private:
  // The last axis is split, and the pieces are reduced: what one kernel computes behind the
  // reductions of whole rows (RowwiseSpec::segment).
  bool cut_in_segments(TensorId y) const {
    const Dims &from = view_.from, &to = view_.to;
    const int last = from.size() - 1, rank = to.size();
    if (rank != from.size() + 1 || to[rank - 1] == 1 || to[rank - 1] > kMostSegment ||
        !std::has_single_bit(static_cast<std::uint64_t>(to[rank - 1])) ||
        to[rank - 2] * to[rank - 1] != from[last] || to[rank - 2] == 1 ||
        !std::equal(from.begin(), from.end() - 1, to.begin()))
      return false;
    Dims segments = to;
    segments[rank - 1] = 1;
    return std::ranges::any_of(g_.readers(y), [&](NodeId r) {
      const Node& n = g_.node(r);
      return n.op == OpKind::reduction && g_[n.outputs[0]].dim == segments;
    });
  }

  bool halved(TensorId y) const {
    std::vector<NodeId> slices = g_.readers(y);
    std::erase_if(slices, [&](NodeId r) { return g_.node(r).op != OpKind::slice; });
    return are_halves(g_, y, slices);
  }

  // The result into which whole rows of `y` are moved cannot hold `t`, of which it is a view.
  bool copied(TensorId t, TensorId y) const {
    const auto at = placed(y, 0);
    return at && at->stride[at->stride.size() - 1] == 1 &&
           !reshape_strides(g_[y].dim, at->stride, g_[t].dim);
  }

  // Where a tensor lies in a graph output, or in what products alone read, that is only a movement
  // of it.
  std::optional<Location> placed(TensorId t, int depth) const {
    if (g_[t].output) return g_.location(t);
    const auto& readers = g_.readers(t);
    if (std::ranges::all_of(readers, [&](NodeId r) { return is_contraction(g_.node(r).op); }))
      return Location{t, packed_strides(g_[t].dim), 0, g_.type(t)};
    if (readers.size() != 1 || depth == kMostChained) return std::nullopt;
    const Node& n = g_.node(readers[0]);
    if (!is_view_op(n.op)) return std::nullopt;
    const auto to = placed(n.outputs[0], depth + 1);
    if (!to) return std::nullopt;
    return source_of(g_[t].dim, n, g_[n.outputs[0]].dim, *to);
  }

  // Adds `t` and all that it is computed from, up to what lies in memory; false where some of it
  // cannot be had over the new dims.
  bool collect(TensorId t) {
    if (among(cluster_, t)) return true;
    const auto o = operand_view(view_, g_[t].dim);
    if (!o) return false;
    const Node* n = elementwise(g_, t);
    const bool reduction = !n && (n = g_.made_by(t, OpKind::reduction));
    if (!o->view || !n) return (!o->view || g_[t].has_value || lies(t)) && views_.shows(t, view_);
    if (g_[t].output && !views_.shows(t, view_)) return false;
    if (g_[t].output && view_.op == OpKind::transpose && o->dim != g_[t].dim) return false;
    // Split rows would be reduced over more axes.
    const bool of_segments = segments_ && reduction && g_[t].dim[g_[t].dim.size() - 1] == 1;
    if (reduction && !of_segments &&
        (g_[n->inputs[0]].dim != view_.from ||
         long_axes(view_.from) - long_axes(g_[t].dim) != long_axes(view_.to) - long_axes(o->to)))
      return false;
    if (cluster_.size() == kMostNodes) return false;
    cluster_.push_back(t);
    reduced_ = reduced_ || reduction;
    return std::all_of(n->inputs.begin(), n->inputs.end(),
                       [&](TensorId x) { return x < 0 || collect(x); });
  }

  // A turned product's result is read where it is stored: no epilogue would have computed its rows.
  bool lies(TensorId t) const {
    return views_.in_memory(t) || (view_.op == OpKind::transpose && views_.stored_anyway(t));
  }

  // Nobody else computes with what is to be computed over the new dims.
  bool read_alone(TensorId t) const {
    for (TensorId x : cluster_)
      for (NodeId r : g_.readers(x))
        if (!(x == t && r == reshape_) && !among(cluster_, g_.node(r).outputs[0])) return false;
    return true;
  }

  MovedViews& views_;
  Rewriter& g_;
  NodeId reshape_;
  View view_;
  std::vector<TensorId> cluster_;
  bool reduced_ = false, segments_ = false;
};

bool propagate_reshape(MovedViews& views, NodeId id) { return Cluster(views, id).run(); }

}  // namespace

extern constinit const Pass propagate_reshape_pass{
    "propagate_reshape",
    "What a row kernel computes over some dims it can compute over the dims into which a reshape "
    "splits those that its rows keep, or over those to which a transpose turns them.",
    at_views, propagate_reshape};

}  // namespace sinter
