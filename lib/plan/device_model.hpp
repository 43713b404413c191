// The device that is planned for where its own numbers are not known: a large GPU.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace sinter {

inline constexpr int kMultiprocessors = 132;
// So many blocks keep each of them busy.
inline constexpr int kEnoughBlocks = 512;
// Column reductions: of rows up to this long a large block takes many at once, and one block a
// multiprocessor is enough.
inline constexpr int kShortRow = 256;
// Threads of a multiprocessor's blocks with column reductions; of light ones, in 48 registers each.
inline constexpr int kColumnThreads = 1024, kLightColumnThreads = 1280;
// Blocks of a cluster that share each row where one block's registers would not hold its columns'
// running results, and how many such clusters there are: a block on each multiprocessor.
inline constexpr int kColumnCluster = 2, kColumnClusters = kMultiprocessors / kColumnCluster;
constexpr int column_cluster(std::int64_t columns, std::size_t reductions,
                             std::string_view architecture) {
  const bool held = columns <= (reductions > 1 ? 12288 : 16384);
  return held || architecture != "sm_90a" ? 1 : kColumnCluster;
}

}  // namespace sinter
