// What tiles of warpgroups (wgmma) take longer, or less long, than clocks and bytes say, as
// measured.
#pragma once
#include "schedule/contraction/wgmma_tiles.hpp"

namespace sinter {

// A factor of the time.
double hindrance(const TileProblem& p, const Tile& t);

}  // namespace sinter
