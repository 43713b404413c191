// Numbers that carry an error bound: v is the reference's value, e bounds |kernel - v| for every
// kernel that computes the same formula in arithmetic A with at most the roundings below. An
// infinite e marks a value that cannot be judged. A non-finite v is either exact (e = 0: the kernel
// has the same infinity or a NaN) or not judged.
//
// Sums, products, quotients and square roots are correctly rounded in A or, where a compiler
// contracts them, not rounded at all. So on exact operands the own error is the distance of the
// exact result to its rounding, and integer-valued data stays exact.
#pragma once
#include <algorithm>
#include <cmath>
#include <limits>

#include "sinter/ops/pointwise_host.hpp"

namespace sinter::reference {

inline constexpr double kUntrusted = std::numeric_limits<double>::infinity();

// u is slightly above the unit round-off, so that it also covers the rounding of the reference
// itself (done in double); eta is the smallest positive number of A.
template <class A>
struct Arithmetic;
template <>
struct Arithmetic<float> {
  static constexpr double u = 0x1.00001p-24, eta = 0x1p-149, largest = 0x1.fffffep127;
};
template <>
struct Arithmetic<double> {
  static constexpr double u = 0x1.01p-52, eta = 0x1p-1074, largest = 0x1.fffffffffffffp1023;
};

template <class A>
struct Bounded {
  double v = 0, e = 0;

  Bounded() = default;
  // A constant of a formula, which the kernel holds in A.
  explicit Bounded(float c) : v(c) {}
  explicit Bounded(double c) : v(c) {
    const auto held = static_cast<double>(static_cast<A>(c));
    e = held == c || c != c ? 0 : std::fabs(held - c);
  }
  Bounded(double value, double error) : v(value), e(error) {}

  bool trusted() const { return e < kUntrusted; }
  bool exact_nan() const { return v != v && e == 0; }
  // Whether the kernel's value may be zero, or of either sign.
  bool may_be_zero() const { return !(std::fabs(v) > e); }
};

// A condition: what the reference's own values say, and whether the kernel must agree.
struct Condition {
  bool value = false, certain = true;
};

inline double distance(double a, double b) { return a == b ? 0 : std::fabs(a - b); }

template <class A>
Bounded<A> untrusted(double v) {
  return {v, kUntrusted};
}

// The result of one correctly rounded operation: `propagated` is the error that the operands bring,
// `residual` how far v, rounded to double, is from the exact result of exact operands.
template <class A>
Bounded<A> rounded(double v, double propagated, double residual) {
  using L = Arithmetic<A>;
  if (!(std::fabs(v) + propagated <= L::largest)) return untrusted<A>(v);
  if (propagated == 0)
    return {v, std::fabs(static_cast<double>(static_cast<A>(v)) - v) + std::fabs(residual)};
  return {v, propagated + L::u * (std::fabs(v) + propagated) + L::eta};
}

// What an operation gives where an operand is not finite or not trusted: NaN spreads whatever the
// other operand is.
template <class A>
Bounded<A> special(const Bounded<A>& a, const Bounded<A>& b, double v, bool certain) {
  if (a.exact_nan() || b.exact_nan()) return {std::numeric_limits<double>::quiet_NaN(), 0};
  return {v, certain && a.trusted() && b.trusted() ? 0 : kUntrusted};
}
template <class A>
bool ordinary(const Bounded<A>& a) {
  return std::isfinite(a.v) && a.trusted();
}

template <class A>
Bounded<A> operator+(const Bounded<A>& a, const Bounded<A>& b) {
  const double v = a.v + b.v;
  if (!ordinary(a) || !ordinary(b)) return special(a, b, v, true);
  const double p = a.e + b.e;
  const double part = v - a.v;  // Knuth's TwoSum: the exact error of the addition
  return rounded<A>(v, p, p > 0 ? 0 : (a.v - (v - part)) + (b.v - part));
}
template <class A>
Bounded<A> operator-(const Bounded<A>& a) {
  return {-a.v, a.e};
}
template <class A>
Bounded<A> operator-(const Bounded<A>& a, const Bounded<A>& b) {
  return a + (-b);
}
template <class A>
Bounded<A> operator*(const Bounded<A>& a, const Bounded<A>& b) {
  const double v = a.v * b.v;
  if (!ordinary(a) || !ordinary(b)) {
    const bool signs = (a.e == 0 || !a.may_be_zero()) && (b.e == 0 || !b.may_be_zero());
    return special(a, b, v, signs);
  }
  const double p = std::fabs(a.v) * b.e + std::fabs(b.v) * a.e + a.e * b.e;
  // The remainder of a product so small is no double itself.
  constexpr double kRemainders = 0x1p-968;
  const double lost =
      std::fabs(v) < kRemainders && a.v != 0 && b.v != 0 ? Arithmetic<double>::eta : 0;
  return rounded<A>(v, p, p > 0 ? 0 : std::fabs(std::fma(a.v, b.v, -v)) + lost);
}
// A product that the kernel rounds on its own: one past the largest number for certain is infinity
// there, whatever this one is in double. For the formulas in which that infinity does no harm.
template <class A>
Bounded<A> product(const Bounded<A>& a, const Bounded<A>& b) {
  const double v = a.v * b.v;
  if (ordinary(a) && ordinary(b)) {
    const double p = std::fabs(a.v) * b.e + std::fabs(b.v) * a.e + a.e * b.e;
    if (std::fabs(v) - p > (1 + Arithmetic<A>::u) * Arithmetic<A>::largest)
      return {std::copysign(std::numeric_limits<double>::infinity(), v), 0};
  }
  return a * b;
}
// How far the quotient of a division of many floats by one (math.cuh) may lie from the rounded one,
// or the exact quotient from where it would be rounded the other way.
template <class A>
double missed_by_divisor(double v) {
  if (!std::is_same_v<A, float> || v == 0) return 0;
  if (std::fabs(v) < 0x1p-100) return 0x1p-23 * std::fabs(v) + 0x1p-148;
  return static_cast<float>(v) == v ? 0 : 0x1p-43 * std::fabs(v);
}
template <class A>
Bounded<A> operator/(const Bounded<A>& a, const Bounded<A>& b) {
  const double v = a.v / b.v;
  const bool signs = (a.e == 0 || !a.may_be_zero()) && (b.e == 0 || !b.may_be_zero());
  if (ordinary(a) && b.e == 0 && std::isinf(b.v)) return {v, 0};
  if (!ordinary(a) || !ordinary(b) || b.v == 0) return special(a, b, v, signs);
  if (b.may_be_zero()) return untrusted<A>(v);
  const double p = (a.e + std::fabs(v) * b.e) / (std::fabs(b.v) - b.e);
  const double residual = std::fabs(std::fma(-v, b.v, a.v) / b.v);
  return rounded<A>(v, p, p > 0 ? 0 : residual + missed_by_divisor<A>(v));
}

// One rounding or, as elsewhere, two.
template <class A>
Bounded<A> fma(const Bounded<A>& a, const Bounded<A>& b, const Bounded<A>& c) {
  return a * b + c;
}
template <class A>
Bounded<A> reciprocal(const Bounded<A>& x) {
  return Bounded<A>(1.0f) / x;
}
template <class A>
Bounded<A> abs(const Bounded<A>& x) {
  return {std::fabs(x.v), x.e};
}

template <class A>
Bounded<A> sqrt(const Bounded<A>& x) {
  const double v = std::sqrt(x.v);
  if (!ordinary(x)) return x.exact_nan() ? x : Bounded<A>(v, x.trusted() ? 0 : kUntrusted);
  if (x.e == 0) {
    if (v == 0 || v != v) return {v, 0};
    return rounded<A>(v, 0, std::fma(-v, v, x.v) / (2 * v));
  }
  if (x.v + x.e < 0) return {v, 0};  // NaN for certain
  if (x.v - x.e < 0) return untrusted<A>(v);
  // The distance to the lower end is the larger one; written as a quotient it does not cancel.
  return rounded<A>(v, std::max(x.e / (v + std::sqrt(x.v - x.e)), Arithmetic<A>::eta), 0);
}

// ---- conditions

template <class A>
Condition compared(const Bounded<A>& a, const Bounded<A>& b, bool value) {
  if (a.exact_nan() || b.exact_nan()) return {false, true};
  const double reach = a.e + b.e;
  // The subtraction rounds: 2^-50 more than covers it.
  return {value, reach == 0 || std::fabs(b.v - a.v) * (1 - 0x1p-50) > reach};
}
template <class A>
Condition less(const Bounded<A>& a, const Bounded<A>& b) {
  return compared(a, b, a.v < b.v);
}
template <class A>
Condition less_equal(const Bounded<A>& a, const Bounded<A>& b) {
  return compared(a, b, a.v <= b.v);
}
template <class A>
Condition equal(const Bounded<A>& a, const Bounded<A>& b) {
  return compared(a, b, a.v == b.v);
}
inline Condition either(Condition a, Condition b) {
  return {a.value || b.value,
          (a.certain && b.certain) || (a.certain && a.value) || (b.certain && b.value)};
}
inline Condition both(Condition a, Condition b) {
  return {a.value && b.value,
          (a.certain && b.certain) || (a.certain && !a.value) || (b.certain && !b.value)};
}
inline Condition opposite(Condition a) { return {!a.value, a.certain}; }

// Where the condition is open the kernel may have taken the other branch: the bound spans both.
template <class A>
Bounded<A> select(Condition c, const Bounded<A>& a, const Bounded<A>& b) {
  const Bounded<A>&taken = c.value ? a : b, &other = c.value ? b : a;
  if (c.certain || (taken.exact_nan() && other.exact_nan())) return taken;
  const double reach = distance(other.v, taken.v) + other.e;  // NaN where one of them is
  return {taken.v, reach < kUntrusted ? std::max(taken.e, reach) : kUntrusted};
}

template <class A, class Pick>
Bounded<A> extremum(const Bounded<A>& a, const Bounded<A>& b, Pick pick) {
  if (!a.trusted() || !b.trusted() || a.v != a.v || b.v != b.v)
    return special(a, b, pick(a.v, b.v), true);
  const double v = pick(a.v, b.v), low = pick(a.v - a.e, b.v - b.e),
               high = pick(a.v + a.e, b.v + b.e);
  const double e = std::max(distance(v, low), distance(high, v));
  return {v, e == 0 ? 0 : e * (1 + 0x1p-50)};
}
template <class A>
Bounded<A> minimum(const Bounded<A>& a, const Bounded<A>& b) {
  return extremum(a, b, math::minimum<double>);
}
template <class A>
Bounded<A> maximum(const Bounded<A>& a, const Bounded<A>& b) {
  return extremum(a, b, math::maximum<double>);
}
template <class A>
Bounded<A> largest(const Bounded<A>&) {
  return {Arithmetic<A>::largest, 0};
}
template <class A>
Bounded<A> clamp_magnitude(const Bounded<A>& x, const Bounded<A>& limit) {
  return maximum(minimum(x, limit), -limit);
}

}  // namespace sinter::reference
