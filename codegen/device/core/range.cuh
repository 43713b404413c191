// What a formula gives for all numbers of an interval at once: an interval that holds them. Its
// ends are the formula's own results in the formula's own type: rounding keeps the order of
// numbers.
#pragma once
#include "sinter/device/core/math.cuh"
#include "sinter/device/core/types.cuh"

namespace sinter {

template <class T>
struct Range {
  T low, high;

  template <class U>
  SINTER_DEVICE operator Range<U>() const {
    return {static_cast<U>(low), static_cast<U>(high)};
  }
};
template <class T>
SINTER_DEVICE Range<T> range_of_one(T x) {
  return {x, x};
}

// `grows`: for each operand, whether the formula grows with it; else it falls.
template <class Formula, bool... grows, class T, class... Others>
SINTER_DEVICE Range<T> range_of(const Range<T>& x, const Others&... others) {
  constexpr bool up[] = {grows...};
  const auto end = [&](bool high) {
    int i = 0;
    const auto of = [&](const Range<T>& y) { return up[i++] == high ? y.high : y.low; };
    // Braces: operands are taken in their order.
    const T ends[] = {of(x), of(others)...};
    if constexpr (sizeof...(grows) == 1)
      return Formula::apply(ends[0]);
    else
      return Formula::apply(ends[0], ends[1]);
  };
  return {end(false), end(true)};
}
// A formula that grows or falls with each operand while the other one is the same: a product, or a
// quotient whose divisor has one sign.
template <class Formula, class T>
SINTER_DEVICE Range<T> range_of_corners(const Range<T>& x, const Range<T>& y) {
  const T a = Formula::apply(x.low, y.low), b = Formula::apply(x.low, y.high),
          c = Formula::apply(x.high, y.low), d = Formula::apply(x.high, y.high);
  return {math::minimum(math::minimum(a, b), math::minimum(c, d)),
          math::maximum(math::maximum(a, b), math::maximum(c, d))};
}
// Whether both are equal: 0, 1, or either.
template <class T>
SINTER_DEVICE Range<T> range_of_equal(const Range<T>& x, const Range<T>& y) {
  const bool meet = x.low <= y.high && y.low <= x.high, one = x.low == x.high && y.low == y.high;
  return {static_cast<T>(meet && one), static_cast<T>(meet)};
}
// A remainder by a number above 0, with the sign of the dividend.
template <class Formula, class T>
SINTER_DEVICE Range<T> range_of_remainder(const Range<T>& x, const Range<T>& divisor) {
  // Within one period remainders grow: the last is then no smaller than the first.
  const T by = divisor.low;
  if (x.low >= 0 && x.high - x.low < by) {
    const T first = Formula::apply(x.low, by), last = Formula::apply(x.high, by);
    if (first <= last) return {first, last};
  }
  return {x.low < 0 ? -by : 0, by};
}

// A formula: what a number becomes in a type.
template <class Element, class T>
struct Rounded {
  static SINTER_DEVICE T apply(T x) { return convert<Element>(x); }
};

// And a remainder of which the quotient is small.
struct NearMod {
  static SINTER_DEVICE float apply(float a, float b) { return math::near_fmod(a, b); }
};

// The numbers [first, end).
struct Span {
  int first, end;

  // So many from `first` on, of which those below `all` exist.
  template <class First, class All>
  static SINTER_DEVICE Span of(First from, int count, All all) {
    const int first = static_cast<int>(from), end = static_cast<int>(all);
    return {first, first + count < end ? first + count : end};
  }
  template <class T>
  SINTER_DEVICE Range<T> range() const {
    return {static_cast<T>(first), static_cast<T>(end - 1)};
  }
};

}  // namespace sinter
