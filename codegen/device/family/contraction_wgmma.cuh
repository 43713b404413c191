// The contraction family on the tensor cores of sm_90a: acc(batch, m, n) = sum over k of
// a(batch, m, k) * b(batch, n, k), then the epilogue once an element.
//
// A block holds one producer and several consumer warpgroups and walks over tiles of the result.
// One thread of the producer keeps the tensor memory accelerator filling a ring of stages, each 128
// bytes of k of both operands; the consumers multiply from there and give each stage back. A tile
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

namespace sinter::contraction {

template <class Config>
struct Shape {
  using P = Problem<Config>;
  static constexpr int neighbours = Config::cluster_m * Config::cluster_n;  // share operands
  static constexpr int cluster = neighbours * Config::split;
  static constexpr int line = 128;                           // bytes
  static constexpr int step = line / Config::operand_bytes;  // elements of k in a stage
  static constexpr int steps = static_cast<int>(ceil_divide(P::depth, step));
  // Where the result has few rows, no more of A are brought. Multiplications read on past those,
  // into B and what follows: for rows of the result that do not exist.
  static constexpr int a_bytes = Config::rows_brought * line, b_bytes = Config::tile_n * line;
  static_assert(Config::rows_brought == Config::tile_m ||
                (Config::rows_brought >= P::rows && Config::tile_m == 64));
  // Of the result: with two products, half of the tile's columns belong to each.
  static constexpr int columns = Config::tile_n / Config::products,
                       slab_columns = Slab::columns / Config::products;
  static constexpr int stage_bytes = a_bytes + b_bytes;
  static constexpr int consumers = Config::threads / 128 - 1;
  // Of the warpgroups that share a tile.
  static constexpr int rows = Config::alternate ? Config::tile_m : Config::tile_m / consumers;
  static constexpr int blocks = rows / 64;  // of a multiplication
  static constexpr int sharing = Config::alternate ? 1 : consumers;
  static_assert(rows % 64 == 0 && rows * (Config::alternate ? 1 : consumers) == Config::tile_m);
  static_assert(!Config::alternate || consumers == 2);
  static_assert((Config::cluster_m > 1) + (Config::cluster_n > 1) + (Config::split > 1) <= 1);
  static_assert(Config::stages >= 2);

  // Tiles of a cluster.
  static constexpr int tiles_m =
                           static_cast<int>(ceil_divide(P::rows, Config::tile_m*Config::cluster_m)),
                       tiles_n =
                           static_cast<int>(ceil_divide(P::columns, columns*Config::cluster_n));
  static constexpr int tiles = static_cast<int>(P::batches) * tiles_m * tiles_n;
  // With `split` a block has one tile, and its ring ends as room for the slabs of the sums.
  static constexpr int across = (columns + slab_columns - 1) / slab_columns;
  static constexpr int parts = blocks * across;  // slabs of a warp
  static_assert(Config::split == 1 ||
                (!Config::alternate && consumers * 4 * parts * static_cast<int>(sizeof(Slab)) <=
                                           Config::stages * stage_bytes));
  static SINTER_DEVICE int first_step(int rank) {
    return Config::split > 1 ? steps * rank / Config::split : 0;
  }
  static SINTER_DEVICE int end_step(int rank) {
    return Config::split > 1 ? steps * (rank + 1) / Config::split : steps;
  }

  // Shared memory, from a multiple of 1024 on.
  static constexpr int slabs = Config::stages * stage_bytes;
  static constexpr int full = slabs + consumers * 4 * static_cast<int>(sizeof(Slab)),
                       empty = full + Config::stages * 8, end = empty + Config::stages * 8;
  static_assert((Config::stages - 1) * stage_bytes + Config::tile_m * line <= end);  // read on
};

// A tile's batch entry and first row and column.
template <class Config>
struct TilePlace {
  int batch, row, column;

  // Tiles are numbered so that those which run at once lie in a patch: `group` rows of them, one
  // column after another.
  SINTER_DEVICE TilePlace(int tile, int rank) {
    using S = Shape<Config>;
    constexpr int in_batch = S::tiles_m * S::tiles_n, in_group = Config::group * S::tiles_n;
    batch = tile / in_batch;
    tile -= batch * in_batch;
    const int first = tile / in_group * Config::group;
    const int height = S::tiles_m - first < Config::group ? S::tiles_m - first : Config::group;
    tile %= in_group;
    const int m = first + tile % height, n = tile / height;
    row = (m * Config::cluster_m + (Config::cluster_m > 1 ? rank : 0)) * Config::tile_m;
    column = (n * Config::cluster_n + (Config::cluster_n > 1 ? rank : 0)) * S::columns;
  }
};

// A stage of the ring and the parity of its current use.
template <int stages>
struct Turn {
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

// Brings this block's part of an operand; `rows` of the tile's, of which the cluster shares parts.
template <class Operand, int rows, int parts, class Args, class Coord>
SINTER_DEVICE void load_operand(const Args& args, const Coord& c, int row, int k, int rank,
                                unsigned to, unsigned barrier) {
  constexpr int part = rows / parts;
  constexpr unsigned blocks = parts > 1 ? (1u << parts) - 1 : 0;
  const int first = parts > 1 ? rank * part : 0;
  if constexpr (Operand::k_fastest) {
    Operand::load(args, c, row + first, k, to + first * 128, barrier, blocks);
  } else {
    static_assert(part % 64 == 0);
#pragma unroll
    for (int i = first; i < first + part; i += 64)
      Operand::load(args, c, row + i, k, to + i * 128, barrier, blocks);
  }
}

template <class Config, class A, class B, class B2, class Args>
SINTER_DEVICE void produce(const Args& args, unsigned shared, int rank) {
  using P = Problem<Config>;
  using S = Shape<Config>;
  Turn<Config::stages> turn;
  for (int tile = static_cast<int>(blockIdx.x) / S::cluster; tile < S::tiles;
       tile += static_cast<int>(gridDim.x) / S::cluster) {
    const TilePlace<Config> place(tile, rank);
    typename P::Coord c;
    P::set_batch(c, place.batch);
    const int first_step = S::first_step(rank), end_step = S::end_step(rank),
              count = end_step - first_step;
    int step = first_step + (Config::rotate > 0 ? tile % count * Config::rotate % count : 0);
#pragma unroll 1
    for (int i = 0; i < count; ++i, turn.advance()) {
      const unsigned stage = shared + turn.stage * S::stage_bytes,
                     full = shared + S::full + turn.stage * 8,
                     empty = shared + S::empty + turn.stage * 8;
      hopper::wait(empty, turn.parity ^ 1);
      hopper::arrive_and_expect(full, S::stage_bytes);
      load_operand<A, Config::rows_brought, Config::cluster_n>(args, c, place.row, step * S::step,
                                                               rank, stage, full);
      load_operand<B, S::columns, Config::cluster_m>(args, c, place.column, step * S::step, rank,
                                                     stage + S::a_bytes, full);
      if constexpr (Config::products > 1)
        load_operand<B2, S::columns, Config::cluster_m>(args, c, place.column, step * S::step, rank,
                                                        stage + S::a_bytes + S::columns * S::line,
                                                        full);
      if (++step == end_step) step = first_step;
    }
  }
}

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

// The same where the sums of each stage are settled: while those of one stage are added, another is
// multiplied. Two at a time, since the compiler gives up on multiplications that are under way
// across the end of a loop's body.
template <class Config, class A, class B, class DoneWaiting>
SINTER_DEVICE void multiply_and_settle(unsigned long long a0, unsigned long long b0,
                                       unsigned shared, int first_step, int end_step,
                                       Turn<Config::stages>& turn,
                                       const DoneWaiting& done_waiting) {
  using S = Shape<Config>;
  constexpr int even = S::blocks, odd = 2 * S::blocks;  // their first sets
  for_each_number<S::blocks>([]<int set>() { hopper::clear_sums<set>(); });
#pragma unroll 1
  for (int step = first_step; step + 1 < end_step; step += 2) {
    const int first = turn.stage;
    multiply_stage<Config, A, B, even>(a0, b0, shared, turn, false);
    turn.advance();
    multiply_stage<Config, A, B, odd>(a0, b0, shared, turn, false);
    hopper::multiply_wait<1>();
    release<Config>(shared + S::empty + first * 8);
    settle<S::blocks, even>();
    hopper::multiply_wait<0>();
    release<Config>(shared + S::empty + turn.stage * 8);
    settle<S::blocks, odd>();
    turn.advance();
  }
  if ((end_step - first_step) % 2 != 0) {
    multiply_stage<Config, A, B, even>(a0, b0, shared, turn, false);
    hopper::multiply_wait<0>();
    release<Config>(shared + S::empty + turn.stage * 8);
    settle<S::blocks, even>();
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
  place.row_end = P::rows;
  place.column_end = column_end < P::columns ? column_end : P::columns;
  return place;
}

// The slabs of a warp's sums, one after another. With `ahead` a slab is what a lane moves at once,
// and what the next one reads is fetched before this one leaves.
template <class Config, class Body, class Args>
SINTER_DEVICE void finish_tile(const Args& args, const TilePlace<Config>& tile, int first_row,
                               Slab& slab) {
  using S = Shape<Config>;
  const Slab::Fragment fragment;
  if constexpr (Config::ahead) {
    using All = Packs<Config, Body>;
    static_assert(All::count == 32 * All::unroll);
    const int lane = static_cast<int>(threadIdx.x) % 32;
    All current;
    current.fetch(args, slab_place(tile, first_row, 0), AllRows{}, lane);
#pragma unroll 1
    for (int s = 0; s < S::parts; ++s) {
      All next = current;
      if (s + 1 < S::parts) next.fetch(args, slab_place(tile, first_row, s + 1), AllRows{}, lane);
      put_slab<0, S::across, Config::products>(slab, fragment, NamedSums<Config>{}, s);
      __syncwarp();
      mend<Config, Body>(args, slab, slab_place(tile, first_row, s), AllRows{});
      SlabReductions<Config, Body> reduced;
      reduced.start();
      current.compute(args, slab, slab_place(tile, first_row, s), AllRows{}, lane, reduced);
      __syncwarp();
      current = next;
    }
  } else {
#pragma unroll 1
    for (int s = 0; s < S::parts; ++s) {
      put_slab<0, S::across, Config::products>(slab, fragment, NamedSums<Config>{}, s);
      __syncwarp();
      finish<Config, Body>(args, slab, slab_place(tile, first_row, s), AllRows{});
      __syncwarp();
    }
  }
}

template <class Config, class A, class B, class Body, class Args>
SINTER_DEVICE void consume(const Args& args, unsigned char* memory, unsigned shared, int consumer,
                           int rank) {
  using S = Shape<Config>;
  const int warp = __shfl_sync(~0u, static_cast<int>(threadIdx.x) / 32 % 4, 0);
  const int first_row = Config::alternate ? 0 : consumer * S::rows;
  Slab& slab = reinterpret_cast<Slab*>(memory + S::slabs)[consumer * 4 + warp];
  const unsigned long long a0 = descriptor<A>(shared + first_row * S::line),
                           b0 = descriptor<B>(shared + S::a_bytes);
  Turn<Config::stages> turn;
  int number = 0;  // of the block's tile
  for (int tile = static_cast<int>(blockIdx.x) / S::cluster; tile < S::tiles;
       tile += static_cast<int>(gridDim.x) / S::cluster, ++number) {
    if (Config::alternate && number % S::consumers != consumer) {
      turn.skip(S::steps);
      continue;
    }
    if constexpr (Config::prefetch) {
      // Warps own 16 rows of every 64; the lines of all four are shared out evenly.
      const TilePlace<Config> place(tile, rank);
      SlabPlace<Config> own = slab_place(place, first_row, 0);
      own.row += (S::rows / 4 - 16) * warp;
      prefetch_tile<Config, Body, S::rows / 4, S::columns>(args, own);
    }
    if (Config::alternate && number > 0) wait_for_turn(consumer);
    const bool more = tile + static_cast<int>(gridDim.x) / S::cluster < S::tiles;
    const auto done_waiting = [&] {
      if (Config::alternate && more) give_turn(consumer);
    };
    if constexpr (Config::settle)
      multiply_and_settle<Config, A, B>(a0, b0, shared, S::first_step(rank), S::end_step(rank),
                                        turn, done_waiting);
    else
      multiply_tile<Config, A, B>(a0, b0, shared, S::first_step(rank), S::end_step(rank), turn,
                                  done_waiting);
    if constexpr (Config::split > 1) {
      const Slab::Fragment fragment;
      hopper::wait_at<1, S::consumers * 128>();  // nobody reads the ring any more
      Slab* parts = reinterpret_cast<Slab*>(memory) + (consumer * 4 + warp) * S::parts;
#pragma unroll 1
      for (int s = 0; s < S::parts; ++s)
        put_slab<0, S::across, Config::products>(parts[s], fragment, NamedSums<Config>{}, s);
    } else {
      finish_tile<Config, Body>(args, TilePlace<Config>(tile, rank), first_row, slab);
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
  const TilePlace<Config> place(static_cast<int>(blockIdx.x) / S::cluster, 0);
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
template <class Config, class A, class B, class B2, class Body, class Args>
SINTER_DEVICE void run_on_tensor_cores(const Args& args) {
  using S = Shape<Config>;
  NamedSums<Config>::declare();
  extern __shared__ unsigned char dynamic_memory[];
  const unsigned start = hopper::address(dynamic_memory), shared = (start + 1023) & ~1023u;
  unsigned char* memory = dynamic_memory + (shared - start);
  const int warpgroup = __shfl_sync(~0u, static_cast<int>(threadIdx.x) / 128, 0);
  const int rank = S::cluster > 1 ? hardware::cluster_rank() : 0;
  if (threadIdx.x == 0) {
    A::prefetch(args);
    B::prefetch(args);
    if constexpr (Config::products > 1) B2::prefetch(args);
    for (int i = 0; i < Config::stages; ++i) {
      hopper::barrier_init(shared + S::full + i * 8, 1);
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
    if (threadIdx.x == 0) produce<Config, A, B, B2>(args, shared, rank);
    __syncwarp();
    if constexpr (Config::split > 1) hardware::cluster_barrier();
  } else {
    hopper::take_registers<Config::consumer_registers>();
    consume<Config, A, B, Body>(args, memory, shared, warpgroup - 1, rank);
    if constexpr (Config::split > 1) {  // here, where a thread has the consumers' registers
      hardware::cluster_barrier();
      finish_parts<Config, Body>(args, memory, warpgroup - 1, rank);
    }
  }
  // A block's memory and barriers stay until no other block of the cluster can reach for them.
  if constexpr (S::cluster > 1) hardware::cluster_barrier();
}

}  // namespace sinter::contraction
