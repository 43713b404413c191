// The contraction family on the tensor cores of sm_90a: acc(batch, m, n) = sum over k of
// a(batch, m, k) * b(batch, n, k), then the epilogue once an element.
//
// A block holds one producer and several consumer warpgroups and walks over tiles of the result.
// One thread of the producer keeps the TMA filling a ring of stages, each 128
// bytes of k of both operands (rows that a table names, or that begin anywhere, all of its threads
// copy); the consumers
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
// In a stage an operand lies as TMA's 128-byte swizzle leaves it: with k fastest in
// memory, a line of 128 bytes of k for every row; else, for every 64 rows, a line of them for every
// k.
#pragma once
#include "sinter/device/engine/shared_memory.cuh"
#include "sinter/device/engine/wgmma.cuh"
#include "sinter/device/family/contraction_epilogue.cuh"
#include "sinter/device/family/contraction_multiply.cuh"
#include "sinter/device/family/contraction_producer.cuh"
#include "sinter/device/family/contraction_scales.cuh"
#include "sinter/device/family/contraction_store.cuh"
#include "sinter/device/family/contraction_store_odd.cuh"

namespace sinter::contraction {

// Where epilogue tile number `part` of a warp lies in the result.
template <class Config>
SINTER_DEVICE EpilogueCoord<Config> epilogue_place(const TileCoord<Config>& tile, int first_row,
                                                   int part) {
  using P = Problem<Config>;
  using S = Shape<Config>;
  const int warp = static_cast<int>(threadIdx.x) / 32 % 4;
  EpilogueCoord<Config> place;
  P::set_batch(place.batch, tile.batch);
  const int column_end = tile.column + S::tile_columns;
  place.row = tile.row + first_row + part / S::across * 64 + warp * 16;
  place.column = tile.column + part % S::across * S::epilogue_tile_columns;
  place.row_end = tile.row_end;
  place.column_end = column_end < P::columns ? column_end : P::columns;
  return place;
}
// Whether epilogue tile number `part` has no results, as those past a tile's boxes have none. By
// what all threads agree in.
template <class Config>
SINTER_DEVICE bool is_past_boxes(int part) {
  using S = Shape<Config>;
  if constexpr (BoxesColumns<Config> && S::across > 1)
    return part % S::across * S::epilogue_tile_columns >= S::tile_columns;
  return false;
}

// The epilogue tiles of a warp's sums, one after another. With `ahead` an epilogue tile is what a
// lane moves at once, and what the next one reads is fetched before this one leaves.
template <class Config, class Body, class Args, class Rows>
SINTER_DEVICE void finish_tile(const Args& args, const Rows& rows, const TileCoord<Config>& tile,
                               int first_row, EpilogueTile& epilogue_tile) {
  using S = Shape<Config>;
  const EpilogueTile::Fragment fragment;
  if constexpr (Config::ahead) {
    using All = Packs<Config, Body>;
    static_assert(All::count == 32 * All::unroll);
    const int lane = static_cast<int>(threadIdx.x) % 32;
    All current;
    current.fetch(args, epilogue_place(tile, first_row, 0), rows, lane);
#pragma unroll 1
    for (int s = 0; s < S::parts; ++s) {
      All next = current;
      if (s + 1 < S::parts) next.fetch(args, epilogue_place(tile, first_row, s + 1), rows, lane);
      put_tile<0, S::across, Config::products>(epilogue_tile, fragment, TileSums<Config>{}, s);
      __syncwarp();
      recompute_tile<Config, Body>(args, epilogue_tile, epilogue_place(tile, first_row, s), rows);
      EpilogueReductions<Config, Body> reduced;
      reduced.start();
      current.compute(args, epilogue_tile, epilogue_place(tile, first_row, s), rows, lane, reduced);
      __syncwarp();
      current = next;
    }
  } else {
#pragma unroll 1
    for (int s = 0; s < S::parts; ++s) {
      if (is_past_boxes<Config>(s)) continue;
      put_tile<0, S::across, Config::products>(epilogue_tile, fragment, TileSums<Config>{}, s);
      __syncwarp();
      finish<Config, Body>(args, epilogue_tile, epilogue_place(tile, first_row, s), rows);
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
  EpilogueTile& epilogue_tile =
      reinterpret_cast<EpilogueTile*>(memory + S::epilogue_tiles)[consumer * 4 + warp];
  Consumer<Config, A, B> operands(memory, shared, first_row);
  int number = 0;  // of the block's tile
  TileWalk<Config, Rows> walk(rows);
  const auto compute = [&](const TileCoord<Config>& place, bool more) {
    const int steps = S::steps(place.batch);
    if constexpr (Config::prefetch) {
      // Warps own 16 rows of every 64; the lines of all four are shared out evenly.
      EpilogueCoord<Config> own = epilogue_place(place, first_row, 0);
      own.row += (S::rows / 4 - 16) * warp;
      prefetch_tile<Config, Body, S::rows / 4, S::columns>(args, own, rows);
    }
    if (Config::alternate && number > 0) wait_for_turn(consumer);
    const auto done_waiting = [&] {
      if (Config::alternate && more) give_turn(consumer);
    };
    const int first_step = S::first_step(steps, rank), end_step = S::end_step(steps, rank);
    if constexpr (Scales::on)
      multiply_and_promote(ScaledStages<Config, Scales, Args, Rows>{args, rows, place, first_row,
                                                                    end_step, epilogue_tile.at},
                           operands, first_step, end_step, done_waiting);
    else if constexpr (Config::promote_accumulators)
      multiply_and_promote(PlainStages<Config>{}, operands, first_step, end_step, done_waiting);
    else if constexpr (Consumer<Config, A, B>::by_threads)
      multiply_read_tile(operands, first_step, end_step, done_waiting);
    else
      multiply_tile(operands, first_step, end_step, done_waiting);
    // Nobody reads the ring any more. One that alternates is alone with the block's tile.
    if constexpr (LeavesThroughRing<Config> && !Config::alternate)
      hopper::wait_at<1, S::consumers * 128>();
    if constexpr (Config::split > 1) {
      const EpilogueTile::Fragment fragment;
      hopper::wait_at<1, S::consumers * 128>();  // nobody reads the ring any more
      EpilogueTile* parts =
          reinterpret_cast<EpilogueTile*>(memory) + (consumer * 4 + warp) * S::parts;
#pragma unroll 1
      for (int s = 0; s < S::parts; ++s)
        put_tile<0, S::across, Config::products>(parts[s], fragment, TileSums<Config>{}, s);
    } else if constexpr (StoresTiles<Body>) {
      store_tile<Config, Body, Rows>(args, place, first_row, epilogue_tile, number);
    } else if constexpr (StoresOddRows<Body>) {
      store_odd_rows<Config, Body>(args, place, first_row, epilogue_tile);
    } else if constexpr (StoresRows<Body>) {
      store_rows<Config, Body>(args, place, first_row, epilogue_tile);
    } else {
      finish_tile<Config, Body>(args, rows, place, first_row, epilogue_tile);
    }
  };
  if constexpr (Config::alternate && !is_known(S::tiles)) {
    // The other consumer's tiles are passed outside of the loop. As a case of it they would have
    // descriptors in registers of threads here, where numbers of rows come with the launch, and
    // products would wait for them; where they are constants, this takes registers that epilogues
    // of residuals want.
    const auto pass_tile = [&] {
      if (!walk.more()) return;
      operands.state.skip(S::steps(walk.place(rank).batch));
      walk.advance();
      ++number;
    };
    if (consumer > 0) pass_tile();
    while (walk.more()) {
      const TileCoord<Config> place = walk.place(rank);
      walk.advance();
      compute(place, walk.more());
      ++number;
      pass_tile();
    }
  } else {
    TileWalk<Config, Rows> next = walk;
    for (; walk.more(); walk = next, ++number) {
      next.advance();
      const TileCoord<Config> place = walk.place(rank);
      if (Config::alternate && number % S::consumers != consumer) {
        operands.state.skip(S::steps(place.batch));
        continue;
      }
      compute(place, next.more());
    }
  }
  if constexpr (StoresTiles<Body>) hopper::wait_for_stores<0>();
}

template <class Sum>
SINTER_DEVICE float added(float a, float b) {
  return word(static_cast<Sum>(sum_of<Sum>(a) + sum_of<Sum>(b)));
}

// Adds up what the blocks of the cluster summed and finishes this block's share of the epilogue
// tiles. `first`: the place of the block's one tile, where it is known.
template <class Config, class Body, class Args, class First>
SINTER_DEVICE void finish_parts(const Args& args, const First& first, unsigned char* memory,
                                int consumer, int rank) {
  using S = Shape<Config>;
  const int warp = static_cast<int>(threadIdx.x) / 32 % 4,
            lane = static_cast<int>(threadIdx.x) % 32;
  using Sum = typename Config::Sum;
  constexpr int at_once = Config::split <= 2 ? 8 : Config::split <= 4 ? 4 : 2;
  static_assert(EpilogueTile::rows * EpilogueTile::columns % (at_once * 128) == 0);
  const TileCoord<Config> place = [&] {
    if constexpr (First::known)
      return first.place;
    else
      return TileWalk<Config, AllRows>(AllRows{}).place(0);
  }();
  EpilogueTile& epilogue_tile =
      reinterpret_cast<EpilogueTile*>(memory + S::epilogue_tiles)[consumer * 4 + warp];
  const EpilogueTile* parts =
      reinterpret_cast<const EpilogueTile*>(memory) + (consumer * 4 + warp) * S::parts;
#pragma unroll 1
  for (int s = 0; s < S::parts; ++s) {
    if ((s + warp) % Config::split != rank) continue;
    if (is_past_boxes<Config>(s)) continue;
#pragma unroll 1
    for (int i = lane * 4; i < EpilogueTile::rows * EpilogueTile::columns; i += at_once * 128) {
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
        *reinterpret_cast<float4*>(epilogue_tile.at + i + j * 128) = sum;
      }
    }
    __syncwarp();
    finish<Config, Body>(args, epilogue_tile, epilogue_place(place, consumer * S::rows, s),
                         AllRows{});
    __syncwarp();
  }
}

// The whole kernel.
template <class Config, class A, class B, class B2, class Body, class Scales = NoScales, class Args,
          class Rows = AllRows>
SINTER_DEVICE void run_on_tensor_cores(const Args& args, const Rows& rows = {}) {
  using S = Shape<Config>;
  constexpr bool gathers = Rows::gathers, shifts = BeginsAnywhere<A> || BeginsAnywhere<B>;
  TileSums<Config>::declare();
  static_assert(Config::shared_bytes == S::end + SharedMemory::lost);
  const SharedMemory all;
  const unsigned shared = all.address;
  unsigned char* memory = all.pointer;
  const int warpgroup = __shfl_sync(~0u, static_cast<int>(threadIdx.x) / 128, 0);
  const int rank = S::cluster > 1 ? hardware::cluster_rank() : 0;
  const FirstTileOf<Config, Rows> first(rank);
  if (threadIdx.x == 0) {
    if constexpr (!gathers && !BeginsAnywhere<A>) A::prefetch(args);
    if constexpr (!BeginsAnywhere<B>) B::prefetch(args);
    if constexpr (Config::products > 1) B2::prefetch(args);
    if constexpr (StoresTiles<Body>) Body::TileStore::prefetch(args);
    StagePipeline<Config>{shared + S::full}.init(gathers || shifts ? 129 : 1, S::sharing * 4);
    hopper::barriers_are_ready();
  }
  if constexpr (S::cluster > 1)
    hardware::cluster_barrier();
  else
    __syncthreads();
  hardware::grid_dependency_wait();
  if (warpgroup == 0) {
    hopper::keep_registers<Config::producer_registers>();
    if constexpr (gathers)
      produce_gathered<Config, A, B, B2>(args, rows, shared, rank);
    else if constexpr (shifts)
      produce_shifted<Config, A, B>(args, rows, memory, shared);
    else if (threadIdx.x == 0)
      produce<Config, A, B, B2>(args, rows, first, shared, rank);
    __syncwarp();
    if constexpr (Config::split > 1) hardware::cluster_barrier();
  } else {
    hopper::take_registers<Config::consumer_registers>();
    consume<Config, A, B, Body, Scales>(args, rows, memory, shared, warpgroup - 1, rank);
    if constexpr (Config::split > 1) {  // here, where a thread has the consumers' registers
      hardware::cluster_barrier();
      finish_parts<Config, Body>(args, first, memory, warpgroup - 1, rank);
    }
  }
  // A block's memory and barriers stay until no other block of the cluster can reach for them.
  if constexpr (S::cluster > 1) hardware::cluster_barrier();
}

}  // namespace sinter::contraction
