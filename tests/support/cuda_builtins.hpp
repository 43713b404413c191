// CUDA's conversions, defined for the host. Include it, behind <cmath> and <cstring>, in the
// namespace that the device library is compiled in.
#pragma once

template <class To, class From>
To bits_as(From x) {
  static_assert(sizeof(To) == sizeof(From));
  To y;
  std::memcpy(&y, &x, sizeof y);
  return y;
}
inline unsigned __float_as_uint(float x) { return bits_as<unsigned>(x); }
inline int __float_as_int(float x) { return bits_as<int>(x); }
inline float __uint_as_float(unsigned x) { return bits_as<float>(x); }
inline float __int_as_float(int x) { return bits_as<float>(x); }
inline long long __double_as_longlong(double x) { return bits_as<long long>(x); }
inline double __longlong_as_double(long long x) { return bits_as<double>(x); }
inline double __dadd_rn(double x, double y) { return x + y; }
inline float __double2float_rn(double x) { return static_cast<float>(x); }
inline float __double2float_rz(double x) {
  const float r = static_cast<float>(x);
  return std::fabs(static_cast<double>(r)) > std::fabs(x) ? std::nextafter(r, 0.0f) : r;
}
// Out of range the nearest number; NaN becomes 0 in 32 bits and the least number in 64.
inline int __double2int_rn(double x) {
  return x != x               ? 0
         : x >= 2147483647.0  ? 2147483647
         : x <= -2147483648.0 ? -2147483647 - 1
                              : static_cast<int>(std::rint(x));
}
inline int __float2int_rn(float x) { return __double2int_rn(x); }
inline long long __double2ll_rn(double x) {
  constexpr long long most = 9223372036854775807;
  return x != x ? -most - 1 : x >= 0x1p63 ? most : x < -0x1p63 ? -most - 1 : std::llrint(x);
}
inline long long __float2ll_rn(float x) { return __double2ll_rn(x); }
