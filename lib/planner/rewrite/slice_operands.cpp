// Of a result of which only a slice is read (the logits of the last token), only that is computed.
//
//     A, B -> matmul -> slice of rows -> y        =>        A -> slice of rows -> matmul with B ->
//     y
//
// Of a convolution that is images of X, filters of W, and the pixels that the windows reach, with
// what padding they reach besides.
#include <algorithm>

#include "lower/op_kinds.hpp"
#include "planner/rewrite/pass.hpp"
#include "sinter/ops/shapes_contraction.hpp"

namespace sinter {
namespace {

// Grouped heads share a batch entry of an operand, which is read as a whole or not cut.
bool keeps_groups(const Rewriter& g, TensorId x, const Node& slice) {
  const auto& s = *std::get_if<SliceAttributes>(&slice.attributes);
  const Dims &result = g[slice.inputs[0]].dim, &from = g[x].dim;
  const int before = result.size() - from.size();
  for (int i = 0; i < from.size() - 2; ++i) {
    const int r = i + before;
    const bool grouped = r >= 0 && from[i] != 1 && from[i] != result[r];
    if (grouped && (s.start[r] != 0 || s.limit[r] != result[r])) return false;
  }
  return true;
}

// The part of `x`, which is all of it where that is as large.
TensorId part_of(MovedViews& views, TensorId x, const SliceAttributes& part, NodeId like) {
  const Dims from = views.g[x].dim;
  Dims to = from;
  for (int i = 0; i < from.size(); ++i) to[i] = part.limit[i] - part.start[i];
  return to == from ? x : views.view(x, {OpKind::slice, part, from, to}, like);
}

// What the slice of a result shows of an operand. Its last dims go with the result's, but for the
// `whole` one and those of another extent.
TensorId cut(MovedViews& views, TensorId x, const Node& slice, int whole) {
  Rewriter& g = views.g;
  const auto& s = *std::get_if<SliceAttributes>(&slice.attributes);
  const Dims result = g[slice.inputs[0]].dim, from = g[x].dim;
  const int before = result.size() - from.size();
  SliceAttributes part{Dims::filled(from.size(), 0), from, {}};
  for (int i = 0; i < from.size(); ++i) {
    const int r = i + before;
    if (r < 0 || r == whole || from[i] != result[r] || result[r] == 1) continue;
    part.start[i] = s.start[r];
    part.limit[i] = s.limit[r];
  }
  return part_of(views, x, part, g.producer(slice.outputs[0]));
}

// False where filters of only some groups are left, or where a window reaches no pixel.
bool cut_convolution(MovedViews& views, const Node& slice, Node& p) {
  Rewriter& g = views.g;
  const auto& s = *std::get_if<SliceAttributes>(&slice.attributes);
  auto& a = *std::get_if<ConvAttributes>(&p.attributes);
  const Dims result = g[slice.inputs[0]].dim, x = g[p.inputs[0]].dim, w = g[p.inputs[1]].dim;
  if (a.groups != 1 && s.limit[1] - s.start[1] != result[1]) return false;
  const auto geometry = shapes::conv_geometry(a, x.size());
  SliceAttributes images{Dims::filled(x.size(), 0), x, {}},
      filters{Dims::filled(w.size(), 0), w, {}};
  images.start[0] = s.start[0], images.limit[0] = s.limit[0];
  filters.start[0] = s.start[1], filters.limit[0] = s.limit[1];
  a.pre_padding = geometry.pre, a.post_padding = geometry.post;
  for (int d = 0; d + 2 < x.size(); ++d) {
    const int i = d + 2;
    if (s.limit[i] - s.start[i] == result[i]) continue;
    const std::int64_t first = s.start[i] * geometry.stride[d] - geometry.pre[d],
                       end = (s.limit[i] - 1) * geometry.stride[d] - geometry.pre[d] +
                             geometry.window(d, w[i]);
    images.start[i] = std::clamp<std::int64_t>(first, 0, x[i]);
    images.limit[i] = std::clamp<std::int64_t>(end, 0, x[i]);
    if (images.limit[i] <= images.start[i]) return false;
    a.pre_padding[d] = images.start[i] - first;
    a.post_padding[d] = end - images.limit[i];
  }
  const NodeId like = g.producer(slice.outputs[0]);
  p.inputs = {part_of(views, p.inputs[0], images, like),
              part_of(views, p.inputs[1], filters, like)};
  return true;
}

// Attention's kernel takes the region as it is: several kernels are only worth it for a few of many
// rows, and for no gradients.
bool stays_in_region(const Rewriter& g, TensorId t, TensorId part) {
  constexpr int kFew = 8;
  const Region* const r = g.region_of(g.producer(t));
  return r && (r->op != OpKind::sdpa || kFew * count(g[part].dim) > count(g[t].dim));
}

bool slice_operands(MovedViews& views, NodeId id) {
  Rewriter& g = views.g;
  const Node n = g.node(id);
  const TensorId t = n.inputs[0], y = n.outputs[0];
  const auto* s = std::get_if<SliceAttributes>(&n.attributes);
  const std::int64_t left = count(g[y].dim);  // of none, an operand of extent 1 shows nothing less
  const bool small = left > 0 && 2 * left <= count(g[t].dim);
  if (!s || !small || !g.is_virtual(t) || g.readers(t).size() != 1 || g.producer(t) < 0 ||
      stays_in_region(g, t, y))
    return false;
  for (std::int64_t step : s->step)
    if (step != 1) return false;
  Node p = g.node(g.producer(t));
  if (is_contraction(p.op) &&
      std::ranges::any_of(p.inputs, [&](TensorId x) { return x >= 0 && shown_as_stored(g, x); }))
    return false;
  std::vector<TensorId> inputs;
  if (elementwise(g, t)) {
    const View v = views.of_node(id);
    if (!all_operands(p, kNoTensor, [&](TensorId x) { return views.shows(x, v); })) return false;
    for (TensorId x : p.inputs) inputs.push_back(x < 0 ? x : views.operand(x, v, id));
  } else if (p.op == OpKind::reduction) {
    inputs = {cut(views, p.inputs[0], n, -1)};
  } else if (p.op == OpKind::matmul) {
    const int rank = g[t].dim.size();
    if (!keeps_groups(g, p.inputs[0], n) || !keeps_groups(g, p.inputs[1], n)) return false;
    inputs = {cut(views, p.inputs[0], n, rank - 1), cut(views, p.inputs[1], n, rank - 2)};
  } else if (p.op == OpKind::conv_fprop && cut_convolution(views, n, p)) {
    inputs = p.inputs;
  } else {
    return false;
  }
  const bool same = g.type(t) == g.type(y);
  const TensorId part = same ? y : g.tensor_like(t, g[y].dim, g.type(t), "_part");
  g.make(part, p.op, p.attributes, std::move(inputs), g.producer(t));
  if (!same) g.make(y, OpKind::pointwise, PointwiseAttributes{}, {part}, id);
  return true;
}

}  // namespace

extern constinit const Pass slice_operands_pass{
    "slice_operands",
    "A slice of at most half of an elementwise result, a reduction, a product or a convolution "
    "that nobody else reads is computed from slices of the operands.",
    at_views, slice_operands};

}  // namespace sinter
