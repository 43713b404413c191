// The contraction family on the tensor cores of sm_90a: acc(batch, m, n) = sum over k of
// a(batch, m, k) * b(batch, n, k), then the epilogue once an element.
//
// A block holds one producer and several consumer warpgroups and walks over tiles of the result.
// One thread of the producer keeps the tensor memory accelerator filling a ring of stages, each 128
// bytes of k of both operands (rows that a table names, all of its threads copy); the consumers
// multiply from there and give each stage back. A tile
// belongs to all consumers, 64 rows or a multiple each, or, with `alternate`, to one of them, so
// that one multiplies while the other finishes its tile. The producer runs ahead into the next tile
// either way. The blocks of a cluster stand beside each other along m or n and load the operand
// that they share together, a part each; or, with `split`, they share one tile and sum a part of k
// each, which they then add up in the order of their ranks. The structure is that of CUTLASS's
// warp-specialised persistent kernels; adding parts through the cluster's shared memory is
// DeepGEMM's idea.
//
// Two products that share A are one: the tile's columns are half of either result, so that a thread
// holds both sums of an element and A is loaded once.
//
// In a stage an operand lies as the accelerator's 128-byte swizzle leaves it: with k fastest in
// memory, a line of 128 bytes of k for every row; else, for every 64 rows, a line of them for every
// k.
#pragma once
#include "sinter/device/core/hopper.cuh"
#include "sinter/device/core/wgmma.cuh"
#include "sinter/device/family/contraction_epilogue.cuh"
#include "sinter/device/family/contraction_producer.cuh"
#include "sinter/device/family/contraction_scales.cuh"

namespace sinter::contraction {

// An operand's descriptor at the start of a stage, and how far the next 32 bytes of k lie, in units
// of 16 bytes.
template <class Operand>
SINTER_DEVICE unsigned long long descriptor(unsigned shared) {
  return Operand::k_fastest ? hopper::operand(shared, 16, 1024)
                            : hopper::operand(shared, 8192, 1024);
}
template <class Operand>
inline constexpr int kStride = Operand::k_fastest ? 2 : 128;

template <class Config>
SINTER_DEVICE void release(unsigned empty) {
  constexpr int neighbours = Shape<Config>::neighbours;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  if constexpr (neighbours > 1) {
    if (lane < neighbours) hopper::arrive_in_block(empty, lane);
  } else {
    if (lane == 0) hopper::arrive(empty);
  }
}

// A warpgroup's sums, a set for every 64 rows. With `settle` those of two stages follow.
template <class Config>
struct NamedSums {
  static constexpr int blocks = Shape<Config>::blocks, count = Config::tile_n / 2,
                       sets = blocks * (Config::settle ? 3 : 1);

  static SINTER_DEVICE void declare() {
    for_each_number<sets>([]<int set>() { hopper::declare_sums<set>(); });
  }
  template <int block, int first>
  SINTER_DEVICE void store(float* to) const {
    constexpr int below = 8 * Slab::columns * static_cast<int>(sizeof(float));
    hopper::store_sums<block, first, below>(hopper::address(to));
  }
};

// Adds a stage's sums to those of the stages before it: the tensor cores add 8-bit products with
// fewer bits than f32 has.
template <int blocks, int from>
SINTER_DEVICE void settle() {
  for_each_number<blocks>([]<int set>() { hopper::add_sums<set, from + set>(); });
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

// Waits for a stage and starts its multiplications, to the sets from `first` on.
template <class Config, class A, class B, int first = 0>
SINTER_DEVICE void multiply_stage(unsigned long long a0, unsigned long long b0, unsigned shared,
                                  const Turn<Config::stages>& turn, bool keep) {
  using S = Shape<Config>;
  const int offset = turn.stage * (S::stage_bytes / 16);
  hopper::wait(shared + S::full + turn.stage * 8, turn.parity);
  hopper::multiply_fence();
  const unsigned long long a = a0 + offset, b = b0 + offset;
  for_each_number<S::blocks>([&]<int block>() {
    hopper::multiply<first + block, kStride<A>, kStride<B>>(a + block * 512, b, keep);
  });
  hopper::multiply_commit();
}

// Multiplies one tile's stages; `done_waiting` is called when the last stage has come.
template <class Config, class A, class B, class DoneWaiting>
SINTER_DEVICE void multiply_tile(unsigned long long a0, unsigned long long b0, unsigned shared,
                                 int first_step, int end_step, Turn<Config::stages>& turn,
                                 const DoneWaiting& done_waiting) {
  using S = Shape<Config>;
  int previous = 0;
#pragma unroll 1
  for (int step = first_step; step < end_step; ++step) {
    multiply_stage<Config, A, B>(a0, b0, shared, turn, step > first_step);
    hopper::multiply_wait<1>();
    if (step > first_step) release<Config>(shared + S::empty + previous * 8);
    previous = turn.stage;
    turn.advance();
  }
  done_waiting();
  hopper::multiply_wait<0>();
  release<Config>(shared + S::empty + previous * 8);
}

// How the sums of stages, in turn those of an even and of an odd number, are added up: as they are.
template <class Config>
struct PlainStages {
  SINTER_DEVICE void start(int) {}
  template <int from>
  SINTER_DEVICE void settle(int) {
    contraction::settle<Shape<Config>::blocks, from>();
  }
};

// Or scaled. `room`: of the warp. Scales of a stage are fetched when those of the one two before it
// have been used.
template <class Config, class Scales, class Args, class Rows>
struct ScaledStages {
  const Args& args;
  const Rows& rows;
  const TilePlace<Config>& tile;
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
  SINTER_DEVICE void settle(int next) {
    auto& scales = from == Shape<Config>::blocks ? of_even : of_odd;
    scales.template settle<from>(room);
    fetch(scales, next);
  }
};

// The same where the sums of each stage are settled: while those of one stage are added, another is
// multiplied. Two at a time, since the compiler gives up on multiplications that are under way
// across the end of a loop's body.
template <class Config, class A, class B, class Stages, class DoneWaiting>
SINTER_DEVICE void multiply_and_settle(Stages stages, unsigned long long a0, unsigned long long b0,
                                       unsigned shared, int first_step, int end_step,
                                       Turn<Config::stages>& turn,
                                       const DoneWaiting& done_waiting) {
  using S = Shape<Config>;
  constexpr int even = S::blocks, odd = 2 * S::blocks;  // their first sets
  stages.start(first_step);
  for_each_number<S::blocks>([]<int set>() { hopper::clear_sums<set>(); });
#pragma unroll 1
  for (int step = first_step; step + 1 < end_step; step += 2) {
    const int first = turn.stage;
    multiply_stage<Config, A, B, even>(a0, b0, shared, turn, false);
    turn.advance();
    multiply_stage<Config, A, B, odd>(a0, b0, shared, turn, false);
    hopper::multiply_wait<1>();
    release<Config>(shared + S::empty + first * 8);
    stages.template settle<even>(step + 2);
    hopper::multiply_wait<0>();
    release<Config>(shared + S::empty + turn.stage * 8);
    stages.template settle<odd>(step + 3);
    turn.advance();
  }
  if ((end_step - first_step) % 2 != 0) {
    multiply_stage<Config, A, B, even>(a0, b0, shared, turn, false);
    hopper::multiply_wait<0>();
    release<Config>(shared + S::empty + turn.stage * 8);
    stages.template settle<even>(end_step);
    turn.advance();
  }
  done_waiting();
}

// Where slab number `part` of a warp lies in the result.
template <class Config>
SINTER_DEVICE SlabPlace<Config> slab_place(const TilePlace<Config>& tile, int first_row, int part) {
  using P = Problem<Config>;
  using S = Shape<Config>;
  const int warp = static_cast<int>(threadIdx.x) / 32 % 4;
  SlabPlace<Config> place;
  P::set_batch(place.batch, tile.batch);
  const int column_end = tile.column + S::columns;
  place.row = tile.row + first_row + part / S::across * 64 + warp * 16;
  place.column = tile.column + part % S::across * S::slab_columns;
  place.row_end = tile.row_end;
  place.column_end = column_end < P::columns ? column_end : P::columns;
  return place;
}

// The slabs of a warp's sums, one after another. With `ahead` a slab is what a lane moves at once,
// and what the next one reads is fetched before this one leaves.
template <class Config, class Body, class Args, class Rows>
SINTER_DEVICE void finish_tile(const Args& args, const Rows& rows, const TilePlace<Config>& tile,
                               int first_row, Slab& slab) {
  using S = Shape<Config>;
  const Slab::Fragment fragment;
  if constexpr (Config::ahead) {
    using All = Packs<Config, Body>;
    static_assert(All::count == 32 * All::unroll);
    const int lane = static_cast<int>(threadIdx.x) % 32;
    All current;
    current.fetch(args, slab_place(tile, first_row, 0), rows, lane);
#pragma unroll 1
    for (int s = 0; s < S::parts; ++s) {
      All next = current;
      if (s + 1 < S::parts) next.fetch(args, slab_place(tile, first_row, s + 1), rows, lane);
      put_slab<0, S::across, Config::products>(slab, fragment, NamedSums<Config>{}, s);
      __syncwarp();
      mend<Config, Body>(args, slab, slab_place(tile, first_row, s), rows);
      SlabReductions<Config, Body> reduced;
      reduced.start();
      current.compute(args, slab, slab_place(tile, first_row, s), rows, lane, reduced);
      __syncwarp();
      current = next;
    }
  } else {
#pragma unroll 1
    for (int s = 0; s < S::parts; ++s) {
      put_slab<0, S::across, Config::products>(slab, fragment, NamedSums<Config>{}, s);
      __syncwarp();
      finish<Config, Body>(args, slab, slab_place(tile, first_row, s), rows);
      __syncwarp();
    }
  }
}

template <class Config, class A, class B, class Body, class Scales, class Args, class Rows>
SINTER_DEVICE void consume(const Args& args, const Rows& rows, unsigned char* memory,
                           unsigned shared, int consumer, int rank) {
  using S = Shape<Config>;
  const int warp = __shfl_sync(~0u, static_cast<int>(threadIdx.x) / 32 % 4, 0);
  const int first_row = Config::alternate ? 0 : consumer * S::rows;
  Slab& slab = reinterpret_cast<Slab*>(memory + S::slabs)[consumer * 4 + warp];
  const unsigned long long a0 = descriptor<A>(shared + first_row * S::line),
                           b0 = descriptor<B>(shared + S::a_bytes);
  Turn<Config::stages> turn;
  int number = 0;  // of the block's tile
  TileWalk<Config, Rows> walk(rows), next = walk;
  for (; walk.more(); walk = next, ++number) {
    next.advance();
    if (Config::alternate && number % S::consumers != consumer) {
      turn.skip(S::steps);
      continue;
    }
    const TilePlace<Config> place = walk.place(rank);
    if constexpr (Config::prefetch) {
      // Warps own 16 rows of every 64; the lines of all four are shared out evenly.
      SlabPlace<Config> own = slab_place(place, first_row, 0);
      own.row += (S::rows / 4 - 16) * warp;
      prefetch_tile<Config, Body, S::rows / 4, S::columns>(args, own, rows);
    }
    if (Config::alternate && number > 0) wait_for_turn(consumer);
    const bool more = next.more();
    const auto done_waiting = [&] {
      if (Config::alternate && more) give_turn(consumer);
    };
    const int first_step = S::first_step(rank), end_step = S::end_step(rank);
    if constexpr (Scales::on)
      multiply_and_settle<Config, A, B>(
          ScaledStages<Config, Scales, Args, Rows>{args, rows, place, first_row, end_step, slab.at},
          a0, b0, shared, first_step, end_step, turn, done_waiting);
    else if constexpr (Config::settle)
      multiply_and_settle<Config, A, B>(PlainStages<Config>{}, a0, b0, shared, first_step, end_step,
                                        turn, done_waiting);
    else
      multiply_tile<Config, A, B>(a0, b0, shared, first_step, end_step, turn, done_waiting);
    if constexpr (Config::split > 1) {
      const Slab::Fragment fragment;
      hopper::wait_at<1, S::consumers * 128>();  // nobody reads the ring any more
      Slab* parts = reinterpret_cast<Slab*>(memory) + (consumer * 4 + warp) * S::parts;
#pragma unroll 1
      for (int s = 0; s < S::parts; ++s)
        put_slab<0, S::across, Config::products>(parts[s], fragment, NamedSums<Config>{}, s);
    } else {
      finish_tile<Config, Body>(args, rows, place, first_row, slab);
    }
  }
}

template <class Sum>
SINTER_DEVICE float added(float a, float b) {
  return word(static_cast<Sum>(sum_of<Sum>(a) + sum_of<Sum>(b)));
}

// Adds up what the blocks of the cluster summed and finishes this block's share of the slabs.
template <class Config, class Body, class Args>
SINTER_DEVICE void finish_parts(const Args& args, unsigned char* memory, int consumer, int rank) {
  using S = Shape<Config>;
  const int warp = static_cast<int>(threadIdx.x) / 32 % 4,
            lane = static_cast<int>(threadIdx.x) % 32;
  using Sum = typename Config::Sum;
  constexpr int at_once = Config::split <= 2 ? 8 : Config::split <= 4 ? 4 : 2;
  static_assert(Slab::rows * Slab::columns % (at_once * 128) == 0);
  const TilePlace<Config> place = TileWalk<Config, AllRows>(AllRows{}).place(0);
  Slab& slab = reinterpret_cast<Slab*>(memory + S::slabs)[consumer * 4 + warp];
  const Slab* parts = reinterpret_cast<const Slab*>(memory) + (consumer * 4 + warp) * S::parts;
#pragma unroll 1
  for (int s = 0; s < S::parts; ++s) {
    if ((s + warp) % Config::split != rank) continue;
#pragma unroll 1
    for (int i = lane * 4; i < Slab::rows * Slab::columns; i += at_once * 128) {
      // All are asked for before the first is added: another block's memory is far away.
      float4 part[Config::split][at_once];
#pragma unroll
      for (int r = 0; r < Config::split; ++r)
#pragma unroll
        for (int j = 0; j < at_once; ++j)
          part[r][j] = hopper::read_block(parts[s].at + i + j * 128, r);
#pragma unroll
      for (int j = 0; j < at_once; ++j) {
        float4 sum = part[0][j];
#pragma unroll
        for (int r = 1; r < Config::split; ++r) {
          sum.x = added<Sum>(sum.x, part[r][j].x), sum.y = added<Sum>(sum.y, part[r][j].y);
          sum.z = added<Sum>(sum.z, part[r][j].z), sum.w = added<Sum>(sum.w, part[r][j].w);
        }
        *reinterpret_cast<float4*>(slab.at + i + j * 128) = sum;
      }
    }
    __syncwarp();
    finish<Config, Body>(args, slab, slab_place(place, consumer * S::rows, s), AllRows{});
    __syncwarp();
  }
}

// The whole kernel. `memory` starts at a multiple of 1024 bytes.
template <class Config, class A, class B, class B2, class Body, class Scales = NoScales, class Args,
          class Rows = AllRows>
SINTER_DEVICE void run_on_tensor_cores(const Args& args, const Rows& rows = {}) {
  using S = Shape<Config>;
  constexpr bool gathers = Rows::gathers;
  NamedSums<Config>::declare();
  extern __shared__ unsigned char dynamic_memory[];
  const unsigned start = hopper::address(dynamic_memory), shared = (start + 1023) & ~1023u;
  unsigned char* memory = dynamic_memory + (shared - start);
  const int warpgroup = __shfl_sync(~0u, static_cast<int>(threadIdx.x) / 128, 0);
  const int rank = S::cluster > 1 ? hardware::cluster_rank() : 0;
  if (threadIdx.x == 0) {
    if constexpr (!gathers) A::prefetch(args);
    B::prefetch(args);
    if constexpr (Config::products > 1) B2::prefetch(args);
    for (int i = 0; i < Config::stages; ++i) {
      hopper::barrier_init(shared + S::full + i * 8, gathers ? 129 : 1);
      hopper::barrier_init(shared + S::empty + i * 8, S::sharing * 4 * S::neighbours);
    }
    hopper::barriers_are_ready();
  }
  if constexpr (S::cluster > 1)
    hardware::cluster_barrier();
  else
    __syncthreads();
  hardware::take_turn();
  if (warpgroup == 0) {
    hopper::keep_registers<Config::producer_registers>();
    if constexpr (gathers)
      produce_gathered<Config, A, B, B2>(args, rows, shared, rank);
    else if (threadIdx.x == 0)
      produce<Config, A, B, B2>(args, rows, shared, rank);
    __syncwarp();
    if constexpr (Config::split > 1) hardware::cluster_barrier();
  } else {
    hopper::take_registers<Config::consumer_registers>();
    consume<Config, A, B, Body, Scales>(args, rows, memory, shared, warpgroup - 1, rank);
    if constexpr (Config::split > 1) {  // here, where a thread has the consumers' registers
      hardware::cluster_barrier();
      finish_parts<Config, Body>(args, memory, warpgroup - 1, rank);
    }
  }
  // A block's memory and barriers stay until no other block of the cluster can reach for them.
  if constexpr (S::cluster > 1) hardware::cluster_barrier();
}

}  // namespace sinter::contraction
