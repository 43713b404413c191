// Keys and values of 8 bits as operands of 16, by a warp that has its rows for itself: fragments
// are made of the bytes as they lie in shared memory, in an order of k or of columns that suits
// them, so that nothing is written there again and nobody waits for it. Each element is widened
// once.
#pragma once
#include "sinter/device/engine/fragment.cuh"
#include "sinter/device/family/attention_lines.cuh"

namespace sinter::attention {

// The order of a head's elements as k: of each 64, lane i of a quad has 16 i to 16 i + 15, four for
// each of four steps.
template <class S, bool narrow>
struct NarrowKeys {};
template <class S>
struct NarrowKeys<S, true> {
  using Lines = typename S::StageK;
  int at;
  SINTER_DEVICE NarrowKeys() : at(Lines::place(lane() / 4, lane() % 4 * 16)) {}

  // Four steps of Q, whose 16 rows begin at `row` of the tile.
  template <int steps, int blocks>
  SINTER_DEVICE void get_rows(unsigned (&rows)[steps][blocks][4], int block, unsigned q,
                              int row) const {
#pragma unroll
    for (int r = 0; r < 2; ++r)
#pragma unroll
      for (int piece = 0; piece < steps / 2; ++piece) {
        const int column = piece / 2 * 64 + lane() % 4 * 16 + piece % 2 * 8;
        const float4 x =
            warp_matrix::get_four(q + S::TileQ::place(row + lane() / 4 + 8 * r, column));
        rows[piece * 2][block][r] = __float_as_uint(x.x);
        rows[piece * 2][block][r + 2] = __float_as_uint(x.y);
        rows[piece * 2 + 1][block][r] = __float_as_uint(x.z);
        rows[piece * 2 + 1][block][r + 2] = __float_as_uint(x.w);
      }
  }
  // The right operands of four steps, the i-th four, for keys 8 n to 8 n + 7.
  SINTER_DEVICE void get(unsigned (&k)[4][2], unsigned keys, int n, int i) const {
    const float4 x = warp_matrix::get_four(keys + (at ^ i * 64) + n * 8 * Lines::fastest);
    const float words[4] = {x.x, x.y, x.z, x.w};
#pragma unroll
    for (int w = 0; w < 4; ++w)
#pragma unroll
      for (int h = 0; h < 2; ++h)
        k[w][h] =
            warp_matrix::widened(typename S::Number{}, typename S::NumberK{},
                                 static_cast<unsigned short>(__float_as_uint(words[w]) >> 16 * h));
  }

 private:
  static SINTER_DEVICE int lane() { return static_cast<int>(threadIdx.x) % 32; }
};

// The order of columns: of each 16 the even ones are eight that are multiplied at once, the odd
// ones the next. Two neighbours are what a transposing load takes for one element.
template <class S, bool narrow>
struct NarrowValues {};
template <class S>
struct NarrowValues<S, true> {
  using Lines = typename S::StageV;
  int at;
  SINTER_DEVICE NarrowValues() {
    const int lane = static_cast<int>(threadIdx.x) % 32, block = lane / 8;
    at = Lines::place(block % 2 * 8 + lane % 8, block / 2 * 16);
  }
  // The right operands of 32 columns, from 32 e on, for keys 16 k to 16 k + 15.
  SINTER_DEVICE void get(unsigned (&v)[4][2], unsigned values, int k, int e) const {
    unsigned words[4];
    warp_matrix::get_transposed(words, values + (at ^ e * 32) + k * 16 * Lines::fastest);
#pragma unroll
    for (int w = 0; w < 4; ++w) {
      const unsigned columns = warp_matrix::bytes_of(words[w], words[w], 0x3120);
#pragma unroll
      for (int h = 0; h < 2; ++h)
        v[w / 2 * 2 + h][w % 2] =
            warp_matrix::widened(typename S::Number{}, typename S::NumberV{},
                                 static_cast<unsigned short>(columns >> 16 * h));
    }
  }
};
// Sums of columns in that order to those of fragment.cuh.
template <int columns>
SINTER_DEVICE void put_columns_in_order(Accumulator<float, columns>& sums) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
  for (int e = 0; e < columns / 2; e += 8)
#pragma unroll
    for (int r = 0; r < 4; r += 2) {
      // Four neighbours, from column 4 (lane % 4) of the 16 on.
      float* const x = sums.at + e + r;
      const float have[4] = {x[0], x[4], x[1], x[5]};
#pragma unroll
      for (int half = 0; half < 2; ++half)
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          const int from = lane / 4 * 4 + 2 * half + lane % 4 / 2;
          const float first = __shfl_sync(0xffffffffu, have[i], from),
                      second = __shfl_sync(0xffffffffu, have[2 + i], from);
          x[4 * half + i] = lane % 2 == 0 ? first : second;
        }
    }
}

}  // namespace sinter::attention
