// Gradients that come out NaN, computed again without the pairs of weight zero. Products multiply
// the zeros of pairs that do not see each other with whatever the tile holds, and zero times an
// infinite or NaN element of Q, dO or K is NaN, where the pair is to count for nothing.
//
// dK and dV: a warp takes each of its keys whose sums are NaN again from memory, behind the walk.
// dQ, which is added up in memory: the rows of a tile that are NaN are summed again from ds and K
// in shared memory before they leave, where K holds what is not finite (is_finite). Both stop when
// all that they sum is NaN, as it is where the numbers of pairs that see each other are.
#pragma once
#include "sinter/device/core/hopper.cuh"
#include "sinter/device/family/attention_backward_results.cuh"
#include "sinter/device/family/attention_backward_weights.cuh"

namespace sinter::attention {

// What elements are computed from: operands, with float element(args, coordinates), what belongs to
// rows, and the bodies.
template <class Q_, class K_, class V_, class DO_, class Rows_, class Score_, class Weight_>
struct BackwardOperands {
  using Q = Q_;
  using K = K_;
  using V = V_;
  using DO = DO_;
  using Rows = Rows_;
  using Score = Score_;
  using Weight = Weight_;
};

// Whether sums of keys may be NaN that are numbers, or infinite. Of f32 also where all pairs see
// each other: the lower part of an infinite factor is NaN (attention_factors.cuh).
template <class Number, class Bounds>
inline constexpr bool recomputes_keys = hides_pairs<Bounds> || sizeof(Number) == 4;

SINTER_DEVICE bool is_nan(float x) { return x != x; }
// One of them.
SINTER_DEVICE bool is_nan(float x, float y) { return !(x <= y || x > y); }

// As products take it.
template <class Number>
SINTER_DEVICE float as_factor(float x) {
  if constexpr (sizeof(Number) == 2)
    return Number::encode(x).decode();
  else
    return x;
}

// A pair's weight and its sum's gradient as products take them, by a warp. `c`: of the query and
// the key.
template <class S, class Operands, bool wants_ds, class Args>
SINTER_DEVICE PairGradient recompute_pair(const Args& args, typename S::Coord c, float shift,
                                          float largest) {
  using Score = typename Operands::Score;
  using Weight = typename Operands::Weight;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const typename S::Coord pair = c;
  float sum = 0, of_weight = 0, delta = 0;
#pragma unroll 1
  for (int d = lane; d < S::depth; d += 32) {
    c.at[4] = d;
    sum = math::fma(Operands::Q::element(args, c), Operands::K::element(args, c), sum);
  }
  sum = sum_over_lanes<1, 16>(sum);
  if constexpr (wants_ds) {
#pragma unroll 1
    for (int e = lane; e < S::depth_v; e += 32) {
      c.at[5] = e;
      of_weight =
          math::fma(Operands::DO::element(args, c), Operands::V::element(args, c), of_weight);
    }
    of_weight = sum_over_lanes<1, 16>(of_weight);
    delta = Operands::Rows::delta(args, pair);
  }
  const auto score_of_head = Score::of_head(args, pair);
  float score = sum;
  if constexpr (!Score::plain) score = Score::element(args, pair, score_of_head, sum);
  bool drawn = false;
  if constexpr (DrawsBits<Weight>) drawn = drawn_bit<Weight>(args, pair);
  const PairGradient of_pair = differentiate_pair<Score, Weight, S::totals>(
      args, pair, Weight::of_head(args, pair), score, of_weight, shift, largest, delta, drawn,
      [&](float of_score) {
        if constexpr (wants_ds && !Score::plain)
          return Score::gradient(args, pair, score_of_head, sum, of_score);
        else
          return of_score;
      });
  using Number = typename S::Number;
  return {as_factor<Number>(of_pair.weight), of_pair.of_score, as_factor<Number>(of_pair.ds)};
}

// An element of a key's dK, without Score::scale, and one of dV for each lane, by a warp; NaN where
// there is none. Sums over the queries that the CTA walks over.
struct KeyElements {
  float dk, dv;
};
template <class S, class Wanted, class Operands, class Bounds, class Args>
SINTER_DEVICE KeyElements recompute_key(const Args& args, typename S::Coord c,
                                        const QueryBand<S, Bounds>& band, int key, int of_dk,
                                        int of_dv) {
  using Shift = RowShift<typename Operands::Score, S::totals>;
  KeyElements sums{Wanted::dk && of_dk < S::depth ? 0.0f : not_a_number(),
                   Wanted::dv && of_dv < S::depth_v ? 0.0f : not_a_number()};
  c.at[3] = key;
  c.at[4] = of_dk < S::depth ? of_dk : 0, c.at[5] = of_dv < S::depth_v ? of_dv : 0;
  QueryTile<S> at = QueryTile<S>::first(band);
  const int count = band.count();
#pragma unroll 1
  for (int i = 0; i < count * S::tile_q; ++i) {
    const int m = at.row() + i % S::tile_q;
    c.at[1] = at.head, c.at[2] = m;
    if ((i + 1) % S::tile_q == 0) at.advance(band);
    if (m < band.first(key) || m >= band.stop(key) || m < band.first_seen() || m >= band.end_seen())
      continue;
    if constexpr (MasksPairs<Bounds>)
      if (!Bounds::sees(args, c)) continue;
    const float of_row = Shift::template row<typename Operands::Rows>(args, c);
    if (!Shift::sees(of_row)) continue;
    const PairGradient pair = recompute_pair<S, Operands, Wanted::dk>(
        args, c, Shift::of(of_row), Shift::template largest<typename Operands::Rows>(args, c));
    if (Wanted::dk && pair.ds != 0.0f)
      sums.dk = math::fma(pair.ds, Operands::Q::element(args, c), sums.dk);
    if (Wanted::dv && pair.weight != 0.0f)
      sums.dv = math::fma(pair.weight, Operands::DO::element(args, c), sums.dv);
    if (!__any_sync(0xffffffffu, !is_nan(sums.dk) || !is_nan(sums.dv))) break;
  }
  return sums;
}

// Which of the 16 keys that are a warp's rows of sums have some that are NaN, in each of so many
// `blocks` of keys.
template <int blocks>
struct NanRows {
  unsigned lanes[2 * blocks] = {};  // those that hold one, of a block's rows 0 to 7 and 8 to 15
  template <int block, int columns>
  SINTER_DEVICE void add(const Accumulator<float, columns>& sums) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      bool found = false;
#pragma unroll
      for (int i = 2 * r; i < columns / 2; i += 4)
        found = found || is_nan(sums.at[i], sums.at[i + 1]);
      lanes[2 * block + r] |= __ballot_sync(0xffffffffu, found);
    }
  }
  template <int block>
  SINTER_DEVICE bool any() const {
    return (lanes[2 * block] | lanes[2 * block + 1]) != 0;
  }
  SINTER_DEVICE bool operator()(int row) const {
    unsigned of_row = lanes[0];
#pragma unroll
    for (int i = 1; i < 2 * blocks; ++i)
      if (row >= 8 * i) of_row = lanes[i];
    return (of_row >> row % 8 * 4 & 15u) != 0;
  }
};

// The same of all keys of a tile, which are columns.
template <int keys>
struct NanColumns {
  unsigned word = 0;  // of 32 keys: lane i has those from number 32 i on
  NanColumns() = default;
  template <int blocks, int blocks_v>
  SINTER_DEVICE NanColumns(const Accumulator<float, keys> (&dk)[blocks],
                           const Accumulator<float, keys> (&dv)[blocks_v]) {
    using Sums = Accumulator<float, keys>;
    const int lane = static_cast<int>(threadIdx.x) % 32;
    unsigned own[(keys + 31) / 32] = {};  // a bit for each of the lane's columns
#pragma unroll
    for (int i = 0; i < Sums::count; i += i % 2 == 0 ? 1 : 3) {
      bool found = false;
      const auto look = [&](const auto& sums) {
#pragma unroll
        for (const Sums& block : sums) found = found || is_nan(block.at[i], block.at[i + 2]);
      };
      look(dk), look(dv);
      if (found) own[i / 16] |= 1u << i / 4 * 8 % 32 + i % 2;
    }
#pragma unroll
    for (int i = 0; i < (keys + 31) / 32; ++i) {
      unsigned all = own[i] << lane % 4 * 2;
#pragma unroll
      for (int distance = 1; distance < 32; distance *= 2)
        all |= __shfl_xor_sync(0xffffffffu, all, distance);
      if (lane == i) word = all;
    }
  }
  SINTER_DEVICE bool any() const { return __any_sync(0xffffffffu, word != 0); }
  SINTER_DEVICE bool operator()(int key) const {
    return (__shfl_sync(0xffffffffu, word, key / 32) >> key % 32 & 1u) != 0;
  }
};

// Of the `keys` key_of(i) those for which is_nan_key(i) holds, by a warp: of_dk(j) and of_dv(j) are
// a lane's elements, number j of so many `strips`; put_dk and put_dv (key, element, result) take
// what they are. Keys from the end on do not exist.
template <class S, class Wanted, class Operands, int strips, class Bounds, class Args, class KeyOf,
          class IsNan, class OfDK, class OfDV, class PutDK, class PutDV>
SINTER_DEVICE void recompute_keys(const Args& args, const typename S::Coord& c,
                                  const QueryBand<S, Bounds>& band, const KeyOf& key_of, int keys,
                                  const IsNan& is_nan_key, const OfDK& of_dk, const OfDV& of_dv,
                                  const PutDK& put_dk, const PutDV& put_dv) {
  const int end = S::packed ? band.band.columns : S::keys;
#pragma unroll 1
  for (int i = 0; i < keys * strips; ++i) {
    const int key = key_of(i / strips), dk = of_dk(i % strips), dv = of_dv(i % strips);
    if (!is_nan_key(i / strips) || key >= end) continue;
    const KeyElements of_key = recompute_key<S, Wanted, Operands>(args, c, band, key, dk, dv);
    if (Wanted::dk && dk < S::depth) put_dk(key, dk, of_key.dk * Operands::Score::scale);
    if (Wanted::dv && dv < S::depth_v) put_dv(key, dv, of_key.dv);
  }
}

// One element of what put_elements stores.
template <class Result, int along, class Args, class Coord>
SINTER_DEVICE void put_element(const Args& args, Coord c, int key, int element, float x) {
  c.at[3] = key;
  if constexpr (requires { Result::line(args, c); }) {
    Result::line(args, c)[element] = x;
  } else {
    c.at[along] = element;
    Result::put(args, c, x);
  }
}
// An element of a result that lies in a tile of shared memory, or of put_elements.
template <class Result, class Tile, int along, class Args, class Coord>
SINTER_DEVICE void put_recomputed(const Args& args, const Coord& place, unsigned tile, int first,
                                  int key, int element, float x) {
  if constexpr (by_lines<Result>)
    hopper::put_half(tile + Tile::place(key - first, element), Tile::Number::encode(x).bits);
  else if constexpr (by_elements<Result>)
    put_element<Result, along>(args, place, key, element, x);
}

// ---- dQ

// Whether some columns of keys have no numbers in them that are not finite, of keys [first, end) of
// the tile that exist; by a warp.
template <class S, class Band>
SINTER_DEVICE bool is_finite(const Band& band, const unsigned char* k, int first, int end,
                             int column, int columns) {
  using Tile = typename S::TileK;
  const unsigned exponent = S::Number::encode(-minus_infinity()).bits, both = exponent * 0x10001u,
                 lowest = (exponent & -exponent) * 0x10001u;
  const int keys = band.band.columns - band.from, lines = keys < end ? keys : end;
  unsigned carried = 0;  // past an exponent of ones
#pragma unroll 1
  for (int panel = column / 64; panel * 64 < column + columns; ++panel)
#pragma unroll 1
    for (int i = first * 8 + static_cast<int>(threadIdx.x) % 32; i < lines * 8; i += 32) {
      const uint4 x = *reinterpret_cast<const uint4*>(k + panel * Tile::panel_bytes + i * 16);
      carried |= ((x.x & both) + lowest) | ((x.y & both) + lowest) | ((x.z & both) + lowest) |
                 ((x.w & both) + lowest);
    }
  return !__any_sync(0xffffffffu, (carried & 0x80008000u) != 0);
}

// An element of a tile's dQ, the sum over some keys, [first, end). `k` and `ds`: where these lie in
// shared memory.
template <class S>
SINTER_DEVICE float dq_element(const unsigned char* shared, int ds, int k, int query, int element,
                               int first, int end) {
  const auto number = [&](int at) {
    if constexpr (sizeof(typename S::Number) == 2)
      return reinterpret_cast<const typename S::Number*>(shared + at)->decode();
    else
      return *reinterpret_cast<const float*>(shared + at);
  };
  float sum = 0;
#pragma unroll 1
  for (int key = first; key < end && !is_nan(sum); ++key) {
    const float x = number(ds + S::place_of_ds(query, key));
    if (x != 0.0f) sum = math::fma(x, number(k + S::TileK::place(key, element)), sum);
  }
  return sum;
}
// Of a consumer's rows of dQ, as put_rows has left them at `sums`, those of the calling warp: what
// is NaN, again.
template <class S, int columns>
SINTER_DEVICE void recompute_dq(unsigned char* shared, int sums, int ds, int k, int row, int column,
                                int first_key) {
  const int thread = hardware::thread() % 128;  // anew: nothing made of it is held by the walk
  __syncwarp();
#pragma unroll 1
  for (int i = thread % 32; i < 16 * columns; i += 32) {
    const int r = thread / 32 * 16 + i / columns, e = i % columns;
    float* const to = reinterpret_cast<float*>(shared + sums + e / 32 * 8192 + r * 128 +
                                               (e % 32 / 4 ^ r % 8) * 16 + e % 4 * 4);
    if (is_nan(*to))
      *to = dq_element<S>(shared, ds, k, row + r, column + e, first_key, first_key + S::keys_of_dq);
  }
}

}  // namespace sinter::attention
