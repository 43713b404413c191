// The same by clusters of blocks, of which each sums a part of k: with few rows a tile's columns
// are few, and there are fewer tiles than blocks that keep memory busy. They add up what the others
// hold in shared memory.
#pragma once
#include "sinter/device/core/hopper.cuh"
#include "sinter/device/family/contraction_mma.cuh"

namespace sinter::contraction {

template <class Config, class A, class B, class Body, class Args>
SINTER_DEVICE void run_streamed_parts(const Args& args) {
  using P = Problem<Config>;
  using T = WarpTiles<Config>;
  using Index = typename Config::Index;
  using LoaderA = Loader<Config, A, AllRows, Config::tile_m, true>;
  using LoaderB = Loader<Config, B, AllRows, Config::tile_n, false>;
  constexpr int split = Config::split,
                ring = Config::stages * (LoaderA::Layout::bytes + LoaderB::Layout::bytes);
  constexpr int across = (T::columns + EpilogueTile::columns - 1) / EpilogueTile::columns,
                each = T::blocks_m * across, all = T::warps * each;  // epilogue tiles
  constexpr int sums_bytes = (all + T::warps) * static_cast<int>(sizeof(EpilogueTile));
  static_assert(Config::shared_bytes == (ring > sums_bytes ? ring : sums_bytes));
  hardware::grid_dependency_wait();
  extern __shared__ uint4 dynamic_memory[];
  const unsigned shared = warp_matrix::address(dynamic_memory);
  const int warp = __shfl_sync(~0u, static_cast<int>(threadIdx.x) / 32, 0),
            lane = static_cast<int>(threadIdx.x) % 32, rank = hardware::cluster_rank();
  const int row = warp / Config::warps_n * T::rows, column = warp % Config::warps_n * T::columns;
  EpilogueTile* const parts = reinterpret_cast<EpilogueTile*>(dynamic_memory) + warp * each;
  EpilogueTile& sum = reinterpret_cast<EpilogueTile*>(dynamic_memory)[all + warp];
  for (long long tile = blockIdx.x / split; tile < T::tiles; tile += gridDim.x / split) {
    const WarpTileBounds<Config> at(tile, AllRows{});
    EpilogueCoord<Config> place;
    P::set_batch(place.batch, at.batch);
    LoaderA a;
    LoaderB b;
    a.aim(place.batch, at.row0, at.row_end, AllRows{});
    b.aim(place.batch, at.column0, P::columns, AllRows{});
    WarpSums<Config> sums;
    sum_streamed_tile<Config, A, B>(args, a, b, shared, row, column,
                                    static_cast<Index>(T::steps * rank / split),
                                    static_cast<Index>(T::steps * (rank + 1) / split), sums.acc);
    place.row_end = at.row_end;
    const Index end = at.column0 + column + T::columns;
    place.column_end = end < P::columns ? end : P::columns;
    const EpilogueTile::Fragment fragment;
    const auto finished = sums.finished();
#pragma unroll 1
    for (int s = 0; s < each; ++s) put_tile<0, across, 1>(parts[s], fragment, finished, s);
    hardware::cluster_barrier();
    // Each block finishes some lines of all epilogue tiles.
#pragma unroll 1
    for (int s = 0; s < each; ++s) {
      if ((s + warp) % split != rank) continue;
#pragma unroll 1
      for (int i = lane * 4; i < EpilogueTile::rows * EpilogueTile::columns; i += 256) {
        float4 part[split][2];  // all are asked for before the first is added
#pragma unroll
        for (int r = 0; r < split; ++r)
#pragma unroll
          for (int j = 0; j < 2; ++j) part[r][j] = hopper::read_block(parts[s].at + i + j * 128, r);
#pragma unroll
        for (int j = 0; j < 2; ++j) {
          float4 x = part[0][j];
#pragma unroll
          for (int r = 1; r < split; ++r) {
            x.x += part[r][j].x, x.y += part[r][j].y;
            x.z += part[r][j].z, x.w += part[r][j].w;
          }
          *reinterpret_cast<float4*>(sum.at + i + j * 128) = x;
        }
      }
      __syncwarp();
      place.row = at.row0 + row + s / across * 16;
      place.column = at.column0 + column + s % across * EpilogueTile::columns;
      finish<Config, Body, T::columns>(args, sum, place, AllRows{});
      __syncwarp();
    }
    hardware::cluster_barrier();  // others read no more
  }
}

}  // namespace sinter::contraction
