// How a pointwise kernel is run: which neighbours move together, in rows or in tiles. A pure
// function of the spec and the device model.
#pragma once
#include <optional>

#include "schedule/launch.hpp"
#include "schedule/packing.hpp"
#include "schedule/pointwise/tiling.hpp"

namespace sinter {

struct PointwiseConfig : Launch {
  int unroll = 1;  // vectors that a thread fetches before it computes
  Packing packing;
  Tiling tiling;
  int aligned_by = -1;  // the port by which packs are aligned where rows start anywhere; -1: none
  std::int64_t vectors = 0;  // with such packs: of a row
};

// With what was decided for another spec of the same structure; nothing where that does not hold.
std::optional<PointwiseConfig> schedule_as(const PointwiseConfig& decided, const KernelSpec& spec,
                                           const DeviceModel& device);
PointwiseConfig schedule_pointwise(const KernelSpec& spec, const DeviceModel& device);

}  // namespace sinter
