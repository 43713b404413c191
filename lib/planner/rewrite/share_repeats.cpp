// A right operand whose batch entries are repeated is the smaller one, whose entries several of the
// left operand's share.
//
//     k [2, 8] -> broadcast [2, 8, 4] -> reshape [2, 32] -.            k [2, 8] -.
//                                                          matmul  =>             matmul
//     q [2, 32] -------------------------------------------'           q [2, 32] -'
//
// So heads of keys and values that were written out for each head of the queries are not copied. A
// concatenation of a tensor with itself repeats it, too. Attention forward stays a region: both of
// its operands are taken so, or none.
#include <algorithm>

#include "lower/expansion.hpp"
#include "planner/rewrite/pass.hpp"

namespace sinter {
namespace {

// Of one type, or 16 bits that a virtual tensor holds in f32, as they are or narrowed back.
bool shows_same(const Rewriter& g, TensorId y, TensorId x) {
  if (g.type(x) == g.type(y)) return true;
  if (g.type(y) == DataType::f32 && info(g.type(x)).bytes == 2) return reads_alike(g, y, x);
  for (TensorId t = x; g.is_virtual(t) && g.type(t) == DataType::f32;) {
    const Node& n = g.node(g.producer(t));
    if (!is_view_op(n.op)) return false;
    t = n.inputs[0];
    if (g.type(t) == g.type(y)) return info(g.type(y)).bytes == 2;
  }
  return false;
}

// One entry along `axis`, `times` over.
struct Spread {
  TensorId x = kNoTensor;
  int axis = -1;
  std::int64_t times = 1;
};
std::optional<Spread> spread(const Rewriter& g, TensorId t) {
  const NodeId p = g.producer(t);
  if (p < 0) return {};
  const Node& n = g.node(p);
  Spread s;
  if (const auto* c = std::get_if<ConcatenateAttributes>(&n.attributes)) {
    if (std::any_of(n.inputs.begin(), n.inputs.end(), [&](TensorId x) { return x != n.inputs[0]; }))
      return {};
    s.axis = lowering::positive_axis(*c->axis, g[t].dim);
  } else if (!is_identity(n)) {
    return {};
  }
  s.x = n.inputs[0];
  const Dims &from = g[s.x].dim, &to = g[t].dim;
  if (g[s.x].has_value || !shows_same(g, t, s.x) || from.size() != to.size()) return {};
  for (int i = 0; i < to.size(); ++i) {
    if (from[i] == to[i]) continue;
    if (from[i] != 1 || (s.axis >= 0 && s.axis != i)) return {};
    s.axis = i;
  }
  if (s.axis < 0 || from[s.axis] != 1 || to[s.axis] < 2) return {};
  s.times = to[s.axis];
  return s;
}

// What a tensor repeats: entry i of `axis` is entry i / times of `dim`, which `x` has in its order.
struct Repeated {
  TensorId x = kNoTensor;
  Dims dim;
  int axis = -1;
  std::int64_t times = 1;
};
std::optional<Repeated> repeated(const Rewriter& g, TensorId t) {
  Dims dim = g[t].dim;
  if (const auto s = spread(g, t)) {
    dim[s->axis] = 1;
    return Repeated{s->x, dim, s->axis, s->times};
  }
  const Node* const n = g.made_by(t, OpKind::reshape);
  if (!n || !shows_same(g, t, n->inputs[0])) return {};
  const auto s = spread(g, n->inputs[0]);
  if (!s || s->axis == 0) return {};
  // The axis before it and the spread one are joined, and no others.
  Dims joined;
  const Dims& from = g[n->inputs[0]].dim;
  for (int i = 0; i < from.size(); ++i)
    if (i == s->axis)
      joined.back() *= from[i];
    else
      joined.push_back(from[i]);
  if (joined != dim) return {};
  const int axis = s->axis - 1;
  dim[axis] = from[axis];
  return Repeated{s->x, dim, axis, s->times};
}

// An operand that shows what repeats, through views: `views` from the repeated tensor to it. Entry
// i of the operand's `axis` is entry i / times of what the views show of the tensor itself.
struct Shared {
  TensorId t = kNoTensor;  // that repeats
  Repeated repeated;
  std::vector<NodeId> views;
  int axis = -1;
};

// The axis that a view makes of one with repeated entries; -1: none.
int moved_axis(const View& v, int axis, std::int64_t times) {
  if (const auto* a = std::get_if<TransposeAttributes>(&v.attributes)) {
    for (int i = 0; i < v.to.size(); ++i)
      if (a->permutation[i] == axis) return i;
    return -1;
  }
  if (v.op != OpKind::reshape) return -1;
  // Joined with those before it, or as it is: entries that are repeated stay neighbours.
  std::int64_t before = 1, made = 1;
  for (int i = 0; i <= axis; ++i) before *= v.from[i];
  for (int i = 0; i < v.to.size() && made <= before; ++i) {
    made *= v.to[i];
    if (made == before && v.to[i] > 0 && v.to[i] % times == 0) return i;
  }
  return -1;
}

std::optional<Shared> shared_entries(const MovedViews& views, TensorId operand) {
  constexpr int kMostViews = 4;
  const Rewriter& g = views.g;
  if (shown_as_stored(g, operand)) return {};
  Shared s;
  TensorId t = operand;
  for (int n = 0; n <= kMostViews; ++n) {
    if (auto r = repeated(g, t)) {
      s.t = t;
      s.repeated = *std::move(r);
      s.axis = s.repeated.axis;
      std::reverse(s.views.begin(), s.views.end());
      for (NodeId view : s.views) {
        s.axis = moved_axis(views.of_node(view), s.axis, s.repeated.times);
        if (s.axis < 0) return {};
      }
      return s;
    }
    const NodeId p = g.producer(t);
    if (p < 0 || !is_view_op(g.node(p).op) || !shows_same(g, t, g.node(p).inputs[0])) return {};
    s.views.push_back(p);
    t = g.node(p).inputs[0];
  }
  return {};
}

// Whether the product's right operand has its repeated entries for groups of the left one's.
bool shares(const Rewriter& g, const Node& product, const Shared& s) {
  const Dims &a = g[product.inputs[0]].dim, &b = g[product.inputs[1]].dim;
  const int left = a.size() - b.size() + s.axis;
  return s.axis < b.size() - 2 && left >= 0 && a[left] == b[s.axis];
}

// What the views show of the tensor itself.
TensorId shown_once(MovedViews& views, const Shared& s) {
  const Rewriter& g = views.g;
  const auto seen = [&](TensorId t, const View& v, NodeId like) {
    if (v.op == OpKind::reshape && v.from == v.to) return t;
    const TensorId shown = views.shown(t, v);
    return shown != kNoTensor ? shown : views.view(t, v, like);
  };
  TensorId t = s.repeated.x;
  const Dims& once = s.repeated.dim;
  const Node* const shaped = g.made_by(t, OpKind::reshape);
  if (shaped && g[shaped->inputs[0]].dim == once && shows_same(g, t, shaped->inputs[0]))
    t = shaped->inputs[0];
  else
    t = seen(t, {OpKind::reshape, ReshapeAttributes{once}, g[t].dim, once}, g.producer(s.t));
  int axis = s.repeated.axis;
  for (NodeId n : s.views) {
    View v = views.of_node(n);
    axis = moved_axis(v, axis, s.repeated.times);
    v.from = g[t].dim;
    v.to[axis] /= s.repeated.times;
    if (v.op == OpKind::reshape) v.attributes = ReshapeAttributes{v.to};
    t = seen(t, v, n);
  }
  return t;
}

// Keys and values of attention, both or none.
bool share_heads(MovedViews& views, NodeId id) {
  Rewriter& g = views.g;
  const Region region = *g.region_of(id);
  if (region.op != OpKind::sdpa) return false;
  constexpr int kHeads = 1;
  const TensorId operands[] = {region.inputs[1], region.inputs[2]};
  std::vector<std::pair<NodeId, Shared>> products;
  std::vector<Shared> of_ports;
  for (const TensorId operand : operands) {
    auto s = operand < 0 ? std::nullopt : shared_entries(views, operand);
    if (!s || s->axis != kHeads ||
        (!of_ports.empty() && s->repeated.times != of_ports[0].repeated.times))
      return false;
    of_ports.push_back(*std::move(s));
    if (of_ports.size() == 2 && operand == operands[0]) break;  // keys that are the values, too
    // All that the region reads of it are products' right operands.
    std::vector<TensorId> read{operand};
    for (std::size_t i = 0; i < read.size(); ++i)
      for (const NodeId n : g.readers(read[i])) {
        if (g.region_of(n) != g.region_of(id)) continue;
        const Node& reader = g.node(n);
        if (is_view_op(reader.op)) {
          read.push_back(reader.outputs[0]);
          continue;
        }
        if (reader.op != OpKind::matmul || reader.inputs[0] == read[i]) return false;
        auto of_product = shared_entries(views, read[i]);
        if (!of_product || !shares(g, reader, *of_product)) return false;
        products.emplace_back(n, *std::move(of_product));
      }
  }
  if (products.empty()) return false;
  for (const auto& [n, s] : products) g.set_input(n, 1, shown_once(views, s));
  for (const int port : {0, 1})
    g.read_by_region(id, port + 1, shown_once(views, of_ports[static_cast<std::size_t>(port)]));
  return true;
}

bool share_repeats(MovedViews& views, NodeId id) {
  Rewriter& g = views.g;
  if (g.in_region(id)) return share_heads(views, id);
  const Node& n = g.node(id);
  const auto s = shared_entries(views, n.inputs[1]);
  if (!s || !shares(g, n, *s)) return false;
  g.set_input(id, 1, shown_once(views, *s));
  return true;
}

}  // namespace

extern constinit const Pass share_repeats_pass{
    "share_repeats",
    "A product whose right operand repeats each batch entry for a group of the left operand's is "
    "the product with the entries themselves, which the groups share.",
    at_matmuls, share_repeats};

}  // namespace sinter
