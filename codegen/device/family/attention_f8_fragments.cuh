// K and V of 8 bits as operands of the tensor cores, by warps: fragments are read from shared
// memory as they lie in memory and become f16 in registers. f16 holds each of their numbers, and
// takes one conversion for two; bf16 would take three more. So rows of Q become f16, too.
//
// A lane reads four bytes of a line where the tensor cores have two numbers of each 8 bytes.
// Scores: k of a step is numbered such that these four are the lane's (2 j, 2 j + 1, 2 j + 8, 2 j +
// 9: bytes 4 j to 4 j + 3), for Q as for K. Values: transposed pairs of bytes are keys 2 j and 2 j
// + 1 of columns e and e + 1: of 16 columns the first 8 of the product are the even ones, the
// others the odd ones, which put_in_order() undoes when all keys are summed.
#pragma once
#include "sinter/device/family/attention_factors.cuh"

namespace sinter::attention {

// Weights are so many powers of two larger (attention_softmax.cuh), so that f16 does not lose those
// of 2^-25: they end at 2^8 all the same.
inline constexpr int kHeadroomOfF16 = 4;

// A lane's two rows as f16, of bf16 times a power of two whose largest is 2^14 to 2^15: elements
// down to 2^-31 of it keep all their bits. `worth`: of what is multiplied by them. Where a row has
// infinities, its finite elements do not matter.
template <class Number, int steps>
SINTER_DEVICE void to_f16(unsigned (&words)[steps][1][4], float (&worth)[2]) {
  if constexpr (is_same<Number, bf16>) {
    const auto low = [](unsigned word) { return __uint_as_float(word << 16); };
    const auto high = [](unsigned word) { return __uint_as_float(word & 0xffff0000u); };
    float factor[2];
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      float most = 0;
#pragma unroll
      for (int d = 0; d < steps; ++d)
#pragma unroll
        for (int i = r; i < 4; i += 2)
          most =
              ::fmaxf(most, ::fmaxf(::fabsf(low(words[d][0][i])), ::fabsf(high(words[d][0][i]))));
      most = join_quad(most, [](float a, float b) { return ::fmaxf(a, b); });
      // Exponents are counted from 127: of the factor 127 + 14 - (exponent - 127).
      const unsigned exponent = __float_as_uint(most) >> 23,
                     of_factor = exponent > 15 ? 268 - exponent : 253;
      factor[r] = __uint_as_float(of_factor << 23);
      worth[r] = __uint_as_float((254 - of_factor) << 23);
    }
#pragma unroll
    for (int d = 0; d < steps; ++d)
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        unsigned& word = words[d][0][i];
        word = warp_matrix::pair(f16{}, low(word) * factor[i % 2], high(word) * factor[i % 2]);
      }
  }
}

struct NoFragments {};

// Where a lane finds fragments of keys of 8 bits: 16 keys and two steps of 16 elements at once.
template <class Tile>
class NarrowKeysOfLane {
  const LaneLine<Tile, false> line_;

 public:
  SINTER_DEVICE NarrowKeysOfLane() : line_(0) {}
  // Of keys 16 n to 16 n + 15 and elements 32 d to 32 d + 31: of each step the fragments of the
  // first eight keys, then of the others.
  SINTER_DEVICE void get(Factors<f16, 4> (&k)[2], unsigned keys, int n, int d) const {
    unsigned words[4];
    warp_matrix::get(words, keys + line_(n, d));
#pragma unroll
    for (int i = 0; i < 4; ++i)
      warp_matrix::widened_four(typename Tile::Number{}, words[i], k[i % 2].at[i / 2 * 2],
                                k[i % 2].at[i / 2 * 2 + 1]);
  }
};
// And of values: 16 keys and twice 16 columns.
template <class Tile>
class NarrowValuesOfLane {
  const LaneLine<Tile, true> line_;

 public:
  SINTER_DEVICE NarrowValuesOfLane() : line_(0) {}
  // Of each 16 columns the fragments of even ones, then of odd ones.
  SINTER_DEVICE void get(Factors<f16, 4> (&v)[2], unsigned values, int k, int e) const {
    unsigned words[4];
    warp_matrix::get_transposed(words, values + line_(k, e));
#pragma unroll
    for (int i = 0; i < 4; ++i)
      warp_matrix::widened_four(typename Tile::Number{}, warp_matrix::bytes_of(words[i], 0, 0x3120),
                                v[i / 2].at[i % 2], v[i / 2].at[i % 2 + 2]);
  }
};

// Sums over values whose even columns came first. Of 16 columns a lane holds four neighbours of
// each row, 4 j to 4 j + 3, and is to hold 2 j and 2 j + 1 of each half.
template <int columns>
SINTER_DEVICE void put_in_order(Accumulator<float, columns>& out) {
  const int lane = static_cast<int>(threadIdx.x % 32), first = lane / 4 * 4 + lane % 4 / 2;
  const bool second = lane % 2 != 0;
#pragma unroll
  for (int e = 0; e < columns / 16; ++e)
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      float* const even = out.at + e * 8 + 2 * r;
      float* const odd = even + 4;
      const float held[4] = {even[0], odd[0], even[1], odd[1]};
#pragma unroll
      for (int half = 0; half < 2; ++half)
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          const float low = __shfl_sync(0xffffffffu, held[i], first + 2 * half),
                      high = __shfl_sync(0xffffffffu, held[2 + i], first + 2 * half);
          (half == 0 ? even : odd)[i] = second ? high : low;
        }
    }
}

}  // namespace sinter::attention
