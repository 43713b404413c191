#include "planner/rewrite/written_gradients.hpp"

#include <algorithm>
#include <cmath>

#include "plan/large_scores.hpp"
#include "planner/rewrite/gradient_steps.hpp"

namespace sinter {

using M = PointwiseMode;

namespace {

class Search : GradientSteps {
 public:
  using GradientSteps::GradientSteps;

  std::optional<WrittenGradients> run(NodeId of_ds) {
    TensorId y = g_.node(of_ds).outputs[0];
    if (!in_f32(y) || !softmax_gradient(y)) return {};
    // A conversion that all read is dS's.
    if (g_.is_virtual(y) && g_.type(y) == DataType::f32 && g_.readers(y).size() == 1)
      if (const Node& n = g_.node(g_.readers(y)[0]); converts(n)) y = n.outputs[0];
    r_.ds = y;
    if (g_.type(y) != DataType::f32 && g_.type(y) != g_.options().io) return {};
    if (!score() || !leading_dims() || !uses_of_ds(y, {}) || !uses_of_p(r_.p, false, 0)) return {};
    if (products_.empty() || !scales() || r_.k.group != r_.v.group) return {};
    for (const Product& p : products_)
      if (!take(p)) return {};
    return r_;
  }

 private:
  // ---- dS

  bool softmax_gradient(TensorId y) {
    if (made(y, M::mul))  // P (dP - r)
      for (std::size_t side : {0u, 1u}) {
        const TensorId centred = bare(input(y, 1 - side));
        if (made(centred, M::sub) && in_f32(centred) &&
            gradient_of(input(y, side), input(centred, 0), input(centred, 1), kNoTensor, false))
          return true;
      }
    const bool adds = made(y, M::add);
    if (!adds && !made(y, M::sub)) return false;
    for (std::size_t side : {0u, 1u}) {  // P dP - P r, or P dP + P (-r)
      if (side == 1 && !adds) break;
      const TensorId product = bare(input(y, side));
      TensorId other = bare(input(y, 1 - side));
      const bool negated = adds && made(other, M::neg);
      if (negated) other = bare(input(other, 0));
      if (!made(product, M::mul) || !made(other, M::mul)) continue;
      for (std::size_t of_p : {0u, 1u})
        for (std::size_t of_row : {0u, 1u})
          if (bare(input(product, of_p)) == bare(input(other, 1 - of_row)) &&
              gradient_of(input(product, of_p), input(product, 1 - of_p), input(other, of_row),
                          product, adds && !negated))
            return true;
    }
    return false;
  }
  // `product`: P dP, where the gradient is written with it; none where it may be any such product.
  bool gradient_of(TensorId p, TensorId dp, TensorId r, TensorId product, bool negated) {
    // Rounded weights have to be those of the softmax to the bit: exp(score - Stats) lies too far
    // off.
    r_.p = bare(p), r_.dp = bare(dp, r_.rounded_dp);
    const std::int64_t columns = g_[r_.p].dim.size() > 0 ? g_[r_.p].dim.back() : 0;
    const Node* const of_dp = g_.made_by(r_.dp, OpKind::matmul);
    if (columns <= 1 || !of_dp || !in_f32(r_.dp) || !softmax(r_.p)) return false;
    if (g_.type(r_.p) != DataType::f32) return false;
    if (r_.rounded_dp != DataType::f32 && r_.rounded_dp != g_.options().io) return false;
    r = row(r, columns);
    if (negated) {
      if (!made(r, M::neg)) return false;
      r = row(input(r, 0), columns);
    }
    if (!is_row(r, r_.p)) return false;
    const TensorId terms = summed(r, ReductionMode::add);
    r_.delta = r;
    if (terms >= 0) {
      const TensorId t = bare(terms);
      if ((product >= 0 && t == product) || is_product(t)) r_.delta = kNoTensor;
    }
    r_.d_o = factor_of(*of_dp, 0, false);
    r_.v = factor_of(*of_dp, 1, true);
    return r_.d_o.t >= 0 && r_.v.t >= 0;
  }
  // Whether `t` is P dP, of the same numbers as dS is made of.
  bool is_product(TensorId t) const {
    if (!made(t, M::mul) || !in_f32(t)) return false;
    for (std::size_t side : {0u, 1u}) {
      DataType of_dp;
      const TensorId p = bare(input(t, side)), dp = bare(input(t, 1 - side), of_dp);
      if (p == r_.p && dp == r_.dp && of_dp == r_.rounded_dp) return true;
    }
    return false;
  }

  // P is exp(x - r) of any row r, or such exponentials divided by a row.
  bool softmax(TensorId p) {
    r_.stats = r_.shift = r_.total = kNoTensor;
    if (!in_f32(p)) return false;
    const auto exponential = [&](TensorId e, TensorId& by) {
      if (!made(e, M::exp) || !in_f32(e) || g_.type(e) != DataType::f32) return false;
      const TensorId shifted = input(e, 0);
      if (!made(shifted, M::sub) || !in_f32(shifted) || g_.type(shifted) != DataType::f32)
        return false;
      r_.score = input(shifted, 0);
      by = row(input(shifted, 1), g_[p].dim.back());
      return g_[r_.score].dim == g_[p].dim && is_row(by, p);
    };
    if (exponential(p, r_.stats)) return true;
    for (std::size_t side : {0u, 1u}) {
      if (side == 1 && !made(p, M::mul)) break;
      if (!made(p, M::div) && !made(p, M::mul)) return false;
      const TensorId e = input(p, side);
      TensorId by = row(input(p, 1 - side), g_[p].dim.back());
      if (made(p, M::mul)) {
        if (!made(by, M::reciprocal)) continue;
        by = row(input(by, 0), g_[p].dim.back());
      }
      if (!exponential(e, r_.shift) || !is_row(by, p) || g_.type(by) != DataType::f32) continue;
      // Without what guards them against nothing.
      r_.total = made(by, M::binary_select) ? input(by, 1) : by;
      if (summed(r_.total, ReductionMode::add) == e) return true;
    }
    return false;
  }

  // ---- the score

  bool score() {
    if (!chain(r_.score, 0)) return false;
    const Node& first = g_.node(g_.producer(r_.sums));
    r_.q = factor_of(first, 0, false);
    r_.k = factor_of(first, 1, true);
    return r_.q.t >= 0 && r_.k.t >= 0;
  }
  // A score whose weight is nothing beside any that is seen.
  bool hides(TensorId t) const {
    return t >= 0 && g_[t].has_value && !g_[t].bound_value && g_[t].value <= kMaskNumber;
  }
  // From `t` up to the product that it is a linear function of, where it is seen.
  bool chain(TensorId t, int steps) {
    const NodeId p = g_.producer(t);
    constexpr int kMost = 512;
    if (p < 0 || steps > kMostSteps || ++looked_at_ > kMost || !in_f32(t) || g_[t].output)
      return false;
    const Node& n = g_.node(p);
    if (n.op == OpKind::matmul) {
      r_.sums = t;
      return true;
    }
    const auto through = [&](std::size_t port) {
      const TensorId x = n.inputs[port];
      if (x < 0 || g_[x].has_value || count(g_[x].dim) != count(g_[t].dim)) return false;
      if (!chain(x, steps + 1)) return false;
      r_.between.push_back(p);
      return true;
    };
    if (reshapes(n)) return through(0);
    const auto mode = mode_of(g_, t);
    if (!mode) return false;
    switch (*mode) {
      case M::identity:
        return through(0);
      case M::add:
        return through(0) || through(1);
      case M::sub:
        return through(0);
      case M::binary_select:
        for (std::size_t side : {0u, 1u}) {
          if (!hides(n.inputs[1 - side]) || !through(side)) continue;
          conditions_.emplace_back(n.inputs[2], side);
          return true;
        }
        return false;
      case M::mul:
        return (number(n.inputs[1]) && through(0)) || (number(n.inputs[0]) && through(1));
      case M::div:
        return number(n.inputs[1]) && through(0);
      default:
        return false;
    }
  }

  // Entries and heads, as the weights or an operand have them.
  bool leading_dims() {
    const Dims& d = g_[r_.p].dim;
    const int rank = d.size();
    if (rank < 2 || rank > 5) return false;
    const std::int64_t all = count(d) / std::max<std::int64_t>(1, d.back() * d[rank - 2]);
    if (all <= 0 || d[rank - 2] <= 0) return false;
    r_.batch = rank >= 4 ? d[0] : 1;
    for (const FactorOf& f : {r_.q, r_.d_o, r_.k, r_.v}) {
      const Dims& of = g_[f.t].dim;
      if (rank < 4 && r_.batch == 1 && of.size() == 4 && f.group == 1 && of[0] * of[1] == all)
        r_.batch = of[0];
    }
    r_.heads = all / r_.batch;
    for (const FactorOf& f : {r_.q, r_.d_o, r_.k, r_.v}) {
      const Dims& of = g_[f.t].dim;
      const std::int64_t matrix = of[of.size() - 1] * of[of.size() - 2];
      if (matrix <= 0 || count(of) / matrix * f.group != all || r_.heads % f.group != 0)
        return false;
    }
    return true;
  }

  // ---- what is made of dS and P

  // From dS, or from P, to a product.
  struct Path {
    std::vector<NodeId> nodes;  // that change numbers
    double times = 1;           // by these
    bool rounded = false;       // by a node before the last one
    bool exact = true;          // apart from a last rounding
    bool swapped = false;
    int steps = 0;
  };
  struct Product {
    NodeId node;
    bool right;  // what is multiplied is the right operand
    Path path;
  };

  static bool about(double a, double b) { return std::fabs(a - b) <= 1e-6 * std::fabs(b); }

  // Where a product's result, or what is made of it alone, is a gradient: times `factor`, and
  // summed over the heads that share its rows. Only a last step rounds.
  GradientAt gradient(TensorId t, bool swapped, double factor, std::int64_t group) const {
    GradientAt best;
    bool summed_up = group == 1;
    for (int i = 0; i < kMostSteps; ++i) {
      if (about(factor, 1) && summed_up) best = {t, swapped};
      if (!g_.is_virtual(t) || g_.readers(t).size() != 1) break;
      const NodeId reader = g_.readers(t)[0];
      const Node& n = g_.node(reader);
      const bool was_rounded = g_.type(t) != DataType::f32;
      if (g_.in_region(reader) || (was_rounded && g_.type(n.outputs[0]) != g_.type(t))) break;
      if (transposes(n)) {
        swapped = !swapped;
      } else if (was_rounded) {
        if (!converts(n) && !reshapes(n)) break;
      } else if (const auto by = scaling(n, t); by && !about(factor, 1)) {
        factor /= *by;
      } else if (!summed_up && sums_groups(n, t, group)) {
        summed_up = true;
      } else if (!converts(n) && !reshapes(n)) {
        break;
      }
      t = n.outputs[0];
    }
    return best;
  }
  // What the node multiplies `t` by.
  std::optional<double> scaling(const Node& n, TensorId t) const {
    const auto mode = mode_of(g_, n.outputs[0]);
    if (!mode || !computes_f32(n) || !is_real(n.outputs[0]) || g_[n.outputs[0]].dim != g_[t].dim)
      return {};
    if (*mode == M::div) {
      const auto by = n.inputs[0] == t ? number(n.inputs[1]) : std::nullopt;
      return by && *by != 0 ? std::optional(1 / *by) : std::nullopt;
    }
    if (*mode != M::mul) return {};
    const auto by = number(n.inputs[n.inputs[0] == t ? 1 : 0]);
    return by && *by != 0 ? by : std::nullopt;
  }
  bool sums_groups(const Node& n, TensorId t, std::int64_t group) const {
    const Dims &from = g_[t].dim, &to = g_[n.outputs[0]].dim;
    return n.op == OpKind::reduction && computes_f32(n) &&
           std::get<ReductionAttributes>(n.attributes).mode == ReductionMode::add &&
           from.size() >= 3 && from[from.size() - 3] == group && repeats(to, from) == group;
  }
  // Stored in f32, or computed in it in a graph of other than 16 bits, it is no operand that a
  // product may round (GRAPH_JSON.md).
  bool stays_f32(TensorId t) const {
    return g_.type(t) == DataType::f32 && (g_[t].output || info(g_.options().io).bytes != 2);
  }
  // Whether the node is select(seen, t, 0) of a condition that masks the scores.
  bool masks_again(const Node& n, TensorId t) const {
    if (mode_of(g_, n.outputs[0]) != M::binary_select || !computes_f32(n)) return false;
    const std::size_t side = n.inputs[0] == t ? 0 : 1;
    const auto other = number(n.inputs[1 - side]);
    return n.inputs[side] == t && other && *other == 0 &&
           std::find(conditions_.begin(), conditions_.end(), std::pair(n.inputs[2], side)) !=
               conditions_.end();
  }
  bool is_conversion(NodeId id) const {
    const Node& n = g_.node(id);
    return transposes(n) || reshapes(n) || converts(n);
  }

  bool uses_of_ds(TensorId t, const Path& path) {
    if (path.steps > kMostSteps) return false;
    if (g_[t].output) {
      // Stored as it is rounded last.
      Path stored = path;
      while (!stored.nodes.empty() && is_conversion(stored.nodes.back())) stored.nodes.pop_back();
      if (!takes_bias(t, stored)) return false;
    }
    for (NodeId id : g_.readers(t)) {
      const Node& n = g_.node(id);
      const TensorId y = n.outputs[0];
      if (g_.in_region(id)) return false;
      Path next = path;
      ++next.steps;
      if (n.op == OpKind::matmul) {
        if (n.inputs[0] == n.inputs[1] || stays_f32(t)) return false;
        // Products round their operands so themselves.
        while (!next.nodes.empty() && is_conversion(next.nodes.back())) next.nodes.pop_back();
        products_.push_back({id, n.inputs[1] == t, next});
        continue;
      }
      if (n.op == OpKind::reduction) {
        if (g_[t].output) continue;
        if (std::get<ReductionAttributes>(n.attributes).mode != ReductionMode::add ||
            !computes_f32(n) || !takes_bias(y, path))
          return false;
        continue;
      }
      if (transposes(n) || reshapes(n) || converts(n)) {
        next.swapped = path.swapped != transposes(n);
        if (!holds(g_.type(y), g_.type(t))) {
          if (g_.type(y) != g_.options().io) return false;
          next.nodes.push_back(id);
          next.rounded = true;
        }
      } else if (masks_again(n, t) && !path.swapped) {
        next.nodes.push_back(id);
        next.exact = next.exact && !path.rounded;
        next.rounded = path.rounded || g_.type(y) != DataType::f32;
      } else if (const auto by = scaling(n, t)) {
        next.nodes.push_back(id);
        next.times *= *by;
        next.exact = next.exact && !path.rounded;
        next.rounded = path.rounded || g_.type(y) != DataType::f32;
      } else if (g_[t].output) {
        continue;
      } else {
        return false;
      }
      if (!uses_of_ds(y, next)) return false;
    }
    return true;
  }
  bool takes_bias(TensorId y, const Path& path) {
    if (r_.dbias >= 0 || path.swapped || !path.nodes.empty() || g_[y].dim.size() != 4) return false;
    r_.dbias = y;
    return true;
  }

  // A number in front of the scores alone, of f32, is the kernel's scale; else scores and gradients
  // are computed as they are written.
  bool scales() {
    const Path& path = products_.front().path;
    for (const Product& p : products_)
      if (p.path.nodes != path.nodes) return false;
    auto front = r_.between.begin();
    while (front != r_.between.end() && reshapes(g_.node(*front))) ++front;
    const auto is_f32 = [&](NodeId n) { return g_.type(g_.node(n).outputs[0]) == DataType::f32; };
    const auto scales_again = [&](NodeId n) {
      const auto mode = mode_of(g_, g_.node(n).outputs[0]);
      return mode == M::mul || mode == M::div;
    };
    const bool multiplies = front != r_.between.end() && g_.type(r_.sums) == DataType::f32 &&
                            std::all_of(r_.between.begin(), front + 1, is_f32) &&
                            mode_of(g_, g_.node(*front).outputs[0]) == M::mul &&
                            std::none_of(front + 1, r_.between.end(), scales_again);
    const auto by = multiplies ? scaling(g_.node(*front), g_.node(*front).inputs[of_sums(*front)])
                               : std::nullopt;
    if (by && *by > 0 && path.exact && (about(path.times, *by) || about(path.times, 1))) {
      // The factor may stand behind the products, too.
      r_.scale = *by;
      behind_ = about(path.times, 1) ? *by : 1;
      for (NodeId n : path.nodes)
        if (!scales_again(n)) r_.back.push_back(n);
      return true;
    }
    r_.back = path.nodes;
    return true;
  }
  // The operand of a multiplication by a number.
  std::size_t of_sums(NodeId n) const { return number(g_.node(n).inputs[1]) ? 0 : 1; }
  bool take(const Product& p) {
    const Node& n = g_.node(p.node);
    const FactorOf other = factor_of(n, p.right ? 0 : 1, p.right);
    // [m, n] times k, or [n, m] times q: as it is, or both sides transposed.
    const bool by_keys = p.path.swapped == p.right;
    GradientAt& to = by_keys ? r_.dq : r_.dk;
    if (to.y >= 0 || !same(other, by_keys ? r_.k : r_.q)) return false;
    to = gradient(n.outputs[0], p.right, behind_, by_keys ? 1 : r_.k.group);
    return to.y >= 0;
  }
  // dV, and O where it is.
  bool uses_of_p(TensorId t, bool swapped, int steps) {
    if (steps > kMostSteps) return false;
    if (g_.type(t) != DataType::f32 && g_.type(t) != g_.options().io) return true;
    for (NodeId id : g_.readers(t)) {
      const Node& n = g_.node(id);
      const TensorId y = n.outputs[0];
      if (n.op == OpKind::matmul && n.inputs[0] != n.inputs[1]) {
        const bool right = n.inputs[1] == t;
        const FactorOf other = factor_of(n, right ? 0 : 1, right);
        if (swapped == right) {
          r_.has_o = r_.has_o || same(other, r_.v);
          continue;
        }
        if (!same(other, r_.d_o) || stays_f32(t)) continue;
        const GradientAt dv = gradient(y, right, 1, r_.v.group);
        if (r_.dv.y >= 0 || dv.y < 0) return false;
        r_.dv = dv;
      } else if (transposes(n)) {
        if (!uses_of_p(y, !swapped, steps + 1)) return false;
      } else if (converts(n) || reshapes(n)) {
        if (!uses_of_p(y, swapped, steps + 1)) return false;
      }
    }
    return true;
  }

  WrittenGradients r_;
  int looked_at_ = 0;  // while the score's product is looked for
  std::vector<std::pair<TensorId, std::size_t>> conditions_;  // with the side that is seen
  std::vector<Product> products_;
  double behind_ = 1;  // the factor behind the products of dQ and dK
};

}  // namespace

std::optional<WrittenGradients> written_gradients(const Rewriter& g, NodeId of_ds) {
  for (const bool shares : {true, false})
    if (auto found = Search(g, shares).run(of_ds)) return found;
  return {};
}

}  // namespace sinter
