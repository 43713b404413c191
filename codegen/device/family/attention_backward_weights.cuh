// What attention backward does with a tile between its products where bodies say so: sums become
// weights, and gradients of weights those of sums.
#pragma once
#include "sinter/device/core/pack.cuh"
#include "sinter/device/engine/shared_tile.cuh"
#include "sinter/device/family/attention_backward_tiles.cuh"
#include "sinter/device/family/attention_bias_gradient.cuh"
#include "sinter/device/family/attention_drawn.cuh"

namespace sinter::attention {

// Whether gradients of weights and of scores are rounded where they are made, as gradients that are
// written out may say: rounded_dp, rounded_ds.
template <class Weight>
concept Rounds = requires {
  Weight::rounds;
};

// What a thread's scores read of memory beside their sums: element by element, by the score itself.
struct ReadByScores {
  SINTER_DEVICE void take(int) {}
};
// Or from boxes of 64 queries and 64 keys (attention_backward_shape.cuh), of which the warp's keys
// begin at `key`: of eight registers at a time, two blocks of eight queries and two of eight keys.
template <class Number>
struct BesideFromBoxes {
  using Tile = SharedTile<Number, Major::k, 64, 64>;
  unsigned boxes;  // of the first 64 queries
  int panel, key;  // from box to box in bytes
  unsigned words[4];

  SINTER_DEVICE void take(int i) {
    if (i % 8 != 0) return;
    const int lane = static_cast<int>(threadIdx.x) % 32, query = i / 4 * 8;
    warp_matrix::get_transposed(
        words, boxes + query / 64 * panel +
                   Tile::place(query % 64 + lane / 16 * 8 + lane % 8, key + lane / 8 % 2 * 8));
  }
  SINTER_DEVICE float get(int i) const {
    Pack<Number, 2> pack;
    pack.set_word(0, words[i / 4 % 2 * 2 + i / 2 % 2]);
    return sinter::get<float>(pack, i % 2);
  }
};

// Where the score is a function of the sum, or the weight of the probability: sums `s` become
// weights, gradients of weights `dp` those of sums. Rows and columns are queries and keys, or
// keys and queries; `lse`, `delta`: of the tile's first query on; `key`: the first key.
template <class Score, class Weight, class BiasGradient, bool queries_are_rows, class S,
          class Bounds, class Args, class Sums, class Beside = ReadByScores>
SINTER_DEVICE void weigh_and_differentiate(const QueryBand<S, Bounds>& band, const Args& args,
                                           typename S::Coord c, const QueryTile<S>& at,
                                           const float* lse, const float* delta, Sums& s, Sums& dp,
                                           int key, Beside beside = {}) {
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
  const auto drawn =
      drawn_bits<Weight, 3, queries_are_rows, !S::packed, typename S::Coord, Sums::count>(args,
                                                                                          place);
  s.each([&](int i, float& x) {
    const int local = query_of(i), m = at.row() + local, n = key_of(i);
    place(i);
    const float sum = x * Score::scale;
    float score = x, weight, of_weight = dp.at[i];
    beside.take(i);
    if constexpr (!is_same<Beside, ReadByScores>) {
      const float number = beside.get(i);
      score = Score::element_beside(args, c, score_of_head, sum, &number);
    } else if constexpr (!Score::plain) {
      score = Score::element(args, c, score_of_head, sum);
    }
    const float p = weight =
        RowShift<Score>::weight(score, Score::plain ? Score::scale : 1.0f, lse[local]);
    if constexpr (Rounds<Weight>)
      of_weight = Weight::rounded_dp(args, c, weight_of_head, of_weight);
    if constexpr (DrawsBits<Weight>)
      weight = Weight::element(args, c, weight_of_head, p, drawn.at(i)),
      of_weight = Weight::element(args, c, weight_of_head, of_weight, drawn.at(i));
    else if constexpr (!Weight::plain)
      weight = Weight::element(args, c, weight_of_head, p),
      of_weight = Weight::element(args, c, weight_of_head, of_weight);
    float of_score = p * (of_weight - delta[local]);
    if constexpr (Rounds<Weight>) of_score = Weight::rounded_ds(args, c, weight_of_head, of_score);
    float ds = of_score;
    if constexpr (!is_same<Beside, ReadByScores>) {
      const float number = beside.get(i);
      ds = Score::gradient_beside(args, c, score_of_head, sum, ds, &number);
    } else if constexpr (!Score::plain) {
      ds = Score::gradient(args, c, score_of_head, sum, ds);
    }
    const bool seen =
        lse[local] != minus_infinity() && (!cut || (m >= band.first(n) && m < band.stop(n)));
    x = seen ? weight : 0.0f;
    dp.at[i] = seen ? ds : 0.0f;
    if constexpr (BiasGradient::wanted) bias.add(i, seen ? of_score : 0.0f, put_bias);
  });
}

}  // namespace sinter::attention
