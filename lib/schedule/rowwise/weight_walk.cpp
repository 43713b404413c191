// Rows that share weights as long as they are: blocks loop over the rows and keep their weights.
//
// Weights that the blocks of an SM do not hold in its first-level cache come from the second-level
// one for each row, all blocks asking for the same lines at once: 2 TB/s on an H200, half of what
// memory gives. (Layernorms of bf16 with f32 weights, rows that each block fetches weights for, and
// so: 256 x 37632 41.0 us and 13.7, 64 x 100352 25.5 and 13.5, 512 x 37632 73.4 and
// 25.1, with bf16 weights 34.8 and 24.8, 128 x 150528 82.2 and 28.3.)
#include <algorithm>
#include <cmath>

#include "plan/access.hpp"
#include "plan/liveness.hpp"
#include "schedule/rowwise/rowwise_parts.hpp"

namespace sinter {
namespace {

// What a step takes beside its bytes where blocks of a large cluster meet for each reduction. (256
// x 37632 in clusters of 2, 4 and 8: 4 steps of 2.7 us, 9 of 1.6, 10 of 1.5.)
constexpr double kMeet = 0.5;             // microseconds
constexpr double kBytesAhead = 64 << 10;  // bytes of an SM
constexpr int kMostHeld = 5, kMostRing = 160 << 10;
constexpr double kBusyWalk = 0.8;

}  // namespace

bool shares_long_weights(const KernelSpec& spec, const Packing& packing, double vectors) {
  constexpr double kCached = 128 << 10, kTraffic = 8 << 20;  // bytes: of an SM; of all rows
  const VectorBytes bytes = vector_bytes(spec, packing);
  return has_later_elements(spec) && vectors * bytes.weights > kCached &&
         bytes.weights >= 2 * bytes.row &&
         elements(spec.extent, 0, spec.rowwise().outer_rank) * vectors * bytes.weights >= kTraffic;
}

bool walk_with_weights(const KernelSpec& spec, const DeviceModel& device, double rows,
                       double vectors, RowwiseConfig& s) {
  const VectorBytes bytes = vector_bytes(spec, s.packing);
  const int ahead = bytes_ahead(spec, s.packing);
  if (!device.has_clusters || ahead == 0 || s.aligned_by >= 0 || bytes.late > 0 ||
      spec.rowwise().segment > 0 || spec.rowwise().any_length || computes_doubles(spec) ||
      !shares_long_weights(spec, s.packing, vectors))
    return false;
  const double numbers = (bytes.row + bytes.weights) / 4.0,
               row_time = bytes_moved(spec) / rows / device.memory_bandwidth;
  RowwiseConfig best;
  for (int blocks : {1, 2, 4, 8})
    for (int most = kMostHeld; most >= 1; --most)
      for (int beside : {1, 2}) {
        const double of_block = std::ceil(vectors / blocks);
        if (of_block > most * 1024) continue;
        const int threads = threads_for(of_block, most);
        const double each = std::ceil(of_block / threads),
                     registers = registers_with(device, threads * beside),
                     slot = threads * each * ahead;
        const int stages =
            static_cast<int>(std::clamp(std::ceil(kBytesAhead / (slot * beside)), 2.0, 4.0));
        const int persistent_ctas =
            device.clusters_at_once[static_cast<std::size_t>(blocks - 1)] * beside;
        const double steps = std::ceil(rows / persistent_ctas);
        if (threads < 128 || threads * beside > 1024 || each * numbers + kBesideHeld > registers ||
            busy_share(of_block, each) < kBusyWalk || stages * slot * beside > kMostRing ||
            steps < 2)
          continue;
        const double cost = steps * (kMeet * (1 - 1.0 / blocks) + persistent_ctas * row_time);
        if (best.persistent_ctas > 0 && cost >= best.microseconds) continue;
        best = s;
        best.microseconds = cost;
        best.resident = best.prefetch = best.ahead = true;
        best.blocks_per_row = blocks;
        best.threads_per_row = best.threads = threads;
        best.rows_per_block = best.rows_at_once = best.unroll = 1;
        best.least_blocks = beside;
        best.recompute = each * (numbers + bytes.values) + kBesideValues > registers;
        best.pipeline_stages = stages;
        best.in_flight = stages - 1;
        best.stage_bytes = static_cast<int>(slot);
        best.persistent_ctas = persistent_ctas;
        best.grid = static_cast<std::uint32_t>(persistent_ctas * blocks);
      }
  if (best.persistent_ctas == 0) return false;
  best.microseconds += device.kernel_microseconds();
  s = std::move(best);
  return true;
}

}  // namespace sinter
