// Elementary functions of numbers that carry an error bound. Monotone functions take the end points
// of the incoming interval; each adds the error that CUDA's math library documents, in ulp (CUDA
// C++ Programming Guide, "Mathematical Functions").
#pragma once
#include "reference/bounded.hpp"

namespace sinter::reference {

namespace ulps {
inline constexpr double exp = 2, exp2 = 2, log = 1, tanh = 2, erf = 2, sin = 2, tan = 4, pow = 8,
                        rsqrt = 2, atan2 = 3;
// PTX ISA, rcp.approx.ftz.f32.
inline constexpr double fast_reciprocal = 1;
// The device's own (math.cuh), where tests measure them; for doubles CUDA's with 1, 1 and 5.
inline constexpr double expm1 = 2, log1p = 3, normal_tail = 6;
}  // namespace ulps

// A result of the math library: not correctly rounded. Zero, infinity and NaN of exact operands
// are the same in every arithmetic.
template <class A>
Bounded<A> library(double v, double propagated, double ulp) {
  using L = Arithmetic<A>;
  if (propagated == 0 && (v == 0 || !std::isfinite(v))) return {v, 0};
  if (!(std::fabs(v) + propagated <= L::largest)) return untrusted<A>(v);
  return {v, propagated + 2 * ulp * L::u * (std::fabs(v) + propagated) + L::eta};
}

// How far f moves over the interval of x, for f monotone there. Never 0 for an inexact x, however
// flat f is in double.
template <class A, class F>
double end_point_change(F f, const Bounded<A>& x, double y) {
  const double low = f(x.v - x.e), high = f(x.v + x.e);
  if (low != low || high != high) return kUntrusted;
  const double change = std::max(distance(y, low), distance(high, y));
  return change + 0x1p-51 * std::fabs(y) + 0x1p-1070;
}

template <class A, class F>
Bounded<A> monotone(F f, const Bounded<A>& x, double ulp) {
  const double y = f(x.v);
  if (x.exact_nan()) return x;
  if (!x.trusted()) return untrusted<A>(y);
  if (x.e == 0)
    return std::isinf(x.v) && std::isfinite(y) ? Bounded<A>(y, 0) : library<A>(y, 0, ulp);
  return library<A>(y, end_point_change(f, x, y), ulp);
}

template <class A>
Bounded<A> exp(const Bounded<A>& x) {
  if (x.v == 0 && x.e == 0) return Bounded<A>(1.0f);
  return monotone([](double t) { return std::exp(t); }, x, ulps::exp);
}
template <class A>
Bounded<A> exp2(const Bounded<A>& x) {
  if (x.v == 0 && x.e == 0) return Bounded<A>(1.0f);
  return monotone([](double t) { return std::exp2(t); }, x, ulps::exp2);
}
template <class A>
Bounded<A> expm1_nonpositive(const Bounded<A>& x) {
  return monotone([](double t) { return std::expm1(t); }, x, ulps::expm1);
}
// Where the result may be no normal number, it may be zero.
template <class A>
Bounded<A> fast_exp2(const Bounded<A>& x) {
  constexpr double least_normal = Arithmetic<A>::eta / Arithmetic<A>::u / 2;
  Bounded<A> y = exp2(x);
  if (y.trusted() && y.v - y.e < 2 * least_normal && (y.v > 0 || y.e > 0)) y.e += least_normal;
  return y;
}
template <class A>
Bounded<A> log(const Bounded<A>& x) {
  return monotone([](double t) { return std::log(t); }, x, ulps::log);
}
template <class A>
Bounded<A> log1p_unit(const Bounded<A>& x) {
  return monotone([](double t) { return std::log1p(t); }, x, ulps::log1p);
}
template <class A>
Bounded<A> tanh(const Bounded<A>& x) {
  return monotone([](double t) { return std::tanh(t); }, x, ulps::tanh);
}
template <class A>
Bounded<A> erf(const Bounded<A>& x) {
  return monotone([](double t) { return std::erf(t); }, x, ulps::erf);
}
// The exponent t^2 / 2 is rounded three times at most.
template <class A>
Bounded<A> normal_tail(const Bounded<A>& t) {
  const auto f = [](double x) { return math::normal_tail(x); };
  const double y = f(t.v);
  if (!ordinary(t)) return monotone(f, t, ulps::normal_tail);
  const double least = std::max(t.v - t.e, 0.0), most = std::min(t.v + t.e, 64.0);
  const double exponent = 2 * Arithmetic<A>::u * most * most * f(least);
  return library<A>(y, (t.e > 0 ? end_point_change(f, t, y) : 0) + exponent, ulps::normal_tail);
}
template <class A>
Bounded<A> rsqrt(const Bounded<A>& x) {
  // At 0 the function jumps from NaN to infinity.
  if (x.e > 0 && x.trusted() && x.may_be_zero()) return untrusted<A>(1 / std::sqrt(x.v));
  return monotone([](double t) { return 1 / std::sqrt(t); }, x, ulps::rsqrt);
}

// For operands that are far from zero and infinity.
template <class A>
Bounded<A> fast_reciprocal(const Bounded<A>& x) {
  if (x.trusted() && !x.exact_nan() && x.may_be_zero()) return untrusted<A>(1 / x.v);
  return monotone([](double t) { return 1 / t; }, x, ulps::fast_reciprocal);
}

// |sin a - sin b| <= |a - b|, and the same for the cosine.
template <class A>
Bounded<A> periodic(double y, const Bounded<A>& x) {
  if (x.exact_nan()) return x;
  if (!x.trusted()) return untrusted<A>(y);
  return library<A>(y, std::min(x.e, 2.0), ulps::sin);
}
template <class A>
Bounded<A> sin(const Bounded<A>& x) {
  return periodic(std::sin(x.v), x);
}
template <class A>
Bounded<A> cos(const Bounded<A>& x) {
  if (x.v == 0 && x.e == 0) return Bounded<A>(1.0f);
  return periodic(std::cos(x.v), x);
}
template <class A>
Bounded<A> tan(const Bounded<A>& x) {
  if (x.e > 0 && x.trusted()) {
    constexpr double pi = 3.14159265358979323846;
    const double slack = 0x1p-50 * std::fabs(x.v);  // which branch is decided in double
    if (std::floor((x.v - x.e - slack) / pi + 0.5) != std::floor((x.v + x.e + slack) / pi + 0.5))
      return untrusted<A>(std::tan(x.v));
  }
  return monotone([](double t) { return std::tan(t); }, x, ulps::tan);
}

// Steps: exact, and jumping where the interval holds a jump.
template <class A, class F>
Bounded<A> stepped(F f, const Bounded<A>& x) {
  const double y = f(x.v);
  if (x.e == 0) return {y, 0};
  const double e = std::max(distance(y, f(x.v - x.e)), distance(f(x.v + x.e), y));
  return {y, x.trusted() && e == e ? e : kUntrusted};
}
template <class A>
Bounded<A> ceil(const Bounded<A>& x) {
  return stepped([](double t) { return std::ceil(t); }, x);
}
template <class A>
Bounded<A> floor(const Bounded<A>& x) {
  return stepped([](double t) { return std::floor(t); }, x);
}
template <class A>
Bounded<A> rint(const Bounded<A>& x) {
  return stepped([](double t) { return std::rint(t); }, x);
}

// For a base of one sign the power is monotone in each operand, so that it is extreme at a corner.
template <class A>
Bounded<A> pow(const Bounded<A>& a, const Bounded<A>& b) {
  const double y = std::pow(a.v, b.v);
  if ((b.v == 0 && b.e == 0) || (a.v == 1 && a.e == 0)) return Bounded<A>(1.0f);
  if (a.e == 0 && b.e == 0) return library<A>(y, 0, ulps::pow);
  if (a.exact_nan() || b.exact_nan()) return {y, b.trusted() && a.trusted() ? 0 : kUntrusted};
  if (!ordinary(a) || !ordinary(b) || !std::isfinite(y)) return untrusted<A>(y);
  const bool whole = b.e == 0 && b.v == std::rint(b.v);
  if (a.may_be_zero() ? !(whole && b.v > 0) : !(a.v > 0 || whole)) return untrusted<A>(y);
  double change = 0;
  for (const double base : {a.v - a.e, a.v + a.e})
    for (const double power : {b.v - b.e, b.v + b.e})
      change = std::max(change, distance(std::pow(base, power), y));
  if (a.may_be_zero()) change = std::max(change, std::fabs(y));  // 0 lies inside
  if (change != change) return untrusted<A>(y);
  return library<A>(y, change + 0x1p-51 * std::fabs(y) + 0x1p-1070, ulps::pow);
}

// Exact in every arithmetic; with inexact operands continuous as long as the quotient stays.
template <class A>
Bounded<A> fmod(const Bounded<A>& a, const Bounded<A>& b) {
  const double y = std::fmod(a.v, b.v);
  if (a.e == 0 && b.e == 0)
    return {y, y == y ? std::fabs(static_cast<double>(static_cast<A>(y)) - y) : 0};
  if (a.exact_nan() || b.exact_nan()) return {y, 0};
  if (!ordinary(a) || !ordinary(b) || b.may_be_zero()) return untrusted<A>(y);
  const double least = (std::fabs(a.v) - a.e) / (std::fabs(b.v) + b.e) * (1 - 0x1p-50),
               most = (std::fabs(a.v) + a.e) / (std::fabs(b.v) - b.e) * (1 + 0x1p-50);
  const double quotient = std::trunc(least);
  if (quotient != std::trunc(most) || (least < 0 && quotient != 0)) return untrusted<A>(y);
  return rounded<A>(y, a.e + std::fabs(quotient) * b.e + 0x1p-1070, 0);
}

template <class A>
Bounded<A> atan2(const Bounded<A>& y, const Bounded<A>& x) {
  const double v = std::atan2(y.v, x.v);
  if (y.exact_nan() || x.exact_nan()) return {v, 0};
  if (y.e == 0 && x.e == 0) return library<A>(v, 0, ulps::atan2);
  if (!ordinary(y) || !ordinary(x)) return untrusted<A>(v);
  const double shift = std::hypot(y.e, x.e), radius = std::hypot(y.v, x.v);
  const bool at_cut = y.may_be_zero() && x.v - x.e < 0;  // the angle jumps by 2 pi there
  if (!(radius > shift) || at_cut) return untrusted<A>(v);
  return library<A>(v, std::min(4.0, shift / (radius - shift)) + 0x1p-1070, ulps::atan2);
}

}  // namespace sinter::reference
