// The products of an attention that is written out have the dims of its kernels, entries and heads.
//
// A dim of its own for the heads that share keys and values, or for windows, is joined with
// another:
//
//     q [b, h, g, m, d] -.                                      q [b, hg, m, d] -.
//                         matmul -> softmax -> matmul    =>                       matmul -> reshape
//     k [b, h, 1, n, d] -'                                      k [b, h, n, d] --'   -> softmax ->
//     ..
//
// Heads that are entries of one batch of products, as in models whose scores are shown by head for
// their masks, are split off:
//
//     q [bh, m, d], k [bh, n, d] -> matmul -> reshape [b, h, m, n] -> + mask -> reshape [bh, m, n]
//     ..
//
// What is computed between them takes over the dims (sink_view).
#include <algorithm>

#include "planner/rewrite/pass.hpp"

namespace sinter {
namespace {

constexpr int kKernelDims = 4;  // of the operands of attention

// The dims of an operand of a product with so many.
Dims ranked(const Rewriter& g, TensorId t, int rank) {
  Dims dim = Dims::filled(rank - g[t].dim.size(), 1);
  for (std::int64_t e : g[t].dim) dim.push_back(e);
  return dim;
}
Dims joined(const Dims& dim, int axis) {
  Dims to;
  for (int i = 0; i < dim.size(); ++i)
    if (i == axis + 1)
      to.back() *= dim[i];
    else
      to.push_back(dim[i]);
  return to;
}

// The first product of an attention, and the dims over which what lies between them is shown.
struct Between {
  NodeId first = -1;
  std::vector<Dims> shown;
};

// Of the product of the weights `weight`; nothing where no exponentials of one product make them.
std::optional<Between> between(const Rewriter& g, TensorId weight) {
  std::vector<TensorId> left{weight};
  Between b;
  bool exponential = false;
  for (std::size_t i = 0; i < left.size() && left.size() < 4 * kMostChained; ++i) {
    const NodeId p = g.producer(left[i]);
    if (p < 0) continue;
    const Node& n = g.node(p);
    if (n.op == OpKind::matmul && g[left[i]].dim == g[weight].dim) {
      if (b.first >= 0 && b.first != p) return {};
      b.first = p;
    }
    if (n.op == OpKind::reshape) b.shown.push_back(g[left[i]].dim);
    if (n.op != OpKind::reduction && n.op != OpKind::reshape && !elementwise(g, left[i])) continue;
    const auto* const a = std::get_if<PointwiseAttributes>(&n.attributes);
    exponential = exponential || (a && a->mode == PointwiseMode::exp);
    for (TensorId x : n.inputs)
      if (x >= 0 && std::find(left.begin(), left.end(), x) == left.end()) left.push_back(x);
  }
  return exponential && b.first >= 0 ? std::optional(std::move(b)) : std::nullopt;
}

class Products {
 public:
  Products(MovedViews& views, const Between& b, NodeId second)
      : views_(views), g_(views.g), between_(b), products_{b.first, second} {}

  bool join() {
    const int rank = g_[g_.node(products_[1]).outputs[0]].dim.size(), batch = rank - 2;
    for (const bool shared : {true, false})
      for (int axis = 0; axis + 1 < batch; ++axis)
        if (joins(axis, rank, shared)) {
          compute_over(rank, [&](const Dims& dim) { return joined(dim, axis); });
          return true;
        }
    return false;
  }

  // Entries that are those of a batch and its heads, as what is computed of them says.
  bool split() {
    constexpr int kRank = kKernelDims - 1;
    for (NodeId id : products_)
      for (const std::vector<TensorId>& tensors : {g_.node(id).inputs, g_.node(id).outputs})
        for (TensorId t : tensors) {
          if (g_[t].dim.size() != kRank) return false;
          if (const Node* const n = g_.made_by(t, OpKind::reshape))
            between_.shown.push_back(g_[n->inputs[0]].dim);
          for (NodeId r : g_.readers(t))
            if (g_.node(r).op == OpKind::reshape)
              between_.shown.push_back(g_[g_.node(r).outputs[0]].dim);
        }
    const std::int64_t entries = g_[g_.node(products_[0]).outputs[0]].dim[0];
    for (const Dims& dim : between_.shown) {
      if (dim.size() != kKernelDims || dim[0] * dim[1] != entries || !splits(dim)) continue;
      compute_over(kRank, [&](const Dims& of) {
        const bool one = of[0] == 1;
        return Dims{one ? 1 : dim[0], one ? 1 : dim[1], of[1], of[2]};
      });
      return true;
    }
    return false;
  }

 private:
  // Whether two dims of both products can be one: those of both operands, or, where the right one
  // is `shared`, of groups of the left one's.
  bool joins(int axis, int rank, bool shared) const {
    return std::all_of(products_.begin(), products_.end(), [&](NodeId id) {
      const Node& n = g_.node(id);
      const Dims &a = g_[n.inputs[0]].dim, &y = g_[n.outputs[0]].dim;
      const Dims b = ranked(g_, n.inputs[1], rank);
      if (a.size() != rank || y.size() != rank || a[axis] != y[axis] || a[axis + 1] != y[axis + 1])
        return false;
      const bool whole = b[axis] == a[axis] && b[axis + 1] == a[axis + 1],
                 ones = b[axis] == 1 && b[axis + 1] == 1,
                 groups = b[axis] == a[axis] && b[axis + 1] == 1;
      return shared ? groups && a[axis + 1] > 1 : whole || ones;
    });
  }
  // Whether an operand has all entries or one, of which those of a batch and its heads are made.
  bool splits(const Dims& dim) const {
    return dim[1] > 1 && std::all_of(products_.begin(), products_.end(), [&](NodeId id) {
             const auto& inputs = g_.node(id).inputs;
             return std::all_of(inputs.begin(), inputs.end(), [&](TensorId x) {
               return g_[x].dim[0] == 1 || g_[x].dim[0] == dim[0] * dim[1];
             });
           });
  }

  // The products over other dims of their entries, with `shaped` of their operands' and results'.
  template <class Shaped>
  void compute_over(int rank, const Shaped& shaped) {
    for (NodeId id : products_) {
      const Node n = g_.node(id);
      const TensorId y = n.outputs[0];
      std::vector<TensorId> inputs;
      for (TensorId x : n.inputs) inputs.push_back(over(x, rank, shaped, id));
      const TensorId product = g_.tensor_like(y, shaped(g_[y].dim), g_.type(y), "_entries");
      g_.make(product, n.op, n.attributes, std::move(inputs), id);
      g_.make(y, OpKind::reshape, ReshapeAttributes{g_[y].dim}, {product}, id);
    }
  }

  // An operand, in front of the transpose of its last two dims where there is one.
  template <class Shaped>
  TensorId over(TensorId x, int rank, const Shaped& shaped, NodeId id) {
    const Dims from = g_[x].dim, to = shaped(ranked(g_, x, rank));
    if (from == to) return x;
    const Node* const n = g_.made_by(x, OpKind::transpose);
    if (!n || from.size() != rank || !swaps_last(*n) || g_.type(x) != g_.type(n->inputs[0]))
      return views_.view(x, {OpKind::reshape, ReshapeAttributes{to}, from, to}, id);
    const TensorId before = over(n->inputs[0], rank, shaped, id);
    TransposeAttributes swap;
    for (int i = 0; i < to.size(); ++i) swap.permutation.push_back(i);
    std::swap(swap.permutation[to.size() - 2], swap.permutation[to.size() - 1]);
    return views_.view(before, {OpKind::transpose, swap, g_[before].dim, to}, id);
  }

  MovedViews& views_;
  Rewriter& g_;
  Between between_;
  std::vector<NodeId> products_;
};

bool reads_as_stored(const Rewriter& g, NodeId product) {
  return std::ranges::any_of(g.node(product).inputs,
                             [&](TensorId x) { return shown_as_stored(g, x); });
}

bool shape_entries(MovedViews& views, NodeId id) {
  Rewriter& g = views.g;
  const Node& n = g.node(id);
  const Dims& dim = g[n.outputs[0]].dim;
  if (g.in_region(id) || dim.size() < kKernelDims - 1 || dim.size() == kKernelDims ||
      count(dim) == 0)
    return false;
  const auto b = between(g, n.inputs[0]);
  if (!b || g.in_region(b->first)) return false;
  if (reads_as_stored(g, id) || reads_as_stored(g, b->first)) return false;
  Products products(views, *b, id);
  return dim.size() > kKernelDims ? products.join() : products.split();
}

}  // namespace

extern constinit const Pass shape_entries_pass{
    "shape_entries",
    "Products of an attention are those over entries and heads, of which the right operand's are "
    "shared by groups: other dims of batches are joined, and heads that are entries split off.",
    at_matmuls, shape_entries};

}  // namespace sinter
