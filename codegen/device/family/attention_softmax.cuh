// The softmax of attention while its scores come tile by tile (Milakov and Gimelshein, "Online
// normalizer calculation for softmax", 2018; Dao et al., "FlashAttention", 2022): the largest score
// so far and the sum of exp(score - largest). Where the largest grows, what was summed before is
// multiplied by exp(old - new).
//
// Scores are in units of `scale` times log 2 here, so that a weight is one multiply-add and one
// exp2. A thread holds of two rows a quarter each (engine/fragment.cuh).
#pragma once
#include "sinter/device/engine/fragment.cuh"

namespace sinter::attention {

inline constexpr float kLog2E = 1.44269504f, kLog2 = 0.693147181f;
SINTER_DEVICE float minus_infinity() { return __int_as_float(static_cast<int>(0xff800000u)); }

struct RowSoftmax {
  float largest[2], total[2];  // of the thread's two rows; total: of its own columns
  float worth[2];              // what was summed before is to be multiplied by this

  SINTER_DEVICE void start() {
#pragma unroll
    for (int r = 0; r < 2; ++r) largest[r] = minus_infinity(), total[r] = 0;
  }

  // Weights in place of scores, of which each is worth `scale` (above 0) powers of two. A row
  // whose scores all are -inf so far has weights of 0.
  template <int columns>
  SINTER_DEVICE void weigh(Accumulator<float, columns>& s, float scale) {
    constexpr int count = columns / 2;
    // Several chains a row: one would wait for each of its steps.
    float most[2][2];
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      most[r][0] = most[r][1] = largest[r];
#pragma unroll
      for (int i = 2 * r; i < count; i += 4) {
        most[r][0] = larger(most[r][0], s.at[i]);
        most[r][1] = larger(most[r][1], s.at[i + 1]);
      }
    }
    float shift[2];
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const float now = join_quad(larger(most[r][0], most[r][1]), larger);
      shift[r] = now == minus_infinity() ? 0.0f : now * scale;
      worth[r] = math::fast_exp2(math::fma(largest[r], scale, -shift[r]));
      largest[r] = now;
    }
    float sums[2][2] = {};
#pragma unroll
    for (int i = 0; i < count; ++i) {
      const int r = i / 2 % 2;
      s.at[i] = math::fast_exp2(math::fma(s.at[i], scale, -shift[r]));
      sums[r][i % 2] += s.at[i];
    }
#pragma unroll
    for (int r = 0; r < 2; ++r)
      total[r] = math::fma(total[r], worth[r], sums[r][0] + sums[r][1]);
  }

  // The whole row's sum, and the logarithm of the sum of exp(score) over the row; -inf where no
  // score is above -inf. `scale` as above.
  SINTER_DEVICE void finish(float scale, float (&logarithm)[2]) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      total[r] = join_quad(total[r], [](float a, float b) { return a + b; });
      logarithm[r] = total[r] == 0.0f
                         ? minus_infinity()
                         : math::fma(largest[r] * scale, kLog2, math::log(total[r]));
    }
  }

 private:
  // NaN is no larger than anything: it comes out in the weights.
  static SINTER_DEVICE float larger(float a, float b) { return ::fmaxf(a, b); }
};

}  // namespace sinter::attention
