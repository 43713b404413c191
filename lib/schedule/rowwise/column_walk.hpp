// Rowwise kernels whose values are also reduced down the columns: numbers fitted on an H200 that
// planning (how many blocks loop over the rows) and scheduling (how large they are) share.
#pragma once
#include <cstddef>
#include <cstdint>

#include "target/device_model.hpp"

namespace sinter {

// Of rows up to this long a large block takes many at once, and one block an SM is enough.
inline constexpr int kShortRow = 256;
// Threads of an SM's blocks with cross-row reductions; of light ones, in 48 registers each.
inline constexpr int kColumnThreads = 1024, kLightColumnThreads = 1280;
// Blocks of a cluster that share each row where one block's registers would not hold its columns'
// running results.
inline constexpr int kColumnCluster = 8;  // at the most
inline constexpr std::int64_t kColumnsOfCta = 16384, kSeveralOfCta = 12288;
inline int column_cluster(std::int64_t columns, std::size_t reductions, const DeviceModel& device) {
  const std::int64_t held = reductions > 1 ? kSeveralOfCta : kColumnsOfCta;
  int blocks = 1;
  while (device.has_clusters && blocks < kColumnCluster && columns > blocks * held) blocks *= 2;
  return blocks;
}
// Columns that a kernel may sum with its rows.
inline std::int64_t most_columns(const DeviceModel& device) {
  return (device.has_clusters ? kColumnCluster : 2) * kSeveralOfCta;
}

}  // namespace sinter
