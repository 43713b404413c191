#include "schedule/pointwise/pointwise.hpp"

#include <algorithm>
#include <cmath>

#include "plan/access.hpp"
#include "schedule/pointwise/tiling_as.hpp"
#include "schedule/schedule_parts.hpp"
#include "schedule/scheduled_kernel.hpp"

namespace sinter {
namespace {

// Bytes at a vector of what few others share: what is fetched of it or, where that is less, what is
// written.
int own_bytes(const KernelSpec& spec, const Packing& packing, int shared) {
  int written = 0;
  for (std::size_t i = 0; i < spec.ports.size(); ++i)
    if (spec.ports[i].written && packing.ports[i].kind == PortPack::Kind::pack)
      written += pack_bytes(spec.ports[i], packing.width);
  return std::max({packing.fetched_bytes - shared, written, 1});
}

// Bytes at a vector of what is the same in all rows (scales of channels), or in all of an image.
int column_bytes(const KernelSpec& spec, const Packing& packing, bool of_image) {
  const int rank = spec.extent.size();
  int bytes = 0;
  for (std::size_t i = 0; i < spec.ports.size(); ++i) {
    const KernelPort& p = spec.ports[i];
    if (rank < 2 || p.written || packing.ports[i].kind != PortPack::Kind::pack) continue;
    if (of_image ? p.access.via.empty() && !moves_along(p.access, rank - 2)
                 : elements_reached(spec.extent, p.access) <= spec.extent[rank - 1])
      bytes += pack_bytes(p, packing.width);
  }
  return bytes;
}

// Whether all that is read is shared by so many vectors that the caches serve it. Its bytes do not
// count then: threads with little to store do little for their index. (Sums of a table's rows and
// columns of 500 bf16, 300 x 400 of them, on an H200: 71.7 us with a vector of a thread, 32.3 with
// four. Next to what memory delivers, a mask of columns costs no more: 126 and 130.5 us.)
bool reads_shared(const KernelSpec& spec, const Packing& packing) {
  constexpr double kShared = 8;
  const double all = elements(spec.extent, 0, spec.extent.size());
  for (std::size_t i = 0; i < spec.ports.size(); ++i)
    if (const KernelPort& p = spec.ports[i];
        !p.written && has_pack(packing.ports[i]) &&
        (!p.access.via.empty() ||
         kShared * static_cast<double>(elements_reached(spec.extent, p.access)) > all))
      return false;
  return spec.gathers.empty();
}

// Where columns share most of what is fetched, a thread's vectors lie in one column, which it
// fetches once. (Inference of a batchnorm with 256 channels on an H200: 315 -> 279 us.)
void share_columns(const KernelSpec& spec, int cost, PointwiseConfig& s) {
  constexpr int kTogether = 4, kMostThreads = 384;
  const int rank = spec.extent.size();
  const std::int64_t row = rank > 1 ? spec.extent[rank - 1] / s.packing.width : 0;  // vectors
  if (row == 0 || kTogether * cost > kMostCode) return;
  for (int threads = 256; threads <= kMostThreads; threads += 32) {
    if (threads % row != 0) continue;
    const bool of_image = rank > 2 && spec.extent[rank - 2] % (kTogether * threads / row) == 0;
    const int columns = column_bytes(spec, s.packing, of_image),
              own = own_bytes(spec, s.packing, columns);
    if (columns <= own || kTogether * own > 2 * kFlightBytes) continue;
    s.threads = threads;
    s.unroll = kTogether;
    return;
  }
}

// Short rows of results that begin anywhere in memory are written as they are aligned: of wider
// packs each thread stores its elements in turn, and every store reaches all lines. (96 and 33
// channels joined, pixels behind each other, 16 x 56 x 56 of bf16 on an H200: 32.9 us with packs of
// eight of the 96.)
int width_of_short_stores(const KernelSpec& spec, const Packing& packing) {
  int width = packing.width;
  for (std::size_t i = 0; i < spec.ports.size(); ++i) {
    const KernelPort& p = spec.ports[i];
    const PortPack& pack = packing.ports[i];
    if (p.written && pack.kind == PortPack::Kind::pack && p.together == 1 &&
        pack.aligned * info(p.type).bytes <= kNarrowMove)
      width = std::min(width, pack.aligned);
  }
  return width;
}

PointwiseConfig choose_pointwise(const KernelSpec& spec, const DeviceModel& device) {
  PointwiseConfig s;
  s.wide_index = needs_wide_index(spec);
  const int rank = spec.extent.size();
  if ((s.tiling = choose_tiling(spec, widest_pack(spec), device, s.packing)).on) {
    s.threads = s.tiling.threads;
    s.aligned_by = s.tiling.aligned_by;
    const int most = kMostCode / std::max(1, element_cost(spec, spec.body) * s.packing.width);
    for (int u = 1; u <= s.tiling.rounds && u <= std::min(most, 16); ++u)
      if (s.tiling.rounds % u == 0) s.unroll = u;
    s.grid = clamp_grid(s.tiling.tiles);
    return s;
  }
  const int widest = widest_pack(spec);
  s.packing = choose_packing(spec, rank - 1, widest, true);
  if (s.packing.width == 1) choose_wide_stores(spec, widest, s.packing);
  const bool cut = moves_narrowly(spec, s.packing) &&
                   choose_misaligned_packs(spec, widest, s.packing, s.aligned_by, s.vectors);
  if (const int width = width_of_short_stores(spec, s.packing); !cut && width < s.packing.width)
    s.packing = choose_packing(spec, rank - 1, width, true);
  const double vectors = cut ? elements(spec.extent, 0, rank - 1) * static_cast<double>(s.vectors)
                             : elements(spec.extent, 0, rank) / s.packing.width;
  const int cost = element_cost(spec, spec.body) * s.packing.width;
  const int own = own_bytes(spec, s.packing,
                            reads_shared(spec, s.packing) ? s.packing.fetched_bytes
                                                          : column_bytes(spec, s.packing, false));
  // In rows that start anywhere a thread has one vector: two are no gain. (Joined odd columns on an
  // H200: 56.2 us with two, 55.1 with one, which compiles in 30 ms less.)
  if (s.aligned_by < 0) {
    s.unroll = power_of_two_to(std::min(kMostCode / std::max(cost, 1), kFlightBytes / 2 / own), 16);
    share_columns(spec, cost, s);
  }
  while (s.unroll > 1 && vectors / (s.threads * s.unroll) < device.enough_ctas) s.unroll /= 2;
  // Few results, of which each may read a large window, are spread over the SMs.
  const bool resamples = std::any_of(spec.gathers.begin(), spec.gathers.end(),
                                     [](const Gather& g) { return g.resamples(); });
  while (resamples && s.threads > 32 && vectors / (s.threads * s.unroll) < device.sms)
    s.threads /= 2;
  s.grid = clamp_grid(std::ceil(vectors / (s.threads * s.unroll)));
  return s;
}

// Whether memory is read, beside single elements.
bool reads(const KernelSpec& spec) {
  return !spec.gathers.empty() ||
         std::any_of(spec.ports.begin(), spec.ports.end(), [&](const KernelPort& p) {
           return !p.written && elements_reached(spec.extent, p.access) > 1;
         });
}

double microseconds(const KernelSpec& spec, const PointwiseConfig& s, const DeviceModel& device) {
  // Of the bandwidth, what a kernel reaches that reads odd rows element by element, fitted on an
  // H200.
  constexpr double kOneByOne = 0.65;
  // Of what a copy reaches, stores alone. (Zeros on an H200: 205.5 MB in 45.9 us, 102.8 MB in 24.0;
  // as many bytes copied in 51.9.)
  constexpr double kStores = 1.13;
  const bool one_by_one = s.packing.width == 1 && !s.tiling.on;
  const double reached = one_by_one ? kOneByOne : reads(spec) ? 1 : kStores;
  return device.copy_microseconds(bytes_moved(spec) / reached);
}

}  // namespace

std::optional<PointwiseConfig> schedule_as(const PointwiseConfig& decided, const KernelSpec& spec,
                                           const DeviceModel& device) {
  const bool blocks = decided.tiling.on && !decided.tiling.loads && !decided.tiling.stores;
  if (decided.tiling.flat || blocks || decided.aligned_by >= 0 || !spec.gathers.empty()) return {};
  const int rank = spec.extent.size(), width = decided.packing.width;
  PointwiseConfig s = decided;
  Packing own;
  if (decided.tiling.on)
    s.tiling = tiling_as(decided.tiling, spec, width, own);
  else
    own = choose_packing(spec, rank - 1, width, true);
  if (!holds(decided.packing, own)) return {};
  s.wide_index |= needs_wide_index(spec);
  const double vectors = elements(spec.extent, 0, rank) / width;
  s.grid =
      clamp_grid(decided.tiling.on ? s.tiling.tiles : std::ceil(vectors / (s.threads * s.unroll)));
  s.microseconds = microseconds(spec, s, device);
  return s;
}

PointwiseConfig schedule_pointwise(const KernelSpec& spec, const DeviceModel& device) {
  PointwiseConfig s = choose_pointwise(spec, device);
  s.microseconds = microseconds(spec, s, device);
  return s;
}

ScheduledKernel schedule(const PointwiseSpec&, const KernelSpec& spec, const PlanContext& context) {
  return scheduled(spec, schedule_pointwise(spec, context.device));
}

}  // namespace sinter
