// The contraction family on the tensor cores that every GPU from sm_80 on has: acc(batch, m, n) =
// sum over k of a(batch, m, k) * b(batch, n, k), then the epilogue once an element. Each of the
// four may be several indices of the domain, which are unravelled from one number.
//
// The warps of a block share a tile of the result and walk over k in steps. A pipeline of stages in
// shared memory holds the steps ahead. Operands whose elements lie together come there by
// asynchronous copies; others pass through registers, where their bodies are computed: they are
// fetched before the current step is multiplied and put after it, or after as many more steps as
// Config::held_steps says. One barrier a step suffices, since a stage is filled again only after
// the barrier that ends the step that read it; the fragments of the next MMA are read
// while the current one runs. The structure is that of CUTLASS's multistage kernels, the
// permutation of chunks that of its ldmatrix layouts.
#pragma once
#include "sinter/device/family/contraction_epilogue.cuh"
#include "sinter/device/family/contraction_loader.cuh"
#include "sinter/device/family/contraction_streamed.cuh"
#include "sinter/device/family/contraction_warp_tiles.cuh"

namespace sinter::contraction {

// The fragments of a warp for 32 bytes of k.
template <class Config>
struct Fragments {
  using T = WarpTiles<Config>;
  using Number = typename Config::Number;
  unsigned a[T::blocks_m][4], b[T::blocks_n][4];

  // Numbers that were copied as f32.
  template <int blocks>
  static SINTER_DEVICE void round(unsigned (&fragments)[blocks][4]) {
#pragma unroll
    for (int i = 0; i < blocks * 4; ++i)
      fragments[i / 4][i % 4] = tf32::rounded(fragments[i / 4][i % 4]);
  }
  template <bool round_a, bool round_b>
  SINTER_DEVICE void multiply(float (&acc)[T::blocks_m][T::columns / 2]) {
    if constexpr (round_a) round(a);
    if constexpr (round_b) round(b);
#pragma unroll
    for (int i = 0; i < T::blocks_m; ++i)
#pragma unroll
      for (int j = 0; j < T::blocks_n; ++j) {
        warp_matrix::multiply(Number{}, acc[i] + j * 8, a[i], b[j][0], b[j][1]);
        warp_matrix::multiply(Number{}, acc[i] + j * 8 + 4, a[i], b[j][2], b[j][3]);
      }
  }
};

// A warp's sums: those that the tensor cores add to, and, with Config::promote_every, integers of
// 32 bits to which these move before they leave the range where f32 holds every integer.
template <class Config>
struct WarpSums {
  using T = WarpTiles<Config>;
  using Sum = typename Config::Sum;
  static constexpr bool promotes = Config::promote_every > 0;
  static constexpr int blocks = T::blocks_m, count = T::columns / 2;
  float acc[blocks][count] = {};
  int promoted[promotes ? blocks : 1][promotes ? count : 1] = {};

  SINTER_DEVICE void promote() {
    if constexpr (promotes)
#pragma unroll
      for (int i = 0; i < blocks; ++i)
#pragma unroll
        for (int j = 0; j < count; ++j) {
          promoted[i][j] += static_cast<int>(acc[i][j]);
          acc[i][j] = 0;
        }
  }
  SINTER_DEVICE HeldSums<Sum, blocks, count> finished() const {
    if constexpr (promotes)
      return {promoted};
    else
      return {acc};
  }
};

template <class Config>
SINTER_DEVICE constexpr int held_steps_of() {
  if constexpr (requires { Config::held_steps; })
    return Config::held_steps;
  else
    return 1;
}

// Sums a tile. `a` and `b` are loaders that know its rows and columns.
template <class Config, class Args, class LoaderA, class LoaderB>
SINTER_DEVICE void sum_warp_tile(const Args& args, const LoaderA& a, const LoaderB& b,
                                 unsigned shared, int row, int column, WarpSums<Config>& sums) {
  using T = WarpTiles<Config>;
  using Index = typename Config::Index;
  using LayoutA = typename LoaderA::Layout;
  using LayoutB = typename LoaderB::Layout;
  constexpr int stages = Config::stages, stage_bytes = LayoutA::bytes + LayoutB::bytes;
  const Reader<LayoutA, true, T::blocks_m, T::slices> read_a(row);
  const Reader<LayoutB, false, T::blocks_n, T::slices> read_b(column);
  Fragments<Config> fragments[2];
  const auto read = [&](Fragments<Config>& f, unsigned stage, int slice) {
    read_a.get(f.a, stage, slice);
    read_b.get(f.b, stage + LayoutA::bytes, slice);
  };
  const auto multiply = [&](Fragments<Config>& f) {
    f.template multiply<LoaderA::rounds, LoaderB::rounds>(sums.acc);
  };
  // Steps whose elements are on their way to registers, or wait there until they are put.
  constexpr int held_steps = held_steps_of<Config>();
  typename LoaderA::Held held_a[held_steps];
  typename LoaderB::Held held_b[held_steps];
  constexpr bool copies = LoaderA::copied || LoaderB::copied;
  unsigned filled = shared, current = shared;  // stages
  // Begins to bring what a stage will hold in `ahead` steps: what passes through registers sooner.
  const auto start = [&]<class L>(const L& loader, Index ahead, unsigned panel,
                                  typename L::Held& held) {
    const Index step = L::copied ? ahead : ahead + (held_steps - 1);
    if (step < T::steps && (held_steps == 1 || step >= 0)) loader.start(args, step, panel, held);
  };
  const auto following = [&](unsigned stage) {
    return stage == shared + (stages - 1) * stage_bytes ? shared : stage + stage_bytes;
  };
  // The first steps are loaded by the same code as the others: the bodies are compiled once for
  // each step that registers hold.
#pragma unroll 1
  for (Index first = 2 - stages - held_steps; first < T::steps; first += held_steps)
#pragma unroll
    for (int turn = 0; turn < held_steps; ++turn) {
      const Index step = first + turn, ahead = step + stages - 1;
      if (held_steps > 1 && step >= T::steps) break;
      start(a, ahead, filled, held_a[turn]);
      start(b, ahead, filled + LayoutA::bytes, held_b[turn]);
      if (held_steps > 1 && ahead < 0) continue;
      if constexpr (copies) warp_matrix::commit();
      if (step >= 0) {
#pragma unroll
        for (int slice = 0; slice < T::slices - 1; ++slice) {
          read(fragments[(slice + 1) % 2], current, slice + 1);
          multiply(fragments[slice % 2]);
        }
        current = following(current);
      }
      if (ahead < T::steps) {
        a.end(args, ahead, filled, held_a[(turn + 1) % held_steps]);
        b.end(args, ahead, filled + LayoutA::bytes, held_b[(turn + 1) % held_steps]);
      }
      filled = following(filled);
      // Behind the barrier the next step has come, and nobody reads this one's stage any more.
      if constexpr (copies) warp_matrix::wait<stages - 2>();
      __syncthreads();
      if (step >= -1 && step + 1 < T::steps) read(fragments[0], current, 0);
      if (step >= 0) multiply(fragments[1]);
      if constexpr (Config::promote_every > 0)
        if (step >= 0 && (step + 1) % Config::promote_every == 0) sums.promote();
    }
  sums.promote();
}

// The whole kernel.
template <class Config, class A, class B, class Body, class Args, class Rows>
SINTER_DEVICE void run_by_warps(const Args& args, const Rows& rows) {
  using P = Problem<Config>;
  using T = WarpTiles<Config>;
  using Index = typename Config::Index;
  using LoaderA = Loader<Config, A, Rows, Config::tile_m, true>;
  using LoaderB = Loader<Config, B, Rows, Config::tile_n, false>;
  hardware::grid_dependency_wait();
  static_assert(Config::shared_bytes == T::template shared_bytes<LoaderA, LoaderB>);
  extern __shared__ uint4 dynamic_memory[];
  const unsigned shared = warp_matrix::address(dynamic_memory);
  const int warp = __shfl_sync(~0u, static_cast<int>(threadIdx.x) / 32, 0);
  const int row = warp / Config::warps_n * T::rows, column = warp % Config::warps_n * T::columns;
  EpilogueTile& epilogue_tile = reinterpret_cast<EpilogueTile*>(dynamic_memory)[warp];
  for (long long tile = blockIdx.x; tile < T::tiles; tile += gridDim.x) {
    const WarpTileBounds<Config> at(tile, rows);
    if (at.empty()) break;
    EpilogueCoord<Config> place;
    P::set_batch(place.batch, at.batch);
    LoaderA a;
    LoaderB b;
    a.aim(place.batch, at.row0, at.row_end, rows);
    b.aim(place.batch, at.column0, P::columns, rows);
    WarpSums<Config> sums;
    if constexpr (LoaderA::streamed || LoaderB::streamed)
      sum_streamed_tile<Config, A, B>(args, a, b, shared, row, column, 0, T::steps, sums.acc);
    else
      sum_warp_tile<Config>(args, a, b, shared, row, column, sums);

    place.row_end = at.row_end;
    const Index end = at.column0 + column + T::columns;
    place.column_end = end < P::columns ? end : P::columns;
    constexpr int across = (T::columns + EpilogueTile::columns - 1) / EpilogueTile::columns;
    const EpilogueTile::Fragment fragment;
    const auto finished = sums.finished();
#pragma unroll 1
    for (int s = 0; s < T::blocks_m * across; ++s) {
      put_tile<0, across, 1>(epilogue_tile, fragment, finished, s);
      __syncwarp();
      place.row = at.row0 + row + s / across * 16;
      place.column = at.column0 + column + s % across * EpilogueTile::columns;
      finish<Config, Body, T::columns>(args, epilogue_tile, place, rows);
      __syncwarp();
    }
    __syncthreads();  // the next tile writes to the shared memory
  }
}

}  // namespace sinter::contraction
