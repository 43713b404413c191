// The copy family: Body::element runs once for every index of the domain, in a thread of its own.
#pragma once
#include "sinter/device/core/math.cuh"
#include "sinter/device/core/pack.cuh"

namespace sinter::copying {

template <class Config, class Body, class Args>
SINTER_DEVICE void run(const Args& args) {
  using Index = typename Config::Index;
  using Extent = typename Config::Extent;
  hardware::grid_dependency_wait();
  const Index i =
      static_cast<Index>(blockIdx.x) * Config::threads + static_cast<Index>(threadIdx.x);
  if (i >= Extent::template multiplied<Index>(0, Extent::size)) return;
  Coordinates<Index, Extent> c;
  unravel<0, Extent::size>(i, c);
  Body::element(args, c);
}

}  // namespace sinter::copying
