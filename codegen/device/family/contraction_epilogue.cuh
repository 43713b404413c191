// The end of a contraction on tensor cores: a warp's finished sums leave its registers through
// shared memory, so that the epilogue is compiled once and moves packs of neighbours as the
// pointwise family does.
#pragma once
#include "sinter/device/core/math.cuh"
#include "sinter/device/core/pack.cuh"
#include "sinter/device/family/contraction_recompute.cuh"
#include "sinter/device/family/contraction_reductions.cuh"
#include "sinter/device/family/contraction_rows.cuh"

namespace sinter::contraction {

// Columns of an epilogue tile that are looked at, where a warp's sums have `columns`: reductions
// count with all of a tile's, and a warp with a pack for each lane.
template <class Config, class Body, int columns>
inline constexpr int kColumnsMoved = [] {
  constexpr int all = EpilogueTile::columns / Config::products,
                some = columns > 2 * Config::width ? columns : 2 * Config::width;
  return Config::products == 1 && !EpilogueReductions<Config, Body>::any && some < all ? some : all;
}();

// What a lane moves of an epilogue tile at once: `unroll` packs of neighbours, 32 packs apart. What
// several packs read is fetched before the first is computed.
template <class Config, class Body, int moved = EpilogueTile::columns / Config::products>
struct Packs {
  using P = Problem<Config>;
  using Index = typename Config::Index;
  using Reduced = EpilogueReductions<Config, Body>;
  static constexpr int width = Config::width, products = Config::products;
  static constexpr bool along_columns = Config::n_fastest;
  static constexpr int columns = EpilogueTile::columns / products;  // of the result
  static constexpr int beside =
      (along_columns ? moved : EpilogueTile::rows) / width;  // packs in a line
  static constexpr int count = EpilogueTile::rows * moved / width;
  static constexpr int unroll = [] {
    int most = Config::unroll;
    while (most > 1 && count % (32 * most) != 0) most /= 2;
    return most;
  }();
  static_assert(count % (32 * unroll) == 0);

  typename Body::template Fragment<width> held[unroll];
  bool inside[unroll];

  static SINTER_DEVICE int row_of(int pack) {
    return along_columns ? pack / beside : pack % beside * width;
  }
  static SINTER_DEVICE int column_of(int pack) {
    return along_columns ? pack % beside * width : pack / beside;
  }

  // `first`: the number of the lane's first pack.
  template <class Args, class Rows>
  SINTER_DEVICE void fetch(const Args& args, const EpilogueCoord<Config>& place, const Rows& rows,
                           int first) {
#pragma unroll
    for (int u = 0; u < unroll; ++u) {
      typename P::Coord c;
      inside[u] = locate(place, rows, first + u * 32, c);
      if (inside[u]) Body::fetch(args, c, held[u]);
    }
  }

  template <class Args, class Rows>
  SINTER_DEVICE void compute(const Args& args, EpilogueTile& epilogue_tile,
                             const EpilogueCoord<Config>& place, const Rows& rows, int first,
                             Reduced& reduced) {
    constexpr int last = along_columns ? P::first_k - 1 : P::first_n - 1, dim = last < 0 ? 0 : last;
#pragma unroll
    for (int u = 0; u < unroll; ++u) {
      const int row = row_of(first + u * 32), column = column_of(first + u * 32);
      constexpr int spots = Reduced::spots;
      typename P::Coord c;
      locate(place, rows, first + u * 32, c);
      if (inside[u]) {
        float sums[products][width];
#pragma unroll
        for (int p = 0; p < products; ++p)
          epilogue_tile.template get<width, along_columns>(row, column + p * columns, sums[p]);
        draw_numbers<Body>(args, c, held[u]);
#pragma unroll
        for (int e = 0; e < width; ++e) {
          typename Config::Accumulator acc[products];
#pragma unroll
          for (int p = 0; p < products; ++p)
            acc[p] =
                static_cast<typename Config::Accumulator>(sum_of<typename Config::Sum>(sums[p][e]));
          Body::element(args, neighbour<dim>(c, e), e, acc, held[u], reduced.at[u % spots][e]);
        }
        Body::flush(args, c, held[u]);
      }
      reduced.end_packs(args, c, place.row + row, place.column + column, inside[u], u % spots);
      const int packs = (first / 32 + u + 1) * 32;
      if (Reduced::any && packs % (beside * kReducedTogether) == 0)
        reduced.end_lines(args, epilogue_tile, place, packs / beside - kReducedTogether);
    }
  }

 private:
  // The coordinates of a pack, and whether there is such a place in the result.
  template <class Rows>
  static SINTER_DEVICE bool locate(const EpilogueCoord<Config>& place, const Rows& rows, int pack,
                                   typename P::Coord& c) {
    const Index row = place.row + row_of(pack), column = place.column + column_of(pack);
    const bool inside = row < place.row_end && column < place.column_end;
    const Index target = inside ? rows.target(row) : 0;
    c = place.batch;
    P::set_m(c, target);
    P::set_n(c, column);
    return inside && target >= 0 && target < P::rows && P::exists(c);
  }
};

// Runs the epilogue over an epilogue tile, of which a warp's sums fill `columns`; the whole warp
// takes part. (128 x 58 x 28 x 28, 58 of 1 x 1 with scale, bias and relu, whose packs are pairs, in
// tiles of 32 columns a warp on an H200: 28.1 us with all 64, 18.5 so.)
template <class Config, class Body, int columns = EpilogueTile::columns, class Args, class Rows>
SINTER_DEVICE void finish(const Args& args, EpilogueTile& epilogue_tile,
                          const EpilogueCoord<Config>& place, const Rows& rows) {
  using Some = Packs<Config, Body, kColumnsMoved<Config, Body, columns>>;
  recompute_tile<Config, Body>(args, epilogue_tile, place, rows);
  EpilogueReductions<Config, Body> reduced;
  reduced.start();
#pragma unroll 1
  for (int first = static_cast<int>(threadIdx.x) % 32; first < Some::count;
       first += 32 * Some::unroll) {
    Some packs;
    packs.fetch(args, place, rows, first);
    packs.compute(args, epilogue_tile, place, rows, first, reduced);
  }
}

// Brings the lines that a warp's epilogue will read closer, while there is time: `rows` x `columns`
// from the place on.
template <class Config, class Body, int rows, int columns, class Args, class Rows>
SINTER_DEVICE void prefetch_tile(const Args& args, const EpilogueCoord<Config>& place,
                                 const Rows& numbers) {
  using P = Problem<Config>;
  using Index = typename Config::Index;
  constexpr int step = 32;  // elements: 128 bytes of the widest type
  constexpr int beside = Config::n_fastest ? (columns + step - 1) / step : (rows + step - 1) / step;
  constexpr int lines = Config::n_fastest ? rows : columns;
#pragma unroll 1
  for (int i = static_cast<int>(threadIdx.x) % 32; i < lines * beside; i += 32) {
    const int line = i / beside, begin = i % beside * step;
    const Index row = place.row + (Config::n_fastest ? line : begin),
                column = place.column + (Config::n_fastest ? begin : line);
    if (row >= place.row_end || column >= place.column_end) continue;
    const Index target = numbers.target(row);
    if (target < 0 || target >= P::rows) continue;
    typename P::Coord c = place.batch;
    P::set_m(c, target);
    P::set_n(c, column);
    if (P::exists(c)) Body::prefetch(args, c);
  }
}

}  // namespace sinter::contraction
