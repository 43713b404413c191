// A ring of stages in shared memory between warps that fill them and warps that read them. A stage
// has two barriers: `full` ends a phase when it has been filled, `empty` when all have read it.
//
//   producer                                         consumer
//   pipeline.acquire(state);                         pipeline.wait(state);
//   pipeline.expect(state, bytes);                   ... reads the stage ...
//   ... TMA to the stage, telling full(state) ...    pipeline.release(state);   once a warp
//   state.advance();                                 state.advance();
//
// Producers that write a stage themselves call commit(state) in place of expect, each thread once,
// when what it wrote is visible.
#pragma once
#include "sinter/device/core/hopper.cuh"

namespace sinter {

// A stage and the parity of its current use. A parity tells neighbouring uses of a stage apart and
// no others: nobody may be two uses behind.
template <int stages>
struct PipelineState {
  int stage = 0, parity = 0;
  SINTER_DEVICE void advance() {
    if (++stage == stages) stage = 0, parity ^= 1;
  }
  SINTER_DEVICE void skip(int steps) {
    stage += steps % stages;
    parity ^= steps / stages & 1;
    if (stage >= stages) stage -= stages, parity ^= 1;
  }
};

// `sharing`: the CTAs of the cluster whose consumers read what one CTA's producer sends to all.
template <int stages_, int sharing = 1>
struct Pipeline {
  static constexpr int stages = stages_, bytes = 16 * stages;  // of barriers
  using State = PipelineState<stages>;
  unsigned barriers;  // the address of the first, a multiple of 8

  // By one thread; then barriers_are_ready() and a barrier of all threads. `consumers`: warps of a
  // CTA.
  SINTER_DEVICE void init(int producers, int consumers) const {
    for (int i = 0; i < stages; ++i) {
      hopper::barrier_init(barriers + i * 8, producers);
      hopper::barrier_init(barriers + (stages + i) * 8, consumers * sharing);
    }
  }
  SINTER_DEVICE unsigned full(const State& s) const { return barriers + s.stage * 8; }
  SINTER_DEVICE unsigned empty(const State& s) const { return barriers + (stages + s.stage) * 8; }

  // ---- producer

  SINTER_DEVICE void acquire(const State& s) const { hopper::wait(empty(s), s.parity ^ 1); }
  // Arrives, and announces what TMA will load.
  SINTER_DEVICE void expect(const State& s, int bytes_of_stage) const {
    hopper::arrive_and_expect(full(s), bytes_of_stage);
  }
  // Arrives; what this thread wrote is visible to products of matrices.
  SINTER_DEVICE void commit(const State& s) const {
    hopper::fence_async_proxy();
    hopper::arrive(full(s));
  }

  // ---- consumer

  SINTER_DEVICE void wait(const State& s) const { hopper::wait(full(s), s.parity); }
  SINTER_DEVICE void release(const State& s) const { release_stage(s.stage); }
  SINTER_DEVICE void release_stage(int stage) const {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const unsigned barrier = barriers + (stages + stage) * 8;
    if constexpr (sharing > 1) {
      if (lane < sharing) hopper::arrive_in_block(barrier, lane);
    } else {
      if (lane == 0) hopper::arrive(barrier);
    }
  }
};

}  // namespace sinter
