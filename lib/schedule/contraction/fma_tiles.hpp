// The tiles of a contraction in f32 on CUDA cores, by a model of what limits them.
#pragma once
#include <string>
#include <vector>

#include "schedule/contraction/mma_tiles.hpp"

namespace sinter {

std::string to_text(const MmaTile& t);

// Blocks that an SM holds, by shared memory and registers.
int fma_blocks(const MmaWork& w, const MmaTile& t, const DeviceModel& device);

// Those that are legal, from launch to end but for memory. None where each makes too much code.
std::vector<EstimatedMmaTile> fma_tiles(const MmaWork& w, const DeviceModel& device);

}  // namespace sinter
