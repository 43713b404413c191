// The pointwise family where rows start anywhere in memory: packs along the last index start where
// Config::AlignedBy, the access of what is written, is aligned, so that the first and the last of a
// row may reach out of it. Loads that are aligned elsewhere are cut out of the pieces around them.
#pragma once
#include "sinter/device/core/clipped_pack.cuh"
#include "sinter/device/family/pointwise.cuh"

namespace sinter::pointwise {

// The vector of this number; a row has Config::vectors of them.
template <class Config, class Index>
SINTER_DEVICE ClippedCoordinates<Index, typename Config::Extent> misaligned_vector(Index number) {
  using Extent = typename Config::Extent;
  constexpr int last = Extent::size - 1, width = Config::width;
  constexpr long long vectors = Config::vectors;
  const Index row = quotient(number, vectors);
  ClippedCoordinates<Index, Extent> c;
  unravel<0, last>(row, c);
  c.at[last] = 0;
  c.whole = vectors * width == Extent::at(last);  // every pack of every row is aligned
  const Index misalignment =
      c.whole ? 0 : locate<typename Config::AlignedBy>(c).offset & (width - 1);
  c.at[last] = (number - row * static_cast<Index>(vectors)) * width - misalignment;
  return c;
}

// `count` vectors; each is Config::threads after the one before it.
template <class Config, class Body, int count, class Args, class Index>
SINTER_DEVICE void misaligned_vectors(const Args& args, Index first) {
  constexpr int width = Config::width;
  ClippedCoordinates<Index, typename Config::Extent> c[count];
  typename Body::template Fragment<width> fragment[count];
#pragma unroll
  for (int u = 0; u < count; ++u) {
    c[u] = misaligned_vector<Config>(first + static_cast<Index>(u * Config::threads));
    Body::fetch(args, c[u], fragment[u]);
  }
#pragma unroll
  for (int u = 0; u < count; ++u) {
    Body::cut(fragment[u]);
    compute<Config, Body, width>(args, c[u], fragment[u]);
  }
}

template <class Config, class Body, class Args>
SINTER_DEVICE void run_misaligned(const Args& args) {
  hardware::grid_dependency_wait();
  using Index = typename Config::Index;
  using Extent = typename Config::Extent;
  constexpr long long row = Extent::at(Extent::size - 1);
  constexpr Index all = static_cast<Index>(Extent::product / row * Config::vectors);
  constexpr Index block = static_cast<Index>(Config::threads) * Config::unroll;
  const Index begin = static_cast<Index>(block_number<Config>()) * block;
  const Index first = begin + static_cast<Index>(threadIdx.x);
  if (all % block == 0 || begin + block <= all) {
    misaligned_vectors<Config, Body, Config::unroll>(args, first);
  } else {
#pragma unroll 1
    for (Index i = first; i < all; i += Config::threads)
      misaligned_vectors<Config, Body, 1>(args, i);
  }
}

}  // namespace sinter::pointwise
