// Narrow floating-point formats by integer arithmetic: right on every architecture, also on those
// without conversion instructions for them. Encoding rounds to nearest, ties to even, once, and
// saturates; formats with subnormals keep them.
#pragma once
#include "sinter/device/core/device.cuh"

namespace sinter {

inline constexpr unsigned kFloatInfinity = 0x7f800000u;

// The bits of |x| in a format with `mantissa` explicit bits and exponent bias `bias`, at most
// `largest`; of NaN those of `largest`. Without branches: a number whose last bit is worth as much
// as the result's is added, so that the sum's last bits count those, rounded. Below the smallest
// normal number all are worth the same.
template <int mantissa, int bias, unsigned largest>
SINTER_DEVICE unsigned encode_magnitude(float x) {
  constexpr int dropped = 23 - mantissa;
  constexpr unsigned smallest_normal = static_cast<unsigned>(128 - bias) << 23;
  const float most =
      __uint_as_float((largest << dropped) + (static_cast<unsigned>(127 - bias) << 23));
  const float bounded = fminf(fabsf(x), most);
  const unsigned own = __float_as_uint(bounded) & kFloatInfinity,
                 exponent = own < smallest_normal ? smallest_normal : own,
                 counter = exponent + (static_cast<unsigned>(dropped) << 23);
  const unsigned sum = __float_as_uint(bounded + __uint_as_float(counter));
  return sum - counter + ((exponent - smallest_normal) >> dropped);
}

// The value of the bits of a magnitude; NaN is the caller's business.
template <int mantissa, int bias>
SINTER_DEVICE float decode_magnitude(unsigned code) {
  // The bits are those of a float whose exponent is too small by 127 - bias. The product with that
  // power of two is exact, also for subnormals.
  const float scale = __uint_as_float(static_cast<unsigned>(254 - bias) << 23);
  return __uint_as_float(code << (23 - mantissa)) * scale;
}

// x, by an addition that no compiler leaves out, before it is converted to 32 bits. Of two such
// conversions that name the same registers ptxas 13.0 drops the second one where only the upper
// word was written between them, as where 1.0 or 0.0 is selected: an addition writes both words.
SINTER_DEVICE double in_both_words(double x) { return __dadd_rn(x, -0.0); }

// x toward zero, with the last bit set where that was not exact. A second rounding to a format with
// at least two bits less then gives what one rounding of x would (Boldo and Melquiond, 2008).
SINTER_DEVICE float round_to_odd(double x) {
  const float toward_zero = __double2float_rz(in_both_words(x));
  const bool exact = static_cast<double>(toward_zero) == x || x != x;
  return exact ? toward_zero : __uint_as_float(__float_as_uint(toward_zero) | 1u);
}

}  // namespace sinter
