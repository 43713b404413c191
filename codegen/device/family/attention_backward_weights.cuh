// What attention backward does with a tile between its products where bodies say so: sums become
// weights, and gradients of weights those of sums.
#pragma once
#include "sinter/device/core/philox.cuh"
#include "sinter/device/family/attention_backward_tiles.cuh"
#include "sinter/device/family/attention_bias_gradient.cuh"

namespace sinter::attention {

// Random numbers that are 0 or 1, of four registers from a multiple of four on: two neighbouring
// columns of two rows. A run of the generator makes those of four neighbouring keys, which several
// lanes hold: each lane runs it for one of the registers, and they tell each other four bits each.
// `place(i)`: the coordinates of register i.
template <class Weight, bool queries_are_rows, class S>
struct DrawnBits {
  using Drawn = typename Weight::Drawn;
  using Coord = typename S::Coord;
  static constexpr int query = 2, key = 3;  // among the indices
  static constexpr bool shares = !S::packed && index_of_runs<Drawn, Coord::Extent::size>() == key;
  unsigned bits = 0;

  template <class Args, class Place>
  SINTER_DEVICE void draw(const Args& args, int i, const Place& place) {
    const int lane = static_cast<int>(threadIdx.x);
    if constexpr (!shares) {
      bits = 0;
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const Coord c = place(i + e);
        bits |= (Weight::run(args, c) >> static_cast<int>(logical_index<Drawn>(c) & 3) & 1u) << e;
      }
    } else if constexpr (queries_are_rows) {
      // Four keys are two columns of a lane and of the one beside it: one runs for the first row.
      const int odd = lane & 1;
      const Coord first = place(i), second = place(i + 2);
      bits = run(args, odd ? second : first, first) << 4 * odd;
      bits |= __shfl_xor_sync(0xffffffffu, bits, 1);
      bits >>= 2 * odd;
    } else {
      // Four keys are rows of four lanes, four apart.
      const int number = lane / 4 % 4;
      bits = run(args, number & 1 ? place(i + 1) : place(i), number & 2 ? place(i + 2) : place(i))
             << 4 * number;
      bits |= __shfl_xor_sync(0xffffffffu, bits, 4);
      bits |= __shfl_xor_sync(0xffffffffu, bits, 8);
      bits >>= number;
    }
  }
  // Of register number e of the four.
  SINTER_DEVICE bool at(int e) const {
    return bits >> (!shares ? e : queries_are_rows ? e / 2 * 4 + e % 2 : 4 * e) & 1u;
  }

 private:
  // Of a query and of the four keys from a multiple of four on.
  template <class Args>
  static SINTER_DEVICE unsigned run(const Args& args, Coord c, const Coord& of_key) {
    c.at[key] = of_key.at[key] & ~3;
    return Weight::run(args, c);
  }
};
// Where a weight draws none.
struct NothingDrawn {
  template <class Args, class Place>
  SINTER_DEVICE void draw(const Args&, int, const Place&) {}
};
template <class Weight, bool queries_are_rows, class S>
SINTER_DEVICE auto drawn_bits() {
  if constexpr (requires { typename Weight::Drawn; })
    return DrawnBits<Weight, queries_are_rows, S>{};
  else
    return NothingDrawn{};
}

// Where the score is a function of the sum, or the weight of the probability: sums `s` become
// weights, gradients of weights `dp` those of sums. Rows and columns are queries and keys, or
// keys and queries; `lse`, `delta`: of the tile's first query on; `key`: the first key.
template <class Score, class Weight, class BiasGradient, bool queries_are_rows, class S,
          class Bounds, class Args, class Sums>
SINTER_DEVICE void weigh_and_differentiate(const QueryBand<S, Bounds>& band, const Args& args,
                                           typename S::Coord c, const QueryTile<S>& at,
                                           const float* lse, const float* delta, Sums& s, Sums& dp,
                                           int key) {
  const auto query_of = [](int i) { return queries_are_rows ? Sums::row(i) : Sums::column(i); };
  const auto key_of = [&](int i) {
    return key + (queries_are_rows ? Sums::column(i) : Sums::row(i));
  };
  const bool cut = band.is_cut(at.row());
  c.at[1] = at.head;
  const auto score_of_head = Score::of_head(args, c);
  const auto weight_of_head = Weight::of_head(args, c);
  BiasGradientOfTile<BiasGradient, Sums, queries_are_rows> bias;
  const auto put_bias = [&](int i, float x) {
    const int m = at.row() + query_of(i), n = key_of(i);
    if ((BiasGradient::by_query && m >= S::queries) || (BiasGradient::by_key && n >= S::keys))
      return;
    c.at[2] = m, c.at[3] = n;
    BiasGradient::put(args, c, x);
  };
  const auto place = [&](int i) {
    const int m = at.row() + query_of(i), n = key_of(i);
    c.at[2] = m < S::queries ? m : S::queries - 1;
    c.at[3] = n < S::keys ? n : S::keys - 1;
    return c;
  };
  auto drawn = drawn_bits<Weight, queries_are_rows, S>();
  s.each([&](int i, float& x) {
    if (i % 4 == 0) drawn.draw(args, i, place);
    const int local = query_of(i), m = at.row() + local, n = key_of(i);
    place(i);
    const float sum = x * Score::scale;
    float score = x, weight, of_weight = dp.at[i];
    if constexpr (!Score::plain) score = Score::element(args, c, score_of_head, sum);
    const float p = weight = RowShift<Score::plain>::weight(score, Score::scale, lse[local]);
    if constexpr (requires { typename Weight::Drawn; })
      weight = Weight::element(args, c, weight_of_head, p, drawn.at(i % 4)),
      of_weight = Weight::element(args, c, weight_of_head, of_weight, drawn.at(i % 4));
    else if constexpr (!Weight::plain)
      weight = Weight::element(args, c, weight_of_head, p),
      of_weight = Weight::element(args, c, weight_of_head, of_weight);
    const float of_score = p * (of_weight - delta[local]);
    float ds = of_score;
    if constexpr (!Score::plain) ds = Score::gradient(args, c, score_of_head, sum, ds);
    const bool seen =
        lse[local] != minus_infinity() && (!cut || (m >= band.first(n) && m < band.stop(n)));
    x = seen ? weight : 0.0f;
    dp.at[i] = seen ? ds : 0.0f;
    if constexpr (BiasGradient::wanted) bias.add(i, seen ? of_score : 0.0f, put_bias);
  });
}

}  // namespace sinter::attention
