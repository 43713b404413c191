// The tiled family for small matrices that follow one another without gaps where they are read and
// where they are written, and start anywhere. A tile takes Config::tile_through whole ones, which
// are one run of memory on either side: it comes to shared memory in aligned pieces of 16 bytes and
// leaves in aligned packs, which cross the ends of columns and matrices. Body is as in tiled.cuh.
//
// Buffers start at multiples of 16 bytes; nothing is read ahead of them or behind their end.
#pragma once
#include "sinter/device/core/async_copy.cuh"
#include "sinter/device/core/math.cuh"

namespace sinter::tiled_flat {

template <class Config>
struct Shape {
  using Index = typename Config::Index;
  using Coord = Coordinates<Index, typename Config::Extent>;
  static constexpr int rows = Config::tile_along, columns = Config::tile_across;
  static constexpr int matrix = rows * columns, run = matrix * Config::tile_through;
  static constexpr Index all = static_cast<Index>(Config::Extent::at(Config::through)) * matrix;
  static_assert(Config::width <= rows);
};

// The elements of a tile, counted as they lie in memory.
template <class Index>
struct Run {
  Index first, end;
};

// Where a pack starts in the matrices of a tile.
struct Spot {
  int matrix, row, column;
};

template <class Config, class Access, class Element>
struct Tile {
  using S = Shape<Config>;
  using Index = typename S::Index;
  static constexpr int size = sizeof(Element), threads = Config::threads;

  alignas(16) unsigned char memory[S::run * size + 32];

  // How far behind a multiple of 16 bytes the run lies, in memory and here.
  static SINTER_DEVICE int shift() {
    const unsigned first = static_cast<unsigned>(Access::offset) + blockIdx.x * S::run;
    return static_cast<int>(first * size % 16);
  }

  // From memory to the tile; the block meets at a barrier before it reads.
  SINTER_DEVICE void load(const Element* base, const Run<Index>& run) {
    const char* from = reinterpret_cast<const char*>(base + Access::offset + run.first) - shift();
    const int bytes = shift() + static_cast<int>(run.end - run.first) * size;
    // The last piece may reach past the end of the tensor.
    const int pieces = run.end < S::all ? (bytes + 15) / 16 : bytes / 16;
    const int thread = static_cast<int>(threadIdx.x);
#pragma unroll
    for (int k = 0; k < (static_cast<int>(sizeof(memory)) / 16 + threads - 1) / threads; ++k)
      if (const int i = k * threads + thread; i < pieces)
        copy_async<16>(memory + 16 * i, from + 16 * i);
    if (const int at = 16 * pieces + thread * size; at < bytes)
      *reinterpret_cast<Element*>(memory + at) = *reinterpret_cast<const Element*>(from + at);
  }

  // Behind the last row of a column comes the first of the next one, or of the next matrix.
  template <int count>
  SINTER_DEVICE void read(const Spot& spot, Pack<Element, count>& pack) const {
    const int first = spot.matrix * S::matrix + spot.row * S::columns + spot.column;
    const auto* from = reinterpret_cast<const Element*>(memory + shift()) + first;
    const auto* next = from + 1 - (spot.column == S::columns - 1 ? S::columns : S::matrix);
#pragma unroll
    for (int e = 0; e < count; ++e)
      pack.at[e] = (spot.row + e < S::rows ? from : next)[e * S::columns];
  }
};

// `count` packs of `width` elements; each is Config::threads after the one before it.
template <class Config, class Body, int width, int count, class Staged, class Args, class Index>
SINTER_DEVICE void turn(const Args& args, const Staged& staged, Index number) {
  using S = Shape<Config>;
  typename S::Coord c[count];
  typename Body::template Fragment<width> fragment[count];
  Spot spot[count];
#pragma unroll
  for (int u = 0; u < count; ++u) {
    const Index e = (number + u * Config::threads) * width, matrix = quotient(e, S::matrix);
    const int inside = static_cast<int>(e - matrix * S::matrix);
    const int column = quotient(inside, S::rows), row = inside - column * S::rows;
    c[u].at[Config::through] = matrix;
    c[u].at[Config::across] = column;
    c[u].at[Config::along] = row;
    spot[u] = {static_cast<int>(matrix - static_cast<Index>(blockIdx.x) * Config::tile_through),
               row, column};
    Body::fetch(args, c[u], fragment[u]);
  }
#pragma unroll
  for (int u = 0; u < count; ++u) {
    Body::gather(staged, spot[u], fragment[u]);
#pragma unroll
    for (int e = 0; e < width; ++e) Body::element(args, c[u], e, fragment[u]);
    Body::flush(args, c[u], fragment[u]);
  }
}

template <class Config, class Body, class Staged, class Args>
SINTER_DEVICE void run(const Args& args) {
  hardware::grid_dependency_wait();
  using S = Shape<Config>;
  using Index = typename S::Index;
  constexpr int width = Config::width, threads = Config::threads, unroll = Config::unroll;
  __shared__ Staged staged;
  const Index first = static_cast<Index>(blockIdx.x) * S::run;
  const Index end = first + S::run < S::all ? first + S::run : S::all;
  Body::stage(args, Run<Index>{first, end}, staged);
  wait_for_copies();
  __syncthreads();
  const Index thread = static_cast<Index>(threadIdx.x);
  const Index begin = (first + width - 1) / width, past = end / width;  // whole packs
  Index k = begin + thread;
#pragma unroll 1
  for (; k + (unroll - 1) * threads < past; k += unroll * threads)
    turn<Config, Body, width, unroll>(args, staged, k);
#pragma unroll 1
  for (; k < past; k += threads) turn<Config, Body, width, 1>(args, staged, k);
  // What is left of the packs that two tiles share.
  if constexpr (S::run % width != 0 || S::all % width != 0) {
    if (first + thread < begin * width) turn<Config, Body, 1, 1>(args, staged, first + thread);
    if (past * width + thread < end) turn<Config, Body, 1, 1>(args, staged, past * width + thread);
  }
}

}  // namespace sinter::tiled_flat
