// Narrow floating-point formats by integer arithmetic: right on every architecture, also on those
// without conversion instructions for them. Encoding rounds to nearest, ties to even, once, and
// saturates; formats with subnormals keep them.
#pragma once
#include "sinter/device/core/device.cuh"

namespace sinter {

inline constexpr unsigned kFloatInfinity = 0x7f800000u;

// The bits of |x| in a format with `mantissa` explicit bits and exponent bias `bias`, at most
// `largest`. `magnitude` is the bits of |x| as a float; it is not a NaN.
template <int mantissa, int bias, unsigned largest>
SINTER_DEVICE unsigned encode_magnitude(unsigned magnitude) {
  const int exponent = static_cast<int>(magnitude >> 23) - 127;
  unsigned kept = magnitude;
  int dropped = 23 - mantissa;
  unsigned rebias = static_cast<unsigned>(127 - bias) << mantissa;
  if (exponent < 1 - bias) {  // a subnormal result: the hidden bit becomes an explicit one
    const int further = 1 - bias - exponent;
    if (further > mantissa + 1) return 0;  // below half of the smallest subnormal
    kept = (magnitude & 0x7fffffu) | 0x800000u;
    dropped += further;
    rebias = 0;
  }
  const unsigned odd = (kept >> dropped) & 1u;
  const unsigned code = ((kept + (1u << (dropped - 1)) - 1u + odd) >> dropped) - rebias;
  return code < largest ? code : largest;
}

// The value of the bits of a magnitude; NaN is the caller's business.
template <int mantissa, int bias>
SINTER_DEVICE float decode_magnitude(unsigned code) {
  // The bits are those of a float whose exponent is too small by 127 - bias. The product with that
  // power of two is exact, also for subnormals.
  const float scale = __uint_as_float(static_cast<unsigned>(254 - bias) << 23);
  return __uint_as_float(code << (23 - mantissa)) * scale;
}

// x toward zero, with the last bit set where that was not exact. A second rounding to a format with
// at least two bits less then gives what one rounding of x would (Boldo and Melquiond, 2008).
SINTER_DEVICE float round_to_odd(double x) {
  const float toward_zero = __double2float_rz(x);
  const bool exact = static_cast<double>(toward_zero) == x || x != x;
  return exact ? toward_zero : __uint_as_float(__float_as_uint(toward_zero) | 1u);
}

}  // namespace sinter
