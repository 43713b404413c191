#include "emulator/product.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <type_traits>

#include "reference/element.hpp"

namespace sinter::test {
namespace {

using emulator::Number;

constexpr int kMostDepth = 32;

DataType type_of(Number number) {
  switch (number) {
    case Number::bf16:
      return DataType::bf16;
    case Number::f16:
      return DataType::f16;
    case Number::tf32:
      return DataType::f32;
    case Number::e4m3:
      return DataType::f8e4m3;
    case Number::e5m2:
      return DataType::f8e5m2;
    case Number::s8:
      return DataType::i8;
    case Number::u8:
      return DataType::u8;
  }
  return {};
}

// The values of all codes of a type that has 2^bits of them.
template <Number number, int bits>
const float* values() {
  static const auto all = [] {
    std::array<float, 1 << bits> v;
    for (unsigned code = 0; code < v.size(); ++code)
      v[code] = static_cast<float>(load_element(type_of(number), &code, 0));
    return v;
  }();
  return all.data();
}

template <Number number>
class Decoder {
  static constexpr bool is_float = number == Number::bf16 || number == Number::tf32;

 public:
  static constexpr int bytes = number == Number::tf32                            ? 4
                               : number == Number::bf16 || number == Number::f16 ? 2
                                                                                 : 1;
  double operator()(const char* p) const {
    Code code;
    std::memcpy(&code, p, sizeof code);
    return value(code);
  }
  // Those of 16 bytes, several at once by a compiler's vectors where they need no table.
  void line(const char* p, double* values) const {
    constexpr int count = 16 / bytes;
    Code codes[count];
    std::memcpy(codes, p, sizeof codes);
    for (int i = 0; i < count; ++i) values[i] = value(codes[i]);
  }

 private:
  using Code = std::conditional_t<bytes == 1, std::uint8_t,
                                  std::conditional_t<bytes == 2, std::uint16_t, std::uint32_t>>;

  double value(Code code) const {
    if constexpr (is_float)
      return std::bit_cast<float>(bytes == 2 ? std::uint32_t{code} << 16 : code & 0xffffe000u);
    else
      return values_[code];
  }
  static const float* table() {
    if constexpr (is_float)
      return nullptr;
    else
      return values<number, bytes * 8>();
  }
  const float* values_ = table();
};

template <Number number>
using Constant = std::integral_constant<Number, number>;
// Calls visit(a constant that is `number`).
template <class Visit>
void with_constant(Number number, const Visit& visit) {
  switch (number) {
    case Number::bf16:
      return visit(Constant<Number::bf16>());
    case Number::f16:
      return visit(Constant<Number::f16>());
    case Number::tf32:
      return visit(Constant<Number::tf32>());
    case Number::e4m3:
      return visit(Constant<Number::e4m3>());
    case Number::e5m2:
      return visit(Constant<Number::e5m2>());
    case Number::s8:
      return visit(Constant<Number::s8>());
    case Number::u8:
      return visit(Constant<Number::u8>());
  }
}

// An operand in shared memory, by its descriptor. `across`: lines of m or n for every k.
class SharedOperand {
 public:
  SharedOperand(const emulator::Product& p, std::uint64_t descriptor, bool across)
      : anchor_(p.anchor),
        start_(whole_address(p, static_cast<unsigned>(descriptor & 0x3fff) << 4)),
        leading_(static_cast<unsigned>(descriptor >> 16 & 0x3fff) << 4),
        stride_(static_cast<unsigned>(descriptor >> 32 & 0x3fff) << 4),
        swizzle_(descriptor >> 62 == 1   ? 128
                 : descriptor >> 62 == 2 ? 64
                                         : 32),
        line_(std::countr_zero(swizzle_)),
        across_(across),
        bytes_(static_cast<unsigned>(p.bytes)) {}
  const char* at(int m_or_n, int step) const {
    const auto mn = static_cast<unsigned>(m_or_n), k = static_cast<unsigned>(step);
    unsigned a = start_;
    if (across_) {
      const unsigned byte = mn * bytes_;  // lines are of 2^line_ bytes
      a +=
          k % 8 * swizzle_ + k / 8 * stride_ + (byte >> line_) * leading_ + (byte & (swizzle_ - 1));
    } else {
      a += mn % 8 * swizzle_ + mn / 8 * stride_ + k * bytes_;
    }
    return anchor_ + static_cast<int>(emulator::swizzled(a, swizzle_));
  }

 private:
  // The 18 bits of an address that a descriptor holds, within the shared memory of a launch.
  static unsigned whole_address(const emulator::Product& p, unsigned bits) {
    return p.memory + ((bits - p.memory) & 0x3ffff);
  }

  const char* anchor_;
  unsigned start_, leading_, stride_, swizzle_;
  int line_;
  bool across_;
  unsigned bytes_;
};

// A line of an operand in shared memory along k. 16 bytes of one stay together in every swizzle.
template <Number number>
void decode_line(const SharedOperand& operand, bool across, int m_or_n,
                 double (&values)[kMostDepth]) {
  const Decoder<number> decoded;
  constexpr int depth = 32 / decoded.bytes;
  if (across)
    for (int k = 0; k < depth; ++k) values[k] = decoded(operand.at(m_or_n, k));
  else
    for (int k = 0; k < depth; k += 16 / decoded.bytes)
      decoded.line(operand.at(m_or_n, k), values + k);
}

// What a thread holds of the left operand: two rows. engine/fragment.cuh says which.
void left_rows(const emulator::Product& p, double (&rows)[2][kMostDepth]) {
  const SharedOperand a(p, p.a, p.a_across);
  with_constant(p.type_a, [&](auto number) {
    const Decoder<number()> decoded;
    for (int half = 0; half < 2; ++half) {
      if (!p.a_of_quad[0]) {
        decode_line<number()>(a, p.a_across, p.warp * 16 + p.lane / 4 + 8 * half, rows[half]);
        continue;
      }
      for (int k = 0; k < 32 / decoded.bytes; ++k) {
        const int byte = k * decoded.bytes;
        rows[half][k] = decoded(
            reinterpret_cast<const char*>(p.a_of_quad[byte / 4 % 4] + byte / 16 * 2 + half) +
            byte % 4);
      }
    }
  });
}

// The sum of 32 products of 8-bit floats and what was summed before: each is cut off 13 bits behind
// the first of the largest, see lib/reference/engine_contraction.cpp.
double sum_of_bytes(const double (&products)[kMostDepth], double before) {
  double largest = std::fabs(before), sum = before;
  for (const double x : products) {
    largest = std::max(largest, std::fabs(x));
    sum += x;
  }
  if (largest == 0 || !std::isfinite(sum)) return sum;
  // Its exponent: products of floats, and floats, are normal numbers here.
  const int exponent = static_cast<int>(std::bit_cast<std::uint64_t>(largest) >> 52) - 1023 - 13;
  const auto power = [](int e) {
    return std::bit_cast<double>(static_cast<std::uint64_t>(e + 1023) << 52);
  };
  const double unit = power(exponent), inverse = power(-exponent);
  int units = static_cast<int>(before * inverse);
  for (const double x : products) units += static_cast<int>(x * inverse);
  return units * unit;
}

template <class Sum, Number type_b>
void add(const emulator::Product& p) {
  constexpr int depth = 32 / Decoder<type_b>::bytes;
  double rows[2][kMostDepth], columns[2][kMostDepth];
  left_rows(p, rows);
  const SharedOperand b(p, p.b, p.b_across);
  const bool bytes = p.type_a == Number::e4m3 || p.type_a == Number::e5m2;
  auto* const d = static_cast<Sum*>(p.d);
  for (int i = 0; i < p.columns / 2; i += 4) {
    for (int j = 0; j < 2; ++j)
      decode_line<type_b>(b, p.b_across, i * 2 + p.lane % 4 * 2 + j, columns[j]);
    double sums[2][2] = {};
    if (!bytes)
      for (int k = 0; k < depth; ++k)
        for (int half = 0; half < 2; ++half)
          for (int j = 0; j < 2; ++j) sums[half][j] += rows[half][k] * columns[j][k];
    for (int half = 0; half < 2; ++half)
      for (int j = 0; j < 2; ++j) {
        Sum& sum = d[i + 2 * half + j];
        const double before = p.keep ? static_cast<double>(sum) : 0;
        if (bytes) {
          double products[kMostDepth];
          for (int k = 0; k < kMostDepth; ++k) products[k] = rows[half][k] * columns[j][k];
          sum = static_cast<Sum>(sum_of_bytes(products, before));
        } else {
          sum = static_cast<Sum>(before + sums[half][j]);
        }
      }
  }
}

}  // namespace

void multiply(const emulator::Product& p) {
  with_constant(p.type_b,
                [&](auto type_b) { p.integers ? add<int, type_b()>(p) : add<float, type_b()>(p); });
}

void multiply_shown(Number type, const emulator::Warp& warp, unsigned lane, float* sums) {
  const int each = type == Number::tf32 ? 1 : 2;  // of a register
  with_constant(type, [&](auto number) {
    const Decoder<number()> decoded;
    // Register `i` of a lane: four of the left operand, then two of the right.
    const auto element = [&](unsigned of, unsigned i, int e) {
      return decoded(reinterpret_cast<const char*>(warp.shown()[of]) + 4 * i + 2 * e);
    };
    constexpr int kMostShown = 16;  // numbers of a row or column
    double rows[2][kMostShown], columns[2][kMostShown];
    for (unsigned i = 0; i < 2; ++i)
      for (unsigned t = 0, k = 0; t < 4; ++t)
        for (unsigned half = 0; half < 2; ++half)
          for (int e = 0; e < each; ++e, ++k) {
            rows[i][k] = element(lane / 4 * 4 + t, 2 * half + i, e);
            columns[i][k] = element((lane % 4 * 2 + i) * 4 + t, 4 + half, e);
          }
    for (unsigned i = 0; i < 4; ++i) {
      double sum = sums[i];
      for (int k = 0; k < 8 * each; ++k) sum += rows[i / 2][k] * columns[i % 2][k];
      sums[i] = static_cast<float>(sum);
    }
  });
}

}  // namespace sinter::test
