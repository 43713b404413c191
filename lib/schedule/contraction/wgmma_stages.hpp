// Shared memory of the tiles in wgmma_tiles.hpp: how many stages there is room for.
#pragma once
#include "schedule/contraction/wgmma_tiles.hpp"

namespace sinter {

inline constexpr int kMostStages = 16;

inline double clusters_at_once(const DeviceModel& device, int blocks) {
  return device.clusters_at_once[static_cast<std::size_t>(blocks - 1)];
}

// No more than kMostStages; `blocks` share an SM.
int stages_that_fit(const TileProblem& p, const Tile& t, int blocks, const DeviceModel& device);
// Of a filter gradient whose pixels stay.
int gradient_stages_that_fit(const TileProblem& p, const Tile& t, const DeviceModel& device);

}  // namespace sinter
