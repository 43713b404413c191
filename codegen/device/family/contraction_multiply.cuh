// The consumers of contraction_wgmma.cuh: they wait for stages, multiply from there, and give them
// back.
#pragma once
#include "sinter/device/engine/wgmma.cuh"
#include "sinter/device/family/contraction_epilogue.cuh"
#include "sinter/device/family/contraction_scales.cuh"

namespace sinter::contraction {

// A warpgroup's sums: a set for every 64 rows. With promote_accumulators those of two stages
// follow, of wide tiles those of one.
template <class Config>
struct TileSums {
  static constexpr int blocks = Shape<Config>::blocks, count = Config::tile_n / 2,
                       promoted = !Config::promote_accumulators ? 0
                                  : blocks * count > 64         ? 1
                                                                : 2,
                       sets = SwapsProducts<Config> ? 1 : blocks * (1 + promoted);

  static SINTER_DEVICE void declare() {
    for_each_number<sets>([]<int set>() { Sums<Config, set>::declare(); });
  }
  template <int block, int first, int fours>
  SINTER_DEVICE void store(float* to, const int* at) const {
    Sums<Config, block>{}.template store<first, fours, 8 * EpilogueTile::columns>(to, at);
  }
};

// Adds a stage's sums, the sets from `from` on, to those of the stages before it: the tensor cores
// add 8-bit products with fewer bits than f32 has.
template <class Config, int from>
SINTER_DEVICE void promote_accumulators() {
  for_each_number<Shape<Config>::blocks>(
      []<int set>() { Sums<Config, set>{}.add(Sums<Config, from + set>{}); });
}

// With `alternate` a consumer may wait for a stage only when the other one has waited for all of
// its own, since a parity tells neighbouring uses of a stage apart and no others.
SINTER_DEVICE void wait_for_turn(int consumer) {
  if (consumer == 0)
    hopper::wait_at<2, 256>();
  else
    hopper::wait_at<3, 256>();
}
SINTER_DEVICE void give_turn(int consumer) {
  if (consumer == 0)
    hopper::pass<3, 256>();
  else
    hopper::pass<2, 256>();
}

// The ring as a consumer sees it, and where its warpgroup's operands lie in the first stage.
template <class Config, class A, class B>
struct Consumer {
  using S = Shape<Config>;
  using TileA = StageTile<A, Config::tile_m>;
  using TileB = StageTile<B, S::loaded_columns>;
  // wgmma reads numbers of 32 bits only along k. Threads read others to registers.
  static constexpr bool by_threads = !A::k_fastest && TileA::element == 4;
  using Left = Choice<by_threads, Registers, TileA>;
  using Product =
      Mma<sinter::Shape<64, Config::tile_n>,
          Types<typename A::Number, typename B::Number, typename Config::Sum>, Left, TileB>;
  StagePipeline<Config> pipeline;
  unsigned long long a, b;  // descriptors
  typename StagePipeline<Config>::State state;
  const unsigned char* left;  // where A lies

  SINTER_DEVICE Consumer(const unsigned char* memory, unsigned shared, int first_row)
      : pipeline{shared + S::full},
        a(TileA::descriptor(shared + TileA::further(first_row))),
        b(TileB::descriptor(shared + S::a_bytes)),
        left(memory + TileA::further(first_row)) {}

  // Waits for a stage and starts its products, to the sets of sums from `first` on. `step`: of k.
  template <int first = 0>
  SINTER_DEVICE void multiply_stage(bool keep, int step) const {
    const int offset = start_stage();
    S::with_steps(step, [&]<int steps>() {
      for_each_number<S::blocks>([&]<int block>() {
        Product::template multiply<steps>(Sums<Config, first + block>{},
                                          a + offset + TileA::further(block * 64) / 16, b + offset,
                                          keep);
      });
      wgmma::commit();
    });
  }
  // The same in so many groups: long instructions, as short ones would wait for the loop's. (On an
  // H100, us, written out and so, two runs each: 2048 x 2048 x 2048 27.8, 27.8 and 27.0, 27.9; 4096
  // x 4096 x 4096 195, 199 and 197, 190; 4096 x 16384 x 4096 with gelu 812, 769 and 761, 773; but
  // 64 x 8192 x 8192 in 64 columns 48.2 and 49.6, 256 channels of 14 x 14 in 128 columns 85.1
  // and 85.7.) Of 64 rows whose consumers alternate the compiler would make them wait for each
  // other, where epilogues are long.
  static constexpr bool loops =
      Config::tile_n >= 192 && is_known(S::tiles) && !(Config::alternate && S::blocks == 1);
  static constexpr int groups = loops ? TileA::steps : 1;
  SINTER_DEVICE void multiply_stage_in_groups(bool keep, int step) const {
    if constexpr (!loops) return multiply_stage(keep, step);
    const int offset = start_stage();
    S::with_steps(step, [&]<int steps>() {
      wgmma::commit_each<steps, groups>([&](int i) {
        for_each_number<S::blocks>([&]<int block>() {
          Product::multiply_step(Sums<Config, block>{},
                                 a + offset + TileA::further(block * 64) / 16, b + offset, i,
                                 keep || i > 0);
        });
      });
    });
  }

 private:
  // Where its operands lie, in units of 16 bytes from the first stage's.
  SINTER_DEVICE int start_stage() const {
    pipeline.wait(state);
    wgmma::fence();
    return state.stage * (S::stage_bytes / 16);
  }
};

// Multiplies one tile's stages, of which threads read the left operand: while a warpgroup reads,
// another multiplies.
template <class Config, class A, class B, class DoneWaiting>
SINTER_DEVICE void multiply_read_tile(Consumer<Config, A, B>& consumer, int first_step,
                                      int end_step, const DoneWaiting& done_waiting) {
  using S = Shape<Config>;
  using Ring = Consumer<Config, A, B>;
  constexpr int blocks = S::blocks;
  static_assert(S::loaded_depth == 0, "threads read whole stages");
#pragma unroll 1
  for (int step = first_step; step < end_step; ++step) {
    const int stage = consumer.state.stage;
    OperandFragment<typename A::Number, Ring::TileA::depth> left[blocks];
    consumer.pipeline.wait(consumer.state);
#pragma unroll
    for (int block = 0; block < blocks; ++block)
      read_rows<typename Ring::TileA>(left[block], consumer.left + stage * S::stage_bytes,
                                      block * 64);
    wgmma::fence();
    const unsigned long long b = consumer.b + stage * (S::stage_bytes / 16);
    for_each_number<blocks>([&]<int block>() {
      Ring::Product::multiply(Sums<Config, block>{}, left[block], b, step > first_step);
    });
    wgmma::commit();
    for_each_number<blocks>([&]<int block>() { wgmma::wait<0>(left[block]); });
    consumer.pipeline.release(consumer.state);
    consumer.state.advance();
  }
  done_waiting();
}

// Multiplies one tile's stages; `done_waiting` is called when the last stage has come.
template <class Config, class A, class B, class DoneWaiting>
SINTER_DEVICE void multiply_tile(Consumer<Config, A, B>& consumer, int first_step, int end_step,
                                 const DoneWaiting& done_waiting) {
  if constexpr (Shape<Config>::may_be_empty) {
    if (first_step == end_step) {
      for_each_number<Shape<Config>::blocks>([]<int set>() { Sums<Config, set>{}.clear(); });
      return done_waiting();
    }
  }
  int previous = 0;
#pragma unroll 1
  for (int step = first_step; step < end_step; ++step) {
    consumer.multiply_stage_in_groups(step > first_step, step);
    wgmma::wait<Consumer<Config, A, B>::groups>();
    if (step > first_step) consumer.pipeline.release_stage(previous);
    previous = consumer.state.stage;
    consumer.state.advance();
  }
  done_waiting();
  wgmma::wait<0>();
  consumer.pipeline.release_stage(previous);
}

// How the sums of stages, in turn those of an even and of an odd number, are added up: as they are.
template <class Config>
struct PlainStages {
  SINTER_DEVICE void start(int) {}
  template <int from>
  SINTER_DEVICE void promote(int) {
    promote_accumulators<Config, from>();
  }
};

// Or scaled. `room`: of the warp. Scales of a stage are fetched when those of the one two before it
// have been used.
template <class Config, class Scales, class Args, class Rows>
struct ScaledStages {
  const Args& args;
  const Rows& rows;
  const TileCoord<Config>& tile;
  int first_row, end_step;
  float* room;
  StageScales<Config, Scales> of_even{}, of_odd{};

  SINTER_DEVICE void fetch(StageScales<Config, Scales>& scales, int step) {
    if (step < end_step) scales.fetch(args, rows, tile, first_row, step);
  }
  SINTER_DEVICE void start(int step) {
    fetch(of_even, step);
    fetch(of_odd, step + 1);
  }
  // `next`: the step whose scales take the place of those used.
  template <int from>
  SINTER_DEVICE void promote(int next) {
    auto& scales = from == Shape<Config>::blocks ? of_even : of_odd;
    scales.template promote<from>(room);
    fetch(scales, next);
  }
};

// The same where the sums of each stage are promoted: while those of one stage are added, another
// is multiplied. Two at a time, since the compiler gives up on products that are in flight across
// the end of a loop's body.
template <class Config, class A, class B, class Stages, class DoneWaiting>
SINTER_DEVICE void multiply_and_promote(Stages stages, Consumer<Config, A, B>& consumer,
                                        int first_step, int end_step,
                                        const DoneWaiting& done_waiting) {
  constexpr int even = Shape<Config>::blocks, odd = 2 * even;  // their first sets
  for_each_number<even>([]<int set>() { Sums<Config, set>{}.clear(); });
  if constexpr (TileSums<Config>::promoted == 1) {
    // Another warpgroup multiplies meanwhile.
#pragma unroll 1
    for (int step = first_step; step < end_step; ++step) {
      consumer.template multiply_stage<even>(false, step);
      wgmma::wait<0>();
      consumer.pipeline.release(consumer.state);
      promote_accumulators<Config, even>();
      consumer.state.advance();
    }
    return done_waiting();
  }
  stages.start(first_step);
#pragma unroll 1
  for (int step = first_step; step + 1 < end_step; step += 2) {
    const int first = consumer.state.stage;
    consumer.template multiply_stage<even>(false, step);
    consumer.state.advance();
    consumer.template multiply_stage<odd>(false, step + 1);
    wgmma::wait<1>();
    consumer.pipeline.release_stage(first);
    stages.template promote<even>(step + 2);
    wgmma::wait<0>();
    consumer.pipeline.release(consumer.state);
    stages.template promote<odd>(step + 3);
    consumer.state.advance();
  }
  if ((end_step - first_step) % 2 != 0) {
    consumer.template multiply_stage<even>(false, end_step - 1);
    wgmma::wait<0>();
    consumer.pipeline.release(consumer.state);
    stages.template promote<even>(end_step);
    consumer.state.advance();
  }
  done_waiting();
}

}  // namespace sinter::contraction
