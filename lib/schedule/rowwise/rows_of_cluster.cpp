// Rows as the fastest index that are too long for a block's registers: a cluster holds them in its
// shared memory, as many rows side by side as whole lines of memory have.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "plan/access.hpp"
#include "schedule/rowwise/rowwise_parts.hpp"

namespace sinter {
namespace {

constexpr int kFewestThreads = 128, kMostThreadsOf = 512, kMostSide = 256;  // of a block; rows
constexpr int kThreadsOfSm = 768;  // with 80 registers each, as eight rows of a thread need
constexpr int kMostVectors = 64;   // of a thread

struct ClusterShape {
  int rows = 0, lanes = 0, blocks = 0;  // side by side; along the rows; of a cluster
  int threads = 0, each = 0;            // of a block; vectors of a thread
  int bytes = 0;                        // that a block holds
  int beside = 0;                       // blocks of an SM
  double microseconds = 0;
};

// What memory and instructions take, and what each wave of blocks waits for. An SM that has several
// blocks computes with one while another one waits for memory. Fitted to group norms of 5 to 130 MB
// on an H100.
double microseconds(const ClusterShape& s, const KernelSpec& spec, double blocks, int line_bytes,
                    const DeviceModel& device) {
  constexpr double kWave = 2.5, kOfPhase = 2, kCostly = 8, kEnoughThreads = 640;
  const double at_once = device.clusters_at_once[static_cast<std::size_t>(s.blocks - 1)] * s.blocks,
               sms = std::min(blocks, at_once), waves = std::ceil(blocks / (at_once * s.beside)),
               line = line_bytes >= 128  ? 1
                      : line_bytes >= 64 ? 1.2
                      : line_bytes >= 32 ? 1.8
                                         : 3,
               threads = s.threads * std::min<double>(s.beside, std::ceil(blocks / at_once));
  const double memory =
      bytes_moved(spec) * line / std::min(device.memory_bandwidth, sms * device.sm_bandwidth / 2);
  const double of_element = kOfPhase * spec.rowwise().phases + element_cost(spec, spec.body) / 2.0 +
                            (computes_costly(spec) ? kCostly : 0);
  const double instructions = elements(spec.extent, 0, spec.extent.size()) * of_element /
                              (sms * device.ordinary_operations / 2 * device.clock *
                               std::min(1.0, threads / kEnoughThreads));
  const double several = s.beside > 1 && blocks > at_once ? 0.5 : 1;
  return std::max(memory, instructions) + several * std::min(memory, instructions) + waves * kWave;
}

// Whether that is faster than several kernels, which read once more, from memory or the
// second-level cache: where blocks are many, or hold little, so that what one loads while others
// compute or wait makes up for it. (On an H100, us of several kernels and of one: group norms with
// channels last of 16 x 320 x 64 x 64 in 512 blocks of 82 KB 48.5 and 37.3, 32 x 128 x 56 x 56 in
// 512 of 50 KB 28.5 and 21.7, 64 x 64 x 28 x 28 in 256 of 25 KB 10.4 and 8.1; but 8 x 320 x 64 x 64
// with swish in 256 of 82 KB 24.1 and 29.3, 2 x 512 x 64 x 64 in 128 of 65 KB 11.4 and 12.6, a
// batch norm of 256 x 512 x 7 x 7 in 128 of 100 KB 15.9 and 21.5.)
bool pays(double blocks, int bytes, int line_bytes) {
  constexpr int kLittle = 28 << 10, kSome = 56 << 10, kLine = 128;
  constexpr double kFew = 200, kBlocks = 192, kMany = 448;
  if (bytes <= kLittle && blocks <= kFew) return line_bytes >= kLine / 4;
  return line_bytes >= kLine && blocks >= (bytes <= kSome ? kBlocks : kMany);
}

}  // namespace

bool hold_by_cluster(const KernelSpec& spec, const DeviceModel& device, RowwiseConfig& s) {
  const RowwiseSpec& of = spec.rowwise();
  const int width = s.packing.width, beside = static_cast<int>(spec.extent[of.outer_rank - 1]);
  const int vector = bytes_ahead(spec, s.packing);
  const VectorBytes bytes = vector_bytes(spec, s.packing);
  const bool narrow_sums = std::ranges::all_of(of.reductions, [](const KernelReduction& r) {
    return partial_type(r.mode, r.arithmetic) == DataType::f32;
  });
  const bool draws = std::ranges::any_of(
      spec.body.statements, [](const Statement& x) { return x.kind == StatementKind::random; });
  if (!device.has_clusters || !has_later_elements(spec) || !narrow_sums || draws || vector == 0 ||
      bytes.weights > 0 || bytes.late > 0 ||
      (of.group == 1 && width * s.packing.narrowest < kMoveBytes / 2))
    return false;
  const double rows = elements(spec.extent, 0, of.outer_rank),
               columns = elements(spec.extent, of.outer_rank, spec.extent.size());
  const int unit = std::lcm(static_cast<int>(of.group), width);
  ClusterShape best;
  for (int side = unit; side <= std::min(beside, kMostSide); side += unit) {
    if (beside % side != 0) continue;
    for (int threads = kFewestThreads; threads <= kMostThreadsOf; threads += 32)
      for (int blocks = 1; blocks <= 8; blocks *= 2) {
        if (threads % (side / width) != 0 || threads < side) continue;
        ClusterShape shape{
            .rows = side, .lanes = threads / (side / width), .blocks = blocks, .threads = threads};
        const double each = std::ceil(columns / (shape.lanes * blocks));
        if (each > kMostVectors || shape.lanes * blocks > columns) continue;
        shape.each = static_cast<int>(each);
        shape.bytes = threads * shape.each * vector;
        // What threads have of their rows meets in two buffers.
        const int shared = shape.bytes + 2 * threads * width * 4 + (4 << 10);
        shape.beside = std::min(kThreadsOfSm / threads, device.shared_per_sm / shared);
        if (shape.beside == 0 || shared > device.shared_per_cta) continue;
        const int line_bytes = side * s.packing.narrowest;
        const double all = rows / side * blocks;
        if (!pays(all, shape.bytes, line_bytes)) continue;
        const double idle = shape.lanes * blocks * each / columns;
        shape.microseconds = idle * microseconds(shape, spec, all, line_bytes, device);
        if (best.rows == 0 || shape.microseconds < best.microseconds) best = shape;
      }
  }
  if (best.rows == 0) return false;
  s.resident = true;
  s.rows_per_block = best.rows / width;
  s.threads_per_row = best.lanes;
  s.threads = best.threads;
  s.blocks_per_row = best.blocks;
  s.least_blocks = std::max(1, kThreadsOfSm / best.threads);
  s.pipeline_stages = 1;
  s.stage_bytes = best.bytes;
  s.prefetch = true;
  s.recompute = true;
  s.unroll = 1;
  s.microseconds = device.launch_microseconds + best.microseconds;
  return true;
}

}  // namespace sinter
