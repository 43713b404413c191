// The storage types of tensors and their conversions from and to float and double, the two types in
// which kernels compute. The rules of GRAPH_JSON.md: f16 and bf16 overflow to infinity, f8 and f4
// saturate, f8e8m0 rounds up to a power of two, integers round to nearest even and saturate, NaN to
// an integer is 0 and to bool is true. A double is rounded once, never through a rounded float.
#pragma once
#include "sinter/device/core/hardware.cuh"
#include "sinter/device/core/minifloat.cuh"

namespace sinter {

using f64 = double;
using f32 = float;
using i8 = signed char;
using u8 = unsigned char;
using i32 = int;
using i64 = long long;

struct f16 {
  unsigned short bits;
  static SINTER_DEVICE f16 encode(float x) { return {hardware::to_f16(x)}; }
  SINTER_DEVICE float decode() const { return hardware::from_f16(bits); }
};

struct bf16 {
  unsigned short bits;
  static SINTER_DEVICE bf16 encode(float x) { return {hardware::to_bf16(x)}; }
  SINTER_DEVICE float decode() const { return __uint_as_float(static_cast<unsigned>(bits) << 16); }
};

// A sign and a magnitude in one byte. `nan` is what a NaN becomes; `first_nan` and all magnitudes
// above it read as NaN, but for `infinity`.
template <int mantissa, int bias, unsigned largest, unsigned nan, unsigned first_nan,
          unsigned infinity, int sign_bit>
struct Minifloat {
  unsigned char bits;
  static SINTER_DEVICE Minifloat encode(float x) {
#ifdef SINTER_HARDWARE_F8
    if constexpr (mantissa == 3) return {hardware::to_f8e4m3(x)};
    if constexpr (mantissa == 2) return {hardware::to_f8e5m2(x)};
#endif
    const unsigned sign = __float_as_uint(x) >> 31 << sign_bit,
                   code = encode_magnitude<mantissa, bias, largest>(x) | sign;
    return {static_cast<unsigned char>(x != x ? nan : code)};
  }
#ifdef SINTER_HARDWARE_F8
  // The bits of two that lie next to each other, where hardware converts them together.
  static constexpr bool in_pairs = mantissa == 3 || mantissa == 2;
  static SINTER_DEVICE unsigned short encode_pair(float low, float high) {
    return mantissa == 3 ? hardware::to_f8e4m3_pair(low, high)
                         : hardware::to_f8e5m2_pair(low, high);
  }
  // Number `i` of such two.
  static SINTER_DEVICE float decode_pair(unsigned short bits, int i) {
    if constexpr (mantissa == 3) return hardware::from_f8e4m3_pair(bits, i);
    return Minifloat{static_cast<unsigned char>(bits >> 8 * i)}.decode();
  }
#endif
  SINTER_DEVICE float decode() const {
#ifdef SINTER_HARDWARE_F8
    if constexpr (mantissa == 3) return hardware::from_f8e4m3(bits);
    if constexpr (mantissa == 2) return hardware::from_f8e5m2(bits);
#endif
    const unsigned code = bits & ((1u << sign_bit) - 1u), sign = bits >> sign_bit & 1u;
    unsigned value = __float_as_uint(decode_magnitude<mantissa, bias>(code));
    if (code >= first_nan) value = 0x7fffffffu;
    if (code == infinity) value = kFloatInfinity;
    return __uint_as_float(value | sign << 31);
  }
};
inline constexpr unsigned kNone = 0x100;  // no such code
using f8e4m3 = Minifloat<3, 7, 0x7e, 0x7f, 0x7f, kNone, 7>;
using f8e5m2 = Minifloat<2, 15, 0x7b, 0x7f, 0x7d, 0x7c, 7>;
using f4e2m1 = Minifloat<1, 1, 0x7, 0x7, kNone, kNone, 3>;  // no NaN: it becomes the largest

struct f8e8m0 {  // 2^(bits - 127); 0xff is NaN. There is no sign: numbers below zero are NaN.
  unsigned char bits;
  static SINTER_DEVICE f8e8m0 encode(float x) {
    const unsigned magnitude = __float_as_uint(x) & 0x7fffffffu;
    if (magnitude > kFloatInfinity || x < 0.0f) return {0xff};
    if (magnitude <= 0x400000u) return {0};  // 2^-127 and what lies below it
    const unsigned up = (magnitude + 0x7fffffu) >> 23;
    return {static_cast<unsigned char>(up < 0xfe ? up : 0xfe)};
  }
  SINTER_DEVICE float decode() const {
    const unsigned value = bits == 0xff ? 0x7fffffffu : static_cast<unsigned>(bits) << 23;
    return __uint_as_float(bits == 0 ? 0x400000u : value);
  }
};

struct bool8 {
  unsigned char bits;
  static SINTER_DEVICE bool8 encode(float x) { return {static_cast<unsigned char>(!(x == 0.0f))}; }
  SINTER_DEVICE float decode() const { return bits != 0 ? 1.0f : 0.0f; }
};

// ---- one door to all of them: Format<Element>::encode, decode

template <class Element>
struct Format {
  static SINTER_DEVICE Element encode(float x) { return Element::encode(x); }
  static SINTER_DEVICE Element encode(double x) { return Element::encode(round_to_odd(x)); }
  static SINTER_DEVICE float decode(Element e) { return e.decode(); }
  static SINTER_DEVICE Element fetch(const Element* p) { return {hardware::load(&p->bits)}; }
};

template <class Element>
struct BuiltinFormat {
  static SINTER_DEVICE Element decode(Element e) { return e; }
  static SINTER_DEVICE Element fetch(const Element* p) { return hardware::load(p); }
};
template <>
struct Format<f32> : BuiltinFormat<f32> {
  static SINTER_DEVICE f32 encode(float x) { return x; }
  static SINTER_DEVICE f32 encode(double x) { return __double2float_rn(in_both_words(x)); }
};
template <>
struct Format<f64> : BuiltinFormat<f64> {
  static SINTER_DEVICE f64 encode(float x) { return x; }
  static SINTER_DEVICE f64 encode(double x) { return x; }
};
template <>
struct Format<i32> : BuiltinFormat<i32> {
  static SINTER_DEVICE i32 encode(float x) { return x != x ? 0 : __float2int_rn(x); }
  static SINTER_DEVICE i32 encode(double x) {
    return x != x ? 0 : __double2int_rn(in_both_words(x));
  }
};
template <>
struct Format<i64> : BuiltinFormat<i64> {
  static SINTER_DEVICE i64 encode(float x) { return x != x ? 0 : __float2ll_rn(x); }
  static SINTER_DEVICE i64 encode(double x) { return x != x ? 0 : __double2ll_rn(x); }
};
template <class Byte, int lowest, int largest>
struct ByteFormat : BuiltinFormat<Byte> {
  template <class T>
  static SINTER_DEVICE Byte encode(T x) {
    const int wide = Format<i32>::encode(x);
    return static_cast<Byte>(wide < lowest ? lowest : wide > largest ? largest : wide);
  }
};
template <>
struct Format<i8> : ByteFormat<i8, -128, 127> {};
template <>
struct Format<u8> : ByteFormat<u8, 0, 255> {};

// x rounded to the storage type and back.
template <class Element, class T>
SINTER_DEVICE T convert(T x) {
  if constexpr (is_same<Element, T> || is_same<Element, f64>) return x;
  if constexpr (is_same<Element, bf16> && is_same<T, float>) return hardware::rounded_to_bf16(x);
  return static_cast<T>(Format<Element>::decode(Format<Element>::encode(x)));
}

// A stored element as a value. Buffers that a kernel reads are not written while it runs.
template <class T, class Element>
SINTER_DEVICE T read(const Element* p) {
  return static_cast<T>(Format<Element>::decode(Format<Element>::fetch(p)));
}
template <class Element, class T>
SINTER_DEVICE void write(Element* p, T x) {
  *p = Format<Element>::encode(x);
}

}  // namespace sinter
