// Where a result lies that is transposed and then reshaped: in the order of the transpose, whose
// dims a reshape can join without a copy.
//
//     O [B, H, S, D] -> transpose -> [B, S, H, D] -> reshape -> [B, S, H D] -> matmul
//  => O [B, H, S, D], S before H in memory -> transpose, reshape (views) -> matmul
#include <algorithm>

#include "planner/rewrite/pass.hpp"

namespace sinter {
namespace {

bool at_reshapes(OpKind op) { return op == OpKind::reshape; }

bool layout_for_reshape(MovedViews& views, NodeId id) {
  Rewriter& g = views.g;
  const Node& reshape = g.node(id);
  const TensorId t = reshape.inputs[0], y = reshape.outputs[0];
  const Node* const transpose = g.made_by(t, OpKind::transpose);
  if (!transpose || !g.is_virtual(t) || g.readers(t).size() != 1) return false;
  const TensorId x = transpose->inputs[0];
  if (!g.is_virtual(x) || is_view_op(g.node(g.producer(x)).op)) return false;
  const auto at = g.location(t);
  if (!at || reshape_strides(g[t].dim, at->stride, g[y].dim)) return false;
  const Dims packed = packed_strides(g[t].dim);
  const Dims& permutation = std::get<TransposeAttributes>(transpose->attributes).permutation;
  Dims stride = packed;
  for (int i = 0; i < packed.size(); ++i) stride[static_cast<int>(permutation[i])] = packed[i];
  // Whoever computes on its elements does not mind, as long as rows stay together (the Delta of
  // attention's gradients).
  const auto indifferent = [&](NodeId r) {
    const TensorId z = g.node(r).outputs[0];
    return z == t || (z >= 0 && stride.back() == 1 && elementwise(g, z) && g[z].dim == g[x].dim);
  };
  const auto& readers = g.readers(x);
  if (!std::all_of(readers.begin(), readers.end(), indifferent)) return false;
  g.set_stride(x, stride);
  return true;
}

}  // namespace

extern constinit const Pass layout_for_reshape_pass{
    "layout_for_reshape",
    "A virtual result that is transposed and then reshaped, and otherwise read element by element "
    "at most, lies in the order of the transpose where the reshape would be a copy else.",
    at_reshapes, layout_for_reshape};

}  // namespace sinter
