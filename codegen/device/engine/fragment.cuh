// Which thread of a warpgroup holds what of a matrix product, and what threads do with it.
//
// Of the 64 rows of an accumulator, warp w holds rows 16 w to 16 w + 15. Of every eight columns,
// lane l holds two neighbours (2 (l % 4) and the next) of row l / 4, then the same two of row l / 4
// + 8: so register i is row 16 w + l / 4 + 8 (i / 2 % 2), column 8 (i / 4) + 2 (l % 4) + i % 2. The
// four lanes of a quad hold a row together.
//
// The left operand in registers takes 32 bytes of k at a time, four registers: rows l / 4 and l / 4
// + 8 of the first 16 bytes, of which the lane holds those at 4 (l % 4), then both of the other 16.
#pragma once
#include "sinter/device/core/math.cuh"
#include "sinter/device/core/warp_matrix.cuh"

namespace sinter {

// The sums of 64 rows and `columns` columns, half of them by each thread's registers.
template <class Sum_, int columns_>
struct Accumulator {
  using Sum = Sum_;
  static constexpr int columns = columns_, count = columns / 2;
  static_assert(columns % 8 == 0 && columns <= 256, "wgmma has 8 to 256 columns");
  Sum at[count];

  // Where register i lies, within the 64 rows and the columns.
  static SINTER_DEVICE int row(int i) {
    const int thread = static_cast<int>(threadIdx.x) % 128;
    return thread / 32 * 16 + thread % 32 / 4 + i / 2 % 2 * 8;
  }
  static SINTER_DEVICE int column(int i) {
    return i / 4 * 8 + static_cast<int>(threadIdx.x) % 4 * 2 + i % 2;
  }

  SINTER_DEVICE void clear() {
#pragma unroll
    for (int i = 0; i < count; ++i) at[i] = 0;
  }
  SINTER_DEVICE void add(const Accumulator& other) {
#pragma unroll
    for (int i = 0; i < count; ++i) at[i] += other.at[i];
  }
  // To four from the `first` on, a multiple of 4, adds the other's times a factor each.
  template <int first>
  SINTER_DEVICE void add_scaled(const Accumulator& other, float f0, float f1, float f2, float f3) {
    const float factors[4] = {f0, f1, f2, f3};
#pragma unroll
    for (int i = 0; i < 4; ++i)
      at[first + i] = math::fma(other.at[first + i], factors[i], at[first + i]);
  }
  // `fours` times four, from the `first` on: of each four, two neighbours at to[at[i]], and two
  // `below` elements further.
  template <int first, int fours, int below>
  SINTER_DEVICE void store(float* to, const int* at) const {
    static_assert(sizeof(Sum) == sizeof(float));
#pragma unroll
    for (int i = 0; i < 4 * fours; ++i)
      if constexpr (is_same<Sum, int>)
        to[at[i / 4] + i / 2 % 2 * below + i % 2] = __int_as_float(this->at[first + i]);
      else
        to[at[i / 4] + i / 2 % 2 * below + i % 2] = this->at[first + i];
  }
  // f(register's number, its sum) for all of them; the number is known when compiling.
  template <class F>
  SINTER_DEVICE void each(const F& f) {
#pragma unroll
    for (int i = 0; i < count; ++i) f(i, at[i]);
  }
};

// Sums in registers that C++ does not see (engine/held_accumulator.cuh).
template <class Sums>
concept HeldByName = Sums::held;

// ---- rows: each thread has two, number 0 (register i with i / 2 % 2 == 0) and number 1

// What a row's lanes make of their own values by `join`, the same in all four.
template <class T, class Join>
SINTER_DEVICE T join_quad(T x, const Join& join) {
  x = join(x, __shfl_xor_sync(0xffffffffu, x, 1));
  return join(x, __shfl_xor_sync(0xffffffffu, x, 2));
}
// The sum over the lanes whose numbers differ in the bits from `first` to `last`.
template <int first, int last, class T>
SINTER_DEVICE T sum_over_lanes(T x) {
#pragma unroll
  for (int distance = first; distance <= last; distance *= 2)
    x += __shfl_xor_sync(0xffffffffu, x, distance);
  return x;
}
// Joins the sums of a thread's row.
template <class Sum, int columns, class Join>
SINTER_DEVICE Sum join_row(const Accumulator<Sum, columns>& sums, int row, Sum start,
                           const Join& join) {
#pragma unroll
  for (int i = 0; i < columns / 2; i += 4) {
    start = join(start, sums.at[i + 2 * row]);
    start = join(start, sums.at[i + 2 * row + 1]);
  }
  return start;
}

// ---- an accumulator as left operand of another product

// 64 rows and `depth` elements of k; `at[j]`: those of the j-th 32 bytes.
template <class Number_, int depth_>
struct OperandFragment {
  using Number = Number_;
  static constexpr int depth = depth_, steps = depth * static_cast<int>(sizeof(Number)) / 32;
  static_assert(depth * sizeof(Number) % 32 == 0, "k of an operand in registers: 32 bytes a step");
  unsigned at[steps][4];
};

// The columns of an accumulator as k of an operand, without a move between lanes. 16-bit numbers
// keep their order. A lane holds two neighbouring columns but, of 32 bits, wants k and k + 4, and
// of 8 bits four neighbours: the hardware's k is then column `column_of_k`, in the order of which
// the other operand's k must lie, too.
template <class Number>
SINTER_DEVICE constexpr int column_of_k(int k) {
  if constexpr (sizeof(Number) == 4) return k / 8 * 8 + k % 4 * 2 + k / 4 % 2;
  if constexpr (sizeof(Number) == 1) return k / 16 * 16 + k % 4 / 2 * 8 + k % 16 / 4 * 2 + k % 2;
  return k;
}
// Two neighbouring columns, and the two that lie eight further.
template <class Number>
SINTER_DEVICE unsigned four_bytes(const float* sums) {
  if constexpr (requires { Number::encode_pair(0.0f, 0.0f); })
    return Number::encode_pair(sums[0], sums[1]) | Number::encode_pair(sums[4], sums[5]) << 16;
  else
    return Number::encode(sums[0]).bits | Number::encode(sums[1]).bits << 8 |
           Number::encode(sums[4]).bits << 16 |
           static_cast<unsigned>(Number::encode(sums[5]).bits) << 24;
}
template <class Number, int columns>
SINTER_DEVICE OperandFragment<Number, columns> to_operand(const Accumulator<float, columns>& sums) {
  using Operand = OperandFragment<Number, columns>;
  Operand a;
#pragma unroll
  for (int j = 0; j < Operand::steps; ++j)
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int row = i % 2 * 2, half = i / 2;  // of the 32 bytes
      if constexpr (sizeof(Number) == 2)
        a.at[j][i] = warp_matrix::pair(Number{}, sums.at[8 * j + 4 * half + row],
                                       sums.at[8 * j + 4 * half + row + 1]);
      else if constexpr (sizeof(Number) == 4)
        a.at[j][i] = Number::encode(sums.at[4 * j + row + half]).bits;
      else
        a.at[j][i] = four_bytes<Number>(&sums.at[16 * j + 8 * half + row]);
    }
  return a;
}

}  // namespace sinter
