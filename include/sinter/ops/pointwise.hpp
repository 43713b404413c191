// THE table of pointwise operations: one struct each, compiled three ways: on the host for the CPU
// backend (double) and for the error-carrying reference, and by NVRTC for the kernels (float or
// double). Nothing but this file knows a formula.
//
// A formula may use only + - * / unary minus and the functions of `sinter::math` (exp, tanh, ...,
// less, select), which every value type provides: no `if` on values, so that the reference can
// follow both branches where its error bound straddles a jump.
//
// Backward operations take IN_0 = dy and IN_1 = the forward's x.
#pragma once

#ifndef __CUDACC_RTC__
#include "sinter/ops/pointwise_host.hpp"
#endif

#ifndef SINTER_HD
#define SINTER_HD
#endif

namespace sinter::op {

using math::abs, math::ceil, math::floor, math::rint, math::sqrt, math::rsqrt, math::exp,
    math::fast_exp2, math::exp2, math::fma, math::fast_reciprocal, math::normal_tail, math::log,
    math::sin, math::cos, math::tan, math::erf, math::tanh, math::log1p_unit,
    math::expm1_nonpositive, math::pow, math::fmod, math::atan2, math::minimum, math::maximum,
    math::less, math::less_equal, math::equal, math::either, math::both, math::opposite,
    math::select, math::reciprocal, math::product, math::clamp_magnitude, math::largest;

#define SINTER_OP1(Name, expression)                 \
  struct Name {                                      \
    static constexpr int arity = 1, params = 0;      \
    template <class T>                               \
    static SINTER_HD T apply(T x) { return expression; } \
  }
#define SINTER_OP2(Name, expression)                      \
  struct Name {                                           \
    static constexpr int arity = 2, params = 0;           \
    template <class T>                                    \
    static SINTER_HD T apply(T a, T b) { return expression; } \
  }

SINTER_OP1(Identity, x);
SINTER_OP2(Add, a + b);
SINTER_OP2(Sub, a - b);
SINTER_OP2(Mul, a* b);
SINTER_OP2(Div, a / b);
SINTER_OP2(Pow, pow(a, b));
SINTER_OP2(Mod, fmod(a, b));  // the sign of the dividend
SINTER_OP2(Min, minimum(a, b));
SINTER_OP2(Max, maximum(a, b));
SINTER_OP2(AddSquare, (fma(b, b, a)));  // a square that overflows may leave a finite sum
SINTER_OP2(Atan2, atan2(a, b));
SINTER_OP1(Abs, abs(x));
SINTER_OP1(Ceil, ceil(x));
SINTER_OP1(Floor, floor(x));
SINTER_OP1(Round, rint(x));  // ties to even
SINTER_OP1(Neg, -x);
SINTER_OP1(Sqrt, sqrt(x));
SINTER_OP1(Rsqrt, rsqrt(x));
SINTER_OP1(Reciprocal, reciprocal(x));
SINTER_OP1(Exp, exp(x));
SINTER_OP1(Log, log(x));
SINTER_OP1(Sin, sin(x));
SINTER_OP1(Cos, cos(x));
SINTER_OP1(Tan, tan(x));
SINTER_OP1(Erf, erf(x));

// Truth is "not zero" (NaN is true); results are 1 and 0, chosen in this order: of a choice of 0 and
// 1 that is asked whether it is zero, compilers do not make the condition again.
template <class T>
SINTER_HD T truth(decltype(less(T(), T())) condition) {
  return select(condition, T(1.0f), T(0.0f));
}
template <class T>
SINTER_HD auto is_zero(T x) { return equal(x, T(0.0f)); }

SINTER_OP2(LogicalAnd, truth<T>(opposite(either(is_zero(a), is_zero(b)))));
SINTER_OP2(LogicalOr, truth<T>(opposite(both(is_zero(a), is_zero(b)))));
SINTER_OP1(LogicalNot, truth<T>(is_zero(x)));
SINTER_OP2(CmpEq, truth<T>(equal(a, b)));
SINTER_OP2(CmpNeq, truth<T>(opposite(equal(a, b))));
SINTER_OP2(CmpGt, truth<T>(less(b, a)));
SINTER_OP2(CmpGe, truth<T>(less_equal(b, a)));
SINTER_OP2(CmpLt, truth<T>(less(a, b)));
SINTER_OP2(CmpLe, truth<T>(less_equal(a, b)));

struct BinarySelect {  // IN_2 != 0 ? IN_0 : IN_1
  static constexpr int arity = 3, params = 0;
  template <class T>
  static SINTER_HD T apply(T a, T b, T condition) {
    return select(is_zero(condition), b, a);
  }
};

// Near infinity a factor of these formulas becomes 0 (or 1) exactly. Times an infinite other factor
// that would be NaN where the limit is a number, so the other one is bounded: by what changes no
// finite operand, or by a bound behind which the first factor is 0 in double as well. Every bound is
// one instruction, a maximum; products whose overflow is harmless are written `product`.
template <class T>
SINTER_HD T above_negative_infinity(T x) { return maximum(x, -largest(x)); }
template <class T>
SINTER_HD T below_infinity(T x) { return minimum(x, largest(x)); }

// The logistic function of x by e = exp(-|x|), so that nothing overflows and neither side loses its
// relative accuracy: 1 / (1 + e), for negative x times e.
template <class T>
struct Logistic {
  T value, slope;
  SINTER_HD Logistic(T x, T e) {
    const T above = fast_reciprocal(T(1.0f) + e), below = e * above;
    value = select(less(x, T(0.0f)), below, above);
    slope = below * above;
  }
};
template <class T>
SINTER_HD Logistic<T> logistic(T x) { return {x, exp(-abs(x))}; }

// The attributes are constants of a kernel, so that the compiler decides what they decide alone. A
// clip that is infinite is none. A slope of 0 is no factor: it gives the clip, and the derivative 0,
// whatever x or dy is. The straight line starts from its value at 0, which does not overflow for
// slopes between 0 and 1.
struct ReluFwd {
  static constexpr int arity = 1, params = 3;
  template <class T>
  static SINTER_HD T apply(T x, T lower, T upper, T slope) {
    const auto flat = is_zero(slope);
    const T capped = select(less_equal(upper, largest(x)), minimum(x, upper), x);
    const T low = select(either(flat, less(lower, -largest(x))), lower,
                         fma(slope, x, lower - slope * lower));
    return select(both(flat, less_equal(lower, upper)), maximum(capped, lower),
                  select(less_equal(x, lower), low, capped));
  }
};
struct ReluBwd {
  static constexpr int arity = 2, params = 3;
  template <class T>
  static SINTER_HD T apply(T dy, T x, T lower, T upper, T slope) {
    const T low = select(is_zero(slope), T(0.0f), dy * slope);
    const auto is_low = both(less_equal(-largest(x), lower), less_equal(x, lower));
    const auto is_high = both(less_equal(upper, largest(x)), less_equal(upper, x));
    return select(is_low, low, select(is_high, T(0.0f), dy));
  }
};

SINTER_OP1(TanhFwd, tanh(x));
struct TanhBwd {
  static constexpr int arity = 2, params = 0;
  template <class T>
  static SINTER_HD T apply(T dy, T x) {
    // 1 - tanh(x)^2 without its cancellation.
    return dy * (T(4.0f) * logistic(product(T(2.0f), x)).slope);
  }
};

SINTER_OP1(SigmoidFwd, logistic(x).value);
struct SigmoidBwd {
  static constexpr int arity = 2, params = 0;
  template <class T>
  static SINTER_HD T apply(T dy, T x) {
    return dy * logistic(x).slope;
  }
};

struct EluFwd {
  static constexpr int arity = 1, params = 1;
  template <class T>
  static SINTER_HD T apply(T x, T alpha) {
    return select(less_equal(T(0.0f), x), x, alpha * expm1_nonpositive(minimum(x, T(0.0f))));
  }
};
struct EluBwd {
  static constexpr int arity = 2, params = 1;
  template <class T>
  static SINTER_HD T apply(T dy, T x, T alpha) {
    return select(less(T(0.0f), x), dy, dy * (alpha * exp(minimum(x, T(0.0f)))));
  }
};

// x Phi(x) with the normal distribution Phi: of negative x what is left of the tail, which keeps its
// relative accuracy, of positive x what the tail leaves of x. From 64 on there is no tail.
struct GeluFwd {
  static constexpr int arity = 1, params = 0;
  template <class T>
  static SINTER_HD T apply(T x) {
    const T t = minimum(abs(x), T(64.0f));
    return fma(-t, normal_tail(t), maximum(x, T(-0.0f)));
  }
};
struct GeluBwd {
  static constexpr int arity = 2, params = 0;
  template <class T>
  static SINTER_HD T apply(T dy, T x) {
    const T t = clamp_magnitude(x, T(64.0f));  // where the density is 0
    const T a = abs(t), tail = normal_tail(a), cdf = select(less(t, T(0.0f)), tail, T(1.0f) - tail);
    // The square root of exp(-t^2 / 2), which the tail takes, too.
    const T root = fast_exp2(T(-0.36067376022224085184) * (a * a));
    return dy * fma(t, (T(0.39894228040143267794) * root) * root, cdf);
  }
};

// Hendrycks and Gimpel, "Gaussian Error Linear Units", the tanh form: (1 + tanh u) / 2 is
// sigmoid(2u), which does not cancel for negative u. With u in units of log 2 the exponential is the
// square of a power of two, which is a normal number where the square is not 0.
template <class T>
SINTER_HD Logistic<T> gelu_gate(T x, T square) {
  const T u = product(x, fma(T(0.051471619790011745), square, T(1.15110409907216245)));
  const T root = fast_exp2(-abs(u));
  return {u, root * root};
}
struct GeluApproxTanhFwd {
  static constexpr int arity = 1, params = 0;
  template <class T>
  static SINTER_HD T apply(T x) {
    return above_negative_infinity(x) * gelu_gate(x, product(x, x)).value;
  }
};
struct GeluApproxTanhBwd {
  static constexpr int arity = 2, params = 0;
  template <class T>
  static SINTER_HD T apply(T dy, T x) {
    const T t = clamp_magnitude(x, T(32.0f));  // where the gate's slope is 0
    const T square = t * t;
    const Logistic<T> s = gelu_gate(t, square);
    const T slope = fma(T(0.21406444881780077), square, T(1.5957691216057307));
    return dy * fma(t * s.slope, slope, s.value);
  }
};

// log(1 + exp(beta x)) / beta. Its straight part max(beta x, 0) / beta is x, which does not overflow.
struct SoftplusFwd {
  static constexpr int arity = 1, params = 1;
  template <class T>
  static SINTER_HD T apply(T x, T beta) {
    const T straight =
        select(less(beta, T(0.0f)), minimum(x, T(0.0f)), maximum(x, T(0.0f)));
    return straight + log1p_unit(exp(-abs(product(beta, x)))) * reciprocal(beta);
  }
};
struct SoftplusBwd {
  static constexpr int arity = 2, params = 1;
  template <class T>
  static SINTER_HD T apply(T dy, T x, T beta) {
    return dy * logistic(product(beta, x)).value;
  }
};

struct SwishFwd {  // x sigmoid(beta x)
  static constexpr int arity = 1, params = 1;
  template <class T>
  static SINTER_HD T apply(T x, T beta) {
    const T bounded =
        select(less(beta, T(0.0f)), below_infinity(x), above_negative_infinity(x));
    return bounded * logistic(product(beta, x)).value;
  }
};
struct SwishBwd {
  static constexpr int arity = 2, params = 1;
  template <class T>
  static SINTER_HD T apply(T dy, T x, T beta) {
    const T z = clamp_magnitude(product(beta, x), T(1000.0f));  // where exp(-|z|) is 0
    const Logistic<T> s = logistic(z);
    return dy * fma(z, s.slope, s.value);
  }
};

#undef SINTER_OP1
#undef SINTER_OP2

}  // namespace sinter::op
