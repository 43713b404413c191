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

// Eight lines of an operand along k, from `first` on: element k of line i is at [k][i].
using Eight = double[8];
template <Number number>
void decode_lines(const SharedOperand& operand, bool across, int first, Eight* values) {
  const Decoder<number> decoded;
  constexpr int depth = 32 / decoded.bytes;
  if (across && decoded.bytes == 2) {  // 16 bytes hold an element of each line
    for (int k = 0; k < depth; ++k) decoded.line(operand.at(first, k), values[k]);
    return;
  }
  for (int i = 0; i < 8; ++i) {
    double line[kMostDepth];
    decode_line<number>(operand, across, first + i, line);
    for (int k = 0; k < depth; ++k) values[k][i] = line[k];
  }
}

// The left operand's 16 rows, eight and eight. engine/fragment.cuh says what registers hold.
void decode_rows(const emulator::Product* const (&lanes)[emulator::kWarp],
                 Eight (&rows)[2][kMostDepth]) {
  const emulator::Product& p = *lanes[0];
  const SharedOperand a(p, p.a, p.a_across);
  with_constant(p.type_a, [&](auto number) {
    const Decoder<number()> decoded;
    for (int half = 0; half < 2; ++half) {
      if (!p.a_registers) {
        decode_lines<number()>(a, p.a_across, p.warp * 16 + 8 * half, rows[half]);
        continue;
      }
      for (int row = 0; row < 8; ++row)
        for (int k = 0; k < 32 / decoded.bytes; ++k) {
          const int byte = k * decoded.bytes;
          const unsigned* const of_lane = lanes[row * 4 + byte / 4 % 4]->a_registers;
          rows[half][k][row] =
              decoded(reinterpret_cast<const char*>(of_lane + byte / 16 * 2 + half) + byte % 4);
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
void add(const emulator::Product* const (&lanes)[emulator::kWarp]) {
  constexpr int depth = 32 / Decoder<type_b>::bytes;
  const emulator::Product& p = *lanes[0];
  Eight rows[2][kMostDepth], columns[kMostDepth];
  decode_rows(lanes, rows);
  const SharedOperand b(p, p.b, p.b_across);
  const bool bytes = p.type_a == Number::e4m3 || p.type_a == Number::e5m2;
  // A lane has two neighbouring columns of eight, of one row of each half.
  for (int first = 0; first < p.columns; first += 8) {
    decode_lines<type_b>(b, p.b_across, first, columns);
    for (int row = 0; row < 16; ++row) {
      const Eight* const left = rows[row / 8];
      const auto sum_of = [&](int column) -> Sum& {
        return static_cast<Sum*>(
            lanes[row % 8 * 4 + column / 2]->d)[first / 2 + row / 8 * 2 + column % 2];
      };
      Eight sums = {};
      if (!bytes)
        for (int k = 0; k < depth; ++k)
          for (int column = 0; column < 8; ++column)
            sums[column] += left[k][row % 8] * columns[k][column];
      for (int column = 0; column < 8; ++column) {
        Sum& sum = sum_of(column);
        const double before = p.keep ? static_cast<double>(sum) : 0;
        if (bytes) {
          double products[kMostDepth];
          for (int k = 0; k < kMostDepth; ++k) products[k] = left[k][row % 8] * columns[k][column];
          sum = static_cast<Sum>(sum_of_bytes(products, before));
        } else {
          sum = static_cast<Sum>(before + sums[column]);
        }
      }
    }
  }
}

bool alike(const emulator::Product& x, const emulator::Product& y) {
  return x.type_a == y.type_a && x.type_b == y.type_b && x.a_across == y.a_across &&
         x.b_across == y.b_across && x.integers == y.integers && x.keep == y.keep &&
         x.bytes == y.bytes && x.columns == y.columns && x.warp == y.warp && x.a == y.a &&
         x.b == y.b && !x.a_registers == !y.a_registers;
}

}  // namespace

bool multiply(const emulator::Product* const (&lanes)[emulator::kWarp]) {
  for (const emulator::Product* p : lanes)
    if (!p || !alike(*p, *lanes[0])) return false;
  with_constant(lanes[0]->type_b, [&](auto type_b) {
    lanes[0]->integers ? add<int, type_b()>(lanes) : add<float, type_b()>(lanes);
  });
  return true;
}

bool multiply(const emulator::BlockProduct* const (&lanes)[emulator::kWarp]) {
  for (const emulator::BlockProduct* p : lanes)
    if (!p || p->type != lanes[0]->type) return false;
  with_constant(lanes[0]->type, [&](auto number) {
    const Decoder<number()> decoded;
    constexpr int each = 4 / Decoder<number()>::bytes,
                  depth = 8 * each;  // of a register; of a line
    // Element k of a row or column is in lane k / each % 4 of its quad, in one of two registers.
    Eight rows[2][depth], columns[depth];
    for (int line = 0; line < 8; ++line)
      for (int k = 0; k < depth; ++k) {
        const emulator::BlockProduct& p = *lanes[line * 4 + k / each % 4];
        const auto element = [&](const unsigned& of) {
          return decoded(reinterpret_cast<const char*>(&of) + k % each * decoded.bytes);
        };
        const int half = k / each / 4;
        rows[0][k][line] = element(p.a[2 * half]);
        rows[1][k][line] = element(p.a[2 * half + 1]);
        columns[k][line] = element(p.b[half]);
      }
    for (int row = 0; row < 16; ++row) {
      const auto sum_of = [&](int column) -> float& {
        return lanes[row % 8 * 4 + column / 2]->d[row / 8 * 2 + column % 2];
      };
      Eight sums;
      for (int column = 0; column < 8; ++column) sums[column] = sum_of(column);
      for (int k = 0; k < depth; ++k)
        for (int column = 0; column < 8; ++column)
          sums[column] += rows[row / 8][k][row % 8] * columns[k][column];
      for (int column = 0; column < 8; ++column) sum_of(column) = static_cast<float>(sums[column]);
    }
  });
  return true;
}

}  // namespace sinter::test
