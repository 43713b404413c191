#include <algorithm>
#include <cmath>

#include "schedule/launch.hpp"
#include "schedule/pointwise/tiling_parts.hpp"

namespace sinter::tiles {
namespace {

constexpr int kMisalignedThreads = 256, kMisalignedLanes = 8;

// What the misaligned tile of a port takes; as in codegen/device/core/misaligned_tile.cuh.
int misaligned_bytes(const KernelPort& p, const Tiling& t, int width) {
  const int pitch = (t.tile_across * bytes_of(p) + 31) / 16 * 16, groups = t.tile_along / width + 1;
  return groups * (width * pitch + (width * pitch % 32 == 0 ? 16 : 0)) + kMoveBytes;
}

// Rows of their tile, but of short indices.
int misaligned_rows(int width) { return std::max(64, kMisalignedLanes * width); }

// Tiles of long, narrow memory lines: what lies next to them is fetched in part, too.
void choose_misaligned_tile(const KernelSpec& spec, const Pair& pair, int width,
                            const DeviceModel& device, Tiling& t) {
  const std::int64_t n = spec.extent[pair.along], m = spec.extent[pair.across];
  t.lanes = kMisalignedLanes;
  const int unit = t.lanes * width, early = width - 1;
  int rows = misaligned_rows(width), columns = kSegment / pair.widest_staged;
  const auto tiles = [&] {
    return elements(spec) / static_cast<double>(n * m) *
           std::ceil(static_cast<double>(n + early) / rows) *
           std::ceil(static_cast<double>(m) / columns);
  };
  // Rounds of a block's threads over what is stored, those over what is staged, and what each block
  // waits.
  const auto tile_rounds = [&](int tall, int wide) {
    constexpr double kStaged = 0.5, kWaits = 2;
    const double pieces = wide * pair.widest_staged / kMoveBytes + 2, threads = kMisalignedThreads;
    return std::ceil(tall / width * wide / threads) +
           kStaged * std::ceil((tall + width) * pieces / threads) + kWaits;
  };
  constexpr int kFewTiles = 4, kMostOfUsual = 2;
  while (tiles() < device.enough_ctas && (columns > 32 || rows > unit))
    (rows > unit && rows * pair.widest_direct >= columns * pair.widest_staged ? rows : columns) /=
        2;
  // Tiles of equal size, in steps of what a warp takes side by side. Of short indices one tile less
  // may have what is left of the last one.
  const auto across = [&](int size) { return std::ceil(static_cast<double>(m) / size); };
  const auto along = [&](int size) { return std::ceil(static_cast<double>(n + early) / size); };
  const auto equal = [](double extent, double parts, int step) {
    return static_cast<int>(std::ceil(extent / parts / step) * step);
  };
  const int usual_rows = rows, usual_columns = columns;
  columns = equal(static_cast<double>(m), across(columns), 4);
  double least = 0;
  for (int less_along : {0, 1})
    for (int less_across : {0, 1}) {
      const double a = along(usual_rows) - less_along, b = across(usual_columns) - less_across;
      if (a < 1 || b < 1 || along(usual_rows) > kFewTiles) continue;
      const int tall = equal(static_cast<double>(n + early), a, width),
                wide = equal(static_cast<double>(m), b, 4);
      if (tall * wide > kMostOfUsual * usual_rows * usual_columns) continue;
      const double cost = a * b * tile_rounds(tall, wide);
      if (least == 0 || cost < least) least = cost, rows = tall, columns = wide;
    }
  if (!multiple(rows, unit)) t.lanes = rows / width;
  t.tile_along = rows;
  t.tile_across = columns;
  t.tiles = tiles();
  const int vectors = rows / width * columns;
  t.rounds = (vectors + kMisalignedThreads - 1) / kMisalignedThreads;
  t.threads = kMisalignedThreads;
}

}  // namespace

Choice make_misaligned_choice(const KernelSpec& spec, const std::vector<bool>& used,
                              const Pair& pair, int widest, const DeviceModel& device) {
  Choice c{.tiling = {.along = pair.along, .across = pair.across}};
  Tiling& t = c.tiling;
  c.packing.dim = t.along;
  c.packing.ports.resize(spec.ports.size());
  // The port by which packs are aligned: the widest that is written.
  int most = 1;
  for (std::size_t i = 0; i < used.size(); ++i) {
    const KernelPort& p = spec.ports[i];
    if (!used[i] || common_step(spec, p.access, t.along, 1) != 1) continue;
    most = std::max(most, bytes_of(p));
    if (p.written && (t.aligned_by < 0 ||
                      bytes_of(p) > bytes_of(spec.ports[static_cast<std::size_t>(t.aligned_by)])))
      t.aligned_by = static_cast<int>(i);
  }
  if (t.aligned_by < 0 || pair.stored > 0) return c;
  const KernelPort& by = spec.ports[static_cast<std::size_t>(t.aligned_by)];
  const int width = c.packing.width = std::min(widest, kMoveBytes / most);
  if (width < 2) return c;
  choose_misaligned_tile(spec, pair, width, device, t);
  if (spec.extent[t.along] < std::min(t.tile_along, misaligned_rows(width)) ||
      spec.extent[t.across] < kFewest)
    return c;
  c.packing.narrowest = bytes_of(by);
  double moves = 0;
  int shared = 0;
  for (std::size_t i = 0; i < used.size(); ++i) {
    const KernelPort& p = spec.ports[i];
    PortPack& pack = c.packing.ports[i];
    if (!used[i]) continue;
    const std::int64_t step = common_step(spec, p.access, t.along, 1);
    if (step == 1 && aligned_alike(spec, p, by, width)) {
      pack.kind = PortPack::Kind::pack;
      pack.aligned = width;
      moves += 1.0 / width;
      if (!p.written) c.packing.fetched_bytes += width * bytes_of(p);
    } else if (step == 1) {
      // What all columns share stays near; anything else is better served by tiles as they come.
      if (p.written || common_step(spec, p.access, t.across, 1) != 0) return c;
      moves += 1;
    } else if (step == 0 && !p.written) {
      pack.kind = PortPack::Kind::same;
      c.packing.fetched_bytes += bytes_of(p);
    } else if (can_stage(p.access, t.along, t.across) && p.alignment >= kMoveBytes) {
      pack.kind = PortPack::Kind::staged;
      pack.aligned = kMoveBytes / bytes_of(p);
      t.loads = true;
      moves += 1 + 1.0 / pack.aligned;
      shared += misaligned_bytes(p, t, width);
    } else {
      moves += 1;
    }
  }
  t.on = t.loads && shared <= kMostShared;
  const double waste = t.tiles * (t.tile_along + width) * t.tile_across / elements(spec);
  c.rank = {static_cast<double>(pair.apart), std::round(4 * moves * waste), 0};
  return c;
}

bool tile_moves_narrowly(const KernelSpec& spec, const Choice& c) {
  for (std::size_t i = 0; i < c.packing.ports.size(); ++i)
    if (const PortPack& p = c.packing.ports[i];
        (p.kind == PortPack::Kind::pack || p.kind == PortPack::Kind::staged) &&
        p.aligned * bytes_of(spec.ports[i]) <= kNarrowMove)
      return true;
  return false;
}

// The matrices of all that is moved follow one another without gaps. What does not lie so has no
// vector in this: packs cross the ends of columns. Only loads are staged.
Choice make_flat_choice(const KernelSpec& spec, const std::vector<bool>& used, const Pair& pair,
                        int widest, const DeviceModel& device) {
  // Neighbouring threads gather packs out of banks of shared memory that are the more different the
  // smaller these are.
  constexpr int kPack = 8;  // bytes
  constexpr int kFlatThreads = 256, kFlatBytes = 8 << 10;
  Choice c;
  Tiling& t = c.tiling;
  if (pair.through < 0 || pair.stored > 0 || pair.apart > 0 || !spec.gathers.empty()) return c;
  const std::int64_t n = spec.extent[pair.along], m = spec.extent[pair.across],
                     matrices = spec.extent[pair.through];
  for (int i = 0; i < spec.extent.size(); ++i)
    if (i != pair.along && i != pair.across && i != pair.through && spec.extent[i] > 1) return c;
  for (const auto& s : spec.body.statements)
    if (s.kind == StatementKind::random || s.kind == StatementKind::index ||
        s.kind == StatementKind::inside)
      return c;
  MovedBytes moved;
  for (std::size_t i = 0; i < used.size(); ++i)
    if (used[i] && common_step(spec, spec.ports[i].access, pair.along, 1) == 1)
      moved.add(bytes_of(spec.ports[i]));
  const int width = moved.width(widest, kPack);
  if (width < 2 || n < std::max(width, kFewest)) return c;
  c.packing.dim = pair.along;
  c.packing.width = width;
  c.packing.narrowest = moved.least;
  c.packing.ports.resize(spec.ports.size());
  double moves = 0;
  for (std::size_t i = 0; i < used.size(); ++i) {
    const KernelPort& p = spec.ports[i];
    const Access& a = p.access;
    PortPack& pack = c.packing.ports[i];
    if (!used[i]) continue;
    if (!a.via.empty() || !a.windows.empty() || p.alignment < kMoveBytes) return c;
    if (!p.written && elements_reached(spec.extent, a) == 1) {
      pack.kind = PortPack::Kind::same;
      continue;
    }
    const bool direct = a.stride[pair.along] == 1;
    const std::int64_t line = a.stride[direct ? pair.across : pair.along];
    if (line != (direct ? n : m) || a.stride[pair.through] != n * m) return c;
    if (direct) {
      if (!multiple(a.offset, width)) return c;
      pack = {.kind = PortPack::Kind::pack, .aligned = width};
    } else {
      pack = {.kind = PortPack::Kind::staged, .aligned = kMoveBytes / bytes_of(p)};
      moves += 1;
    }
    moves += 1.0 / pack.aligned;
  }
  const std::int64_t matrix_bytes = n * m * pair.staged;
  if (matrix_bytes > kSharedBytes) return c;
  std::int64_t together = std::clamp<std::int64_t>(kFlatBytes / matrix_bytes, 1, matrices);
  const auto blocks = [&] { return (matrices + together - 1) / together; };
  while (together > 1 && static_cast<double>(blocks()) < device.enough_ctas) together /= 2;
  together = (matrices + blocks() - 1) / blocks();  // about as many in every block
  t.along = pair.along;
  t.across = pair.across;
  t.through = pair.through;
  t.tile_along = static_cast<int>(n);
  t.tile_across = static_cast<int>(m);
  t.tile_through = static_cast<int>(together);
  t.lanes = 1;
  t.tiles = static_cast<double>(blocks());
  // A few packs more than all threads take in full rounds cost less than rounds that are not full.
  const int packs = static_cast<int>(together * n * m / width);
  t.rounds = std::max(kFewestRounds, (packs + kFlatThreads - 1) / kFlatThreads);
  t.threads = std::max(32, packs / t.rounds / 32 * 32);
  t.on = t.loads = t.flat = true;
  c.rank = {0, std::round(4 * moves), 0};
  return c;
}

namespace {

// The index along which runs of all of the last index lie one behind another; -1: there is none.
int beside_runs(const KernelSpec& spec, const Access& a) {
  const int last = spec.extent.size() - 1;
  for (int i = last - 1; i >= 0; --i)
    if (spec.extent[i] > 1 && a.stride[i] == spec.extent[last]) return i;
  return -1;
}

}  // namespace

Choice make_block_choice(const KernelSpec& spec, const std::vector<bool>& used, int widest,
                         const DeviceModel& device) {
  constexpr int kSector = 32, kThreads = 256, kVectors = 8;  // bytes; of a thread
  Choice c;
  Tiling& t = c.tiling;
  const int last = spec.extent.size() - 1;
  if (last < 2 || !spec.gathers.empty()) return c;
  for (const auto& s : spec.body.statements)
    if (s.kind == StatementKind::random) return c;
  int read = -1, written = -1, widest_moved = 1, narrowest = kMoveBytes;
  for (std::size_t i = 0; i < used.size(); ++i) {
    const KernelPort& p = spec.ports[i];
    if (!used[i] || (!p.written && elements_reached(spec.extent, p.access) <= spec.extent[last]))
      continue;
    if (!p.access.via.empty() || !p.access.windows.empty() || p.access.stride[last] != 1) return c;
    int& beside = p.written ? written : read;
    const int own = beside_runs(spec, p.access);
    if (own < 0 || (beside >= 0 && own != beside)) return c;
    beside = own;
    widest_moved = std::max(widest_moved, bytes_of(p));
    narrowest = std::min(narrowest, bytes_of(p));
  }
  if (read < 0 || written < 0 || read == written) return c;
  if (spec.extent[last] * widest_moved >= kSector) return c;
  const auto n = static_cast<int>(spec.extent[last]);
  c.packing = choose_packing(spec, last, widest, true);
  const int packs = n / c.packing.width;
  const auto at_most = [](std::int64_t extent, int size) {
    const std::int64_t parts = (extent + size - 1) / size;
    return static_cast<int>((extent + parts - 1) / parts);
  };
  t.along = last;
  t.across = written;
  t.through = read;
  t.tile_along = n;
  t.tile_through = at_most(spec.extent[read], (kSegment + n * narrowest - 1) / (n * narrowest));
  t.tile_across =
      at_most(spec.extent[written], std::max(1, kThreads * kVectors / (packs * t.tile_through)));
  t.lanes = packs;
  const auto parts = [&](int i, int size) {
    return std::ceil(static_cast<double>(spec.extent[i]) / size);
  };
  const auto tiles = [&] {
    return elements(spec) / n / static_cast<double>(spec.extent[written] * spec.extent[read]) *
           parts(written, t.tile_across) * parts(read, t.tile_through);
  };
  while (tiles() < device.enough_ctas && t.tile_across * n * narrowest >= 4 * kSegment)
    t.tile_across /= 2;
  t.tiles = tiles();
  const int vectors = packs * t.tile_across * t.tile_through;
  t.rounds = kVectors;
  t.threads = ((vectors + t.rounds - 1) / t.rounds + 31) / 32 * 32;
  t.rounds = (vectors + t.threads - 1) / t.threads;
  t.on = t.tiles >= device.enough_ctas && t.tile_through > 1;
  return c;
}

}  // namespace sinter::tiles
