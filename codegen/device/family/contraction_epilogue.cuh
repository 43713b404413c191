// The end of a contraction on tensor cores: a warp's finished sums leave its registers through
// shared memory, so that the epilogue is compiled once and moves packs of neighbours as the
// pointwise family does.
#pragma once
#include "sinter/device/core/math.cuh"
#include "sinter/device/core/pack.cuh"
#include "sinter/device/family/contraction_rows.cuh"
#include "sinter/device/family/contraction_space.cuh"

namespace sinter::contraction {

// 16 rows x 64 columns of sums in shared memory, four columns a chunk. Chunks are permuted so that
// neither the pairs of a fragment nor the packs of eight that leave meet in a bank: even chunks lie
// in the first half of a row and odd ones in the second, each turned by the row.
struct Slab {
  static constexpr int rows = 16, columns = 64;
  float at[rows * columns];

  static SINTER_DEVICE int place(int row, int column) {
    const int half = column >> 2 & 1, chunk = column >> 3 ^ half ^ (row & 3) << 1;
    return row * columns + half * 32 + chunk * 4 + (column & 3);
  }

  // The fragment of mma and wgmma: a thread holds, of every eight columns, two neighbours of row
  // lane / 4 and the same two of the row eight further down. Where the first of them lie.
  struct Fragment {
    int at[columns / 8];
    SINTER_DEVICE Fragment() {
      const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
      for (int j = 0; j < columns / 8; ++j) at[j] = place(lane / 4, j * 8 + lane % 4 * 2);
    }
  };
  // Columns `from` of the fragment and the ones after it.
  template <int from, int count>
  SINTER_DEVICE void put(const Fragment& fragment, const float (&sums)[count]) {
    constexpr int blocks =
        (count - from / 2) / 4 < columns / 8 ? (count - from / 2) / 4 : columns / 8;
#pragma unroll
    for (int j = 0; j < blocks; ++j) {
      float* to = at + fragment.at[j];
      *reinterpret_cast<float2*>(to) = {sums[from / 2 + j * 4], sums[from / 2 + j * 4 + 1]};
      *reinterpret_cast<float2*>(to + 8 * columns) = {sums[from / 2 + j * 4 + 2],
                                                      sums[from / 2 + j * 4 + 3]};
    }
  }

  // `width` neighbours along the columns or along the rows.
  template <int width, bool along_columns>
  SINTER_DEVICE void get(int row, int column, float (&sums)[width]) const {
    if constexpr (along_columns && width % 4 == 0) {
#pragma unroll
      for (int i = 0; i < width; i += 4) {
        const float4 four = *reinterpret_cast<const float4*>(at + place(row, column + i));
        sums[i] = four.x, sums[i + 1] = four.y, sums[i + 2] = four.z, sums[i + 3] = four.w;
      }
    } else {
#pragma unroll
      for (int i = 0; i < width; ++i)
        sums[i] = along_columns ? at[place(row, column + i)] : at[place(row + i, column)];
    }
  }
};

// Slab number `which` of a warp's sums; registers have no index, so each number is a branch, and
// what the branches have in common comes from outside: it costs time to compile.
template <int number, int across, int blocks, int count>
SINTER_DEVICE void put_slab(Slab& slab, const Slab::Fragment& fragment,
                            const float (&sums)[blocks][count], int which) {
  if (which == number) slab.put<number % across * Slab::columns>(fragment, sums[number / across]);
  if constexpr (number + 1 < blocks * across)
    put_slab<number + 1, across>(slab, fragment, sums, which);
}

// Where a warp's slab lies in the result; rows and columns end before `row_end` and `column_end`.
template <class Config>
struct SlabPlace {
  typename Problem<Config>::Coord batch;
  typename Config::Index row, column, row_end, column_end;
};

// Runs the epilogue over a slab; the whole warp takes part. What several packs read is fetched
// before the first is computed.
template <class Config, class Body, class Args, class Rows>
SINTER_DEVICE void finish(const Args& args, const Slab& slab, const SlabPlace<Config>& place,
                          const Rows& rows) {
  using P = Problem<Config>;
  using Index = typename Config::Index;
  constexpr int width = Config::width, unroll = Config::unroll;
  constexpr bool along_columns = Config::n_fastest;
  constexpr int beside = (along_columns ? Slab::columns : Slab::rows) / width;  // packs in a line
  constexpr int packs = Slab::rows * Slab::columns / width;
  constexpr int last = along_columns ? P::first_k - 1 : P::first_n - 1, dim = last < 0 ? 0 : last;
  static_assert(packs % (32 * unroll) == 0);
  const auto row_of = [](int pack) {
    return along_columns ? pack / beside : pack % beside * width;
  };
  const auto column_of = [](int pack) {
    return along_columns ? pack % beside * width : pack / beside;
  };
#pragma unroll 1
  for (int first = static_cast<int>(threadIdx.x) % 32; first < packs; first += 32 * unroll) {
    typename P::Coord c[unroll];
    typename Body::template Place<width> held[unroll];
    bool inside[unroll];
#pragma unroll
    for (int u = 0; u < unroll; ++u) {
      const Index row = place.row + row_of(first + u * 32),
                  column = place.column + column_of(first + u * 32);
      inside[u] = row < place.row_end && column < place.column_end;
      const Index target = inside[u] ? rows.target(row) : 0;
      inside[u] &= target >= 0 && target < P::rows;
      c[u] = place.batch;
      P::set_m(c[u], target);
      P::set_n(c[u], column);
      if (inside[u]) Body::fetch(args, c[u], held[u]);
    }
#pragma unroll
    for (int u = 0; u < unroll; ++u) {
      if (!inside[u]) continue;
      float sums[width];
      slab.template get<width, along_columns>(row_of(first + u * 32), column_of(first + u * 32),
                                              sums);
#pragma unroll
      for (int e = 0; e < width; ++e)
        Body::element(args, neighbour<dim>(c[u], e), e, sums[e], held[u]);
      Body::flush(args, c[u], held[u]);
    }
  }
}

// Brings the lines that a warp's epilogue will read closer, while there is time: `rows` x `columns`
// from the place on.
template <class Config, class Body, int rows, int columns, class Args>
SINTER_DEVICE void prefetch_tile(const Args& args, const SlabPlace<Config>& place) {
  using P = Problem<Config>;
  using Index = typename Config::Index;
  constexpr int step = 32;  // elements: 128 bytes of the widest type
  constexpr int beside = Config::n_fastest ? (columns + step - 1) / step : (rows + step - 1) / step;
  constexpr int lines = Config::n_fastest ? rows : columns;
#pragma unroll 1
  for (int i = static_cast<int>(threadIdx.x) % 32; i < lines * beside; i += 32) {
    const int line = i / beside, begin = i % beside * step;
    const Index row = place.row + (Config::n_fastest ? line : begin),
                column = place.column + (Config::n_fastest ? begin : line);
    if (row >= place.row_end || column >= place.column_end) continue;
    typename P::Coord c = place.batch;
    P::set_m(c, row);
    P::set_n(c, column);
    Body::prefetch(args, c);
  }
}

}  // namespace sinter::contraction
