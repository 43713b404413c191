// The softmax of attention while its scores come tile by tile (Milakov and Gimelshein, "Online
// normalizer calculation for softmax", 2018; Dao et al., "FlashAttention", 2022): the largest score
// so far and the sum of exp(score - largest). Where the largest grows, what was summed before is
// multiplied by exp(old - new); but not while it grows little, since weights may be larger than 1
// (Zadouri et al., "FlashAttention-4", 2026): a warp goes on with the old one while no row of it
// has outgrown it by more than 2^8. Weights that are rounded to 8 bits are 2^headroom times as
// large, so that small ones are not lost, and outgrow by as much less.
//
// Scores are in units of `scale` times log 2 here, so that a weight is one multiply-add and one
// exp2. A thread holds of two rows a quarter each (engine/fragment.cuh).
#pragma once
#include "sinter/device/engine/fragment.cuh"

namespace sinter::attention {

inline constexpr float kLog2E = 1.44269504f;
SINTER_DEVICE float minus_infinity() { return __int_as_float(static_cast<int>(0xff800000u)); }
SINTER_DEVICE float not_a_number() { return __int_as_float(0x7fc00000); }

// What scores are worth in powers of two. `bodies`: they are more than sums times it, such as sums
// and masks of large numbers.
template <bool bodies>
struct ScoreScale {
  float all;

  // Of a row with this largest score. `all`, but where that is so large that its rounded product
  // would be far from the exact one, or infinite, as in a row that sees nothing but such masks, for
  // now or at all: its scores lie so far from each other that a power of two, whose products are
  // exact, leaves weights of 0 and 1: one about as large as the scale or, past 2^100, where
  // neighbours are 2^76 apart, one that makes the largest about 2^64.
  SINTER_DEVICE float of(float largest) const {
    if constexpr (!bodies) return all;
    constexpr unsigned exponent = 0x7f800000u;
    const float size = ::fabsf(largest * all),
                power = 2 * __uint_as_float(__float_as_uint(all) & exponent),
                least = __uint_as_float((317u << 23) - (__float_as_uint(largest) & exponent));
    return size < 0x1p27f ? all : size < 0x1p100f ? power : least;
  }
};

// Backward: what a row adds to its scores before the exponential, made of its Stats; -infinity of
// one that sees nothing. A multiply-add makes powers of two of scores, but where they take numbers
// from memory: these may be masks as large as finfo.min, whose products with log 2 would be
// infinite or rounded by more than scores differ; their distance to Stats is exact. (One step more
// an element costs a softcap's backward 2 to 4 %.)
//
// `totals`: of a row its largest score and the sum of exp(score - largest) are there in place of
// Stats. One f32 has no room for the logarithm of that sum beside a largest score of -1e9, which a
// row has that sees nothing but such masks; its weights are 1 / n all the same.
template <class Score, bool totals = false>
struct RowShift {
  static constexpr bool fused = !totals && !requires { Score::takes_masks; };
  // What a row adds, by its Stats or total; and whether these say that it sees something.
  static SINTER_DEVICE float of(float row) {
    return totals ? -math::log(row) * kLog2E : fused ? -row * kLog2E : -row;
  }
  static SINTER_DEVICE bool sees(float row) {
    return totals ? row != 0.0f : row != minus_infinity();
  }
  template <class Rows, class Args, class Coord>
  static SINTER_DEVICE float row(const Args& args, const Coord& c) {
    if constexpr (totals)
      return Rows::total(args, c);
    else
      return Rows::stats(args, c);
  }
  template <class Rows, class Args, class Coord>
  static SINTER_DEVICE float largest(const Args& args, const Coord& c) {
    if constexpr (totals)
      return Rows::largest(args, c);
    else
      return 0;
  }
  // `x` times `scale` is the score.
  static SINTER_DEVICE float weight(float x, float scale, float added, float largest = 0) {
    if constexpr (totals) return math::fast_exp2(math::fma(x * scale - largest, kLog2E, added));
    return math::fast_exp2(fused ? math::fma(x, scale * kLog2E, added)
                                 : (x * scale + added) * kLog2E);
  }
};

struct RowSoftmax {
  float largest[2], total[2];  // of the thread's two rows; total: of its own columns
  bool outgrown;               // what was summed before is to be multiplied by `worth`
  float worth[2];

  SINTER_DEVICE void start() {
#pragma unroll
    for (int r = 0; r < 2; ++r) largest[r] = minus_infinity(), total[r] = 0;
  }

  // Weights in place of scores, of which each is worth `scale` (above 0) powers of two. A row
  // whose scores all are -inf so far has weights of 0. `lazy`: the old largest serves while it may.
  template <bool lazy, int headroom, bool first, bool bodies, int columns>
  SINTER_DEVICE void weigh(Accumulator<float, columns>& s, ScoreScale<bodies> scale) {
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
    float now[2], shift[2], factor[2];
    bool grows = false;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      now[r] = join_quad(larger(most[r][0], most[r][1]), larger);
      grows =
          grows || !(now[r] * scale.all - largest[r] * scale.all <= kSlack - headroom);  // and NaN
    }
    outgrown = !first && (!lazy || __any_sync(0xffffffffu, grows));
    if constexpr (first) {
      largest[0] = now[0], largest[1] = now[1];
    } else if (outgrown) {
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        const float factor = scale.of(now[r]);
        worth[r] = math::fast_exp2(math::fma(largest[r], factor, -shift_of(now[r], factor)));
        largest[r] = now[r];
        total[r] *= worth[r];
      }
    }
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      factor[r] = scale.of(largest[r]);
      shift[r] = shift_of(largest[r], factor[r]);
      if constexpr (headroom > 0) shift[r] -= headroom;
    }
    float sums[2][2] = {};
#pragma unroll
    for (int i = 0; i < count; ++i) {
      const int r = i / 2 % 2;
      s.at[i] = math::fast_exp2(math::fma(s.at[i], factor[r], -shift[r]));
      sums[r][i % 2] += s.at[i];
    }
#pragma unroll
    for (int r = 0; r < 2; ++r) total[r] += sums[r][0] + sums[r][1];
  }

  // Where weights are wanted as the softmax gives them, `worth` is what to multiply each with once
  // all tiles have come, of rows without a score above -inf 0; they are made of the same scores
  // again.
  SINTER_DEVICE void divide() {
    outgrown = false;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const float all = join_quad(total[r], [](float a, float b) { return a + b; });
      worth[r] = all == 0.0f ? 0.0f : 1.0f / all;
    }
  }
  template <bool bodies, int columns>
  SINTER_DEVICE void weigh_divided(Accumulator<float, columns>& s, ScoreScale<bodies> scale) const {
    s.each([&](int i, float& x) {
      const int r = i / 2 % 2;
      const float factor = scale.of(largest[r]);
      x = math::fast_exp2(math::fma(x, factor, -shift_of(largest[r], factor))) * worth[r];
    });
  }

  // The whole row's sum, and the logarithm of the sum of exp(score) over the row; -inf where no
  // score is above -inf. `worth`: what a score is worth, not in powers of two: a row of one key has
  // its score then, without the rounding of log 2.
  template <int headroom, bool wants_logarithm>
  SINTER_DEVICE void finish(float worth, float (&logarithm)[2]) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      total[r] = join_quad(total[r], [](float a, float b) { return a + b; });
      if constexpr (headroom > 0) total[r] *= unit<headroom>;
      logarithm[r] = minus_infinity();
      if constexpr (wants_logarithm)
        if (total[r] != 0.0f) logarithm[r] = math::fma(largest[r], worth, math::log(total[r]));
    }
  }

  // Of weights that are larger than exp(score - largest).
  template <int headroom>
  static constexpr float unit = 1.0f / (1 << headroom);
  static SINTER_DEVICE float shift_of(float largest, float scale) {
    return largest == minus_infinity() ? 0.0f : largest * scale;
  }

 private:
  static constexpr float kSlack = 8;
  // NaN is the largest, as in a reduction: statistics may be that number.
  static SINTER_DEVICE float larger(float a, float b) { return math::maximum(a, b); }
};

}  // namespace sinter::attention
