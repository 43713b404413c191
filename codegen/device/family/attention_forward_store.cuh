// How the results of attention_forward.cuh leave registers, and rows that are taken again.
#pragma once
#include "sinter/device/core/hopper.cuh"
#include "sinter/device/family/attention_forward_rows.cuh"
#include "sinter/device/family/attention_forward_tiles.cuh"
#include "sinter/device/family/attention_key_walk.cuh"
#include "sinter/device/family/attention_store_lines.cuh"
#include "sinter/device/family/contraction_epilogue.cuh"

namespace sinter::attention {

// Of a result's columns those that a warpgroup sums, from `first` on; it stores all but the `skip`
// ones before them, which another one has, too. Both are multiples of 64. One warpgroup of those
// that share a row writes what there is one of.
struct OwnColumns {
  int first = 0, skip = 0;
  bool writes_rows = true;
};

// Some columns of one row's results again, by a warp, without the products whose weight is zero.
// `hidden`: with the columns that the row does not see; then `largest` is a score and no sum.
// `tile_row`: the first row of its tile, whose tiles of keys are those of its part.
template <class S, class Q, class K, class V, class Bounds, class Score, class Weight, int strips,
          class Args>
SINTER_DEVICE void recompute_row(const Args& args, typename S::F::Coord c, int entry,
                                 const KeyTiles& keys, const BandOf<S, Bounds>& band, int tile_row,
                                 int row, float largest, float reciprocal, bool hidden, int first,
                                 float (&out)[strips]) {
  const WorthOfSums<Score> worth(args, c);
  const float scale = worth.powers_of_two().of(largest);
  const int lane = static_cast<int>(threadIdx.x % 32);
#pragma unroll
  for (int j = 0; j < strips; ++j) out[j] = 0;
  const typename S::F::Coord head = c;
  S::F::set_m(c, row);
  typename S::P::Coord at;
  S::P::set_batch(at, entry);
  const float shift = largest == minus_infinity() ? 0.0f : largest * scale;
  const auto score_of_head = Score::of_head(args, c);
  const auto weight_of_head = Weight::of_head(args, c);
  const auto take = [&](int n) {
    const bool seen = n >= band.first(row) && n < band.end(row);
    if (!seen && !hidden) return;
    S::F::set_n(c, n);
    if constexpr (MasksTiles<Bounds>)
      if (!Bounds::sees(args, c)) return;
    float sum = 0;
#pragma unroll 1
    for (int d = lane; d < S::depth; d += 32) {
      S::F::set_k(c, d);
      sum = math::fma(Q::element(args, c), K::element(args, c), sum);
    }
#pragma unroll
    for (int distance = 16; distance > 0; distance /= 2)
      sum += __shfl_xor_sync(0xffffffffu, sum, distance);
    if constexpr (ScalesHeads<Score>)
      sum = worth.of_softmax() ? sum : sum * worth.of_head;
    else if constexpr (!Score::plain)
      sum = Score::element(args, c, score_of_head, sum);
    float power = math::fma(sum, scale, -shift);
    if constexpr (HidesByNumber<Bounds>)
      if (hidden) power = ((seen ? sum * worth.scale() : Bounds::hidden) - largest) * kLog2E;
    float weight = math::fast_exp2(power) * reciprocal;
    if constexpr (DrawsBits<Weight>)
      weight = Weight::element(args, c, weight_of_head, weight, drawn_bit<Weight>(args, c));
    else if constexpr (!Weight::plain)
      weight = Weight::element(args, c, weight_of_head, weight);
    if constexpr (S::walks_twice) weight = S::WeightNumber::encode(weight).decode();
    if (weight == 0.0f) return;
    S::P::set_k(at, n);
#pragma unroll
    for (int j = 0; j < strips; ++j) {
      const int e = first + lane + 32 * j;
      S::P::set_n(at, e < S::width ? e : 0);
      if (e < S::width) out[j] = math::fma(weight, V::element(args, at), out[j]);
    }
  };
  if constexpr (MasksTiles<Bounds> && S::splits > 1) {
#pragma unroll 1
    for (KeyWalk<S, Bounds> walk(args, head, tile_row, 0, keys.begin, keys.end, keys.part);
         walk.more(); walk.next(args, head)) {
      const int from = band.first_column + walk.n * S::tile_k, to = from + S::tile_k;
#pragma unroll 1
      for (int n = from; n < to && n < S::keys; ++n) take(n);
    }
    return;
  }
  int begin = band.first_column + keys.begin * S::tile_k,
      end = band.first_column + keys.end * S::tile_k;
  if (hidden) begin = band.first_column, end = band.columns;
#pragma unroll 1
  for (int n = begin; n < end; ++n) take(n);
}

// The same of a row whose weights are all NaN, as its largest score or their sum is, until Weight's
// body makes zeros of them (dropout). Those of keys that it does not see, other sequences' among
// them, are NaN, too: any key whose weight is left makes the row NaN, so that neither K nor, where
// zeros dominate, V is read.
template <class S, class V, class Weight, bool zero_dominates, int strips, class Args>
SINTER_DEVICE void sum_nan_weights(const Args& args, typename S::F::Coord c, int entry, int row,
                                   int first, float (&out)[strips]) {
  const int lane = static_cast<int>(threadIdx.x % 32);
#pragma unroll
  for (int j = 0; j < strips; ++j) out[j] = 0;
  S::F::set_m(c, row);
  typename S::P::Coord at;
  S::P::set_batch(at, entry);
  const auto weight_of_head = Weight::of_head(args, c);
#pragma unroll 1
  for (int n = 0; n < S::keys; ++n) {
    S::F::set_n(c, n), S::P::set_k(at, n);
    float weight = not_a_number();
    if constexpr (DrawsBits<Weight>)
      weight = Weight::element(args, c, weight_of_head, weight, drawn_bit<Weight>(args, c));
    else
      weight = Weight::element(args, c, weight_of_head, weight);
    if (zero_dominates && weight == 0.0f) continue;
#pragma unroll
    for (int j = 0; j < strips; ++j) {
      const int e = first + lane + 32 * j;
      S::P::set_n(at, e < S::width ? e : 0);
      if constexpr (zero_dominates)
        out[j] += weight;
      else if (e < S::width)
        out[j] = math::fma(weight, V::element(args, at), out[j]);
    }
  }
}

// What a body that stores boxes rounds sums to: its own type, else that of the operands.
template <class S, class Body>
struct StoredNumber {
  using type = typename S::Number;
};
template <class S, class Body>
requires requires { typename Body::Number; }
struct StoredNumber<S, Body> {
  using type = typename Body::Number;
};

// What a body that stores boxes multiplies the results of a head with, where it does.
template <class S, class Body, class Args>
SINTER_DEVICE float worth_of_results(const Args& args, const typename S::P::Coord& c) {
  if constexpr (requires { typename Body::OfHead; })
    return Body::element(args, c, Body::of_head(args, c), 1.0f);
  else
    return 1.0f;
}

// A warp's 16 rows leave as boxes of 64 columns, two at a time. `again`: they are others than the
// sums; take_again(Int<strips>, from, put) calls put(row, column - from, result) for all rows and
// 32 columns a strip. Of packed sequences, rows from row_end on are the next one's.
template <class S, bool partial, class Body, class Args, class Sums, class Again>
SINTER_DEVICE void store_boxes(const Args& args, contraction::EpilogueTile& epilogue_tile,
                               const Sums& out, const typename S::P::Coord& at, int row,
                               int row_end, OwnColumns columns, bool again,
                               const Again& take_again) {
  using Number = typename StoredNumber<S, Body>::type;
  constexpr int box = 16 * 128, boxes = (Sums::columns + 63) / 64;  // bytes
  static_assert(2 * box <= sizeof epilogue_tile);
  const unsigned to = hopper::address(&epilogue_tile);
  const int lane = static_cast<int>(threadIdx.x % 32);
  const int line = lane % 16;  // of its block of 16 rows and columns, a lane names one row's half
  const auto begin = [&] {
    if (lane == 0) hopper::wait_for_stores<0>();
    __syncwarp();
  };
  const auto leave = [&](int pair) {
    hopper::fence_async_proxy();
    __syncwarp();
    if (partial && row + 16 > row_end) {
      if constexpr (partial)
        for (int b = 0; b < 2 && pair * 2 + b < boxes; ++b)
          store_lines<S::width>(reinterpret_cast<const unsigned char*>(&epilogue_tile) + b * box,
                                row_end - row, (pair * 2 + b) * 64, lane, 32, [&](int r) {
                                  auto c = at;
                                  S::P::set_m(c, row + r);
                                  return Body::line(args, c);
                                });
      return;
    }
    if (lane == 0) {
#pragma unroll
      for (int b = 0; b < 2; ++b)
        if (pair * 2 + b < boxes && (pair * 2 + b) * 64 >= columns.skip)
          Body::store(args, at, row, columns.first + (pair * 2 + b) * 64, to + b * box);
      hopper::commit_stores();
    }
  };
  constexpr int pairs = (boxes + 1) / 2;
  const auto fill_again = [&](int pair) {
    take_again(Int<4>{}, pair * 128, [&](int r, int column, float result) {
      hopper::put_half(
          to + column / 64 * box + r * 128 + ((column % 64 / 8) ^ r % 8) * 16 + column % 8 * 2,
          Number::encode(result).bits);
    });
  };
  // Of several pairs apart from the others, so that there is one text of it; of one over the sums,
  // which need not wait for `again` then.
  if constexpr (pairs > 1)
    if (again) {
#pragma unroll 1
      for (int pair = 0; pair < pairs; ++pair) begin(), fill_again(pair), leave(pair);
      return;
    }
  const auto packed = [&] {
    if constexpr (HeldByName<Sums>)
      return 0;
    else
      return to_operand<Number>(out);
  }();
  for_each_number<pairs>([&]<int pair>() {
    begin();
    constexpr int first = pair * 8, left = Sums::columns / 16 - first,
                  steps = left < 8 ? left : 8;  // of 16 columns
    unsigned lines[steps];
#pragma unroll
    for (int i = 0; i < steps; ++i)
      lines[i] = to + i / 4 * box + line * 128 + ((i % 4 * 2 + lane / 16) ^ line % 8) * 16;
    if constexpr (HeldByName<Sums>) {
      out.template put_blocks<Number, first * 8, steps>(lines);
    } else {
      for_each_number<steps>([&]<int i>() { hopper::put_blocks(lines[i], packed.at[first + i]); });
    }
    if constexpr (pairs == 1)
      if (again) fill_again(pair);
    leave(pair);
  });
}

// The same through the packs of an epilogue of any kind.
template <class Config, class S, class Body, class Args, class Sums, class Again>
SINTER_DEVICE void finish_epilogue_tiles(const Args& args, contraction::EpilogueTile& epilogue_tile,
                                         const Sums& out, const typename S::P::Coord& at, int row,
                                         int row_end, OwnColumns columns, bool again,
                                         const Again& take_again) {
  using contraction::EpilogueTile;
  constexpr int across = S::up(Sums::columns, EpilogueTile::columns) / EpilogueTile::columns;
  const EpilogueTile::Fragment fragment;
  contraction::EpilogueCoord<Config> place;
  place.batch = at;
  place.row = row, place.row_end = row_end, place.column_end = S::P::columns;
#pragma unroll 1
  for (int part = columns.skip / EpilogueTile::columns; part < across; ++part) {
    contraction::put_tile<0, across, 1>(epilogue_tile, fragment, contraction::OneBlock<Sums>{out},
                                        part);
    __syncwarp();
    place.column = columns.first + part * EpilogueTile::columns;
    if (again)
      take_again(Int<EpilogueTile::columns / 32>{}, part * EpilogueTile::columns,
                 [&](int r, int column, float result) {
                   epilogue_tile.at[EpilogueTile::place(r, column)] = result;
                 });
    contraction::finish<Config, Body>(args, epilogue_tile, place, AllRows{});
    __syncwarp();
  }
}

// Adds to what the softmax knows of a row's number r, whose scores are sums times `scale`, the
// columns that row m does not see, where they count: then the largest is a score. Not a number as
// the largest is no number far above.
template <class Bounds, auto queries, auto keys>
SINTER_DEVICE bool count_hidden(const Band<Bounds, queries, keys>& band, int m, float scale,
                                RowSoftmax& softmax, int r, float& logarithm) {
  const float seen = softmax.largest[r] * scale;
  const int count = band.columns - band.first_column - (band.end(m) - band.first(m));
  if (count <= 0 || seen - Bounds::hidden > kFarAbove) return false;
  const float largest = math::maximum(seen, Bounds::hidden);
  softmax.largest[r] = largest;
  softmax.total[r] = softmax.total[r] * math::fast_exp2((seen - largest) * kLog2E) +
                     count * math::fast_exp2((Bounds::hidden - largest) * kLog2E);
  logarithm = largest + math::log(softmax.total[r]);
  return true;
}

// Where Rows stores of a row, in place of Stats, its largest score and the sum of exp(score -
// largest), which one f32 has no room for together where rows see nothing but masks of large
// numbers.
template <class Rows>
concept StoresTotals = requires {
  Rows::stores_totals;
};

// The sums of a warpgroup's rows, from `row` on, become results, which leave together with what
// else is written of a row. `softmax`: with whole rows' sums.
template <class Config, class S, class Q, class K, class V, class Bounds, class Score, class Weight,
          class Rows, class Body, class Args, class Sums>
SINTER_DEVICE void finish_tile(const Args& args, contraction::EpilogueTile& epilogue_tile,
                               Sums& out, RowSoftmax& softmax, typename S::F::Coord c,
                               const BandOf<S, Bounds>& band, const KeyTiles& keys,
                               const TileOfRows& tile, int row, int warp, OwnColumns columns = {}) {
  // Parts are written as batch entries of their own.
  typename S::F::Coord own;
  S::F::set_batch(own, tile.entry + tile.split * S::entries);
  static_assert(!(Rows::has_sink && S::walks_twice), "a sink takes part in the division");
  float logarithm[2], factor[2], of_sums[2];
  const float scale = WorthOfSums<Score>(args, c).scale();
  constexpr bool totals = StoresTotals<Rows>;
  softmax.template finish<S::headroom, (Rows::has_sink && !totals) || Rows::has_stats>(scale,
                                                                                       logarithm);
  // Rows of which columns that they do not see count.
  bool with_hidden[2] = {};
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const int m = row + out.row(2 * r);
    if constexpr (HidesByNumber<Bounds>)
      with_hidden[r] = m < S::queries && count_hidden(band, m, scale, softmax, r, logarithm[r]);
    const bool seen = band.sees_row(m) && softmax.total[r] != 0.0f;
    const int inside = m < S::queries ? m : S::queries - 1;
    S::F::set_m(c, inside), S::F::set_m(own, inside);
    // Of parts, the kernel that combines them says so.
    constexpr bool nan_of_nothing = Rows::written_out && S::splits == 1;
    factor[r] = seen ? 1.0f / softmax.total[r] : nan_of_nothing ? not_a_number() : 0.0f;
    if constexpr (Rows::has_sink)  // which such a row has, unless it is -infinity, too
      if (nan_of_nothing && !seen && Rows::sink(args, c) > minus_infinity()) factor[r] = 0.0f;
    constexpr bool adds_stats = requires { Rows::adds_stats; };
    if (!seen) logarithm[r] = adds_stats ? not_a_number() : minus_infinity();
    if (Rows::written_out && softmax.largest[r] == -minus_infinity())
      logarithm[r] = adds_stats ? not_a_number() : softmax.largest[r];
    if constexpr (Rows::has_sink && !totals)
      if (seen && tile.split == 0) {
        const float sink = Rows::sink(args, c), most = ::fmaxf(sink, logarithm[r]);
        const float all = most + math::log(math::exp(sink - most) + math::exp(logarithm[r] - most));
        factor[r] *= math::exp(logarithm[r] - all);
        logarithm[r] = all;
      }
    const bool writes = threadIdx.x % 4 == 0 &&
                        m < (PacksSequences<Bounds> ? band.rows : S::queries) &&
                        columns.writes_rows;
    if constexpr (totals) {
      float largest = softmax.largest[r] * (with_hidden[r] ? 1.0f : scale),
            total = seen ? softmax.total[r] : 0.0f;
      if (!seen) {
        if constexpr (S::splits > 1)
          largest = minus_infinity();
        else if constexpr (Rows::written_out)
          total = not_a_number();
        else
          largest = 0;
      }
      if constexpr (Rows::has_sink)
        if (tile.split == 0) {
          const float sink = Rows::sink(args, c), most = ::fmaxf(sink, largest),
                      own_total = seen ? total * math::exp(largest - most) : 0.0f;
          if (most != minus_infinity()) {
            total = own_total + math::exp(sink - most);
            if (seen) factor[r] *= own_total / total;
          }
          largest = most;
        }
      if (writes) Rows::totals(args, own, largest, total);
    }
    of_sums[r] = S::walks_twice && seen ? 1.0f : factor[r];  // divided already
    if constexpr (Rows::has_stats)
      if (writes) Rows::stats(args, own, logarithm[r]);
  }
  typename S::P::Coord at;
  S::P::set_batch(at, tile.entry + tile.split * S::entries);
  const float worth = worth_of_results<S, Body>(args, at);
  bool is_nan[2] = {};
  if constexpr (HeldByName<Sums>) {
    // A row that sees nothing, whose factor is 0, is taken again if that makes NaN: as zeros.
    static_assert(S::headroom == 0 && Rows::zero_dominates);
    out.scale(of_sums);
    if constexpr (requires { typename Body::OfHead; }) out.scale({worth, worth});
    float most[2] = {minus_infinity(), minus_infinity()};
    out.largest(most);
#pragma unroll
    for (int r = 0; r < 2; ++r) is_nan[r] = most[r] != most[r];
  } else {
    // Without branches: one compare, multiply and select each.
    out.each([&](int e, float& x) {
      const int r = e / 2 % 2;
      const float result = x * of_sums[r] * (worth * RowSoftmax::unit<S::headroom>);
      x = factor[r] == 0.0f ? 0.0f : result;
      if constexpr (Rows::zero_dominates) is_nan[r] = is_nan[r] | (x != x);
    });
  }
  // Some result is NaN though its row's weights are numbers, or a body may have dropped them, or
  // some row's are others.
  constexpr bool drops = !Weight::plain;
  const auto differs = [&](int r) {
    const bool numbers = factor[r] == factor[r];
    return (is_nan[r] & numbers) | (drops & !numbers) | with_hidden[r];
  };
  const bool others = differs(0) | differs(1);
  constexpr bool may_differ = Rows::zero_dominates || HidesByNumber<Bounds> || drops;
  const bool again = may_differ && __any_sync(0xffffffffu, others);
  const auto take_again = [&]<int strips>(Int<strips>, int from, const auto& put) {
#pragma unroll 1
    for (int r = 0; r < 16; ++r) {
      const int lane = r % 8 * 4;  // one that holds the row
      const float largest = __shfl_sync(0xffffffffu,
                                        r < 8 ? softmax.largest[0] : softmax.largest[1], lane),
                  reciprocal = __shfl_sync(0xffffffffu, r < 8 ? factor[0] : factor[1], lane);
      const bool hidden =
          HidesByNumber<Bounds> &&
          __shfl_sync(0xffffffffu, static_cast<int>(r < 8 ? with_hidden[0] : with_hidden[1]), lane);
      const int m = row + warp % 4 * 16 + r;
      float results[strips];
      if (m >= S::queries || reciprocal == 0.0f || (!drops && reciprocal != reciprocal)) {
#pragma unroll
        for (int j = 0; j < strips; ++j) results[j] = reciprocal;
      } else if (drops && reciprocal != reciprocal) {
        if constexpr (drops)
          sum_nan_weights<S, V, Weight, Rows::zero_dominates>(args, c, tile.entry, m,
                                                              columns.first + from, results);
      } else {
        recompute_row<S, Q, K, V, Bounds, Score, Weight>(args, c, tile.entry, keys, band, tile.row,
                                                         m, largest, reciprocal, hidden,
                                                         columns.first + from, results);
      }
#pragma unroll
      for (int j = 0; j < strips; ++j)
        put(r, static_cast<int>(threadIdx.x % 32) + 32 * j, results[j] * worth);
      __syncwarp();
    }
  };
  const int first_row = row + warp % 4 * 16;
  if constexpr (Config::store_boxes)
    store_boxes<S, PacksSequences<Bounds>, Body>(args, epilogue_tile, out, at, first_row,
                                                 PacksSequences<Bounds> ? band.rows : S::queries,
                                                 columns, again, take_again);
  else
    finish_epilogue_tiles<Config, S, Body>(args, epilogue_tile, out, at, first_row,
                                           PacksSequences<Bounds> ? band.rows : S::P::rows, columns,
                                           again, take_again);
}

}  // namespace sinter::attention
