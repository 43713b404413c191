// How a producer brings one operand's part of a stage: what the loaders beside this file have in
// common.
//
//   Tile          the SharedTile that it fills
//   threads       that call load: 1 (TMA), or all of the producer's 128
//   tma_bytes     that TMA tells the barrier `full` of in each stage; 0 for what threads write
//   load(args, step, to, full)   starts to bring step number `step` of k to the tile at `to`
//
// Before a tile of the result a loader is aimed at its rows or columns, each kind in its own way.
// What threads write or copy (cp.async) is visible when each has called Pipeline::commit, after
// warp_matrix::wait.
#pragma once
#include "sinter/device/core/warp_matrix.cuh"
#include "sinter/device/engine/pipeline.cuh"
#include "sinter/device/engine/shared_tile.cuh"

namespace sinter {

template <class L, class Args>
concept Loader = requires(const L& loader, const Args& args, int step, unsigned shared) {
  typename L::Tile;
  requires L::threads == 1 || L::threads == 128;
  requires L::tma_bytes >= 0;
  loader.load(args, step, shared, shared);
};

// For `steps` of k brings what two operands' loaders want. All threads of the producer call it.
template <int in_flight, class Pipeline, class A, class B, class Args>
SINTER_DEVICE void fill_stages(const Pipeline& pipeline, typename Pipeline::State& state,
                               const Args& args, const A& a, const B& b, unsigned stages,
                               int steps) {
  static_assert(Loader<A, Args> && Loader<B, Args>,
                "a loader has Tile, threads, tma_bytes and load(args, step, to, full)");
  static_assert(in_flight < Pipeline::stages, "some stage is left to be read");
  constexpr bool by_threads = A::threads > 1 || B::threads > 1;
  constexpr int bytes = A::Tile::bytes + B::Tile::bytes;
  const bool first = threadIdx.x % 128 == 0;
  typename Pipeline::State oldest = state;  // of those in flight
#pragma unroll 1
  for (int step = 0; step < steps; ++step, state.advance()) {
    if (!by_threads && !first) continue;
    const unsigned to = stages + state.stage * bytes, full = pipeline.full(state);
    pipeline.acquire(state);
    if (first) pipeline.expect(state, A::tma_bytes + B::tma_bytes);
    if (A::threads > 1 || first) a.load(args, step, to, full);
    if (B::threads > 1 || first) b.load(args, step, to + A::Tile::bytes, full);
    if constexpr (by_threads) {
      warp_matrix::commit();
      if (step >= in_flight) {
        warp_matrix::wait<in_flight>();
        pipeline.commit(oldest);
        oldest.advance();
      }
    }
  }
  if constexpr (by_threads) {
    warp_matrix::wait<0>();
    for (int left = steps < in_flight ? steps : in_flight; left > 0; --left, oldest.advance())
      pipeline.commit(oldest);
  }
}
// Arrivals at `full` for each stage: Pipeline::init's producers.
template <class A, class B>
inline constexpr int kProducers = A::threads > 1 || B::threads > 1 ? 129 : 1;

}  // namespace sinter
