// The contraction family in f32 that must not be rounded, on CUDA cores: acc(batch, m, n) = sum
// over k of a(batch, m, k) * b(batch, n, k), one fused multiplication and addition a product.
// Operands come to a ring of stages in shared memory, and results leave, as in contraction_mma.cuh.
//
// An SM issues as many instructions a clock as it has multipliers for, so that every instruction
// that is no multiplication is time lost: a thread has up to 16 x 8 results, and reads 24 times 16
// bytes for 512 products. The lanes of a warp are 4 x 8: what they read of either side at once is
// 4 or 8 chunks of 16 bytes, which meet in no bank. Four elements of k are a slice. Of a slice, a
// thread holds its columns in registers, next to those of the following slice, and its rows stream
// by. The shape of warps and lanes is that of CUTLASS's SIMT kernels.
#pragma once
#include "sinter/device/family/contraction_epilogue.cuh"
#include "sinter/device/family/contraction_loader.cuh"
#include "sinter/device/family/contraction_warp_tiles.cuh"

namespace sinter::contraction {

// A thread's `each` rows, or columns, of a warp's tile, of which `lanes` lanes share the lines: in
// fours where the panel lies along them, one by one where it lies along k. In either case a thread
// reads `each` chunks of a slice.
template <class Layout, int lanes, int each_>
struct ThreadLines {
  static constexpr bool k_fastest = Layout::k_fastest && !Layout::transposed;
  static constexpr int each = each_, line = k_fastest ? Layout::chunks * 16 : Layout::rows * 4;
  static_assert(k_fastest || each % 4 == 0);
  // Lines of a thread whose chunks are permuted alike are constants apart.
  static constexpr int kept = k_fastest && lanes < 8 && each > 1 ? 8 / lanes : 1;
  unsigned lane_at[kept];

  // `first`: the warp's first in the panel.
  SINTER_DEVICE ThreadLines(int first, int lane) {
#pragma unroll
    for (int i = 0; i < kept; ++i)
      lane_at[i] = static_cast<unsigned>(k_fastest ? Layout::place(first + i * lanes + lane, 0)
                                                   : (first / 4 + lane) * 16);
  }
  // Number i of the warp's tile.
  static SINTER_DEVICE int number(int i, int lane) {
    return k_fastest ? i * lanes + lane : (i / 4 * lanes + lane) * 4 + i % 4;
  }
  SINTER_DEVICE float4 chunk(unsigned panel, int slice, int i) const {
    if constexpr (k_fastest)
      return warp_matrix::get_four(panel + (lane_at[i % kept] ^ static_cast<unsigned>(slice) * 16) +
                                   i / kept * kept * lanes * line);
    const unsigned turn = Layout::transposed ? static_cast<unsigned>(Layout::turn(slice)) * 16 : 0;
    const int fours = each / 4;  // of a line
    return warp_matrix::get_four(panel + (lane_at[0] ^ turn) + slice * 4 * line + i / fours * line +
                                 i % fours * lanes * 16);
  }
  // Element e of chunk i: which element of k, and which of the thread's rows or columns, it is of.
  static SINTER_DEVICE int depth_of(int i, int e) { return k_fastest ? e : i / (each / 4); }
  static SINTER_DEVICE int number_of(int i, int e) {
    return k_fastest ? i : i % (each / 4) * 4 + e;
  }
};

SINTER_DEVICE float part(const float4& four, int i) {
  return i == 0 ? four.x : i == 1 ? four.y : i == 2 ? four.z : four.w;
}

// What a block does, in numbers.
template <class Config>
struct ThreadTiles {
  using W = WarpTiles<Config>;
  static constexpr int rows = W::rows / 4, columns = W::columns / 8;  // of a thread
  static constexpr int slices = Config::tile_k / 4;                   // of a step
  // Those of one turn of the loop: more make the loop's own instructions fewer, and code that the
  // instruction caches must hold.
  static constexpr int turn = slices * rows * columns <= 256 ? slices : 2;  // as in fma_tiles.cpp
  static_assert(W::rows % 16 == 0 && turn % 2 == 0 && slices % turn == 0 && Config::stages >= 3);
};

template <class Config, class LinesA, class LinesB>
struct ThreadSums {
  using T = ThreadTiles<Config>;
  float at[T::rows][T::columns] = {};

  // Columns of a slice.
  struct Held {
    float at[4][T::columns];
    SINTER_DEVICE void read(const LinesB& lines, unsigned panel, int slice) {
#pragma unroll
      for (int i = 0; i < T::columns; ++i) {
        const float4 chunk = lines.chunk(panel, slice, i);
#pragma unroll
        for (int e = 0; e < 4; ++e)
          at[LinesB::depth_of(i, e)][LinesB::number_of(i, e)] = part(chunk, e);
      }
    }
  };

  // The register file has two banks, each of which gives one operand a clock, and the last factors
  // stay at the multipliers. So neighbouring multiplications share a factor: columns are walked
  // through to and fro.
  SINTER_DEVICE void multiply(const float4& chunk, int i, const Held& b) {
    const float factors[4] = {chunk.x, chunk.y, chunk.z, chunk.w};
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const float factor = factors[e];
      const float(&other)[T::columns] = b.at[LinesA::depth_of(i, e)];
      float(&sums)[T::columns] = at[LinesA::number_of(i, e)];
      if (e % 2 == 0)
#pragma unroll
        for (int j = 0; j < T::columns; ++j) sums[j] = math::fma(factor, other[j], sums[j]);
      else
#pragma unroll
        for (int j = T::columns - 1; j >= 0; --j) sums[j] = math::fma(factor, other[j], sums[j]);
    }
  }
  // A slice; `first` is its first chunk of rows, and becomes that of the following slice.
  SINTER_DEVICE void multiply(const LinesA& lines, unsigned panel, int slice, const Held& b,
                              float4& first, unsigned next_panel, int next_slice) {
    float4 chunks[2] = {first};
#pragma unroll
    for (int i = 0; i < T::rows; ++i) {
      chunks[(i + 1) % 2] = i + 1 < T::rows ? lines.chunk(panel, slice, i + 1)
                                            : lines.chunk(next_panel, next_slice, 0);
      multiply(chunks[i % 2], i, b);
    }
    first = chunks[T::rows % 2];
  }

  // Puts 16 rows x 64 columns of the warp's tile; registers have no index, so that each place is a
  // branch.
  template <int number, int across>
  SINTER_DEVICE void put(EpilogueTile& epilogue_tile, int lane_m, int lane_n, int which) const {
    if (which == number) {
      constexpr int first_n = number % across * EpilogueTile::columns / 8,
                    left = T::columns - first_n, count = left < 8 ? left : 8;
#pragma unroll
      for (int i = 0; i < 4; ++i)
#pragma unroll
        for (int j = 0; j < count; ++j)
          epilogue_tile
              .at[EpilogueTile::place(LinesA::number(i, lane_m), LinesB::number(j, lane_n))] =
              at[number / across * 4 + i][first_n + j];
    }
    if constexpr (number + 1 < T::rows / 4 * across)
      put<number + 1, across>(epilogue_tile, lane_m, lane_n, which);
  }
};

// Sums a tile. `a` and `b` are loaders that know its rows and columns.
template <class Config, class Args, class LoaderA, class LoaderB, class LinesA, class LinesB>
SINTER_DEVICE void sum_thread_tile(const Args& args, const LoaderA& a, const LoaderB& b,
                                   unsigned shared, const LinesA& lines_a, const LinesB& lines_b,
                                   ThreadSums<Config, LinesA, LinesB>& sums) {
  using Index = typename Config::Index;
  using Held = typename ThreadSums<Config, LinesA, LinesB>::Held;
  using T = ThreadTiles<Config>;
  constexpr int stages = Config::stages, slices = T::slices, last = slices - T::turn;
  constexpr unsigned panel_a = LoaderA::Layout::bytes,
                     stage_bytes = panel_a + LoaderB::Layout::bytes;
  constexpr auto steps = WarpTiles<Config>::steps;
  constexpr bool copies = LoaderA::copied || LoaderB::copied;
  const auto following = [&](unsigned stage) {
    return stage == shared + (stages - 1) * stage_bytes ? shared : stage + stage_bytes;
  };
  const auto before = [&](unsigned stage) {
    return stage == shared ? shared + (stages - 1) * stage_bytes : stage - stage_bytes;
  };
  typename LoaderA::Held held_a;
  typename LoaderB::Held held_b;
  Held columns[2];
  float4 rows{};
  unsigned current = shared, filled = shared;  // stages
  Index step = 1 - stages;
  int slice = last;
  // The steps before the first one fill the ring: what loads is compiled once.
#pragma unroll 1
  while (step < steps) {
    if (step >= 0)
#pragma unroll
      for (int i = 0; i < T::turn - 1; ++i) {
        columns[(i + 1) % 2].read(lines_b, current + panel_a, slice + i + 1);
        sums.multiply(lines_a, current, slice + i, columns[i % 2], rows, current, slice + i + 1);
      }
    const bool ends = slice == last;  // the step
    unsigned next = current;
    if (ends) {
      if (step >= 0) next = following(current);
      // What passes through registers is put a step after it was fetched.
      const Index ahead = step + stages - 1;
      if (step > 1 - stages && ahead - 1 < steps) {
        const unsigned fetched = before(filled);
        a.end(args, ahead - 1, fetched, held_a);
        b.end(args, ahead - 1, fetched + panel_a, held_b);
      }
      // Behind the barrier the next step has come, and nobody reads the one before this any more.
      if constexpr (copies) warp_matrix::wait<stages - 3>();
      __syncthreads();
      if (ahead < steps) {
        a.start(args, ahead, filled, held_a);
        b.start(args, ahead, filled + panel_a, held_b);
      }
      if constexpr (copies) warp_matrix::commit();
      filled = following(filled);
    }
    const int following_slice = ends ? 0 : slice + T::turn;
    if (step >= -1) columns[0].read(lines_b, next + panel_a, following_slice);
    if (step >= 0)
      sums.multiply(lines_a, current, slice + T::turn - 1, columns[1], rows, next, following_slice);
    else if (step == -1)
      rows = lines_a.chunk(next, 0, 0);
    if (ends) ++step;
    slice = step < 0 ? last : following_slice;
    current = next;
  }
}

// The whole kernel.
template <class Config, class A, class B, class Body, class Args, class Rows>
SINTER_DEVICE void run_by_threads(const Args& args, const Rows& rows) {
  using P = Problem<Config>;
  using W = WarpTiles<Config>;
  using T = ThreadTiles<Config>;
  using Index = typename Config::Index;
  using LoaderA = Loader<Config, A, Rows, Config::tile_m, true>;
  using LoaderB = Loader<Config, B, Rows, Config::tile_n, false>;
  using LinesA = ThreadLines<typename LoaderA::Layout, 4, T::rows>;
  using LinesB = ThreadLines<typename LoaderB::Layout, 8, T::columns>;
  hardware::grid_dependency_wait();
  static_assert(Config::shared_bytes == W::template shared_bytes<LoaderA, LoaderB>);
  extern __shared__ uint4 dynamic_memory[];
  const unsigned shared = warp_matrix::address(dynamic_memory);
  const int warp = __shfl_sync(~0u, static_cast<int>(threadIdx.x) / 32, 0),
            lane = static_cast<int>(threadIdx.x) % 32;
  // Neighbouring pairs of lanes read the same of one side or of the other, so that shared memory
  // serves two quarters of a warp at once.
  const int lane_m = (lane & 1) | lane / 16 * 2, lane_n = lane / 2 % 8;
  const int row = warp / Config::warps_n * W::rows, column = warp % Config::warps_n * W::columns;
  const LinesA lines_a(row, lane_m);
  const LinesB lines_b(column, lane_n);
  EpilogueTile& epilogue_tile = reinterpret_cast<EpilogueTile*>(dynamic_memory)[warp];
  for (long long tile = blockIdx.x; tile < W::tiles; tile += gridDim.x) {
    const WarpTileBounds<Config> at(tile, rows);
    if (at.empty()) break;
    EpilogueCoord<Config> place;
    P::set_batch(place.batch, at.batch);
    ThreadSums<Config, LinesA, LinesB> sums;
    {
      LoaderA a;
      LoaderB b;
      a.aim(place.batch, at.row0, at.row_end, rows);
      b.aim(place.batch, at.column0, P::columns, rows);
      sum_thread_tile<Config>(args, a, b, shared, lines_a, lines_b, sums);
    }
    __syncthreads();  // epilogue tiles lie where the last step is read

    place.row_end = at.row_end;
    const Index end = at.column0 + column + W::columns;
    place.column_end = end < P::columns ? end : P::columns;
    constexpr int across = (W::columns + EpilogueTile::columns - 1) / EpilogueTile::columns;
#pragma unroll 1
    for (int s = 0; s < W::blocks_m * across; ++s) {
      sums.template put<0, across>(epilogue_tile, lane_m, lane_n, s);
      __syncwarp();
      place.row = at.row0 + row + s / across * 16;
      place.column = at.column0 + column + s % across * EpilogueTile::columns;
      finish<Config, Body, W::columns>(args, epilogue_tile, place, rows);
      __syncwarp();
    }
    __syncthreads();  // the next tile writes to the shared memory
  }
}

}  // namespace sinter::contraction
