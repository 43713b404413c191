// A reshape or transpose of what is computed moves down behind what reads it, so that this joins
// the kernel above.
//
//     x -> matmul -> reshape -> add b -> y        =>        x -> matmul -> add (b reshaped back) ->
//     reshape -> y
#include <algorithm>
#include <iterator>

#include "lower/op_kinds.hpp"
#include "planner/rewrite/pass.hpp"

namespace sinter {
namespace {

// A reduction over whole groups of the dims that are moved.
bool reduces(const Rewriter& g, NodeId r, const View& back) {
  const Node& n = g.node(r);
  return n.op == OpKind::reduction && operand_view(back, g[n.outputs[0]].dim);
}

// The axis along which whoever computes a tensor has neighbours side by side: the channels of a
// convolution, the last one of a product or norm; -1: not known.
int inner_axis(const Rewriter& g, TensorId t) {
  const int last = g[t].dim.size() - 1;
  // Reshapes on the way leave the first axes, such as channels of pixels that become tokens, and
  // the last one, of tokens that become pixels.
  int first_kept = Dims::kCapacity;
  bool last_kept = true, reshaped = false;
  const auto seen = [&](int axis) {
    return !reshaped || axis < first_kept             ? axis
           : last_kept && axis == g[t].dim.size() - 1 ? last
                                                      : -1;
  };
  for (int i = 0; i < kMostChained; ++i) {
    const NodeId p = g.producer(t);
    if (p < 0) {
      const auto at = g.location(t);
      for (int a = g[t].dim.size() - 1; at && a >= 0; --a)
        if (at->stride[a] == 1 && g[t].dim[a] > 1) return seen(a);
      return -1;
    }
    const Node& n = g.node(p);
    if (n.op == OpKind::conv_fprop || n.op == OpKind::conv_dgrad) return seen(1);
    if (n.op == OpKind::matmul) return seen(g[t].dim.size() - 1);
    if (n.op == OpKind::reshape) {
      const Dims &from = g[n.inputs[0]].dim, &to = g[t].dim;
      const int most = std::min({first_kept, from.size(), to.size()});
      first_kept = 0;
      while (first_kept < most && from[first_kept] == to[first_kept]) ++first_kept;
      last_kept &= from.back() == to.back();
      reshaped = true;
      t = n.inputs[0];
      continue;
    }
    if (!elementwise(g, t)) return -1;
    const auto over_all = [&](TensorId x) { return x >= 0 && g[x].dim == g[t].dim; };
    const auto x = std::find_if(n.inputs.begin(), n.inputs.end(), over_all);
    if (x == n.inputs.end()) return -1;
    t = *x;
  }
  return -1;
}

// Whether all that is computed from `y` element by element, to the end, reads and is written with
// neighbours side by side along this axis.
bool lies_along(const Rewriter& g, TensorId y, int axis, int& budget) {
  const Dims& dim = g[y].dim;
  const auto along = [&](TensorId x) {
    const int a = axis - (dim.size() - g[x].dim.size());
    if (g[x].has_value || a < 0 || g[x].dim[a] == 1) return true;
    const auto at = g.location(x);
    return at && at->stride[a] == 1;
  };
  const auto& readers = g.readers(y);
  return !readers.empty() && std::all_of(readers.begin(), readers.end(), [&](NodeId r) {
    const Node& n = g.node(r);
    const TensorId z = n.outputs[0];
    if (!computes_over(g, n, y) || --budget < 0 || !all_operands(n, y, along)) return false;
    return g[z].output ? along(z) : lies_along(g, z, axis, budget);
  });
}

// A transpose that gives rows other neighbours is behind its readers no loss where these have the
// neighbours of what is before it (channels that are last in memory, whatever their axis).
bool turns_back(const Rewriter& g, const Node& movement) {
  const int inner = inner_axis(g, movement.inputs[0]);
  if (inner < 0) return false;
  const Dims& permutation = std::get<TransposeAttributes>(movement.attributes).permutation;
  const auto at = std::find(permutation.begin(), permutation.end(), inner);
  int budget = kMostChained;
  return lies_along(g, movement.outputs[0], static_cast<int>(at - permutation.begin()), budget);
}

// The axis over the dims before a reshape of the indices that a node makes over those behind it;
// -1: it makes none.
int index_axis_before(const Rewriter& g, const Node& n, const View& back) {
  const int axis = index_axis(g, n);
  return axis < 0 || back.op != OpKind::reshape || g[n.outputs[0]].dim != back.from
             ? -1
             : kept_axis(back, axis);
}

// Whether what is computed from `y`, element by element and along rows, is shown over the dims `to`
// again, as the scores of windows that have their masks added.
bool shown_again(const Rewriter& g, TensorId y, const Dims& to) {
  std::vector<TensorId> same{y};
  for (std::size_t i = 0; i < same.size() && same.size() < 2 * kMostChained; ++i)
    for (NodeId r : g.readers(same[i])) {
      const Node& n = g.node(r);
      const TensorId z = n.outputs[0];
      if (n.op == OpKind::reshape && g[z].dim == to && g[same[i]].dim == g[y].dim) return true;
      if ((n.op == OpKind::reduction || elementwise(g, z)) &&
          std::find(same.begin(), same.end(), z) == same.end())
        same.push_back(z);
    }
  return false;
}

// The dims over which a small operand (the masks of an image's windows, which all images have) is
// written for a view to show it; nullopt where it would not be small.
std::optional<Dims> written_over(const Rewriter& g, TensorId x, const View& back) {
  constexpr std::int64_t kSmall = 3;
  if (g[x].has_value || operand_view(back, g[x].dim)) return std::nullopt;
  auto dim = whole_groups(back, g[x].dim);
  if (dim && kSmall * count(*dim) > count(back.from)) dim.reset();
  return dim;
}

// Whether a product's kernel computes what reads `y`, a view of what another one gives, behind its
// sums: over the dims that it has and no others. Of views of `y`, whether all their readers are
// such.
bool ends_product(const Rewriter& g, NodeId reader, TensorId y, int depth = 0) {
  const Node& n = g.node(reader);
  const TensorId z = n.outputs[0];
  if (is_view_op(n.op)) {
    const auto& readers = g.readers(z);
    return g.is_virtual(z) && depth < kMostChained &&
           std::ranges::all_of(readers, [&](NodeId r) { return ends_product(g, r, z, depth + 1); });
  }
  const auto sums = [&](TensorId x) {
    if (x < 0 || !g.is_virtual(x) || g.readers(x).size() != 1 || g[x].dim != g[y].dim) return false;
    const NodeId p = before_elementwise(g, x);
    return p >= 0 && is_matmul(g.node(p).op);
  };
  return computes_over(g, n, y) &&
         std::ranges::any_of(n.inputs, [&](TensorId x) { return x != y && sums(x); });
}

// Whether others, too, read what `t` is a view of, if it is one.
bool shown_to_others(const Rewriter& g, TensorId t) {
  while (g.is_virtual(t) && is_view_op(g.node(g.producer(t)).op)) {
    t = g.node(g.producer(t)).inputs[0];
    if (g.readers(t).size() > 1) return true;
  }
  return false;
}

// Whether a tensor is computed from another one, element by element and along rows.
bool comes_from(const Rewriter& g, TensorId x, TensorId y) {
  std::vector<TensorId> seen{x};
  for (std::size_t i = 0; i < seen.size() && i < kMostChained; ++i) {
    if (seen[i] == y) return true;
    const Node* n = elementwise(g, seen[i]);
    if (!n) n = g.made_by(seen[i], OpKind::reduction);
    if (n)
      std::ranges::copy_if(n->inputs, std::back_inserter(seen), [](TensorId t) { return t >= 0; });
  }
  return false;
}

// Whether an operand over the dims of `y`, a view, is computed by whoever reads it, and could not
// be over those before the view: to be shown so it would be stored. (A group norm's gradient reads
// what it normalises in groups, and sums up its channels, whatever their groups.) What is computed
// from `y` itself moves with it.
bool stored_to_be_shown(const MovedViews& views, TensorId x, const View& back, TensorId y) {
  int budget = kMostChained;
  return views.g[x].dim == back.from && views.recomputed(x) && !comes_from(views.g, x, y) &&
         !views.hoists(x, back, budget);
}

bool sink_view(MovedViews& views, NodeId id) {
  Rewriter& g = views.g;
  const Node n = g.node(id);
  const TensorId t = n.inputs[0], y = n.outputs[0];
  // Attention's kernel takes the region as it is (dK and dV of shared heads).
  if (n.op == OpKind::slice || views.made_here(y) || g.in_region(id)) return false;
  const bool exact = g.is_virtual(y) ? reads_alike(g, y, t) : g.type(y) == g.type(t);
  const bool copied = views.in_memory(t) && !g.location(y);
  if (!exact || (views.in_memory(t) && !copied) || count(g[y].dim) == 0) return false;
  // Numbers of rows have other readers in their kernel.
  if (!copied &&
      (!g.is_virtual(t) || (g.readers(t).size() != 1 && !g.made_by(t, OpKind::reduction))))
    return false;
  if (!keeps_neighbours(n) && !turns_back(g, n)) return false;
  const View v = views.of_node(id), back = inverse(v);
  std::vector<NodeId> readers = g.readers(y);
  const auto stays = [&](NodeId r) { return ends_product(g, r, y); };
  if (!std::ranges::all_of(readers, stays))
    std::erase_if(readers, stays);
  else if (shown_to_others(g, t))
    return false;
  const auto shows = [&](TensorId x) {
    if (stored_to_be_shown(views, x, back, y)) return false;
    return views.shows(x, back) || (written_over(g, x, back) && shown_again(g, y, back.to));
  };
  for (NodeId r : readers)
    if (const Node& p = g.node(r); !reduces(g, r, back) && index_axis_before(g, p, back) < 0 &&
                                   !(computes_over(g, p, y) && all_operands(p, y, shows)))
      return false;
  const auto operand = [&](TensorId x, NodeId r) {
    const auto dim = written_over(g, x, back);
    if (!dim) return views.operand(x, back, r);
    const TensorId written = g.tensor_like(x, *dim, g.type(x), "_written");
    g.make(written, OpKind::pointwise, PointwiseAttributes{}, {x}, r);
    return views.operand(written, back, r);
  };
  for (NodeId r : readers) {
    const Node p = g.node(r);
    const TensorId z = p.outputs[0];
    const Dims dim = operand_view(back, g[z].dim)->to;
    const TensorId before = g.tensor_like(z, dim, g.type(z), suffix::shaped);
    Attributes attributes = p.attributes;
    if (const int axis = index_axis_before(g, p, back); axis >= 0)
      std::get<PointwiseAttributes>(attributes).axis = axis;
    std::vector<TensorId> inputs;
    for (TensorId x : p.inputs) inputs.push_back(x == y ? t : x < 0 ? x : operand(x, r));
    g.make(before, p.op, attributes, std::move(inputs), r);
    const bool turns = n.op == OpKind::transpose;
    g.make(z, n.op, turns ? v.attributes : ReshapeAttributes{g[z].dim}, {before}, id);
  }
  return !readers.empty();
}

}  // namespace

extern constinit const Pass sink_view_pass{
    "sink_view",
    "A reshape or transpose is moved behind its readers, which compute over the dims before it, "
    "where their other operands can be seen so at no cost.",
    at_views, sink_view};

}  // namespace sinter
