// The pointwise family where tensors lie together along different indices of the domain: a block
// takes a tile of two indices, or all of both and Config::tile_through of a third one. Tensors that
// lie together along Config::along are fetched and flushed by packs as in pointwise.cuh; those that
// do so along Config::across pass through shared memory, in which the tile is transposed:
//   Body::stage    from memory to the tile, along `across`
//   Body::gather   a pack along `along` out of the tile
//   Body::element  once for every index of the domain
//   Body::scatter  a pack back into a tile
//   Body::unstage  from the tile to memory, along `across`
// With Config::misaligned, rows of the tensors start anywhere, and tensors are staged for loading
// only: the packs of each column start where Config::AlignedBy, the access of what is moved by
// packs, is aligned. Packs that reach out of the domain are taken apart.
#pragma once
#include "sinter/device/core/math.cuh"
#include "sinter/device/core/misaligned_tile.cuh"
#include "sinter/device/core/tile.cuh"
#include "sinter/device/family/block_order.cuh"

namespace sinter::tiled {

template <class Config>
struct Shape {
  using Index = typename Config::Index;
  using Coord = Coordinates<Index, typename Config::Extent>;
  static constexpr int rank = Config::Extent::size;
  static constexpr int rows = Config::tile_along, columns = Config::tile_across;
  static constexpr Index extent_along = static_cast<Index>(Config::Extent::at(Config::along));
  static constexpr Index extent_across = static_cast<Index>(Config::Extent::at(Config::across));
  static constexpr int matrices = Config::tile_through;
  static constexpr int through = matrices > 1 ? Config::through : 0;
  static constexpr bool known_through = matrices == 1 || Config::Extent::literals(through, 1);
  static constexpr auto extent_through = number<known_through>(
      [] { return matrices > 1 ? static_cast<Index>(Config::Extent::at(through)) : Index(1); });
  static constexpr bool even = [] {
    if constexpr (is_known(extent_through))
      return !Config::misaligned && extent_along % rows == 0 && extent_across % columns == 0 &&
             extent_through % matrices == 0;
    return false;
  }();
  static constexpr int width = Config::width, early = Config::misaligned ? width - 1 : 0;
  static constexpr int vectors = rows / width * columns * matrices;
  static constexpr int rounds = (vectors + Config::threads - 1) / Config::threads;
  static_assert(rounds % Config::unroll == 0);

  // Neighbouring blocks take neighbouring tiles along `along`.
  static SINTER_DEVICE Coord corner(unsigned block) {
    Coord c;
    const auto split = [&block](Index count) {
      const unsigned all = block;
      block = all / static_cast<unsigned>(count);
      return static_cast<Index>(all - block * static_cast<unsigned>(count));
    };
    c.at[Config::along] = split((extent_along + early + rows - 1) / rows) * rows;
    c.at[Config::across] = split((extent_across + columns - 1) / columns) * columns;
    if constexpr (matrices > 1)
      c.at[through] = split((extent_through + matrices - 1) / matrices) * matrices;
#pragma unroll
    for (int i = rank - 1; i >= 0; --i)
      if (i != Config::along && i != Config::across && (matrices == 1 || i != through))
        c.at[i] = split(static_cast<Index>(Config::Extent::at(i)));
    return c;
  }
  // How much earlier than at `c` packs of its column are aligned.
  static SINTER_DEVICE int misalignment(const Coord& c) {
    if constexpr (Config::misaligned)
      return static_cast<int>(locate<typename Config::AlignedBy>(c).offset & (width - 1));
    else
      return 0;
  }
};

// The packs of a tile that reach out of the domain: of each column at most the one at its start and
// the one at its end. A thread has an element, neighbours those beside it.
template <class Config, class Body, class Staged, class Corner, class Args>
SINTER_DEVICE void turn_ends(const Args& args, const Corner& corner, const Staged& staged) {
  using S = Shape<Config>;
  constexpr int width = S::width;
#pragma unroll 1
  for (int number = static_cast<int>(threadIdx.x); number < 2 * width * corner.columns;
       number += Config::threads) {
    const int e = number % width, column = number / (2 * width);
    auto c = corner.c;
    c.at[Config::across] += column;
    const int misalignment = S::misalignment(c);
    const auto start = c.at[Config::along] - misalignment;
    const auto left = S::extent_along - start;  // to the domain's end
    const bool ends = number / width % 2 != 0;
    if (ends ? left >= S::rows : start >= 0) continue;
    const int pack = ends ? static_cast<int>(left) / width : 0;
    c.at[Config::along] = start + pack * width + e;
    // A pack that both ends lie in is the first.
    if (c.at[Config::along] < 0 || c.at[Config::along] >= S::extent_along) continue;
    if (ends && start < 0 && pack == 0) continue;
    typename Body::template Fragment<1> fragment;
    Body::fetch(args, c, fragment);
    Body::gather(staged, Spot{pack, column, misalignment - e}, fragment);
    draw_numbers<Body>(args, c, fragment);
    Body::element(args, c, 0, fragment);
    Body::flush(args, c, fragment);
  }
}

// One tile. At the edges of the domain, threads do without the vectors that lie outside.
template <class Config, class Body, class Staged, class Corner, class Args>
SINTER_DEVICE void turn(const Args& args, const Corner& corner, Staged& staged) {
  using S = Shape<Config>;
  constexpr int width = Config::width, count = Corner::whole ? Config::unroll : 1;
  constexpr bool all_at_once = Corner::whole && count == S::rounds;
  typename S::Coord c[count];
  typename Body::template Fragment<width> fragment[count];
  Spot spot[count];
  const auto inside = [&](unsigned number, const Spot& at, const typename S::Coord& c) {
    if (S::vectors % Config::threads != 0 && number >= S::vectors) return false;
    if (Corner::whole) return true;
    if (Config::misaligned &&
        (c.at[Config::along] < 0 || c.at[Config::along] + width > S::extent_along))
      return false;
    return (Config::misaligned || at.pack * width < corner.rows) && at.column < corner.columns &&
           at.matrix < corner.matrices;
  };
  const auto for_vectors = [&](int from, const auto& f) {
#pragma unroll
    for (int u = 0; u < count; ++u) {
      const unsigned number = (from + u) * Config::threads + threadIdx.x;
      spot[u] = spot_of<Config>(number);
      c[u] = corner.c;
      c[u].at[Config::across] += spot[u].column;
      if constexpr (S::matrices > 1) c[u].at[S::through] += spot[u].matrix;
      spot[u].misalignment = S::misalignment(c[u]);
      c[u].at[Config::along] += spot[u].pack * width - spot[u].misalignment;
      if (inside(number, spot[u], c[u])) f(u);
    }
  };
  const auto fetch = [&](int from) {
    for_vectors(from, [&](int u) { Body::fetch(args, c[u], fragment[u]); });
  };

  if constexpr (all_at_once) fetch(0);  // in flight together with what is staged
  if constexpr (Config::staged_loads) {
    Body::stage(args, corner, staged);
    wait_for_copies();
    __syncthreads();
  }
#pragma unroll 1
  for (int k = 0; k < S::rounds; k += count) {
    if constexpr (!all_at_once) fetch(k);
    for_vectors(k, [&](int u) {
      if constexpr (Config::staged_loads) Body::gather(staged, spot[u], fragment[u]);
      draw_numbers<Body>(args, c[u], fragment[u]);
#pragma unroll
      for (int e = 0; e < width; ++e)
        Body::element(args, neighbour<Config::along>(c[u], e), e, fragment[u]);
      if constexpr (Config::staged_stores) Body::scatter(staged, spot[u], fragment[u]);
      Body::flush(args, c[u], fragment[u]);
    });
  }
  if constexpr (Config::misaligned && !Corner::whole) turn_ends<Config, Body>(args, corner, staged);
  if constexpr (Config::staged_stores) {
    __syncthreads();
    Body::unstage(args, corner, staged);
  }
}

template <class Config, class Body, class Staged, class Args>
SINTER_DEVICE void run(const Args& args) {
  hardware::grid_dependency_wait();
  using S = Shape<Config>;
  __shared__ Staged staged;
  const auto c = S::corner(block_number<Config>());
  using Whole = Corner<typename S::Coord, true>;
  using Part = Corner<typename S::Coord, false>;
  if constexpr (S::even) {
    turn<Config, Body>(args, Whole{c, S::rows, S::columns, S::matrices}, staged);
  } else {
    const auto rows = S::extent_along - c.at[Config::along];
    const auto columns = S::extent_across - c.at[Config::across];
    const bool begins = !Config::misaligned || c.at[Config::along] >= S::width;
    const auto matrices = S::matrices > 1 ? S::extent_through - c.at[S::through] : 1;
    const auto at_most = [](auto count, int most) {
      return static_cast<int>(count < most ? count : most);
    };
    if (begins && rows >= S::rows && columns >= S::columns && matrices >= S::matrices)
      turn<Config, Body>(args, Whole{c, S::rows, S::columns, S::matrices}, staged);
    else
      turn<Config, Body>(args,
                         Part{c, at_most(rows, S::rows), at_most(columns, S::columns),
                              at_most(matrices, S::matrices)},
                         staged);
  }
}

}  // namespace sinter::tiled
