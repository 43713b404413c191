// The pointwise family: Body::apply runs once for every index of the domain. Threads stride over
// the domain, neighbours on neighbouring elements. Full tiles are unrolled, so that several
// elements' loads are in flight at once; the rest of the domain goes one by one.
#pragma once
#include "sinter/device/core/index.cuh"
#include "sinter/device/core/math.cuh"

namespace sinter::pointwise {

template <class Config, class Body>
SINTER_DEVICE void run(const Body& body) {
  using Index = typename Config::Index;
  using Coord = Coordinates<Index, typename Config::Extent>;
  constexpr Index elements = static_cast<Index>(Config::Extent::product);
  constexpr Index tile = static_cast<Index>(Config::threads) * Config::unroll;
  const auto element = [&](Index i) {
    Coord c;
    unravel<0, Config::Extent::size>(i, c);
    body.apply(c);
  };
  const Index step = static_cast<Index>(gridDim.x) * tile;
  for (Index first = static_cast<Index>(blockIdx.x) * tile; first < elements; first += step) {
    const Index mine = first + static_cast<Index>(threadIdx.x);
    if (Config::unroll > 1 && elements - first >= tile) {
#pragma unroll
      for (int u = 0; u < Config::unroll; ++u) element(mine + u * Config::threads);
    } else {
#pragma unroll 1
      for (Index i = mine; i < elements && i < first + tile; i += Config::threads) element(i);
    }
  }
}

}  // namespace sinter::pointwise
