// The end of a contraction on tensor cores: a warp's finished sums leave its registers through
// shared memory, so that the epilogue is compiled once and moves packs of neighbours as the
// pointwise family does.
#pragma once
#include "sinter/device/core/math.cuh"
#include "sinter/device/core/pack.cuh"
#include "sinter/device/family/contraction_reductions.cuh"
#include "sinter/device/family/contraction_rows.cuh"

namespace sinter::contraction {

// Runs the epilogue over a slab; the whole warp takes part. What several packs read is fetched
// before the first is computed.
template <class Config, class Body, class Args, class Rows>
SINTER_DEVICE void finish(const Args& args, Slab& slab, const SlabPlace<Config>& place,
                          const Rows& rows) {
  using P = Problem<Config>;
  using Index = typename Config::Index;
  constexpr int width = Config::width, unroll = Config::unroll, products = Config::products;
  constexpr bool along_columns = Config::n_fastest;
  constexpr int columns = Slab::columns / products;                       // of the result
  constexpr int beside = (along_columns ? columns : Slab::rows) / width;  // packs in a line
  constexpr int packs = Slab::rows * columns / width;
  constexpr int last = along_columns ? P::first_k - 1 : P::first_n - 1, dim = last < 0 ? 0 : last;
  static_assert(packs % (32 * unroll) == 0);
  const auto row_of = [](int pack) {
    return along_columns ? pack / beside : pack % beside * width;
  };
  const auto column_of = [](int pack) {
    return along_columns ? pack % beside * width : pack / beside;
  };
  using Reduced = SlabReductions<Config, Body>;
  Reduced reduced;
  reduced.start();
#pragma unroll 1
  for (int first = static_cast<int>(threadIdx.x) % 32; first < packs; first += 32 * unroll) {
    typename P::Coord c[unroll];
    typename Body::template Place<width> held[unroll];
    bool inside[unroll];
#pragma unroll
    for (int u = 0; u < unroll; ++u) {
      const Index row = place.row + row_of(first + u * 32),
                  column = place.column + column_of(first + u * 32);
      inside[u] = row < place.row_end && column < place.column_end;
      const Index target = inside[u] ? rows.target(row) : 0;
      inside[u] &= target >= 0 && target < P::rows;
      c[u] = place.batch;
      P::set_m(c[u], target);
      P::set_n(c[u], column);
      if (inside[u]) Body::fetch(args, c[u], held[u]);
    }
#pragma unroll
    for (int u = 0; u < unroll; ++u) {
      const int row = row_of(first + u * 32), column = column_of(first + u * 32);
      constexpr int spots = Reduced::spots;
      if (inside[u]) {
        float sums[products][width];
#pragma unroll
        for (int p = 0; p < products; ++p)
          slab.template get<width, along_columns>(row, column + p * columns, sums[p]);
#pragma unroll
        for (int e = 0; e < width; ++e) {
          typename Config::Accumulator acc[products];
#pragma unroll
          for (int p = 0; p < products; ++p)
            acc[p] = static_cast<typename Config::Accumulator>(
                sum_of<typename Config::Sum>(sums[p][e]));
          Body::element(args, neighbour<dim>(c[u], e), e, acc, held[u], reduced.at[u % spots][e]);
        }
        Body::flush(args, c[u], held[u]);
      }
      reduced.end_packs(args, c[u], place.row + row, place.column + column, inside[u], u % spots);
      const int lines = (first / 32 + u + 1) * 32 / beside;
      if (Reduced::any && (first / 32 + u + 1) * 32 % (beside * kReducedTogether) == 0)
        reduced.end_lines(args, slab, place, lines - kReducedTogether);
    }
  }
}

// Brings the lines that a warp's epilogue will read closer, while there is time: `rows` x `columns`
// from the place on.
template <class Config, class Body, int rows, int columns, class Args>
SINTER_DEVICE void prefetch_tile(const Args& args, const SlabPlace<Config>& place) {
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
    typename P::Coord c = place.batch;
    P::set_m(c, row);
    P::set_n(c, column);
    Body::prefetch(args, c);
  }
}

}  // namespace sinter::contraction
