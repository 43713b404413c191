// The problem of attention forward in tiles of rows, and the order in which CTAs take them.
#pragma once
#include "sinter/device/family/attention_bounds.cuh"
#include "sinter/device/family/attention_mask.cuh"
#include "sinter/device/family/contraction_space.cuh"

namespace sinter::attention {

// Whether weights are divided by their row's sum before they are rounded: then a tile of rows walks
// over its keys twice, first for the largest score and the sum, which the softmax has to know of
// all keys.
template <class Config>
concept WalksTwice = requires {
  Config::key_walks;
};

// The problem and its tiles. `tile_q_`: rows of a CTA. `sequences`: packed ones.
template <class Config, class First, class Q, int tile_q_, int sequences = 0>
struct ForwardTiles {
  using P = contraction::Problem<Config>;
  using F = contraction::Problem<First>;
  using Number = typename Q::Number;
  using WeightNumber = Number;  // that weights are rounded to
  static constexpr bool walks_twice = WalksTwice<Config>;
  // Rows are the queries of a head, or of several, one behind another.
  static constexpr auto queries =
      number<is_known(F::rows)>([] { return static_cast<int>(F::rows); });
  static constexpr auto queries_of_head = number<First::Extent::literals(F::first_n - 1, 1)>(
      [] { return static_cast<int>(First::Extent::at(F::first_n - 1)); });
  static constexpr auto keys =
      number<is_known(F::columns)>([] { return static_cast<int>(F::columns); });
  static constexpr auto entries =
      number<is_known(F::batches)>([] { return static_cast<int>(F::batches); });
  static constexpr auto heads =
      number<First::Extent::literals(1, 1)>([] { return static_cast<int>(First::Extent::at(1)); });
  static constexpr int depth = static_cast<int>(F::depth), width = static_cast<int>(P::columns);
  static constexpr int tile_q = tile_q_, tile_k = Config::tile_k, stages = Config::stages;
  static constexpr int up(int x, int to) { return (x + to - 1) / to * to; }
  static constexpr int columns = up(width, 16);  // of the second product
  static constexpr int headroom = 0;             // of weights, see attention_softmax.cuh
  // Of the first product's k, 32 bytes each.
  static constexpr int steps = up(depth * static_cast<int>(sizeof(Number)), 32) / 32;

  // A tile's keys are summed in `splits` parts, by one CTA each.
  static constexpr int splits = Config::splits;
  static constexpr auto tiles_q =
      number<is_known(queries)>([] { return tiles_of(queries, tile_q, sequences); });
  static constexpr auto tiles =
      number<is_known(entries, tiles_q)>([] { return entries * tiles_q; });
  static constexpr auto items = number<is_known(tiles)>([] { return tiles * splits; });
};

// Number i of the tiles in the order in which they run; of all tiles the first part, then the next.
struct TileOfRows {
  int entry, row, split;
};
template <class Config, class S>
SINTER_DEVICE TileOfRows tile_of_rows(int item) {
  const int split = S::splits > 1 ? item / S::tiles : 0, i = item - split * S::tiles;
  const int together = Config::heads_together;
  const int group = together * S::tiles_q;
  const int first = i / group * together, within = i % group;
  const int left = S::entries - first, heads = left < together ? left : together;
  return {first + within % heads, (S::tiles_q - 1 - within / heads) * S::tile_q, split};
}
// Of this CTA's, by round; the last one may not exist.
SINTER_DEVICE int number_of_tile(int round) {
  const int grid = static_cast<int>(gridDim.x), i = static_cast<int>(blockIdx.x);
  return round * grid + (round % 2 == 0 ? i : grid - 1 - i);
}

// What the rows of a tile see. Of packed sequences, the tile's row was its number times tile_q and
// becomes its first row.
template <class S, class Bounds>
using BandOf = Band<Bounds, S::queries_of_head, S::keys>;
template <class S, class Bounds, class Args>
SINTER_DEVICE BandOf<S, Bounds> band_of(const Args& args, const typename S::F::Coord& c,
                                        TileOfRows& tile) {
  if constexpr (PacksSequences<Bounds>)
    return BandOf<S, Bounds>::template of_tile<S::tile_q, false>(args, tile.row / S::tile_q,
                                                                 tile.row);
  else
    return BandOf<S, Bounds>(args, c);
}

// The tiles of keys of its part: equal parts of the band, or, under a mask, which leaves unlike
// numbers of them, all.
template <class S, class Band>
SINTER_DEVICE KeyTiles keys_of(const Band& band, const TileOfRows& tile) {
  KeyTiles keys = band.template tiles<S::tile_k>(tile.row, tile.row + S::tile_q);
  if constexpr (MasksTiles<typename Band::Mask>) {
    keys.part = tile.split;
  } else if constexpr (S::splits > 1) {
    const int each = (keys.end - keys.begin + S::splits - 1) / S::splits,
              first = keys.begin + tile.split * each, end = first + each;
    keys.begin = first < keys.end ? first : keys.end;
    keys.end = end < keys.end ? end : keys.end;
  }
  return keys;
}

}  // namespace sinter::attention
