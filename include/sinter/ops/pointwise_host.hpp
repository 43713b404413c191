// The elementary functions that pointwise.hpp is written in, for host floats and doubles. The device
// has its own in codegen/device/core/math.cuh, the error-carrying reference its own beside its type.
#pragma once
#include <cmath>
#include <limits>
#include <type_traits>

namespace sinter::math {

using std::abs, std::ceil, std::floor, std::rint, std::sqrt, std::exp, std::exp2, std::log, std::sin,
    std::cos, std::tan, std::erf, std::tanh, std::pow, std::fmod, std::atan2, std::fma;

template <class T>
concept HostFloat = std::is_same_v<T, float> || std::is_same_v<T, double>;

template <HostFloat T> T rsqrt(T x) { return T(1) / std::sqrt(x); }
template <HostFloat T> T reciprocal(T x) { return T(1) / x; }
// What the standard normal distribution has beyond t >= 0.
template <HostFloat T> T normal_tail(T t) {
  return static_cast<T>(0.5 * std::erfc(0.70710678118654752440 * static_cast<double>(t)));
}
template <HostFloat T> T fast_exp2(T x) { return std::exp2(x); }
template <HostFloat T> T expm1_nonpositive(T x) { return std::expm1(x); }
template <HostFloat T> T log1p_unit(T x) { return std::log1p(x); }
template <HostFloat T> T fast_reciprocal(T x) { return T(1) / x; }
template <HostFloat T> bool less(T a, T b) { return a < b; }
template <HostFloat T> bool less_equal(T a, T b) { return a <= b; }
template <HostFloat T> bool equal(T a, T b) { return a == b; }
inline bool either(bool a, bool b) { return a || b; }
inline bool both(bool a, bool b) { return a && b; }
inline bool opposite(bool a) { return !a; }
template <HostFloat T> T select(bool condition, T a, T b) { return condition ? a : b; }
// IEEE 754-2019: NaN in either operand gives NaN, and -0 lies below +0.
template <HostFloat T> T minimum(T a, T b) {
  return a != a ? a : b != b ? b : b < a || (a == b && std::signbit(b)) ? b : a;
}
template <HostFloat T> T maximum(T a, T b) {
  return a != a ? a : b != b ? b : a < b || (a == b && std::signbit(a)) ? b : a;
}
template <HostFloat T> T largest(T) { return std::numeric_limits<T>::max(); }
// x, but at most `limit` in magnitude.
template <HostFloat T> T clamp_magnitude(T x, T limit) {
  return x < -limit ? -limit : limit < x ? limit : x;
}
// a * b where a product past the largest number may count as infinity.
template <HostFloat T> T product(T a, T b) { return a * b; }

}  // namespace sinter::math
