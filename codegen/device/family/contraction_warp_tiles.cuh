// The tile of a block whose warps share it, in numbers, and where it lies in the result.
#pragma once
#include "sinter/device/core/math.cuh"
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

  static constexpr auto steps = number<is_known(P::depth)>(
      [] { return static_cast<Index>(ceil_divide(P::depth, Config::tile_k)); });
  static constexpr auto row_tiles =
      number<is_known(P::rows)>([] { return ceil_divide(P::rows, Config::tile_m); });
  static constexpr auto column_tiles =
      number<is_known(P::columns)>([] { return ceil_divide(P::columns, Config::tile_n); });
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

  template <class Rows>
  SINTER_DEVICE WarpTileBounds(long long tile, const Rows& rows) {
    const WarpTilePlace<Config> at(tile);
    batch = static_cast<Index>(at.batch);
    row_end = rows.template end<Index>(batch, P::rows);
    row0 = rows.template begin<Index>(batch, P::rows) + static_cast<Index>(at.m) * Config::tile_m;
    column0 = static_cast<Index>(at.n) * Config::tile_n;
  }
  // Of a group that has no more rows; the same for all threads.
  SINTER_DEVICE bool empty() const { return row0 >= row_end; }
};

}  // namespace sinter::contraction
