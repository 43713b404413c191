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

// Where the registers of a tile's sums lie. Rows and columns are queries and keys, or keys and
// queries; `key`: the first key.
template <bool queries_are_rows, class S, class Sums>
struct PairsOfTile {
  // Whether all tiles hold as many as they might.
  static constexpr bool whole_queries =
                            !S::packed && is_known(S::queries) && S::queries % S::tile_q == 0,
                        whole_keys = !S::packed && is_known(S::keys) && S::keys % S::tile_k == 0;
  // Two types, of numbers that launches bring.
  static constexpr auto queries = S::queries;
  static constexpr auto keys = S::keys;
  typename S::Coord c;  // of the batch entry and head
  const int row, key;

  SINTER_DEVICE PairsOfTile(const typename S::Coord& entry, const QueryTile<S>& at, int first_key)
      : c(entry), row(at.row()), key(first_key) {
    c.at[1] = at.head;
  }
  static SINTER_DEVICE int local_query(int i) {
    return queries_are_rows ? Sums::row(i) : Sums::column(i);
  }
  SINTER_DEVICE int query_of(int i) const { return row + local_query(i); }
  SINTER_DEVICE int key_of(int i) const {
    return key + (queries_are_rows ? Sums::column(i) : Sums::row(i));
  }
  // The coordinates; places that do not exist count as the last that do.
  SINTER_DEVICE typename S::Coord operator()(int i) const {
    const int m = query_of(i), n = key_of(i);
    typename S::Coord at = c;
    at.at[2] = whole_queries || m < S::queries ? m : S::queries - 1;
    at.at[3] = whole_keys || n < S::keys ? n : S::keys - 1;
    return at;
  }
  // Of numbers that each query of the tile has, that of register i.
  static SINTER_DEVICE float of_query(const float* numbers, int i) {
    if constexpr (queries_are_rows) return numbers[local_query(i)];
    const float2 pair = *reinterpret_cast<const float2*>(numbers + local_query(i - i % 2));
    return i % 2 == 0 ? pair.x : pair.y;
  }
  template <class Weight, class Args>
  SINTER_DEVICE auto draw(const Args& args) const {
    return drawn_bits<Weight, 3, queries_are_rows, !S::packed, typename S::Coord, Sums::count>(
        args, *this);
  }
};

// Of a pair of query and key: the weight, the score's gradient and that of its sum.
struct PairGradient {
  float weight, of_score, ds;
};
// From its score and its weight's gradient. `lse`, `largest`, `delta`: of the query; `drawn`: where
// weights draw bits; gradient(x): of the sum, from the score's.
template <class Score, class Weight, bool totals, class Args, class Coord, class OfHead,
          class OfSum>
SINTER_DEVICE PairGradient differentiate_pair(const Args& args, const Coord& c,
                                              const OfHead& weight_of_head, float score,
                                              float of_weight, float lse, float largest,
                                              float delta, bool drawn, const OfSum& gradient) {
  const float p =
      RowShift<Score, totals>::weight(score, Score::plain ? Score::scale : 1.0f, lse, largest);
  float weight = p;
  if constexpr (Rounds<Weight>) of_weight = Weight::rounded_dp(args, c, weight_of_head, of_weight);
  if constexpr (DrawsBits<Weight>)
    weight = Weight::element(args, c, weight_of_head, p, drawn),
    of_weight = Weight::element(args, c, weight_of_head, of_weight, drawn);
  else if constexpr (!Weight::plain)
    weight = Weight::element(args, c, weight_of_head, p),
    of_weight = Weight::element(args, c, weight_of_head, of_weight);
  float of_score = p * (of_weight - delta);
  if constexpr (Rounds<Weight>) of_score = Weight::rounded_ds(args, c, weight_of_head, of_score);
  return {weight, of_score, gradient(of_score)};
}

// Adds the score's gradient of register i to the element of dBias that it belongs to.
template <class BiasGradient, class Args, class Pairs>
SINTER_DEVICE void put_bias_gradient(const Args& args, const Pairs& pairs, int i, float x) {
  auto c = pairs.c;
  c.at[2] = pairs.query_of(i), c.at[3] = pairs.key_of(i);
  constexpr bool by_key = BiasGradient::by_key || SumsBlocks<BiasGradient>;
  if ((BiasGradient::by_query && !Pairs::whole_queries && c.at[2] >= Pairs::queries) ||
      (by_key && !Pairs::whole_keys && c.at[3] >= Pairs::keys))
    return;
  BiasGradient::put(args, c, x);
}

// dBias from the tile of ds, with keys side by side, what a warp has written there: its 16 keys,
// the first ones of `pairs`. place(j): of 16 queries, where a lane reads eight of them or of the
// keys.
template <class BiasGradient, int steps, class Args, class Pairs, class Place>
SINTER_DEVICE void store_bias_in_pairs(const Args& args, const Pairs& pairs, const Place& place) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  auto c = pairs.c;
  __syncwarp();
#pragma unroll
  for (int j = 0; j < steps; ++j) {
    unsigned blocks[4];
    warp_matrix::get_transposed(blocks, place(j));
#pragma unroll
    for (int b = 0; b < 4; ++b) {
      const int m = pairs.row + lane / 4 + 16 * j + b / 2 * 8,
                n = pairs.key + lane % 4 * 2 + b % 2 * 8;
      c.at[2] = m, c.at[3] = n;
      if ((Pairs::whole_queries || m < Pairs::queries) && (Pairs::whole_keys || n < Pairs::keys))
        *reinterpret_cast<unsigned*>(BiasGradient::line(args, c)) = blocks[b];
    }
  }
}

struct NothingHeld {};
// What a thread's registers have of dBias, summed over windows whose Bias is the same, in shared
// memory, so that each element is added to memory once for all of them. `at`: every 128th 16 bytes.
template <class Sums>
struct BiasOfWindows {
  static constexpr int quads = Sums::count / 4;
  unsigned at;
  SINTER_DEVICE unsigned place(int quad) const { return at + quad * 128 * 16; }
  SINTER_DEVICE void clear() const {
#pragma unroll
    for (int j = 0; j < quads; ++j) warp_matrix::put(place(j), uint4{0, 0, 0, 0});
  }
  SINTER_DEVICE void add(int quad, const float (&x)[4]) const {
    const float4 sum = warp_matrix::get_four(place(quad));
    warp_matrix::put(place(quad),
                     uint4{__float_as_uint(sum.x + x[0]), __float_as_uint(sum.y + x[1]),
                           __float_as_uint(sum.z + x[2]), __float_as_uint(sum.w + x[3])});
  }
  template <class BiasGradient, class Args, class Pairs>
  SINTER_DEVICE void put(const Args& args, const Pairs& pairs) const {
#pragma unroll
    for (int j = 0; j < quads; ++j) {
      const float4 sum = warp_matrix::get_four(place(j));
      const float x[4] = {sum.x, sum.y, sum.z, sum.w};
#pragma unroll
      for (int e = 0; e < 4; ++e) put_bias_gradient<BiasGradient>(args, pairs, 4 * j + e, x[e]);
    }
  }
};

// ---- where the score's derivative is 1: first scores and probabilities, then their gradients

// Sums become scores.
template <class Score, class Args, class Pairs, class Sums, class Beside>
SINTER_DEVICE void score_pairs(const Args& args, const Pairs& pairs, Sums& s, Beside beside) {
  const auto of_head = Score::of_head(args, pairs.c);
  s.each([&](int i, float& x) {
    beside.take(i);
    if constexpr (is_same<Beside, ReadByScores>) {
      x = Score::element(args, pairs(i), of_head, x);
    } else {
      const float number = beside.get(i);
      x = Score::element_beside(args, pairs(i), of_head, x, &number);
    }
  });
}
// Of four registers from number i on, probabilities become weights, and gradients of weights those
// of scores. `delta`: of the two queries.
template <class Weight, class Args, class Pairs, class OfHead, class Sums, class Drawn>
SINTER_DEVICE void differentiate_four(const Args& args, const Pairs& pairs, const OfHead& of_head,
                                      Sums& p, Sums& dp, int i, float2 delta, const Drawn& drawn) {
#pragma unroll
  for (int e = i; e < i + 4; ++e) {
    const float probability = p.at[e];
    float of_weight = dp.at[e];
    if constexpr (DrawsBits<Weight>)
      p.at[e] = Weight::element(args, pairs(e), of_head, probability, drawn.at(e)),
      of_weight = Weight::element(args, pairs(e), of_head, of_weight, drawn.at(e));
    else if constexpr (!Weight::plain)
      p.at[e] = Weight::element(args, pairs(e), of_head, probability),
      of_weight = Weight::element(args, pairs(e), of_head, of_weight);
    dp.at[e] = probability * (of_weight - (e % 2 == 0 ? delta.x : delta.y));
  }
}
// Those of queries that see nothing are zeros, whatever they hold.
template <class Sums>
SINTER_DEVICE void clear_unseen(Sums& p, Sums& dp, int i, float2 lse) {
#pragma unroll
  for (int e = 0; e < 4; ++e)
    if ((e % 2 == 0 ? lse.x : lse.y) == minus_infinity()) p.at[i + e] = dp.at[i + e] = 0;
}

// ---- else all of a pair at once

// Where the score is a function of the sum, or the weight of the probability: sums `s` become
// weights, gradients of weights `dp` those of sums. `lse`, `largest` (where RowShift has totals)
// and `delta`: of the tile's first query on.
template <class Score, class Weight, class BiasGradient, bool queries_are_rows, class S,
          class Bounds, class Args, class Sums, class Drawn, class Held = NothingHeld,
          class Beside = ReadByScores>
SINTER_DEVICE void weigh_and_differentiate(const QueryBand<S, Bounds>& band, const Args& args,
                                           const PairsOfTile<queries_are_rows, S, Sums>& pairs,
                                           const float* lse, const float* largest,
                                           const float* delta, Sums& s, Sums& dp,
                                           const Drawn& drawn, const Held& held = {},
                                           Beside beside = {}) {
  const auto score_of_head = Score::of_head(args, pairs.c);
  const auto weight_of_head = Weight::of_head(args, pairs.c);
  BiasGradientOfTile<BiasGradient, Sums, queries_are_rows> bias;
  const auto put_bias = [&](int i, float x) { put_bias_gradient<BiasGradient>(args, pairs, i, x); };
  constexpr bool holds = !is_same<Held, NothingHeld>;
  float of_bias[4];  // of registers side by side
  // Tiles that a band cuts are few. So what they have of pairs that do not see each other is found
  // apart, a bit a register, and taken from results behind the loop: conditions within it would be
  // held in registers through it. Where dBias is held (BiasOfWindows) they are masked within the
  // loop: behind it registers would hold each number twice, masked for dBias and not.
  constexpr bool behind = QueryBand<S, Bounds>::cuts;
  const auto sees_something = [&](int i) { return pairs.of_query(lse, i) != minus_infinity(); };
  bool hides = band.is_cut(pairs.row);
  unsigned seen[(Sums::count + 31) / 32];
  if constexpr (behind) {
    s.each([&](int i, float&) {
      if (queries_are_rows ? i % 2 == 0 && i < 4 : i % 4 < 2) hides = hides || !sees_something(i);
    });
    hides = __any_sync(0xffffffffu, hides);
#pragma unroll
    for (unsigned& word : seen) word = 0xffffffffu;
    if (hides)
      s.each([&](int i, float&) {
        const int m = pairs.query_of(i), n = pairs.key_of(i);
        const unsigned hidden = static_cast<unsigned>(!sees_something(i)) |
                                static_cast<unsigned>(m < band.first(n)) |
                                static_cast<unsigned>(m >= band.stop(n));
        seen[i / 32] &= ~(hidden << i % 32);
      });
  }
  const auto is_seen = [&](int i) {
    if constexpr (behind)
      return (seen[i / 32] >> i % 32 & 1u) != 0;
    else
      return sees_something(i);
  };
  // Of dBias a number is added to memory after each score, and no load moves ahead of that: scores
  // that load are made so many at a time.
  constexpr bool loads = !Score::plain && is_same<Beside, ReadByScores>;
  constexpr int ahead = BiasGradient::wanted && loads ? 16 : 1;
  float scores[ahead];
  s.each([&](int i, float& x) {
    const typename S::Coord c = pairs(i);
    const float sum = x;
    float score = x;
    if constexpr (loads) {
#pragma unroll
      for (int e = 0; e < ahead; ++e)
        if (i % ahead == 0 && i + e < Sums::count)
          scores[e] = Score::element(args, pairs(i + e), score_of_head, s.at[i + e]);
    }
    beside.take(i);
    if constexpr (!is_same<Beside, ReadByScores>) {
      const float number = beside.get(i);
      score = Score::element_beside(args, c, score_of_head, sum, &number);
    } else if constexpr (loads) {
      score = scores[i % ahead];
    }
    bool bit = false;
    if constexpr (DrawsBits<Weight>) bit = drawn.at(i);
    auto [weight, of_score, ds] = differentiate_pair<Score, Weight, S::totals>(
        args, c, weight_of_head, score, dp.at[i], pairs.of_query(lse, i),
        S::totals ? pairs.of_query(largest, i) : 0.0f, pairs.of_query(delta, i), bit,
        [&](float of_score) {
          if constexpr (!is_same<Beside, ReadByScores>) {
            const float number = beside.get(i);
            return Score::gradient_beside(args, c, score_of_head, sum, of_score, &number);
          } else if constexpr (!Score::plain) {
            return Score::gradient(args, c, score_of_head, sum, of_score);
          } else {
            return of_score;
          }
        });
    if ((!behind || holds) && !is_seen(i)) weight = ds = of_score = 0;
    x = weight, dp.at[i] = ds;
    if constexpr (BiasGradient::wanted && holds) {
      of_bias[i % 4] = of_score;
      if (i % 4 == 3) held.add(i / 4, of_bias);
    } else if constexpr (BiasGradient::wanted) {
      bias.add(i, is_seen(i) ? of_score : 0.0f, put_bias);
    }
  });
  if (behind && !holds && hides)
    s.each([&](int i, float& x) {
      x = is_seen(i) ? x : 0.0f;
      dp.at[i] = is_seen(i) ? dp.at[i] : 0.0f;
    });
}

}  // namespace sinter::attention
