// The pointwise family: Body::element runs once for every index of the domain. A thread holds
// Config::width neighbours along the last index as one vector: it fetches what several vectors
// read, so that their loads are in flight at once, computes, and writes them.
#pragma once
#include "sinter/device/core/math.cuh"
#include "sinter/device/core/pack.cuh"
#include "sinter/device/family/block_order.cuh"

namespace sinter::pointwise {

template <class Config>
using Coord = Coordinates<typename Config::Index, typename Config::Extent>;

// What follows when all that a vector needs has been fetched.
template <class Config, class Body, int width, class Args, class Coord, class Fragment>
SINTER_DEVICE void compute(const Args& args, const Coord& c, Fragment& fragment) {
  draw_numbers<Body>(args, c, fragment);
#pragma unroll
  for (int e = 0; e < width; ++e)
    Body::element(args, neighbour<Config::Extent::size - 1>(c, e), e, fragment);
  Body::flush(args, c, fragment);
}

// `count` vectors of `width` elements each; the first starts at element `first`, each other `step`
// elements after the one before it. Where these are whole rows, the compiler sees that all vectors
// have the same last index and, where a block's rows surely are of one image, that only the index
// before it differs: what depends on the others alone is fetched once.
template <class Config, class Body, int width, int count, long long step, class Args>
SINTER_DEVICE void vectors(const Args& args, typename Config::Index first) {
  using Index = typename Config::Index;
  using Extent = typename Config::Extent;
  constexpr int last = Extent::size - 1;
  constexpr bool has_row = last > 0 && Extent::literals(last, 1);
  constexpr long long row = has_row && Extent::at(last) > 0 ? Extent::at(last) : step + 1;
  constexpr Index rows = static_cast<Index>(step / row);
  constexpr bool whole_rows = count > 1 && step % row == 0;
  constexpr bool one_image = whole_rows && last > 1 && Extent::literals(last - 1, 1) &&
                             Extent::at(last - 1) % (count * rows) == 0;
  Coord<Config> c[count];
  typename Body::template Fragment<width> fragment[count];
#pragma unroll
  for (int u = 0; u < count; ++u) {
    if constexpr (one_image) {
      unravel<0, Extent::size>(first, c[u]);
      c[u].at[last - 1] += u * rows;
    } else if constexpr (whole_rows) {
      const Index number = quotient(first, row);
      unravel<0, last>(number + u * rows, c[u]);
      c[u].at[last] = first - number * static_cast<Index>(row);
    } else {
      unravel<0, Extent::size>(first + u * static_cast<Index>(step), c[u]);
    }
    Body::fetch(args, c[u], fragment[u]);
  }
#pragma unroll
  for (int u = 0; u < count; ++u) compute<Config, Body, width>(args, c[u], fragment[u]);
}

template <class Config, class Body, class Args>
SINTER_DEVICE void run_block(const Args& args) {
  using Index = typename Config::Index;
  constexpr int width = Config::width;
  using Extent = typename Config::Extent;
  const Index elements = Extent::template multiplied<Index>(0, Extent::size);
  const Index whole = elements - elements % width;                    // in vectors of full width
  constexpr Index row = static_cast<Index>(Config::threads) * width;  // one vector a thread
  constexpr Index tile = row * Config::unroll;
  const Index lane = static_cast<Index>(threadIdx.x);
  const unsigned block = block_number<Config>();
  const Index first = static_cast<Index>(block) * tile + lane * width;
  if (static_cast<Index>(block + 1) * tile <= whole) {
    vectors<Config, Body, width, Config::unroll, row>(args, first);
  } else if constexpr (!Extent::literal || elements % tile != 0) {
    if constexpr (!Extent::literal || Config::unroll > 1 || whole % row != 0)
#pragma unroll 1
      for (Index i = first; i < whole; i += row) vectors<Config, Body, width, 1, row>(args, i);
    if constexpr (width > 1 && (!Extent::literal || elements != whole))
      if (block + 1 == gridDim.x && whole + lane < elements)
        vectors<Config, Body, 1, 1, row>(args, whole + lane);
  }
}

template <class Config, class Body, class Args>
SINTER_DEVICE void run(const Args& args) {
  hardware::grid_dependency_wait();
  run_block<Config, Body>(args);
}

// Beside the kernel before it (PointwiseSpec::beside_before), whose blocks leave SMs one by one at
// their end. (The zeros of a data gradient of 256 x 256 x 56 x 56, 512 filters of 1 x 1, stride 2,
// beside its products on an H200: 159.5 us in all, 155.9 so.)
template <class Config, class Body, class Args>
SINTER_DEVICE void run_beside(const Args& args) {
  run_block<Config, Body>(args);
  if (blockIdx.x + 1 == gridDim.x) hardware::end_behind_kernel_before();
}

}  // namespace sinter::pointwise
