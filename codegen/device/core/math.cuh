// The functions that sinter/ops/pointwise.hpp is written in, for float and double. NVRTC knows the
// functions of the CUDA math library without a header. No fast-math variants: division and square
// root are IEEE (but see Divisor), subnormals are kept.
#pragma once
#include "sinter/device/core/hardware.cuh"

namespace sinter::math {

#define SINTER_MATH1(name)                                   \
  SINTER_DEVICE float name(float x) { return ::name##f(x); } \
  SINTER_DEVICE double name(double x) { return ::name(x); }
#define SINTER_MATH2(name)                                               \
  SINTER_DEVICE float name(float a, float b) { return ::name##f(a, b); } \
  SINTER_DEVICE double name(double a, double b) { return ::name(a, b); }
SINTER_MATH1(ceil)
SINTER_MATH1(floor)
SINTER_MATH1(rint)
SINTER_MATH1(sqrt)
SINTER_MATH1(rsqrt)
SINTER_MATH1(exp)
SINTER_MATH1(exp2)
SINTER_MATH1(log)
SINTER_MATH1(sin)
SINTER_MATH1(cos)
SINTER_MATH1(tan)
SINTER_MATH1(erf)
SINTER_MATH1(tanh)
SINTER_MATH2(pow)
SINTER_MATH2(atan2)
#undef SINTER_MATH1
#undef SINTER_MATH2

// The library's loops over the digits of the quotient. One of up to 2^20 is taken from a product
// with the reciprocal that is a little too large: it is the quotient or one more, and what is left
// of x is exact either way, as it is no further from 0 than the divisor.
SINTER_DEVICE float near_fmod(float a, float b) {
  const float x = ::fabsf(a), y = ::fabsf(b);
  const float quotient = ::truncf(x * (1 / y) * (1 + 0x1p-21f)), rest = ::fmaf(-quotient, y, x);
  return ::copysignf(rest < 0 ? rest + y : rest, a);
}
SINTER_DEVICE float fmod(float a, float b) {
  const float x = ::fabsf(a), y = ::fabsf(b);
  if (!(x < 0x1p20f * y && y >= 0x1p-126f && y < 0x1p126f)) return ::fmodf(a, b);
  return near_fmod(a, b);
}
SINTER_DEVICE double fmod(double a, double b) { return ::fmod(a, b); }

SINTER_DEVICE float abs(float x) { return ::fabsf(x); }
SINTER_DEVICE double abs(double x) { return ::fabs(x); }
// Products and sums are not contracted by the compiler; where one rounding is wanted, this says so.
SINTER_DEVICE float fma(float a, float b, float c) { return ::fmaf(a, b, c); }
SINTER_DEVICE double fma(double a, double b, double c) { return ::fma(a, b, c); }
template <class T>
SINTER_DEVICE T reciprocal(T x) {
  return T(1) / x;
}
// Within one ulp, for x whose magnitude and whose reciprocal's are normal numbers.
SINTER_DEVICE float fast_reciprocal(float x) { return hardware::reciprocal(x); }
SINTER_DEVICE double fast_reciprocal(double x) { return 1 / x; }
// Within two ulp; results below the normal numbers are zeros.
SINTER_DEVICE float fast_exp2(float x) { return hardware::exp2(x); }
SINTER_DEVICE double fast_exp2(double x) { return exp2(x); }
// Division of many numbers by one, without the branches of x / y: with |y| scaled to just below 1,
// and the rounded reciprocal of that, the exact remainder of a first quotient corrects it
// (Markstein, "Computation of elementary functions on the IBM RISC System/6000 processor", 1990).
// What is left before the rounding is an error of 2^-44 of the quotient: exact quotients come out
// as they are, and others correctly rounded unless they lie so close to the middle between two
// floats. Below 2^-100 remainders are not exact, and a quotient may be off by two units in the last
// place. Where there is no remainder, the first quotient is infinity, zero or NaN. As the scale has
// y's sign and the remainder is taken negative, what is added to a quotient of zero is -0 and
// leaves its sign. A quotient within two units of the largest number may be infinite.
struct Divisor {
  float near_one, reciprocal, scale;

  Divisor() = default;
  SINTER_DEVICE Divisor(float y) {
    const unsigned bits = __float_as_uint(y), sign = bits & 1u << 31;
    const int exponent = static_cast<int>(bits >> 23 & 255);
    const int bounded = exponent < 1 ? 1 : exponent > 252 ? 252 : exponent;
    scale = __uint_as_float(static_cast<unsigned>(253 - bounded) << 23 | sign);
    near_one = y * scale;
    reciprocal = 1.0f / near_one;
  }
};
SINTER_DEVICE float divide(float x, const Divisor& y) {
  const float scaled = x * y.scale, first = scaled * y.reciprocal;
  const float second = fma(fma(first, y.near_one, -scaled), -y.reciprocal, first);
  return second == second ? second : first;
}
// What is known to be a power of two, or NaN: its inverse is exact.
struct PowerOfTwo {
  float inverse;

  PowerOfTwo() = default;
  SINTER_DEVICE PowerOfTwo(float y) : inverse(1.0f / y) {}
};
SINTER_DEVICE float divide(float x, const PowerOfTwo& y) { return x * y.inverse; }
// y is known when compiling, and so is what a Divisor keeps of it.
SINTER_DEVICE float divide_by_constant(float x, float y) { return divide(x, Divisor(y)); }
SINTER_DEVICE double divide_by_constant(double x, double y) { return x / y; }
template <class T>
SINTER_DEVICE bool less(T a, T b) {
  return a < b;
}
template <class T>
SINTER_DEVICE bool less_equal(T a, T b) {
  return a <= b;
}
template <class T>
SINTER_DEVICE bool equal(T a, T b) {
  return a == b;
}
SINTER_DEVICE bool either(bool a, bool b) { return a || b; }
SINTER_DEVICE bool both(bool a, bool b) { return a && b; }
SINTER_DEVICE bool opposite(bool a) { return !a; }
template <class T>
SINTER_DEVICE T select(bool condition, T a, T b) {
  return condition ? a : b;
}
// NaN in either operand gives NaN; -0 lies below +0. Doubles that compare equal differ in no bit
// but the sign of a zero.
SINTER_DEVICE float minimum(float a, float b) { return hardware::minimum(a, b); }
SINTER_DEVICE float maximum(float a, float b) { return hardware::maximum(a, b); }
SINTER_DEVICE double minimum(double a, double b) {
  const double equal = __longlong_as_double(__double_as_longlong(a) | __double_as_longlong(b));
  return a != a ? a : b != b ? b : a == b ? equal : b < a ? b : a;
}
SINTER_DEVICE double maximum(double a, double b) {
  const double equal = __longlong_as_double(__double_as_longlong(a) & __double_as_longlong(b));
  return a != a ? a : b != b ? b : a == b ? equal : a < b ? b : a;
}
SINTER_DEVICE int minimum(int a, int b) { return b < a ? b : a; }
SINTER_DEVICE int maximum(int a, int b) { return a < b ? b : a; }
SINTER_DEVICE float largest(float) { return __int_as_float(0x7f7fffff); }
SINTER_DEVICE double largest(double) { return __longlong_as_double(0x7fefffffffffffffll); }
// x, but at most `limit` in magnitude; NaN stays.
SINTER_DEVICE float clamp_magnitude(float x, float limit) {
  return hardware::clamp_magnitude(x, limit);
}
SINTER_DEVICE double clamp_magnitude(double x, double limit) {
  return x < -limit ? -limit : limit < x ? limit : x;
}
// The error-carrying reference knows what becomes of its overflow.
template <class T>
SINTER_DEVICE T product(T a, T b) {
  return a * b;
}

// What the standard normal has beyond t >= 0: exp(-t^2 / 2) times a slowly falling function (Mills'
// ratio), here a quotient of polynomials with positive coefficients (minimax for t <= 14.5,
// relative error below 2^-25; beyond, the product is 0). So nothing cancels: 6 ulp, and as many
// more as the rounding of t^2 makes. The square root of the exponential is a normal number where
// the product is not 0, so that one instruction gives it, and is multiplied twice.
SINTER_DEVICE float normal_tail(float t) {
  const float root = fast_exp2(-0.36067376f * (t * t));
  const float p = fma(fma(fma(fma(0.00409293873f, t, 0.040470209f), t, 0.182740197f), t,  //
                          0.437609166f),
                      t, 0.5f);
  const float q =
      fma(fma(fma(fma(fma(0.0102593489f, t, 0.101450503f), t, 0.468166649f), t, 1.20041931f), t,
              1.67310321f),
          t, 1.0f);
  return root * (root * (p * fast_reciprocal(q)));
}
SINTER_DEVICE double normal_tail(double t) { return ::normcdf(-t); }

// exp(x) - 1 for x <= 0. With x = n log 2 + r it is 2^n (exp(r) - 1) + (2^n - 1); the polynomial
// has a relative error below 2^-26. Below -30 the result is -1. 1.5 ulp.
SINTER_DEVICE float expm1_nonpositive(float x) {
  constexpr float kRound = 12583039.0f;  // 1.5 * 2^23 + 127: the last bits of a sum are n + 127
  const float bounded = maximum(x, -30.0f);
  const float rounded = fma(bounded, 1.44269504f, kRound);
  const float power = __uint_as_float(__float_as_uint(rounded) << 23);
  const float r = fma(rounded - kRound, -0.693147181f, bounded);
  const float p = fma(fma(fma(fma(0.00138690043f, r, 0.00836643949f), r, 0.0416674577f), r,  //
                          0.16666545f),
                      r, 0.49999997f);
  return fma(power, fma(r * r, p, r), power - 1.0f);
}
SINTER_DEVICE double expm1_nonpositive(double x) { return ::expm1(x); }
// log(1 + x) for 0 <= x <= 1: 2 artanh(u / 2) with u = x / (1 + x / 2), where u + u^3 p(u^2) has a
// relative error below 2^-27. 3 ulp.
SINTER_DEVICE float log1p_unit(float x) {
  const float u = x * fast_reciprocal(fma(0.5f, x, 1.0f)), square = u * u;
  const float p = fma(fma(fma(0.000547006845f, square, 0.00218773656f), square, 0.0125066992f),
                      square, 0.083333023f);
  return fma(u * square, p, u);
}
SINTER_DEVICE double log1p_unit(double x) { return ::log1p(x); }

SINTER_DEVICE float infinity(float) { return __int_as_float(0x7f800000); }
SINTER_DEVICE double infinity(double) { return __longlong_as_double(0x7ff0000000000000ll); }
// What no number is larger, or smaller, than.
template <class T>
SINTER_DEVICE T upper_end(T) {
  return infinity(T());
}
SINTER_DEVICE int upper_end(int) { return 0x7fffffff; }
template <class T>
SINTER_DEVICE T lower_end(T) {
  return -infinity(T());
}
SINTER_DEVICE int lower_end(int) { return -0x7fffffff - 1; }

}  // namespace sinter::math
