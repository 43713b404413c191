// What the tensor cores of any GPU multiply in attention: factors of 16 bits as they are, of f32
// rounded to tf32, or as the sum of two tf32 numbers each.
#pragma once
#include "sinter/device/core/warp_matrix.cuh"
#include "sinter/device/engine/fragment.cuh"
#include "sinter/device/family/attention_lines.cuh"

namespace sinter::attention {

// An f32 number as the sum of two of tf32, of which three products are summed, all but that of the
// two low parts: a product is off by 2^-21 of itself at most. (Ootomo and Yokota, "Recovering
// single precision accuracy from Tensor Cores", 2022; CUTLASS's 3xTF32.)
struct SplitF32 {
  unsigned bits;
};

// `count` words of a fragment (core/warp_matrix.cuh).
template <class Number, int count>
struct Factors {
  static constexpr bool loses_infinity = false;
  unsigned at[count];
  SINTER_DEVICE void take(const unsigned (&words)[count]) {
#pragma unroll
    for (int i = 0; i < count; ++i)
      if constexpr (is_same<Number, tf32>)
        at[i] = tf32::rounded(words[i]);
      else
        at[i] = words[i];
  }
};
template <int count>
struct Factors<SplitF32, count> {
  static constexpr bool loses_infinity = true;  // its low part is NaN
  static constexpr unsigned kIgnored = (1u << 13) - 1, kHalf = 1u << 12;
  unsigned at[count], low[count];
  SINTER_DEVICE void take(const unsigned (&words)[count]) {
#pragma unroll
    for (int i = 0; i < count; ++i) {
      at[i] = (words[i] + kHalf) & ~kIgnored;
      low[i] = __float_as_uint(__uint_as_float(words[i]) - __uint_as_float(at[i]));
    }
  }
};

// d += a b, of b's words those from the `first` on.
template <class Number>
SINTER_DEVICE void multiply(float* d, const Factors<Number, 4>& a, const Factors<Number, 4>& b,
                            int first) {
  if constexpr (is_same<Number, SplitF32>) {
    warp_matrix::multiply(tf32{}, d, a.low, b.at[first], b.at[first + 1]);
    warp_matrix::multiply(tf32{}, d, a.at, b.low[first], b.low[first + 1]);
    warp_matrix::multiply(tf32{}, d, a.at, b.at[first], b.at[first + 1]);
  } else {
    warp_matrix::multiply(Number{}, d, a.at, b.at[first], b.at[first + 1]);
  }
}

// Sums of a tile of keys as the left operand of a product whose k they are.
template <class Number, int keys>
struct WeightFactors {
  static constexpr int steps = keys * static_cast<int>(sizeof(Number)) / 32;
  Factors<Number, 4> at[steps];
  SINTER_DEVICE void take(const Accumulator<float, keys>& sums) {
    if constexpr (sizeof(Number) == 2) {
      const auto rounded = to_operand<Number>(sums);
#pragma unroll
      for (int k = 0; k < steps; ++k) at[k].take(rounded.at[k]);
    } else {
      // Key 2 i of eight is k = i, key 2 i + 1 is k = i + 4: what a thread holds of the sums.
#pragma unroll
      for (int k = 0; k < steps; ++k) {
        const float* const x = sums.at + 4 * k;
        const unsigned words[4] = {__float_as_uint(x[0]), __float_as_uint(x[2]),
                                   __float_as_uint(x[1]), __float_as_uint(x[3])};
        at[k].take(words);
      }
    }
  }
  SINTER_DEVICE const Factors<Number, 4>& step(int k) const { return at[k]; }
};

// Where a lane finds values beside those weights: 32 bytes of keys, 16 columns.
template <class Tile>
class ValuesOfLane {
  using Number = typename Tile::Number;
  const LaneLine<Tile, true> line_;

 public:
  SINTER_DEVICE ValuesOfLane() : line_(0) {}
  SINTER_DEVICE void get(Factors<Number, 4>& v, unsigned values, int k, int e) const {
    unsigned words[4];
    warp_matrix::get_transposed(words, values + line_(k, e));
    v.take(words);
  }
};
template <class Tile>
requires(sizeof(typename Tile::Number) == 4) class ValuesOfLane<Tile> {
  using Number = typename Tile::Number;
  int at_[2];  // of the lane's two keys

 public:
  SINTER_DEVICE ValuesOfLane() {
    const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
    for (int i = 0; i < 2; ++i) at_[i] = Tile::place(lane % 4 * 2 + i, lane / 4);
  }
  SINTER_DEVICE void get(Factors<Number, 4>& v, unsigned values, int k, int e) const {
    constexpr int in_panel = Tile::swizzle / 32;
    unsigned words[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int along = 2 * e + i / 2;  // of eight columns
      words[i] =
          warp_matrix::get_word(values + (at_[i % 2] ^ along % in_panel * 32) +
                                along / in_panel * Tile::panel_bytes + k * 8 * Tile::swizzle);
    }
    v.take(words);
  }
};

}  // namespace sinter::attention
