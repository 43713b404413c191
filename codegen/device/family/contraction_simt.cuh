// The contraction family on CUDA cores, or in f64 on tensor cores: acc(batch, m, n) = sum over k of
// a(batch, m, k) * b(batch, n, k), then the epilogue once an element. Each of the four may be
// several indices of the domain, which are unravelled from one number.
//
// A block of 256 threads owns a tile of Config::tile rows and columns and walks over k in steps of
// 16, two steps in shared memory: while one is multiplied, the next is loaded to registers. One
// barrier a step suffices, since a step is overwritten only after the barrier that ends the step
// that read it. Elements past the end of m, n or k are zeros and are not read. The finished tile
// passes through the same shared memory, 64 rows at a time, so that the epilogue is compiled once
// and its stores are coalesced.
//
// On CUDA cores (CudaCores) a thread has 4 x 4 results in every 64 x 64 of the tile: in larger
// tiles it reads fewer factors for each product. Sums over a long k are taken in runs, so that
// rounding errors of like terms cannot pile up. Tensor cores (TensorCores) multiply f64, without
// runs.
#pragma once
#include "sinter/device/core/math.cuh"
#include "sinter/device/core/warp_matrix.cuh"
#include "sinter/device/family/contraction_rows.cuh"
#include "sinter/device/family/contraction_space.cuh"

namespace sinter::contraction {

inline constexpr int kStep = 16, kThreads = 256;
inline constexpr int kRun = 32;  // steps after which running sums are folded

template <class T>
struct alignas(16) Quad {
  T at[4];
};

template <class T, int tile>
struct Shared {  // [buffer][operand][k][row]; afterwards 64 rows of the finished tile [m][n]
  static constexpr int pitch = tile + 4;  // keeps rows 16-byte aligned and spreads the banks
  T values[2 * 2 * kStep * pitch];
  SINTER_DEVICE T* step(int buffer, int operand) {
    return values + (buffer * 2 + operand) * kStep * pitch;
  }
};

// Rows and columns of a thread: 4 in every 64 of the tile. The first of its i-th four. A warp spans
// 4 threads by 8, so that it reads few of either factor at a time.
SINTER_DEVICE int thread_row(int i) {
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  return i * 64 + (warp / 2 * 4 + lane / 8) * 4;
}
SINTER_DEVICE int thread_column(int i) {
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  return i * 64 + (warp % 2 * 8 + lane % 8) * 4;
}

// How many tiles and steps there are.
template <class Config>
struct Tiling {
  using P = Problem<Config>;
  using Index = typename Config::Index;
  static constexpr int tile = Config::tile, each = tile / 16;
  static_assert(tile % 64 == 0);
  static constexpr auto row_tiles =
      number<is_known(P::rows)>([] { return static_cast<Index>(ceil_divide(P::rows, tile)); });
  static constexpr auto column_tiles = number<is_known(P::columns)>(
      [] { return static_cast<Index>(ceil_divide(P::columns, tile)); });
  static constexpr auto steps =
      number<is_known(P::depth)>([] { return static_cast<Index>(ceil_divide(P::depth, kStep)); });
  static constexpr auto tiles = number<is_known(P::batches, row_tiles, column_tiles)>(
      [] { return static_cast<long long>(P::batches) * row_tiles * column_tiles; });
  // Divisors, which the compiler sees also where there is no tile.
  static constexpr auto row_tiles_or_1 = number<is_known(row_tiles)>(
      [] { return row_tiles > 0 ? static_cast<long long>(row_tiles) : 1LL; });
  static constexpr auto column_tiles_or_1 = number<is_known(column_tiles)>(
      [] { return column_tiles > 0 ? static_cast<long long>(column_tiles) : 1LL; });
};

// Fragment of this thread's element number i in a step of one operand: neighbouring threads along k
// or along the rows, whichever lies together in memory.
template <bool k_fastest, int tile>
struct StepPlace {
  int row, k;
  SINTER_DEVICE explicit StepPlace(int i) {
    const int e = static_cast<int>(threadIdx.x) + i * kThreads;
    row = k_fastest ? e / kStep : e % tile;
    k = k_fastest ? e % kStep : e / tile;
  }
};

// A thread's sums acc[i][j] of the tile's rows thread_row(i / 4) + i % 4 and columns
// thread_column(j / 4) + j % 4.
template <class Config>
struct CudaCores {
  using T = typename Config::Accumulator;
  static constexpr int tile = Config::tile, each = tile / 16, pitch = Shared<T, tile>::pitch;
  // zero_dominates: of A; marked_zeros: those of B that are negative.
  static constexpr bool zero_dominates = Config::zero_dominates, marked_zeros = requires {
    Config::marked_zeros;
  };
  static constexpr bool runs = true;  // that are folded

  static SINTER_DEVICE int place(int k, int row) { return k * pitch + row; }  // in a step

  static SINTER_DEVICE void multiply(const T* a, const T* b, T (&acc)[each][each]) {
#pragma unroll 8
    for (int k = 0; k < kStep; ++k) {
      Quad<T> x[each / 4], y[each / 4];
#pragma unroll
      for (int i = 0; i < each / 4; ++i) {
        x[i] = *reinterpret_cast<const Quad<T>*>(a + k * pitch + thread_row(i));
        y[i] = *reinterpret_cast<const Quad<T>*>(b + k * pitch + thread_column(i));
      }
#pragma unroll
      for (int i = 0; i < each; ++i)
#pragma unroll
        for (int j = 0; j < each; ++j)
          if ((!zero_dominates || x[i / 4].at[i % 4] != T(0)) &&
              (!marked_zeros || y[j / 4].at[j % 4] != T(0) || T(1) / y[j / 4].at[j % 4] > T(0)))
            acc[i][j] = math::fma(x[i / 4].at[i % 4], y[j / 4].at[j % 4], acc[i][j]);
    }
  }
  // 64 rows of the finished tile.
  static SINTER_DEVICE void put(const T (&acc)[each][each], int part, T* shared) {
#pragma unroll
    for (int i = 0; i < 4; ++i)
#pragma unroll
      for (int j = 0; j < each; j += 4) {
        const T* sums = acc[part * 4 + i] + j;
        *reinterpret_cast<Quad<T>*>(shared + (thread_row(0) + i) * pitch +
                                    thread_column(j / 4)) = {{sums[0], sums[1], sums[2], sums[3]}};
      }
  }
};

// Products of f64: a warp has 16 rows and 32 columns, of which acc[j] are the eights of columns as
// a product of 16 x 8 holds them.
template <class Config>
struct TensorCores {
  static_assert(Config::tile == 64 && is_same<typename Config::Accumulator, double> &&
                !CudaCores<Config>::zero_dominates && !CudaCores<Config>::marked_zeros);
  static constexpr int pitch = Shared<double, 64>::pitch;
  static constexpr bool runs = false;  // whose registers would leave room for one block on an SM

  // In a step: of 16 banks neither 16 neighbours along k, as threads put them, nor four along k in
  // each of four rows, as the tensor cores take them, have one in common.
  static SINTER_DEVICE int place(int k, int row) { return k * pitch + (row ^ k / 4); }

  static SINTER_DEVICE void multiply(const double* a, const double* b, double (&acc)[4][4]) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    int of_lane[4];  // at 4 i + lane % 4 along k
#pragma unroll
    for (int i = 0; i < 4; ++i) of_lane[i] = place(4 * i + lane % 4, lane / 4);
#pragma unroll
    for (int half = 0; half < 4; half += 2) {
      double x[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) x[i] = a[of_lane[half + i / 2] + row() + i % 2 * 8];
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        double y[2];
#pragma unroll
        for (int i = 0; i < 2; ++i) y[i] = b[of_lane[half + i] + column() + j * 8];
        warp_matrix::multiply(acc[j], x, y);
      }
    }
  }
  static SINTER_DEVICE void put(const double (&acc)[4][4], int, double* shared) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
    for (int j = 0; j < 4; ++j)
#pragma unroll
      for (int i = 0; i < 4; ++i)
        shared[(row() + i / 2 * 8 + lane / 4) * pitch + column() + j * 8 + lane % 4 * 2 + i % 2] =
            acc[j][i];
  }

 private:
  static SINTER_DEVICE int row() { return static_cast<int>(threadIdx.x) / 64 * 16; }  // the warp's
  static SINTER_DEVICE int column() { return static_cast<int>(threadIdx.x) / 32 % 2 * 32; }
};

template <class Config>
using Cores = Choice<Config::tensor_cores, TensorCores<Config>, CudaCores<Config>>;

// One operand of one step, from memory to registers.
template <class Config, bool k_fastest, class Operand, class SetRow, class T, int each>
SINTER_DEVICE void fetch(const Operand& operand, const typename Problem<Config>::Coord& batch,
                         typename Config::Index step, const SetRow& set_row, T (&values)[each]) {
  using P = Problem<Config>;
#pragma unroll
  for (int i = 0; i < each; ++i) {
    const StepPlace<k_fastest, Config::tile> place(i);
    const typename Config::Index k = step * kStep + place.k;
    typename P::Coord c = batch;
    values[i] = T(0);
    if (k < P::depth && set_row(c, place.row)) {
      P::set_k(c, k);
      values[i] = static_cast<T>(operand.value(c));
    }
  }
}
template <bool k_fastest, class Cores, class T, int each>
SINTER_DEVICE void put(const T (&values)[each], T* shared) {
#pragma unroll
  for (int i = 0; i < each; ++i) {
    const StepPlace<k_fastest, each * 16> place(i);
    shared[Cores::place(place.k, place.row)] = values[i];
  }
}

// Adds the running sums to the folded ones, so that they stay small.
template <class T, int each>
SINTER_DEVICE void fold_partials(T (&acc)[each][each], T (&folded)[each][each]) {
#pragma unroll
  for (int i = 0; i < each; ++i)
#pragma unroll
    for (int j = 0; j < each; ++j) {
      folded[i][j] += acc[i][j];
      acc[i][j] = T(0);
    }
}

// Sums the tile whose rows `set_m` and columns `set_n` name.
template <class Config, class A, class B, class SetM, class SetN, class T, int each>
SINTER_DEVICE void sum_tile(const A& a, const B& b, const typename Problem<Config>::Coord& batch,
                            const SetM& set_m, const SetN& set_n, Shared<T, Config::tile>& shared,
                            T (&sum)[each][each]) {
  using Index = typename Config::Index;
  constexpr auto steps = Tiling<Config>::steps;
  constexpr bool runs = Cores<Config>::runs;
  T acc[each][each] = {};
  T next_a[each], next_b[each];
  const auto load_step = [&](Index step) {
    fetch<Config, Config::a_k_fastest>(a, batch, step, set_m, next_a);
    fetch<Config, Config::b_k_fastest>(b, batch, step, set_n, next_b);
  };
  const auto put_step = [&](int buffer) {
    put<Config::a_k_fastest, Cores<Config>>(next_a, shared.step(buffer, 0));
    put<Config::b_k_fastest, Cores<Config>>(next_b, shared.step(buffer, 1));
  };
  // The first step is loaded by the same code as the others: the body is compiled once.
#pragma unroll 1
  for (Index step = -1; step < steps; ++step) {
    const int current = static_cast<int>(step & 1);
    const bool more = step + 1 < steps;
    if (more) load_step(step + 1);
    if (step >= 0)
      Cores<Config>::multiply(shared.step(current, 0), shared.step(current, 1), runs ? acc : sum);
    if (more) put_step(current ^ 1);
    if (runs && steps > kRun && step % kRun == kRun - 1) fold_partials(acc, sum);
    __syncthreads();
  }
  if constexpr (runs) fold_partials(acc, sum);
}

template <class Config, class A, class B, class Epilogue, class Rows>
SINTER_DEVICE void run(const A& a, const B& b, const Epilogue& epilogue, const Rows& rows) {
  hardware::grid_dependency_wait();
  using P = Problem<Config>;
  using Tiles = Tiling<Config>;
  using Index = typename Config::Index;
  using T = typename Config::Accumulator;
  using Coord = typename P::Coord;
  constexpr int tile_size = Config::tile, each = Tiles::each, pitch = Shared<T, tile_size>::pitch;
  alignas(16) __shared__ Shared<T, tile_size> shared;
  for (long long tile = blockIdx.x; tile < Tiles::tiles; tile += gridDim.x) {
    const Index column0 = static_cast<Index>(tile % Tiles::column_tiles_or_1) * tile_size;
    const long long row_tile = tile / Tiles::column_tiles_or_1;
    const Index batch = static_cast<Index>(row_tile / Tiles::row_tiles_or_1);
    const Index row0 = rows.template begin<Index>(batch, P::rows) +
                       static_cast<Index>(row_tile % Tiles::row_tiles_or_1) * tile_size;
    const Index row_end = rows.template end<Index>(batch, P::rows);
    if (row0 >= row_end) continue;  // of a group that has no more rows; the same for all threads
    Coord c;
    P::set_batch(c, batch);
    const auto set_m = [&](Coord& at, int i) {
      const Index row = row0 + i;
      if (row >= row_end) return false;
      P::set_m(at, rows.source(row));
      return true;
    };
    const auto set_n = [&](Coord& at, int i) {
      const Index column = column0 + i;
      if (column >= P::columns) return false;
      P::set_n(at, column);
      return true;
    };
    T acc[each][each] = {};
    sum_tile<Config>(a, b, c, set_m, set_n, shared, acc);

#pragma unroll
    for (int part = 0; part < tile_size / 64; ++part) {
      Cores<Config>::put(acc, part, shared.values);
      __syncthreads();
#pragma unroll 1
      for (int e = static_cast<int>(threadIdx.x); e < 64 * tile_size; e += kThreads) {
        const int i = Config::n_fastest ? e / tile_size : e % 64;
        const int j = Config::n_fastest ? e % tile_size : e / 64;
        const Index row = row0 + part * 64 + i;
        if (row >= row_end || !set_n(c, j)) continue;
        const Index target = rows.target(row);
        if (target < 0 || target >= P::rows) continue;
        P::set_m(c, target);
        epilogue.apply(c, shared.values[i * pitch + j]);
      }
      __syncthreads();  // the next part, or the next tile, writes to the shared memory
    }
  }
}

}  // namespace sinter::contraction
