// The functions that sinter/ops/pointwise.hpp is written in, for float and double. NVRTC knows the
// functions of the CUDA math library without a header. No fast-math variants: division and square
// root are IEEE, subnormals are kept.
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
SINTER_MATH1(erfc)
SINTER_MATH1(tanh)
SINTER_MATH1(log1p)
SINTER_MATH1(expm1)
SINTER_MATH2(pow)
SINTER_MATH2(fmod)
SINTER_MATH2(atan2)
#undef SINTER_MATH1
#undef SINTER_MATH2

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
template <class T>
SINTER_DEVICE T select(bool condition, T a, T b) {
  return condition ? a : b;
}
// NaN in either operand gives NaN; -0 lies below +0. Doubles that compare equal differ in no bit but
// the sign of a zero.
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

SINTER_DEVICE float infinity(float) { return __int_as_float(0x7f800000); }
SINTER_DEVICE double infinity(double) { return __longlong_as_double(0x7ff0000000000000ll); }

}  // namespace sinter::math
