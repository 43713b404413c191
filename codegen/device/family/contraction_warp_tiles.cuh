// The tile of a block whose warps share it, in numbers, and where it lies in the result.
#pragma once
#include "sinter/device/core/math.cuh"
#include "sinter/device/family/contraction_epilogue_tile.cuh"
#include "sinter/device/family/contraction_space.cuh"

namespace sinter::contraction {

// What a block does, in numbers.
template <class Config>
struct WarpTiles {
  using P = Problem<Config>;
  using Index = typename Config::Index;
  using Number = typename Config::Number;
  static constexpr int warps = Config::warps_m * Config::warps_n;
  static constexpr int rows = Config::tile_m / Config::warps_m,  // of a warp
      columns = Config::tile_n / Config::warps_n;
  static constexpr int blocks_m = rows / 16, blocks_n = columns / 16;
  static constexpr int slices = Config::tile_k * static_cast<int>(sizeof(Number)) / 32;
  static_assert(rows % 16 == 0 && columns % 16 == 0 && slices % 2 == 0);
  static_assert(warps * 32 == Config::threads && Config::stages >= 2);

  // Stages, and the warps' parts of the result where these were.
  template <class LoaderA, class LoaderB>
  static constexpr int shared_bytes = [] {
    constexpr int ring = Config::stages * (LoaderA::Layout::bytes + LoaderB::Layout::bytes),
                  results = warps * static_cast<int>(sizeof(EpilogueTile));
    return ring > results ? ring : results;
  }();

  static constexpr auto steps = number<is_known(P::depth)>(
      [] { return static_cast<Index>(ceil_divide(P::depth, Config::tile_k)); });
  static constexpr auto row_tiles =
      number<is_known(P::rows)>([] { return ceil_divide(P::rows, Config::tile_m); });
  static constexpr auto column_tiles =
      number<is_known(P::columns)>([] { return ceil_divide(P::columns, Config::tile_n); });
  // Of grouped rows no more than so many.
  static constexpr auto tiles = number<is_known(P::batches, row_tiles, column_tiles)>(
      [] { return static_cast<long long>(P::batches) * row_tiles * column_tiles; });
};

// A tile's batch entry, row of tiles and column of tiles. Those that run at once lie in a patch:
// `group` rows of tiles, one column after another.
template <class Config>
struct WarpTilePlace {
  long long batch, m, n;

  SINTER_DEVICE explicit WarpTilePlace(long long tile) {
    using T = WarpTiles<Config>;
    const long long in_batch =
                        T::row_tiles * T::column_tiles > 0 ? T::row_tiles * T::column_tiles : 1,
                    in_group = T::column_tiles > 0 ? Config::group * T::column_tiles : 1;
    batch = tile / in_batch;
    tile -= batch * in_batch;
    const long long first = tile / in_group * Config::group, rest = T::row_tiles - first;
    const long long height = rest < Config::group ? rest : Config::group;
    tile %= in_group;
    m = first + tile % height;
    n = tile / height;
  }
};

// The rows and columns of a tile. `rows`: where those of a batch entry begin and end.
template <class Config>
struct WarpTileBounds {
  using P = Problem<Config>;
  using Index = typename Config::Index;
  Index batch, row0, row_end, column0;

  // By whole warps.
  template <class Rows>
  SINTER_DEVICE WarpTileBounds(long long tile, const Rows& rows) {
    if constexpr (Rows::grouped) {
      find(tile, rows);
      return;
    }
    const WarpTilePlace<Config> at(tile);
    batch = static_cast<Index>(at.batch);
    row_end = rows.template end<Index>(batch, P::rows);
    row0 = rows.template begin<Index>(batch, P::rows) + static_cast<Index>(at.m) * Config::tile_m;
    column0 = static_cast<Index>(at.n) * Config::tile_n;
  }
  // Behind the last tile of the last group; the same for all threads.
  SINTER_DEVICE bool empty() const { return row0 >= row_end; }

 private:
  // Tiles are numbered group by group, those without a row not at all: how many a group has is
  // known only here. Each lane counts those of a group, and a scan of the warp adds them up.
  template <class Rows>
  SINTER_DEVICE void find(long long tile, const Rows& rows) {
    constexpr auto columns = WarpTiles<Config>::column_tiles;
    const int lane = static_cast<int>(threadIdx.x) % 32;
    row0 = row_end = column0 = 0;
#pragma unroll 1
    for (Index from = 0; from < P::batches; from += 32) {
      const Index group = from + lane < P::batches ? from + lane : 0;
      const Index begin = rows.template begin<Index>(group, P::rows),
                  end = rows.template end<Index>(group, P::rows);
      const bool some = end > begin && from + lane < P::batches;
      const long long own =
          some ? ceil_divide(end - begin, static_cast<Index>(Config::tile_m)) * columns : 0;
      long long upto = own;  // those of the lanes before, too
#pragma unroll
      for (int distance = 1; distance < 32; distance *= 2) {
        const long long other = __shfl_sync(~0u, upto, lane >= distance ? lane - distance : lane);
        if (lane >= distance) upto += other;
      }
      const int found = __popc(__ballot_sync(~0u, upto <= tile));
      if (found < 32) {
        const long long in_group = tile - __shfl_sync(~0u, upto - own, found),
                        tiles_m = __shfl_sync(~0u, own, found) / columns;
        batch = from + found;
        row_end = __shfl_sync(~0u, end, found);
        // Neighbours share columns, those of the group's weight.
        row0 = __shfl_sync(~0u, begin, found) +
               static_cast<Index>(in_group % tiles_m) * Config::tile_m;
        column0 = static_cast<Index>(in_group / tiles_m) * Config::tile_n;
        return;
      }
      tile -= __shfl_sync(~0u, upto, 31);
    }
  }
};

}  // namespace sinter::contraction
