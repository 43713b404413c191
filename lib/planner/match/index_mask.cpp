#include "planner/match/index_mask.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "lower/expansion.hpp"
#include "plan/condition_range.hpp"
#include "plan/large_scores.hpp"

namespace sinter {
namespace {

using M = PointwiseMode;

const PointwiseAttributes* pointwise(const FusionState& state, TensorId t) {
  const NodeId p = t >= 0 ? state.producer(t) : -1;
  return p >= 0 ? std::get_if<PointwiseAttributes>(&state.node(p).attributes) : nullptr;
}
TensorId input(const FusionState& state, TensorId t, std::size_t i) {
  return state.node(state.producer(t)).inputs[i];
}

// row * (index of the row) + column * (index of the column) + constant.
struct Linear {
  int row = 0, column = 0;
  double constant = 0;
};

// All are integers that f32 holds, so that no sum is rounded.
constexpr double kExact = 1 << 22;
bool exact(DataType t) {
  return t == DataType::f32 || t == DataType::f64 || t == DataType::i32 || t == DataType::i64;
}

std::optional<Linear> linear(const FusionState& state, TensorId t) {
  const Graph& g = state.graph();
  if (t < 0 || !exact(g.type(t))) return {};
  if (g[t].has_value) {
    const double value = g[t].value;
    if (std::floor(value) != value || std::fabs(value) > kExact) return {};
    return Linear{0, 0, value};
  }
  const auto* const a = pointwise(state, t);
  if (!a || !exact(g.arithmetic(state.node(state.producer(t))))) return {};
  if (a->mode == M::gen_index) {
    const Dims& dim = g[t].dim;
    const int axis = lowering::positive_axis(*a->axis, dim), from_last = dim.size() - 1 - axis;
    if (dim[axis] == 1) return Linear{};
    if (from_last > 1 || static_cast<double>(dim[axis]) > kExact) return {};
    return from_last == 0 ? Linear{0, 1, 0} : Linear{1, 0, 0};
  }
  if (a->mode == M::identity) return linear(state, input(state, t, 0));
  if (a->mode != M::add && a->mode != M::sub) return {};
  const auto x = linear(state, input(state, t, 0)), y = linear(state, input(state, t, 1));
  if (!x || !y) return {};
  const int sign = a->mode == M::add ? 1 : -1;
  return Linear{x->row + sign * y->row, x->column + sign * y->column,
                x->constant + sign * y->constant};
}

// `t` is floor(row / n) or floor(column / n): which of them, and n.
struct Chunk {
  bool of_row;
  std::int64_t size;
};
std::optional<Chunk> chunk(const FusionState& state, TensorId t) {
  const Graph& g = state.graph();
  const auto* const a = pointwise(state, t);
  if (!a || a->mode != M::floor || !exact(g.type(t))) return {};
  const TensorId quotient = input(state, t, 0);
  const auto* const d = pointwise(state, quotient);
  const DataType type = quotient < 0 ? DataType::none : g.type(quotient);
  if (!d || d->mode != M::div || (type != DataType::f32 && type != DataType::f64)) return {};
  const auto x = linear(state, input(state, quotient, 0)),
             by = linear(state, input(state, quotient, 1));
  if (!x || !by || by->row != 0 || by->column != 0 || by->constant < 1 || x->constant != 0 ||
      x->row + x->column != 1 || x->row * x->column != 0)
    return {};
  return Chunk{x->row == 1, static_cast<std::int64_t>(by->constant)};
}
bool same_chunk(const FusionState& state, TensorId condition, AttentionBand& band) {
  const auto x = chunk(state, input(state, condition, 0)),
             y = chunk(state, input(state, condition, 1));
  if (!x || !y || x->of_row == y->of_row || x->size != y->size ||
      (band.chunk && *band.chunk != x->size))
    return false;
  band.chunk = x->size;
  return true;
}

M opposite(M m) {
  switch (m) {
    case M::cmp_lt:
      return M::cmp_ge;
    case M::cmp_ge:
      return M::cmp_lt;
    case M::cmp_gt:
      return M::cmp_le;
    case M::cmp_le:
      return M::cmp_gt;
    case M::cmp_eq:
      return M::cmp_neq;
    default:
      return M::cmp_eq;
  }
}
M mirrored(M m) {  // of -x and 0 for x and 0
  switch (m) {
    case M::cmp_lt:
      return M::cmp_gt;
    case M::cmp_ge:
      return M::cmp_le;
    case M::cmp_gt:
      return M::cmp_lt;
    case M::cmp_le:
      return M::cmp_ge;
    default:
      return m;
  }
}

bool compared(M mode, const Linear& x, const Linear& y, AttentionBand& band) {
  Linear d{x.row - y.row, x.column - y.column, x.constant - y.constant};
  if (d.column == -1 && d.row == 1) d = {-1, 1, -d.constant}, mode = mirrored(mode);
  if (d.column != 1 || d.row != -1) return false;
  // column - row `mode` bound
  const auto bound = static_cast<std::int64_t>(-d.constant);
  const auto most = [&](std::int64_t b) { band.right = std::min(band.right.value_or(b), b); };
  const auto least = [&](std::int64_t b) {
    band.left = std::min(band.left.value_or(1 - b), 1 - b);
  };
  switch (mode) {
    case M::cmp_le:
      most(bound);
      return true;
    case M::cmp_lt:
      most(bound - 1);
      return true;
    case M::cmp_ge:
      least(bound);
      return true;
    case M::cmp_gt:
      least(bound + 1);
      return true;
    case M::cmp_eq:
      most(bound), least(bound);
      return true;
    default:
      return false;
  }
}

constexpr double kHidden = -std::numeric_limits<double>::infinity();

bool is_value(const FusionState& state, TensorId t, double value) {
  return t >= 0 && state.graph()[t].has_value && state.graph()[t].value == value;
}

// Where `t` is select(condition, seen, a value that hides()), or with these two exchanged: the
// other value. Types of 8 bits and integers would not hold what hides, but 0 or their least number.
template <class Hides>
std::optional<TensorId> selected(const FusionState& state, TensorId t, const Hides& hides,
                                 bool& whole, AttentionBand& band, IndexMask& mask,
                                 bool chunks = true) {
  const auto* const a = pointwise(state, t);
  const DataType type = state.graph().type(t);
  if (!a || a->mode != M::binary_select || !is_floating(type) || info(type).bytes < 2) return {};
  for (std::size_t side : {std::size_t{1}, std::size_t{0}})
    if (hides(input(state, t, side))) {
      mask = {input(state, t, 2), side == 1};
      whole = narrow_band(state, mask.condition, mask.wanted, band, chunks);
      return input(state, t, 1 - side);
    }
  return {};
}

// Whether a tensor is made of indices and constants, by formulas that intervals are known of.
// `truth`: it is to be 0 or 1.
bool has_range(const FusionState& state, TensorId t, bool truth) {
  const Graph& g = state.graph();
  if (t < 0 || (!exact(g.type(t)) && g.type(t) != DataType::boolean)) return false;
  // No interval begins or ends at NaN, which an infinite factor makes of 0.
  if (g[t].has_value) return !truth && !g[t].bound_value && std::isfinite(g[t].value);
  const auto* const a = pointwise(state, t);
  if (!a) return false;
  const DataType computed = g.arithmetic(state.node(state.producer(t)));
  if (computed != DataType::f32 && computed != DataType::f64) return false;
  const auto of = [&](std::size_t i, bool is_truth) {
    return has_range(state, input(state, t, i), is_truth);
  };
  switch (a->mode) {
    case M::gen_index:
      return !truth && g.type(t) != DataType::boolean;
    case M::identity:
      return of(0, truth || g.type(t) == DataType::boolean);
    case M::logical_not:
      return of(0, true);
    case M::logical_and:
    case M::logical_or:
      return of(0, true) && of(1, true);
    case M::cmp_eq:
    case M::cmp_neq:
    case M::cmp_gt:
    case M::cmp_ge:
    case M::cmp_lt:
    case M::cmp_le:
      return of(0, false) && of(1, false);
    case M::div:
    case M::mod: {
      const TensorDesc& by = g[input(state, t, 1)];
      return !truth && by.has_value && !by.bound_value && by.value > 0 && of(0, false);
    }
    default:
      return !truth && g.type(t) != DataType::boolean && range_rule(a->mode) && of(0, false) &&
             (info(a->mode).arity < 2 || of(1, false));
  }
}

// The largest magnitude that a tensor's numbers can have: of a softcap.
double magnitude(const FusionState& state, TensorId t) {
  constexpr double kUnknown = std::numeric_limits<double>::infinity();
  const auto* const a = pointwise(state, t);
  if (!a || state.graph().type(t) != DataType::f32) return kUnknown;
  if (a->mode == M::tanh_fwd || a->mode == M::sigmoid_fwd) return 1;
  if (a->mode != M::mul) return kUnknown;
  for (std::size_t side : {0u, 1u}) {
    const TensorDesc& by = state.graph()[input(state, t, side)];
    if (by.has_value && !by.bound_value)
      return std::fabs(by.value) * magnitude(state, input(state, t, 1 - side));
  }
  return kUnknown;
}

}  // namespace

bool narrow_band(const FusionState& state, TensorId condition, bool wanted, AttentionBand& band,
                 bool chunks) {
  const auto* const a = pointwise(state, condition);
  if (!a || !holds_zero(state.graph().type(condition))) return false;
  const auto side = [&](std::size_t i, bool w) {
    return narrow_band(state, input(state, condition, i), w, band, chunks);
  };
  switch (a->mode) {
    case M::identity:
      return side(0, wanted);
    case M::logical_not:
      return side(0, !wanted);
    case M::logical_and:
    case M::logical_or: {
      if ((a->mode == M::logical_and) != wanted) return false;
      const bool first = side(0, wanted), second = side(1, wanted);
      return first && second;
    }
    case M::cmp_eq:
    case M::cmp_neq:
    case M::cmp_gt:
    case M::cmp_ge:
    case M::cmp_lt:
    case M::cmp_le: {
      if (chunks && a->mode == (wanted ? M::cmp_eq : M::cmp_neq) &&
          same_chunk(state, condition, band))
        return true;
      const auto x = linear(state, input(state, condition, 0)),
                 y = linear(state, input(state, condition, 1));
      return x && y && compared(wanted ? a->mode : opposite(a->mode), *x, *y, band);
    }
    default:
      return false;
  }
}

bool is_index_mask(const FusionState& state, TensorId bias) {
  bool whole = false;
  AttentionBand band;
  IndexMask mask;
  const auto zero = selected(
      state, bias, [&](TensorId t) { return is_value(state, t, kHidden); }, whole, band, mask);
  return zero && is_value(state, *zero, 0) && has_range(state, mask.condition, true);
}

TensorId without_index_masks(const FusionState& state, TensorId score, AttentionBand& band,
                             IndexMask* mask, bool chunks) {
  const auto hides = [&](TensorId t) { return is_value(state, t, kHidden); };
  const Graph& g = state.graph();
  const Dims dim = g[score].dim;
  TensorId at = score;
  for (bool all = true;;) {
    bool whole = false, adds_zero = true;
    IndexMask own;
    std::optional<TensorId> next = selected(state, at, hides, whole, band, own, chunks);
    const auto* const a = pointwise(state, at);
    for (std::size_t side : {std::size_t{1}, std::size_t{0}}) {
      if (next || !a || a->mode != M::add) continue;
      const auto zero = selected(state, input(state, at, side), hides, whole, band, own, chunks);
      if (!zero) continue;
      adds_zero = is_value(state, *zero, 0);
      next = input(state, at, 1 - side);
    }
    if (!next || g[*next].dim != dim) return score;
    const bool takes = all && !whole && adds_zero && mask && mask->condition < 0 &&
                       has_range(state, own.condition, true);
    if (takes) *mask = own;
    all = all && (whole || takes) && adds_zero;
    at = *next;
    if (all) score = at;
  }
}

TensorId without_number_mask(const FusionState& state, TensorId score, AttentionBand& band) {
  const Graph& g = state.graph();
  const Dims& dim = g[score].dim;
  AttentionBand narrowed = band;
  const auto hides = [&](TensorId t) {
    if (t < 0 || !g[t].has_value || !(g[t].value <= kMaskNumber)) return false;
    const auto number = static_cast<float>(g[t].value);
    narrowed.hidden = number;
    return std::isfinite(number);
  };
  bool whole = false;
  IndexMask mask;
  auto x = selected(state, score, hides, whole, narrowed, mask);
  // Beside scores of so small a magnitude the weight of a number that may be added is zero, too.
  constexpr double kSmall = 1000;
  static_assert(kMaskNumber + 2 * kSmall < -1000);
  const auto* const a = pointwise(state, score);
  for (std::size_t side : {std::size_t{1}, std::size_t{0}}) {
    if (x || !a || a->mode != M::add ||
        !(magnitude(state, input(state, score, 1 - side)) <= kSmall))
      continue;
    const auto zero = selected(state, input(state, score, side), hides, whole, narrowed, mask);
    if (zero && is_value(state, *zero, 0)) x = input(state, score, 1 - side);
  }
  if (x && magnitude(state, *x) <= kSmall) narrowed.hidden.reset();
  // No rounding of x or of the number is lost.
  if (!x || !whole || narrowed.chunk || g[*x].dim != dim || g.type(score) != DataType::f32 ||
      g.type(*x) != DataType::f32)
    return score;
  const std::int64_t rows = dim[dim.size() - 2], columns = dim.back(),
                     left = narrowed.left.value_or(rows + columns),
                     right = narrowed.right.value_or(rows + columns);
  if (right < 0 || rows - left > columns - 1 || left + right < 1) return score;
  band = narrowed;
  return *x;
}

}  // namespace sinter
