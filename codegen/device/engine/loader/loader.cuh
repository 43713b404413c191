// How a producer loads one operand's part of a stage: what the loaders beside this file have in
// common.
//
//   Tile          the SharedTile that it fills
//   threads       that call load: 1 (TMA), or all of the producer's 128
//   tma_bytes     that TMA tells the barrier `full` of in each stage; 0 for what threads write
//   load(args, step, to, full)   starts to load step number `step` of k to the tile at `to`
//
// Before a tile of the result a loader is aimed at its rows or columns, each kind in its own way.
// What threads write or copy (cp.async) is visible when each has called Pipeline::commit, after
// warp_matrix::wait.
#pragma once
#include "sinter/device/core/dynamic.cuh"
#include "sinter/device/core/warp_matrix.cuh"
#include "sinter/device/engine/pipeline.cuh"
#include "sinter/device/engine/shared_tile.cuh"

namespace sinter {

template <class L, class Args>
concept Loader = requires(const L& loader, const Args& args, int step, unsigned shared) {
  typename L::Tile;
  requires L::threads == 1 || L::threads == 128;
  requires !is_known(L::tma_bytes) || L::tma_bytes >= 0;
  loader.load(args, step, shared, shared);
};

template <class A, class B>
inline constexpr bool kLoadedByThreads = A::threads > 1 || B::threads > 1;
// Arrivals at `full` for each stage: Pipeline::init's producers.
template <class A, class B>
inline constexpr int kProducers = kLoadedByThreads<A, B> ? 129 : 1;

// Steps of k, `left` of them from `next` on; `first` follows the last one in front of `end`.
struct StepRange {
  int first, end, next, left;
  SINTER_DEVICE explicit StepRange(int count) : StepRange(0, count, 0) {}
  SINTER_DEVICE StepRange(int from, int to, int start)
      : first(from), end(to), next(start), left(to - from) {}
  SINTER_DEVICE void advance() {
    --left;
    if (++next == end) next = first;
  }
};

// Stages whose copies by threads (cp.async) have been started: each is handed to the consumers when
// those of `most` stages after it have been, too. They may belong to different tiles.
template <class Pipeline, int most>
class CopiesInFlight {
  static_assert(most < Pipeline::stages, "some stage is left to be read");
  const Pipeline& pipeline_;
  typename Pipeline::State oldest_;
  int count_ = 0;

  SINTER_DEVICE void hand_over() {
    pipeline_.commit(oldest_);
    oldest_.advance();
  }

 public:
  SINTER_DEVICE explicit CopiesInFlight(const Pipeline& pipeline) : pipeline_(pipeline) {}
  SINTER_DEVICE void started() {
    warp_matrix::commit();
    if (count_ == most) {
      warp_matrix::wait<most>();
      hand_over();
    } else {
      ++count_;
    }
  }
  SINTER_DEVICE void finish() {
    warp_matrix::wait<0>();
    for (; count_ > 0; --count_) hand_over();
  }
};
struct NoCopies {  // TMA tells the barrier itself
  SINTER_DEVICE void started() {}
};

// For `steps` of k loads the parts of two operands, B's behind A's. Called by the producer's first
// thread, or by all of its threads where one of the loaders wants them; these are the CTA's first.
template <class Pipeline, class Args, class A, class B, class Copies>
SINTER_DEVICE void fill_stages(const Pipeline& pipeline, typename Pipeline::State& state,
                               const Args& args, const A& a, const B& b, unsigned stages,
                               StepRange steps, Copies&& copies) {
  static_assert(Loader<A, Args> && Loader<B, Args>,
                "a loader has Tile, threads, tma_bytes and load(args, step, to, full)");
  constexpr int bytes = A::Tile::bytes + B::Tile::bytes;
  const bool first = !kLoadedByThreads<A, B> || threadIdx.x == 0;
#pragma unroll 1
  for (; steps.left > 0; steps.advance(), state.advance()) {
    const unsigned to = stages + state.stage * bytes, full = pipeline.full(state);
    pipeline.acquire(state);
    if (first) pipeline.expect(state, A::tma_bytes + B::tma_bytes);
    if (A::threads > 1 || first) a.load(args, steps.next, to, full);
    if (B::threads > 1 || first) b.load(args, steps.next, to + A::Tile::bytes, full);
    copies.started();
  }
}

}  // namespace sinter
