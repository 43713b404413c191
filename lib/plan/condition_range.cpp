#include "plan/condition_range.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "plan/with_formula.hpp"

namespace sinter {
namespace {

using M = PointwiseMode;
using By = RangeRule::By;

Interval corners(double a, double b, double c, double d) {
  return {std::min({a, b, c, d}), std::max({a, b, c, d})};
}

// Of the modes that range_rule() knows, which have no parameters.
double apply(M mode, double x, double y) {
  double result = std::numeric_limits<double>::quiet_NaN();
  with_formula(mode, [&]<class Formula>(Formula) {
    if constexpr (Formula::params == 0 && Formula::arity == 1)
      result = Formula::apply(x);
    else if constexpr (Formula::params == 0 && Formula::arity == 2)
      result = Formula::apply(x, y);
  });
  return result;
}

Interval range(M mode, const Interval& x, const Interval& y) {
  const RangeRule rule = *range_rule(mode);
  const auto end = [&](bool high) {
    return apply(mode, rule.grows[0] == high ? x.high : x.low,
                 rule.grows[1] == high ? y.high : y.low);
  };
  const bool meet = x.low <= y.high && y.low <= x.high, one = x.low == x.high && y.low == y.high;
  switch (rule.by) {
    case By::ends:
      return {end(false), end(true)};
    case By::corners:
      return corners(apply(mode, x.low, y.low), apply(mode, x.low, y.high),
                     apply(mode, x.high, y.low), apply(mode, x.high, y.high));
    case By::equal:
      return {meet && one ? 1.0 : 0.0, meet ? 1.0 : 0.0};
    case By::unequal:
      return {meet ? 0.0 : 1.0, meet && one ? 0.0 : 1.0};
    case By::remainder:
      break;
  }
  const double by = y.low;  // as range_of_remainder() of the device library
  if (x.low >= 0 && x.high - x.low < by) {
    const double first = std::fmod(x.low, by), last = std::fmod(x.high, by);
    if (first <= last) return {first, last};
  }
  return {x.low < 0 ? -by : 0, by};
}

}  // namespace

std::optional<RangeRule> range_rule(M mode) {
  switch (mode) {
    case M::identity:
    case M::add:
    case M::floor:
    case M::ceil:
    case M::min:
    case M::max:
    case M::logical_and:
    case M::logical_or:
      return RangeRule{By::ends};  // of operands that are 0 or 1
    case M::sub:
    case M::cmp_gt:
    case M::cmp_ge:
      return RangeRule{By::ends, {true, false}};
    case M::cmp_lt:
    case M::cmp_le:
      return RangeRule{By::ends, {false, true}};
    case M::neg:
    case M::logical_not:
      return RangeRule{By::ends, {false, true}};
    case M::mul:
    case M::div:
      return RangeRule{By::corners};
    case M::cmp_eq:
      return RangeRule{By::equal};
    case M::cmp_neq:
      return RangeRule{By::unequal};
    case M::mod:
      return RangeRule{By::remainder};
    default:
      return {};
  }
}

namespace {

std::vector<Interval> ranges(const KernelSpec& spec, const Body& condition, int row, Interval rows,
                             int key, Interval keys) {
  std::vector<Interval> values;
  for (const Statement& s : condition.statements) {
    const auto of = [&](std::size_t i) {
      return i < s.args.size() ? values[static_cast<std::size_t>(s.args[i])] : Interval{0, 0};
    };
    if (s.kind == StatementKind::index) {
      values.push_back(s.dim == row   ? rows
                       : s.dim == key ? keys
                                      : Interval{0, static_cast<double>(spec.extent[s.dim] - 1)});
    } else if (s.kind == StatementKind::scalar) {
      const double value = spec.scalars[static_cast<std::size_t>(s.port)].value;
      values.push_back({value, value});
    } else if (s.kind == StatementKind::pointwise) {
      values.push_back(range(s.mode, of(0), of(1)));
    } else {
      values.push_back(of(0));
    }
  }
  return values;
}

}  // namespace

SeenPairs seen_pairs(const KernelSpec& spec, const Body& condition, int row, Interval rows, int key,
                     Interval keys) {
  const Interval seen = ranges(spec, condition, row, rows, key, keys).back();
  return {seen.high != 0, seen.low != 0};
}

std::vector<Division> divisions(const KernelSpec& spec, const Body& condition, int row, int key) {
  const auto all = [&](int i) { return Interval{0, static_cast<double>(spec.extent[i] - 1)}; };
  const std::vector<Interval> values = ranges(spec, condition, row, all(row), key, all(key));
  constexpr double kNear = 0x1p20;  // of math::near_fmod
  std::vector<Division> result;
  for (const Statement& s : condition.statements) {
    result.push_back(Division::none);
    if (s.kind != StatementKind::pointwise || (s.mode != M::div && s.mode != M::mod)) continue;
    const Interval &of = values[static_cast<std::size_t>(s.args[0])],
                   &by = values[static_cast<std::size_t>(s.args[1])];
    int exponent;
    const bool near = s.mode == M::div
                          ? by.low == by.high && std::frexp(by.low, &exponent) == 0.5
                          : s.arithmetic == DataType::f32 && by.low >= 1 && by.high < 0x1p126 &&
                                std::max(-of.low, of.high) < kNear * by.low;
    result.back() = near ? Division::near : Division::far;
  }
  return result;
}

}  // namespace sinter
