// Tiles of other plans of a class of extents.
#pragma once
#include "schedule/pointwise/tiling.hpp"

namespace sinter {

// The same tiles, which are not `flat`, in a spec whose extents differ in other indices than a tile
// has. `packing` gets the ports, of which the caller compares what was decided.
Tiling tiling_as(const Tiling& decided, const KernelSpec& spec, int width, Packing& packing);

}  // namespace sinter
