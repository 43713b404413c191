// Gradients of attention that are written out become what an sdpa_backward node is: the nodes of a
// region, which have their own scores and weights. What made these before is forward's alone.
//
//     softmax -> P .-> matmul with v -> O            softmax -> P -> matmul with v -> O
//                  |                                     |                            |
//                  |-> P (dP - sum of P dP) = dS   =>  Stats                        Delta
//                  |     '-> matmuls -> dQ, dK           |                            |
//                  '-> matmul with dO -> dV          [ exp(score - Stats), P (dP - Delta), .. ]
//
// Where scores may be masks of large numbers, the softmax's largest score and its sum of
// exponentials stand in place of Stats, whose one f32 would lose the logarithm of that sum.
//
// The sum along a row of P dP is that of dO times O: both are the sum over keys and elements of
// P dO V. Where the graph has no O, forward computes it for that.
#include <algorithm>
#include <unordered_map>

#include "plan/large_scores.hpp"
#include "planner/rewrite/pass.hpp"
#include "planner/rewrite/written_gradients.hpp"

namespace sinter {
namespace {

using M = PointwiseMode;

class GradientRegion {
 public:
  GradientRegion(MovedViews& views, WrittenGradients w, NodeId like)
      : views_(views), g_(views.g), w_(std::move(w)), like_(like) {
    const Dims& p = g_[w_.p].dim;
    scores_ = {w_.batch, w_.heads, p[p.size() - 2], p.back()};
    rows_ = scores_;
    rows_.back() = 1;
  }

  // Nothing is changed where this says no.
  bool fits() const {
    if (w_.total >= 0 && guards_stats()) return false;
    const auto narrow = [&](const FactorOf& f) {
      const DataType t = g_.type(f.t);
      return attention_factor_type(t, g_.is_virtual(f.t), g_.options().io) != DataType::none;
    };
    for (const FactorOf& f : {w_.q, w_.k, w_.v, w_.d_o})
      if (!narrow(f)) return false;
    for (NodeId n : w_.between)
      for (TensorId t : g_.node(n).inputs)
        if (t >= 0 && count(g_[t].dim) != count(scores_) && !g_[t].has_value && !broadcasts(t, n))
          return false;
    if (w_.dbias >= 0) {
      const Dims& dim = g_[w_.dbias].dim;
      for (int i = 0; i < 4; ++i)
        if (dim[i] != scores_[i] && dim[i] != 1) return false;
    }
    return true;
  }

  void make() {
    const TensorId q = over(w_.q), k = over(w_.k), v = over(w_.v), d_o = over(w_.d_o);
    const bool totals = w_.stats < 0 && may_be_large();
    const TensorId stats = row(w_.stats >= 0 ? w_.stats : totals ? w_.shift : made_stats());
    total_ = totals ? row(w_.total) : kNoTensor;
    TensorId delta = w_.delta >= 0 ? row(w_.delta) : kNoTensor;
    if (delta < 0) delta = made_delta(q, k, v, d_o, stats);
    begin(q, k, v, d_o, stats, delta);
    const auto [p, dp] = weights(q, k, v, d_o, stats);
    auto& outputs = region_.outputs;
    if (w_.dv.y >= 0) outputs[2] = result(w_.dv, transposed(p), d_o, w_.v.group, 1);
    const TensorId centred = inside(M::sub, "_centred", {dp, delta}, scores_);
    TensorId ds = inside(M::mul, "_ds", {p, centred}, scores_, g_.type(w_.ds));
    if (w_.dbias >= 0) outputs[3] = bias_gradient(ds);
    ds = of_sums(ds);
    if (w_.dq.y >= 0) outputs[0] = result(w_.dq, ds, k, 1, w_.scale);
    if (w_.dk.y >= 0) outputs[1] = result(w_.dk, transposed(ds), q, w_.k.group, w_.scale);
    finish();
  }

 private:
  static PointwiseAttributes mode(M m) {
    PointwiseAttributes a;
    a.mode = m;
    return a;
  }
  static ReductionAttributes sum() {
    ReductionAttributes a;
    a.mode = ReductionMode::add;
    return a;
  }
  TensorId number(double value) { return g_.scalar(value, DataType::f32); }

  // ---- in front of the region

  TensorId shaped(TensorId t, const Dims& dim) {
    if (g_[t].dim == dim) return t;
    return views_.view(t, {OpKind::reshape, ReshapeAttributes{dim}, g_[t].dim, dim}, like_);
  }
  static TransposeAttributes swap() {
    TransposeAttributes a;
    a.permutation = {0, 1, 3, 2};
    return a;
  }
  static Dims swapped(Dims dim) {
    std::swap(dim[2], dim[3]);
    return dim;
  }
  // An operand as [entries, heads, rows, columns].
  TensorId over(const FactorOf& f) {
    const Dims& d = g_[f.t].dim;
    const TensorId t =
        shaped(f.t, {w_.batch, w_.heads / f.group, d[d.size() - 2], d[d.size() - 1]});
    if (!f.swapped) return t;
    return views_.view(t, {OpKind::transpose, swap(), g_[t].dim, swapped(g_[t].dim)}, like_);
  }
  TensorId row(TensorId t) {
    if (g_.type(t) != DataType::f32) {
      const TensorId wide = g_.tensor_like(t, g_[t].dim, DataType::f32, "_f32");
      g_.make(wide, OpKind::pointwise, mode(M::identity), {t}, like_);
      t = wide;
    }
    return shaped(t, rows_);
  }
  // A tensor that a node of this mode makes of `t`, and of `beside` where that is one.
  TensorId made_of(TensorId t, M m, TensorId beside = kNoTensor) const {
    if (t < 0) return kNoTensor;
    for (NodeId n : g_.readers(t)) {
      const TensorId y = g_.node(n).outputs[0];
      const auto& inputs = g_.node(n).inputs;
      if (mode_of(g_, y) == m && !g_.in_region(n) && g_.type(y) == DataType::f32 &&
          (beside < 0 || std::find(inputs.begin(), inputs.end(), beside) != inputs.end()))
        return y;
    }
    return kNoTensor;
  }
  // Whether scores may be so large that the logarithm of a sum of exponentials is lost beside them:
  // masks are in memory, or large numbers.
  bool may_be_large() const {
    return std::any_of(w_.between.begin(), w_.between.end(), [&](NodeId n) {
      const auto mode = mode_of(g_, g_.node(n).outputs[0]);
      return std::ranges::any_of(g_.node(n).inputs, [&](TensorId t) {
        if (t < 0) return false;
        if (g_[t].has_value) return is_large_score(g_[t].value);
        return (mode == M::add || mode == M::sub) && !is_score(t);
      });
    });
  }
  // Whether it is the sum of the product or made of it on the way to the score.
  bool is_score(TensorId t) const {
    return t == w_.sums || std::any_of(w_.between.begin(), w_.between.end(),
                                       [&](NodeId n) { return g_.node(n).outputs[0] == t; });
  }
  // Whether a softmax stores Stats that are not shift + log(total) where a row sees nothing.
  bool guards_stats() const {
    const TensorId stats = made_of(made_of(w_.total, M::log), M::add, w_.shift);
    return made_of(stats, M::binary_select, w_.shift) >= 0;
  }
  // shift + log(total), which forward stores beside its result; the graph's own where it has one.
  TensorId made_stats() {
    const Dims dim = g_[w_.total].dim;
    TensorId logarithm = made_of(w_.total, M::log);
    if (logarithm < 0) {
      logarithm = g_.tensor_like(w_.total, dim, DataType::f32, "_log");
      g_.make(logarithm, OpKind::pointwise, mode(M::log), {w_.total}, g_.producer(w_.total));
    }
    TensorId stats = made_of(logarithm, M::add, w_.shift);
    if (stats < 0) {
      stats = g_.tensor_like(w_.total, dim, DataType::f32, "_stats");
      g_.make(stats, OpKind::pointwise, mode(M::add), {w_.shift, logarithm}, g_.producer(w_.total));
    }
    return stats;
  }
  // The sum of P dP along rows, of the numbers that they are rounded to: a region of its own whose
  // one result is the gradient of a bias with one element a row, of P (dP - 0). Where nothing else
  // needs O, forward makes it for Stats, and the region sums P (dP - delta), of the sum of dO O as
  // delta, which is as much less.
  TensorId made_delta(TensorId q, TensorId k, TensorId v, TensorId d_o, TensorId stats) {
    const TensorId about = w_.stats >= 0 || w_.has_o ? kNoTensor : delta_of_o(d_o);
    begin(q, k, v, d_o, stats, about);
    const auto [p, dp] = weights(q, k, v, d_o, stats);
    const TensorId centred = about < 0 ? dp : inside(M::sub, "_centred", {dp, about}, scores_);
    const TensorId terms = inside(M::mul, "_dp", {p, centred}, scores_);
    const TensorId sums = g_.tensor_like(w_.p, rows_, DataType::f32, "_delta");
    own(sums, OpKind::reduction, sum(), {terms}, like_);
    region_.outputs[3] = sums;
    finish();
    if (about < 0) return sums;
    const TensorId delta = g_.tensor_like(w_.p, rows_, DataType::f32, "_delta");
    g_.make(delta, OpKind::pointwise, mode(M::add), {about, sums}, like_);
    return delta;
  }
  TensorId delta_of_o(TensorId d_o) {
    // In the dims of the user's products.
    const Node of_dp = g_.node(g_.producer(w_.dp));
    const TensorId values = of_dp.inputs[1];
    Dims dim = g_[values].dim, order;
    for (int i = 0; i < dim.size(); ++i) order.push_back(i);
    std::swap(dim[dim.size() - 1], dim[dim.size() - 2]);
    std::swap(order[dim.size() - 1], order[dim.size() - 2]);
    const View turned{OpKind::transpose, TransposeAttributes{order}, g_[values].dim, dim};
    const TensorId p = shaped(w_.p, g_[w_.dp].dim);
    Dims of_o = g_[w_.dp].dim;
    of_o.back() = dim.back();
    const TensorId product = g_.tensor_like(w_.p, of_o, DataType::f32, "_o");
    g_.make(product, OpKind::matmul, of_dp.attributes, {p, views_.view(values, turned, like_)},
            like_);
    const TensorId o = shaped(product, g_[d_o].dim);
    const TensorId terms = g_.tensor_like(o, g_[d_o].dim, DataType::f32, "_do"),
                   delta = g_.tensor_like(o, rows_, DataType::f32, "_delta");
    g_.make(terms, OpKind::pointwise, mode(M::mul), {d_o, o}, like_);
    g_.make(delta, OpKind::reduction, sum(), {terms}, like_);
    return delta;
  }

  // ---- the region

  void begin(TensorId q, TensorId k, TensorId v, TensorId d_o, TensorId stats, TensorId delta) {
    region_ = Region{};
    region_.op = OpKind::sdpa_backward;
    region_.written_out = true;
    region_.attributes.attn_scale = w_.scale;
    region_.outputs.assign(info(OpKind::sdpa_backward).outputs.size(), kNoTensor);
    region_.inputs.assign(info(OpKind::sdpa_backward).inputs.size(), kNoTensor);
    const TensorId ports[] = {q, k, v, delta, d_o, stats};
    std::copy(std::begin(ports), std::end(ports), region_.inputs.begin());
    of_.clear();
  }
  // P and dP.
  std::pair<TensorId, TensorId> weights(TensorId q, TensorId k, TensorId v, TensorId d_o,
                                        TensorId stats) {
    const TensorId score = made_score(q, k);
    const TensorId shifted = inside(M::sub, "_shifted", {score, stats}, scores_);
    TensorId p = inside(M::exp, "_exp", {shifted}, scores_);
    if (total_ >= 0) p = inside(M::div, "_weight", {p, total_}, scores_);
    return {p, product(d_o, transposed(v), w_.rounded_dp)};
  }

  void own(TensorId y, OpKind op, Attributes attributes, std::vector<TensorId> inputs,
           NodeId like) {
    g_.make(y, op, std::move(attributes), std::move(inputs), like);
    region_.nodes.push_back(g_.producer(y));
  }
  TensorId inside(M m, const char* suffix, std::vector<TensorId> inputs, const Dims& dim,
                  DataType type = DataType::f32) {
    const TensorId y = g_.tensor_like(w_.p, dim, type, suffix);
    own(y, OpKind::pointwise, mode(m), std::move(inputs), like_);
    return y;
  }
  TensorId transposed(TensorId t) {
    const TensorId y = g_.tensor_like(t, swapped(g_[t].dim), g_.type(t), suffix::transposed);
    own(y, OpKind::transpose, swap(), {t}, like_);
    return y;
  }
  TensorId product(TensorId a, TensorId b, DataType type = DataType::f32) {
    const Dims &left = g_[a].dim, &right = g_[b].dim;
    const TensorId y =
        g_.tensor_like(w_.p, {left[0], left[1], left[2], right[3]}, type, "_product");
    own(y, OpKind::matmul, MatmulAttributes{.of_attention = true}, {a, b}, like_);
    return y;
  }
  // Summed over the heads that share one of K and V.
  TensorId grouped(TensorId t, std::int64_t group) {
    const Dims d = g_[t].dim;
    const auto made = [&](const Dims& dim, OpKind op, Attributes attributes, TensorId x) {
      const TensorId y = g_.tensor_like(t, dim, DataType::f32, "_grouped");
      own(y, op, std::move(attributes), {x}, like_);
      return y;
    };
    const Dims split{d[0], d[1] / group, group, d[2], d[3]}, one{d[0], d[1] / group, 1, d[2], d[3]},
        joined{d[0], d[1] / group, d[2], d[3]};
    const TensorId by_group = made(split, OpKind::reshape, ReshapeAttributes{split}, t);
    const TensorId summed = made(one, OpKind::reduction, sum(), by_group);
    return made(joined, OpKind::reshape, ReshapeAttributes{joined}, summed);
  }
  // The product of a and b times `scale`: the user's tensor, or one that it shows.
  TensorId result(const GradientAt& at, TensorId a, TensorId b, std::int64_t group, double scale) {
    const DataType type = g_.type(at.y);
    Dims dim = g_[b].dim;
    dim[2] = g_[a].dim[2];
    dim[1] = w_.heads / group;
    const bool itself = g_[at.y].dim == dim && !at.swapped;
    const TensorId y = itself ? at.y : g_.tensor_like(at.y, dim, type, "_gradient");
    if (group == 1 && scale == 1) {
      own(y, OpKind::matmul, MatmulAttributes{.of_attention = true}, {a, b}, like_);
    } else {
      TensorId sums = product(a, b);
      if (group > 1) sums = grouped(sums, group);
      std::vector<TensorId> inputs{sums};
      if (scale != 1) inputs.push_back(number(scale));
      own(y, OpKind::pointwise, mode(scale != 1 ? M::mul : M::identity), std::move(inputs), like_);
    }
    if (itself) return y;
    TensorId shown = y;
    if (at.swapped) {
      shown = g_.tensor_like(y, swapped(dim), type, suffix::transposed);
      g_.make(shown, OpKind::transpose, swap(), {y}, like_);
    }
    g_.make(at.y, OpKind::reshape, ReshapeAttributes{g_[at.y].dim}, {shown}, like_);
    return y;
  }
  TensorId bias_gradient(TensorId ds) {
    if (g_[w_.dbias].dim == scores_)
      own(w_.dbias, OpKind::pointwise, mode(M::identity), {ds}, like_);
    else
      own(w_.dbias, OpKind::reduction, sum(), {ds}, like_);
    return w_.dbias;
  }

  // The user's nodes between the product and the score once more, and those from dS to what the
  // products of dQ and dK multiply.
  TensorId made_score(TensorId q, TensorId k) {
    of_[w_.sums] = product(q, transposed(k), g_.type(w_.sums));
    for (NodeId id : w_.between) once_more(id);
    return of_.at(w_.score);
  }
  TensorId of_sums(TensorId ds) {
    of_[w_.ds] = ds;
    // Conversions and views that lose nothing stand between.
    TensorId at = ds;
    for (NodeId id : w_.back) {
      for (TensorId t : g_.node(id).inputs)
        if (t >= 0 && !g_[t].has_value && !of_.contains(t) && is_behind(t)) of_[t] = at;
      once_more(id);
      at = of_.at(g_.node(id).outputs[0]);
    }
    return at;
  }
  bool is_behind(TensorId t) const {
    for (int i = 0; i < kMostChained && t >= 0 && g_.producer(t) >= 0; ++i) {
      if (t == w_.ds || std::any_of(w_.back.begin(), w_.back.end(),
                                    [&](NodeId n) { return g_.node(n).outputs[0] == t; }))
        return true;
      const auto& inputs = g_.node(g_.producer(t)).inputs;
      t = inputs[g_[inputs[0]].has_value && inputs.size() > 1 ? 1 : 0];
    }
    return false;
  }
  void once_more(NodeId id) {
    const Node n = g_.node(id);
    const TensorId y = n.outputs[0];
    if (n.op == OpKind::pointwise) {
      again(y);
      return;
    }
    const TensorId x = of_.at(n.inputs[0]);
    if (g_.type(x) == g_.type(y)) {
      of_[y] = x;
      return;
    }
    const TensorId rounded = g_.tensor_like(y, scores_, g_.type(y), suffix::again);
    own(rounded, OpKind::pointwise, mode(M::identity), {x}, like_);
    of_[y] = rounded;
  }

  // Whether a tensor that a node between reads broadcasts to the region's scores, or is shown so.
  bool broadcasts(TensorId t, NodeId reader) const {
    const Dims &dim = g_[t].dim, &of = g_[g_.node(reader).outputs[0]].dim;
    if (of == scores_ || dim.size() <= 2) return dim.size() <= 4;
    const std::int64_t leading = count(dim) / (dim[dim.size() - 1] * dim[dim.size() - 2]);
    return leading == 1 || leading == w_.batch * w_.heads;
  }
  TensorId beside(TensorId t, const Dims& of) {
    const Dims& dim = g_[t].dim;
    if (g_[t].has_value || of == scores_ || dim.size() <= 2) return t;
    const std::int64_t rows = dim[dim.size() - 2], columns = dim.back();
    if (count(dim) == rows * columns) return shaped(t, {1, 1, rows, columns});
    return shaped(t, {w_.batch, w_.heads, rows, columns});
  }
  // A tensor of scores, and masks that are made of far less than they are, computed in the region.
  TensorId again(TensorId t) {
    if (const auto known = of_.find(t); known != of_.end()) return known->second;
    const NodeId id = g_.producer(t);
    const Node n = g_.node(id);
    Dims dim = g_[t].dim;
    if (count(dim) == count(scores_)) dim = scores_;
    PointwiseAttributes a = std::get<PointwiseAttributes>(n.attributes);
    std::vector<TensorId> inputs;
    for (TensorId x : n.inputs)
      inputs.push_back(x < 0                                      ? x
                       : a.mode == M::gen_index && dim == scores_ ? of_.at(w_.sums)
                                                                  : operand(x, g_[t].dim));
    if (a.axis && *a.axis >= 0) a.axis = *a.axis + dim.size() - g_[t].dim.size();
    const TensorId y = g_.tensor_like(t, dim, g_.type(t), suffix::again);
    own(y, OpKind::pointwise, a, std::move(inputs), id);
    return of_[t] = y;
  }
  TensorId operand(TensorId x, const Dims& of) {
    if (const auto known = of_.find(x); known != of_.end()) return known->second;
    return is_mask(x) ? again(x) : beside(x, of);
  }
  bool is_mask(TensorId x) const {
    constexpr std::int64_t kExpands = 8;
    const Node* const n = g_.made_by(x, OpKind::pointwise);
    if (!n || g_[x].output || g_.in_region(g_.producer(x))) return false;
    // In the dims of the region's scores, as they are.
    if (g_[x].dim.size() > 2 && count(g_[x].dim) != count(scores_) && g_[w_.p].dim != scores_)
      return false;
    std::int64_t read = 0;
    for (TensorId t : n->inputs)
      if (t >= 0 && !g_[t].has_value && !of_.contains(t)) read += count(g_[t].dim);
    const bool indices = mode_of(g_, x) == M::gen_index;
    return indices || count(g_[x].dim) == count(scores_) || count(g_[x].dim) >= kExpands * read;
  }

  void finish() {
    auto& inputs = region_.inputs;
    for (NodeId id : region_.nodes)
      for (TensorId t : g_.node(id).inputs) {
        const NodeId p = t < 0 ? -1 : g_.producer(t);
        if (t >= 0 && !g_[t].has_value &&
            std::find(region_.nodes.begin(), region_.nodes.end(), p) == region_.nodes.end() &&
            std::find(inputs.begin(), inputs.end(), t) == inputs.end())
          inputs.push_back(t);
      }
    g_.add_region(region_);
  }

  MovedViews& views_;
  Rewriter& g_;
  WrittenGradients w_;
  NodeId like_;
  Dims scores_, rows_;
  TensorId total_ = kNoTensor;  // with the largest score in place of Stats
  Region region_;
  std::unordered_map<TensorId, TensorId> of_;  // by the user's tensor: the region's
};

bool attention_gradients(MovedViews& views, NodeId id) {
  if (views.g.in_region(id)) return false;
  auto found = written_gradients(views.g, id);
  if (!found) return false;
  GradientRegion region(views, *std::move(found), id);
  if (!region.fits()) return false;
  region.make();
  return true;
}

}  // namespace

extern constinit const Pass attention_gradients_pass{
    "attention_gradients",
    "Gradients of attention that are written out are those of an sdpa_backward node, whose "
    "weights are computed again from Stats; the sum of P dP along a row is that of dO O.",
    at_pointwise, attention_gradients};

}  // namespace sinter
