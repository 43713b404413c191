// Every rounding is done once, on the double: quantum = the distance between neighbours of the
// target format at that magnitude, then round half to even of value / quantum, which is exact.
// Going through float first would round twice.
#include "reference/element.hpp"

#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "sinter/ops/attributes.hpp"

namespace sinter {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

// Exponent of a finite non-zero number, subnormal doubles counted as the smallest normal one: no
// format here reaches below that.
int exponent_of(double x) {
  const int biased = static_cast<int>(std::bit_cast<std::uint64_t>(x) >> 52 & 0x7ff);
  return biased == 0 ? -1022 : biased - 1023;
}

double power_of_two(int e) {
  return e < -1022 ? std::ldexp(1.0, e)
                   : std::bit_cast<double>(static_cast<std::uint64_t>(e + 1023) << 52);
}

double round_floating(const DataTypeInfo& t, bool has_nan, double x) {
  if (x != x) return has_nan ? kNaN : t.largest;
  if (x == 0) return x;
  if (std::fabs(x) == kInfinity) return t.saturates ? std::copysign(t.largest, x) : x;
  const int e = exponent_of(x);
  const int lsb = (e < t.min_exponent ? t.min_exponent : e) - t.precision + 1;
  const double r = std::ldexp(std::rint(std::ldexp(x, -lsb)), lsb);
  if (std::fabs(r) <= t.largest) return r;
  return std::copysign(t.saturates ? t.largest : kInfinity, x);
}

// Up to a power of two. There are no negative ones: what lies below zero is NaN, zero of either
// sign is the smallest number.
double round_power_of_two(double x) {
  if (!(x >= 0)) return kNaN;
  if (x >= 0x1p127) return 0x1p127;
  if (x <= 0x1p-127) return 0x1p-127;
  const double p = power_of_two(exponent_of(x));
  return p == x ? p : 2 * p;
}

double round_integer(const DataTypeInfo& t, double x) {
  if (x != x) return 0;
  if (x <= t.lowest) return t.lowest;
  if (x >= t.largest) return t.largest;
  return std::rint(x) + 0.0;  // + 0.0 turns -0 into the only zero of an integer
}

// The bits of a number that the format holds exactly. `infinity` and `nan` are its codes for those.
unsigned encode(const DataTypeInfo& t, int bits, unsigned infinity, unsigned nan, double r) {
  if (r != r) return nan;
  const unsigned sign = std::signbit(r) ? 1u << (bits - 1) : 0;
  const double a = std::fabs(r);
  if (a == kInfinity) return sign | infinity;
  if (a < power_of_two(t.min_exponent))
    return sign | static_cast<unsigned>(std::ldexp(a, t.precision - 1 - t.min_exponent));
  const int e = exponent_of(a);
  const auto mantissa = static_cast<unsigned>(std::ldexp(a, t.precision - 1 - e));
  // The hidden bit of the mantissa carries into the exponent field, which starts at 1.
  return sign | ((static_cast<unsigned>(e - t.min_exponent) << (t.precision - 1)) + mantissa);
}

double decode(const DataTypeInfo& t, int bits, unsigned code) {
  const unsigned sign = code >> (bits - 1) & 1, rest = code & ((1u << (bits - 1)) - 1);
  const unsigned field = rest >> (t.precision - 1),
                 mantissa = rest & ((1u << (t.precision - 1)) - 1);
  const int lsb = t.min_exponent - t.precision + 1;
  const double a = field == 0 ? std::ldexp(mantissa, lsb)
                              : std::ldexp(mantissa + (1u << (t.precision - 1)),
                                           lsb + static_cast<int>(field) - 1);
  return sign ? -a : a;
}

double decode_half(std::uint16_t code) {
  if ((code & 0x7c00) == 0x7c00)
    return code & 0x3ff ? kNaN : code & 0x8000 ? -kInfinity : kInfinity;
  return decode(info(f16), 16, code);
}

double decode_byte(DataType type, unsigned code) {
  switch (type) {
    case DataType::f8e4m3:
      return (code & 0x7f) == 0x7f ? kNaN : decode(info(type), 8, code);
    case DataType::f8e5m2:
      if ((code & 0x7c) == 0x7c) return code & 3 ? kNaN : code & 0x80 ? -kInfinity : kInfinity;
      return decode(info(type), 8, code);
    case DataType::f8e8m0:
      return code == 0xff ? kNaN : std::ldexp(1.0, static_cast<int>(code) - 127);
    default:
      return decode(info(f4e2m1), 4, code & 15);
  }
}

template <DataType type>
double from_table(unsigned code) {
  static const auto table = [] {
    std::array<double, 256> t{};
    for (unsigned i = 0; i < 256; ++i) t[i] = decode_byte(type, i);
    return t;
  }();
  return table[code];
}

template <class T>
T read(const void* base, std::int64_t index) {
  T value;
  std::memcpy(&value, static_cast<const char*>(base) + index * static_cast<std::int64_t>(sizeof(T)),
              sizeof(T));
  return value;
}
template <class T>
void write(void* base, std::int64_t index, T value) {
  std::memcpy(static_cast<char*>(base) + index * static_cast<std::int64_t>(sizeof(T)), &value,
              sizeof(T));
}

float half_from_table(std::uint16_t code) {
  static const auto table = [] {
    std::array<float, 65536> t{};
    for (unsigned i = 0; i < 65536; ++i)
      t[i] = static_cast<float>(decode_half(static_cast<std::uint16_t>(i)));
    return t;
  }();
  return table[code];
}

}  // namespace

double load_element(DataType type, const void* base, std::int64_t i) {
  switch (type) {
    case DataType::f64:
      return read<double>(base, i);
    case DataType::f32:
    case DataType::tf32:
      return read<float>(base, i);
    case DataType::f16:
      return half_from_table(read<std::uint16_t>(base, i));
    case DataType::bf16:
      return std::bit_cast<float>(static_cast<std::uint32_t>(read<std::uint16_t>(base, i)) << 16);
    case DataType::f8e4m3:
      return from_table<DataType::f8e4m3>(read<std::uint8_t>(base, i));
    case DataType::f8e5m2:
      return from_table<DataType::f8e5m2>(read<std::uint8_t>(base, i));
    case DataType::f8e8m0:
      return from_table<DataType::f8e8m0>(read<std::uint8_t>(base, i));
    case DataType::f4e2m1:
      return from_table<DataType::f4e2m1>(read<std::uint8_t>(base, i));
    case DataType::i8:
      return read<std::int8_t>(base, i);
    case DataType::u8:
      return read<std::uint8_t>(base, i);
    case DataType::i32:
      return read<std::int32_t>(base, i);
    case DataType::i64:
      return static_cast<double>(read<std::int64_t>(base, i));
    case DataType::boolean:
      return read<std::uint8_t>(base, i) != 0;
    case DataType::none:
      break;
  }
  return kNaN;
}

double round_to(DataType type, double x) {
  switch (type) {
    case DataType::none:
    case DataType::f64:
      return x;
    case DataType::f32:
      return static_cast<float>(x);
    case DataType::f8e8m0:
      return round_power_of_two(x);
    case DataType::i8:
    case DataType::u8:
    case DataType::i32:
    case DataType::i64:
      return round_integer(info(type), x);
    case DataType::boolean:
      return x != 0;
    default:
      return round_floating(info(type), type != DataType::f4e2m1, x);
  }
}

void store_element(DataType type, void* base, std::int64_t i, double x) {
  const double r = round_to(type, x);
  const auto bits = [&](int width, unsigned infinity, unsigned nan) {
    return encode(info(type), width, infinity, nan, r);
  };
  switch (type) {
    case DataType::f64:
      return write(base, i, r);
    case DataType::f32:
    case DataType::tf32:
      return write(base, i, static_cast<float>(r));
    case DataType::f16:
      return write(base, i, static_cast<std::uint16_t>(bits(16, 0x7c00, 0x7e00)));
    case DataType::bf16:
      return write(base, i, static_cast<std::uint16_t>(bits(16, 0x7f80, 0x7fc0)));
    case DataType::f8e4m3:
      return write(base, i, static_cast<std::uint8_t>(bits(8, 0x7e, 0x7f)));
    case DataType::f8e5m2:
      return write(base, i, static_cast<std::uint8_t>(bits(8, 0x7c, 0x7f)));
    case DataType::f8e8m0:
      return write(base, i, static_cast<std::uint8_t>(r != r ? 0xff : std::ilogb(r) + 127));
    case DataType::f4e2m1:
      return write(base, i, static_cast<std::uint8_t>(bits(4, 7, 7)));
    case DataType::i8:
      return write(base, i, static_cast<std::int8_t>(r));
    case DataType::u8:
      return write(base, i, static_cast<std::uint8_t>(r));
    case DataType::i32:
      return write(base, i, static_cast<std::int32_t>(r));
    case DataType::i64:
      return write(
          base, i,
          r >= 0x1p63 ? std::numeric_limits<std::int64_t>::max() : static_cast<std::int64_t>(r));
    case DataType::boolean:
      return write(base, i, static_cast<std::uint8_t>(r));
    case DataType::none:
      return;
  }
}

}  // namespace sinter
