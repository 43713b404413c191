// Reductions over the rows or columns of a contraction's results, while a warp's epilogue tile of
// them leaves shared memory. A generated struct R names a reduction as in core reductions, says
// with `over_m` and `over_n` what it goes over, and stores the partial result of 16 rows, 16
// columns or 16 x 16 elements; the next kernel finishes it. Epilogue tiles lie at multiples of 16,
// so that parts and their order do not depend on the tiles.
#pragma once
#include "sinter/device/family/contraction_epilogue_tile.cuh"
#include "sinter/device/family/reductions.cuh"

namespace sinter::contraction {

inline constexpr int kReducedTogether = 16;

template <class Config, class Body>
struct EpilogueReductions {
  using P = Problem<Config>;
  using Index = typename Config::Index;
  using All = typename Body::Reductions;
  static constexpr int width = Config::width;
  static constexpr bool along_columns = Config::n_fastest;
  // Packs in a line of the epilogue tile, those of them side by side in a warp, and how many a lane
  // has.
  static constexpr int columns = EpilogueTile::columns / Config::products,
                       beside = (along_columns ? columns : EpilogueTile::rows) / width,
                       across = beside < 32 ? beside : 32, spots = beside / across;
  static constexpr int neighbours = kReducedTogether / width;  // lanes that share a part of a line
  static constexpr bool any = All::count > 0;
  static_assert(!any || Config::unroll % spots == 0);

  template <class R>
  static constexpr bool goes_along = along_columns ? R::over_n : R::over_m;
  template <class R>
  static constexpr bool goes_across = along_columns ? R::over_m : R::over_n;

  All at[spots][width];

  SINTER_DEVICE void start() {
    for_reductions(at[0][0], [&]<class R>(R*) {
#pragma unroll
      for (int i = 0; i < spots * width; ++i) at[i / width][i % width].Reduction<R>::start();
    });
  }

  // The end of 32 packs: stores what goes along lines only. `c`, `row`, `column`: of this lane's.
  template <class Args>
  SINTER_DEVICE void end_packs(const Args& args, const typename P::Coord& c, Index row,
                               Index column, bool inside, int spot) {
    for_reductions(at[0][0], [&]<class R>(R*) {
      if constexpr (goes_along<R> && !goes_across<R>) {
        const auto total = total_along<R>(take<R>(at[spot]));
        if (inside && static_cast<int>(threadIdx.x) % neighbours == 0)
          R::store(args, c, row / kReducedTogether, column / kReducedTogether, total);
      }
    });
  }

  // The end of 16 lines, of which `line` is the first. Along columns they end with the epilogue
  // tile, whose memory is free then.
  template <class Args>
  SINTER_DEVICE void end_lines(const Args& args, EpilogueTile& epilogue_tile,
                               const EpilogueCoord<Config>& place, int line) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    for_reductions(at[0][0], [&]<class R>(R*) {
      if constexpr (goes_across<R>) {
        using Partial = typename Reduction<R>::Partial;
        Partial totals[spots][width];
#pragma unroll
        for (int i = 0; i < spots * width; ++i) {
          auto& mine = at[i / width][i % width];
          Partial total = mine.Reduction<R>::partial;
          mine.Reduction<R>::start();
#pragma unroll
          for (int distance = across; distance < 32; distance *= 2)
            total = Reduction<R>::combine(total, __shfl_xor_sync(~0u, total, distance));
          totals[i / width][i % width] = total;
        }
        if constexpr (goes_along<R>) {
#pragma unroll
          for (int s = 0; s < spots; ++s) {
            const Partial total = total_along<R>(combined<R>(totals[s]));
            if (lane < across && lane % neighbours == 0)
              store<R>(args, place, line, (s * across + lane) * width, total);
          }
        } else if constexpr (along_columns) {
          Partial* row = reinterpret_cast<Partial*>(epilogue_tile.at);
          __syncwarp();
          if (lane < across)
#pragma unroll
            for (int i = 0; i < spots * width; ++i)
              row[(i / width * across + lane) * width + i % width] = totals[i / width][i % width];
          __syncwarp();
#pragma unroll
          for (int i = lane; i < columns; i += 32) store<R>(args, place, line, i, row[i]);
        } else if (lane < across) {
#pragma unroll
          for (int i = 0; i < spots * width; ++i)
            store<R>(args, place, line, (i / width * across + lane) * width + i % width,
                     totals[i / width][i % width]);
        }
      }
    });
  }

 private:
  template <class R>
  static SINTER_DEVICE auto combined(const typename Reduction<R>::Partial (&parts)[width]) {
    auto total = parts[0];
#pragma unroll
    for (int e = 1; e < width; ++e) total = Reduction<R>::combine(total, parts[e]);
    return total;
  }
  // What a pack added up to; it starts again.
  template <class R>
  static SINTER_DEVICE auto take(All (&pack)[width]) {
    typename Reduction<R>::Partial parts[width];
#pragma unroll
    for (int e = 0; e < width; ++e) {
      parts[e] = pack[e].Reduction<R>::partial;
      pack[e].Reduction<R>::start();
    }
    return combined<R>(parts);
  }
  template <class R, class Partial>
  static SINTER_DEVICE Partial total_along(Partial total) {
#pragma unroll
    for (int distance = 1; distance < neighbours; distance *= 2)
      total = Reduction<R>::combine(total, __shfl_xor_sync(~0u, total, distance));
    return total;
  }
  template <class R, class Args, class Partial>
  static SINTER_DEVICE void store(const Args& args, const EpilogueCoord<Config>& place, int line,
                                  int position, Partial value) {
    const Index row = place.row + (along_columns ? line : position),
                column = place.column + (along_columns ? position : line);
    if (row >= place.row_end || column >= place.column_end) return;
    typename P::Coord c = place.batch;
    P::set_m(c, row);
    P::set_n(c, column);
    R::store(args, c, row / kReducedTogether, column / kReducedTogether, value);
  }
};

}  // namespace sinter::contraction
