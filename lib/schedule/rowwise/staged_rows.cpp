// Short rows that start anywhere in memory, brought to shared memory by the run of a block
// (codegen/device/family/staged_rows.cuh).
#include <algorithm>
#include <cmath>

#include "plan/liveness.hpp"
#include "schedule/rowwise/rowwise_parts.hpp"

namespace sinter {
namespace {

// The rows of the port follow one another in memory without gaps, from an aligned address on.
bool follows(const KernelSpec& spec, const KernelPort& p) {
  const Access& a = p.access;
  const int bytes = info(p.type).bytes;
  if (p.together != 1 || bytes > 4 || !a.via.empty() || !a.windows.empty() ||
      p.alignment < kMoveBytes || a.offset * bytes % kMoveBytes != 0)
    return false;
  std::int64_t next = 1;
  for (int i = spec.extent.size() - 1; i >= 0; --i) {
    if (spec.extent[i] > 1 && a.stride[i] != next) return false;
    next *= spec.extent[i];
  }
  return true;
}

}  // namespace

std::vector<int> staged_ports(const KernelSpec& spec, const Packing& packing) {
  const bool stores = std::ranges::any_of(
      spec.body.statements, [](const Statement& s) { return is_store(s) && !s.per_row; });
  if (stores || !spec.gathers.empty() || spec.rowwise().any_length || spec.rowwise().segment > 0 ||
      !spec.cross_row_reductions.empty())
    return {};
  std::vector<int> ports = ports_of_rows(spec, packing);
  for (int p : ports)
    if (packing.ports[static_cast<std::size_t>(p)].late ||
        !follows(spec, spec.ports[static_cast<std::size_t>(p)]))
      return {};
  return ports;
}

// A thread that has a row to itself exchanges nothing, and what starts anywhere is loaded in whole
// pieces all the same. (On an H200, by 8 threads that load element by element and so, us: sums of 3
// M rows of 17 f16 42.1 and 27.7, 10 M of 5 bf16 95.3 and 48.4, 1.5 M of 33 36.3 and 25.1, 800,000
// of 63 30.8 and 26.5, 6 M of 17 f8 65.3 and 52.9; 1.5 M of 17 f32 26.7 and 25.9; logarithms of
// sums of exponentials, 3 M of 17 88.0 and 47.8, 1 M of 49 by two threads 48.8 and 43.8. Longer
// rows gain nothing: 400,000 of 131 31.9 and 32.7 by eight threads.)
bool stage_rows(const KernelSpec& spec, const DeviceModel& device, double rows, double vectors,
                RowwiseConfig& s) {
  constexpr int kNarrow = 4, kBlockBytes = 24 << 10;  // of a pack; of a block's rows
  constexpr int kMostThreads = 256, kFewestThreads = 64, kFewestRows = 16;
  constexpr double kMostRow = 64, kMostOfSeveral = 32;  // vectors; of a thread, of several phases
  constexpr double kMostHeld = 192, kMostPrefetched = 128;  // bytes
  const int width = s.packing.width;
  if (s.aligned_by >= 0 || s.blocks_per_row > 1 || s.persistent_ctas > 0 ||
      width * s.packing.narrowest > kNarrow || rows == 0 || vectors == 0 || vectors > kMostRow)
    return false;
  std::vector<int> ports = staged_ports(spec, s.packing);
  if (ports.empty()) return false;
  const int lanes = has_later_elements(spec) && vectors > kMostOfSeveral ? 2 : 1;
  double row_bytes = 0;
  for (int p : ports)
    row_bytes += vectors * width * info(spec.ports[static_cast<std::size_t>(p)].type).bytes;
  int threads = kMostThreads;
  while (threads > kFewestThreads && (threads / lanes * row_bytes > kBlockBytes ||
                                      rows / (threads / lanes) < device.enough_ctas))
    threads /= 2;
  const int together = threads / lanes;
  if (together < kFewestRows || together * row_bytes > kBlockBytes ||
      rows / together < device.enough_ctas)
    return false;
  s.threads = threads;
  s.threads_per_row = lanes;
  s.rows_per_block = together;
  s.rows_at_once = 1;
  s.least_blocks = 1;
  // In registers where all that the thread has of its row fits.
  const VectorBytes bytes = vector_bytes(spec, s.packing);
  const double each = std::ceil(vectors / lanes);
  const int cost = width * element_cost(spec, spec.body),
            all = bytes.row + bytes.weights + bytes.late;
  s.resident = each * std::max(bytes.row, bytes.kept) <= kMostHeld && each * cost <= kMostCode;
  s.recompute = s.resident && has_later_elements(spec) && each * width > kKeptValues;
  s.prefetch = s.resident && each * all <= kMostPrefetched;
  s.unroll = s.resident
                 ? 1
                 : power_of_two_to(
                       std::min(kMostCode / std::max(cost, 1), kFlightBytes / std::max(all, 1)), 4);
  s.staged = std::move(ports);
  s.grid = clamp_grid(std::ceil(rows / together));
  return true;
}

}  // namespace sinter
