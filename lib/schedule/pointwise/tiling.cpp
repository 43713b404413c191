#include "schedule/pointwise/tiling.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <utility>

#include "plan/access.hpp"
#include "schedule/pointwise/tiling_as.hpp"
#include "schedule/schedule_parts.hpp"

namespace sinter {
namespace {

// More threads with fewer places each load and store more evenly: 130.1 us with 512, 132.5 with 256
// for 8192 x 16384 of bf16 on an H200. With one place each they only wait (57 instead of 50 us for
// 16384 x 3072).
constexpr int kThreads = 512;
constexpr int kFewestRounds = 2;
constexpr int kMisalignedThreads = 256;
constexpr int kSegment = 128;              // bytes that lie together: what memory moves at once
constexpr int kTileBytes = 64 * kThreads;  // that a block should have in flight
constexpr int kSharedBytes = 32 << 10;     // so that several blocks share an SM
constexpr int kMostShared = 48 << 10;      // that a kernel may ask for without more ado
constexpr int kMostPlaces = 16;            // of a thread
constexpr double kFewBlocks = 128;         // below it, blocks count more than what each wastes
constexpr int kFewTogether = 4;            // matrices of one tile that are worth it
constexpr int kFewest = 16;                // a smaller extent cannot carry a tile
constexpr int kSmallestTile = 512;         // elements, below which a block has nothing to do

bool multiple(std::int64_t value, std::int64_t of) { return value % of == 0; }
double elements(const KernelSpec& s) { return elements(s.extent, 0, s.extent.size()); }
int bytes_of(const KernelPort& p) { return info(p.type).bytes; }

// A port that a tile can transpose: plain strides, memory lies along `across`.
bool can_stage(const Access& a, int along, int across) {
  return a.via.empty() && a.windows.empty() && a.stride[across] == 1 && a.stride[along] > 1;
}

// Whether tiles of all of `across` follow one another in memory, without gaps.
bool dense(const KernelSpec& spec, const Access& a, int along, int across) {
  return a.stride[along] == spec.extent[across];
}

// What a pair of indices makes of the ports, in bytes an element.
struct Pair {
  int along = -1, across = -1;
  int through = -1;  // see choose_through; -1: there is no other index
  int apart = 0, direct = 0, staged = 0, stored = 0, loaded = 0;  // stored: staged and written
  int widest_direct = 1, widest_staged = 1;
  bool all_dense = true;  // the staged ones
};

// The index that has enough matrices of the other two, and along which these lie nearest.
int choose_through(const KernelSpec& spec, const std::vector<bool>& used, int along, int across) {
  constexpr std::int64_t kEnough = 16;
  int best = -1;
  std::pair<std::int64_t, double> least{};
  for (int i = 0; i < spec.extent.size(); ++i) {
    if (i == along || i == across || spec.extent[i] < 2) continue;
    double apart = 0;
    for (std::size_t p = 0; p < used.size(); ++p)
      if (used[p])
        apart += std::abs(static_cast<double>(common_step(spec, spec.ports[p].access, i, 1))) *
                 bytes_of(spec.ports[p]);
    const std::pair missing{kEnough - std::min(kEnough, spec.extent[i]), apart};
    if (best < 0 || missing <= least) best = i, least = missing;
  }
  return best;
}

Pair judge(const KernelSpec& spec, const std::vector<bool>& used, int along, int across) {
  Pair pair{.along = along, .across = across, .through = choose_through(spec, used, along, across)};
  for (std::size_t i = 0; i < used.size(); ++i) {
    if (!used[i]) continue;
    const KernelPort& p = spec.ports[i];
    const int bytes = bytes_of(p);
    const std::int64_t step = common_step(spec, p.access, along, 1);
    if (step == 0 && !p.written) continue;
    if (step == 1) {
      pair.direct += bytes;
      pair.widest_direct = std::max(pair.widest_direct, bytes);
    } else if (can_stage(p.access, along, across)) {
      pair.staged += bytes;
      pair.stored += p.written ? bytes : 0;
      pair.widest_staged = std::max(pair.widest_staged, bytes);
      pair.all_dense = pair.all_dense && dense(spec, p.access, along, across);
    } else {
      pair.apart += bytes;
      continue;
    }
    // What is the same for all columns stays in the cache.
    if (!p.written && common_step(spec, p.access, across, 1) != 0) pair.loaded += bytes;
  }
  return pair;
}

// Whether the indices can carry tiles.
bool fits(const KernelSpec& spec, const Pair& pair) {
  const std::int64_t n = spec.extent[pair.along], m = spec.extent[pair.across];
  if (pair.staged == 0 || pair.direct == 0) return false;
  if (n < kFewest || (m < kFewest && !pair.all_dense)) return false;
  const std::int64_t matrices = pair.through < 0 ? 1 : spec.extent[pair.through];
  return std::max({n, m, matrices}) >= kSmallestTile || n * m * matrices >= kSmallestTile;
}

// How many tiles of these extents take the whole domain.
double tiles_of(const KernelSpec& spec, const Pair& of, double rows, double columns, double deep) {
  const auto extent = [&](int i) { return static_cast<double>(spec.extent[i]); };
  double all = elements(spec);
  for (const auto& [i, size] :
       {std::pair{of.along, rows}, {of.across, columns}, {of.through, deep}})
    if (i >= 0) all = all / extent(i) * std::ceil(extent(i) / size);
  return all;
}

// Extents of the tile, and how threads stand in it.
void choose_tile(const KernelSpec& spec, const Pair& pair, int width, const DeviceModel& device,
                 Tiling& t) {
  const std::int64_t n = spec.extent[pair.along], m = spec.extent[pair.across];
  // Side by side, threads reach a whole segment of the ports that they move directly.
  const int side = kSegment / (width * pair.widest_direct);
  t.lanes = std::clamp(static_cast<int>(std::bit_floor(static_cast<unsigned>(side))), 8, 32);
  const int unit = t.lanes * width, segment = kSegment / pair.widest_staged;
  const int most = std::min({kTileBytes / std::max(1, pair.loaded), kSharedBytes / pair.staged,
                             kMostPlaces * kThreads * width});
  int rows = unit, columns = unit * segment <= most ? segment : segment / 2;
  const std::int64_t matrices = pair.through < 0 ? 1 : spec.extent[pair.through];
  std::int64_t together = 1;
  const auto tiles = [&] {
    return tiles_of(spec, pair, rows, columns, static_cast<double>(together));
  };
  // All of an index wastes nothing, and moves better where it is dense.
  const auto holds_all = [&](int others, std::int64_t extent) {
    return extent * others <= 2 * most && extent * others * pair.staged <= kSharedBytes;
  };
  bool all_columns = m < columns;
  if (!all_columns && pair.all_dense && m % columns != 0 && holds_all(unit, m)) {
    const int usual = std::exchange(columns, static_cast<int>(m));
    all_columns = tiles() >= kFewBlocks;
    if (!all_columns) columns = usual;
  }
  if (all_columns) columns = static_cast<int>(m);
  const auto grow = [&] {
    while (2 * rows * columns <= most) {
      const bool longer = rows < n, wider = !all_columns && columns < m;
      if (!longer && !wider) break;
      // Where tiles come out even, else what moves fewer bytes together. A tile four times as long
      // as wide is worse than a smaller one.
      const int along = rows * pair.widest_direct, across = columns * pair.widest_staged;
      const bool even_rows = multiple(n, 2 * rows), even_columns = multiple(m, 2 * columns);
      const bool narrow = even_rows != even_columns ? even_rows : along < across;
      const bool grow_rows = longer && (narrow || !wider);
      if (longer && wider && (grow_rows ? along >= 2 * across : across >= 2 * along)) break;
      (grow_rows ? rows : columns) *= 2;
    }
  };
  grow();
  if (rows > n || (n < 2 * rows && n % rows != 0 && holds_all(columns, n))) {
    const int usual = std::exchange(rows, static_cast<int>(n));
    if (n > usual && tiles() < kFewBlocks) rows = usual;
    grow();
  }
  // Of matrices that leave room, as many as half of it holds, and about as many in every block. (32
  // x 32 of bf16 on an H200: 133.4 us for 131,072 of them where they fill a tile, 131.7 with half.)
  if (rows == n && columns == m && kFewTogether * rows * columns <= most) {
    const auto of_equal_blocks = [&](std::int64_t room) {
      const std::int64_t blocks = (matrices + room - 1) / room;
      return (matrices + blocks - 1) / blocks;
    };
    for (std::int64_t room = std::max(1, most / 2 / (rows * columns)); room > 0; --room) {
      together = of_equal_blocks(room);
      if (tiles() >= device.enough_ctas) break;
    }
  }
  while (tiles() < device.enough_ctas) {
    const bool wide = columns * pair.widest_staged >= rows * pair.widest_direct;
    if (!all_columns && columns > segment / 2 && wide)
      columns /= 2;
    else if (rows > unit && multiple(rows, 2 * unit))
      rows /= 2;
    else
      break;
  }
  while (!all_columns && columns > 1 && rows * columns * pair.staged > kSharedBytes) columns /= 2;
  // Two segments where the tile has them (132.5 instead of 134.2 us with 256 threads).
  if (multiple(rows, 2 * unit)) t.lanes = std::min(2 * t.lanes, 32);
  if (!multiple(rows, unit)) t.lanes = rows / width;
  t.tile_along = rows;
  t.tile_across = columns;
  t.through = pair.through;
  t.tile_through = static_cast<int>(together);
  t.tiles = tiles();
  const int places = rows / width * columns * t.tile_through;
  const int rounds = std::max(kFewestRounds, (places + kThreads - 1) / kThreads);
  t.threads = ((places + rounds - 1) / rounds + 31) / 32 * 32;
  t.rounds = (places + t.threads - 1) / t.threads;
}

// The most elements that a tile moves as one, in memory and from its own beginning.
int vector_of(const KernelSpec& spec, const KernelPort& p, const Tiling& t) {
  const std::int64_t m = spec.extent[t.across];
  const Access& a = p.access;
  const bool joined = t.tile_across == m && dense(spec, a, t.along, t.across);
  const std::int64_t matrix = spec.extent[t.along] * m;
  const bool stacked = t.tile_through > 1 && joined && a.stride[t.through] == matrix;
  const auto fits = [&](int v) {
    const int bytes = v * bytes_of(p);
    if (bytes > kMoveBytes || bytes > p.alignment || !multiple(a.offset, v)) return false;
    for (int i = 0; i < a.stride.size(); ++i)
      if (i != t.across && !(joined && i == t.along) && !(stacked && i == t.through) &&
          spec.extent[i] > 1 && !multiple(a.stride[i], v))
        return false;
    if (stacked)
      return multiple(spec.extent[t.through] * matrix, v) && multiple(t.tile_through * matrix, v);
    if (joined) return multiple(matrix, v) && multiple(t.tile_along * m, v);
    return multiple(m, v) && multiple(t.tile_across, v);
  };
  int v = 1;
  while (fits(2 * v)) v *= 2;
  return v;
}

// What the tile of a port takes of shared memory; as in codegen/device/core/tile.cuh.
int shared_bytes(const KernelPort& p, const Tiling& t, int width) {
  const int bytes = bytes_of(p), pitch = t.tile_across * bytes, group = width * pitch;
  const int beside = t.lanes > 1 && 32 % t.lanes == 0 ? 32 / t.lanes : 1;
  const int spread = std::max(bytes, t.lanes > 16  ? 4
                                     : t.lanes > 8 ? 8
                                                   : std::max(16, beside * std::min(bytes, 4)));
  const int gap = (3 * spread - group % (2 * spread)) % (2 * spread);
  return t.tile_through * t.tile_along / width * (group + gap) + kMoveBytes;
}

struct Choice {
  Tiling tiling;
  Packing packing;
  std::array<double, 3> rank{};  // the least is the best
};

// Has the tile transpose ports that packs do not reach; not `on` where that takes too much of
// shared memory. Returns the instructions that move an element.
double stage_ports(const KernelSpec& spec, const std::vector<bool>& used, Tiling& t,
                   Packing& packing) {
  double moves = 0;
  int shared = 0;
  for (std::size_t i = 0; i < used.size(); ++i) {
    const KernelPort& p = spec.ports[i];
    PortPack& pack = packing.ports[i];
    if (!used[i]) continue;
    if (pack.kind == PortPack::Kind::apart && can_stage(p.access, t.along, t.across)) {
      pack.kind = PortPack::Kind::staged;
      pack.aligned = vector_of(spec, p, t);
      (p.written ? t.stores : t.loads) = true;
      moves += 1;  // out of the tile or into it
      shared += shared_bytes(p, t, packing.width);
    }
    moves += 1.0 / pack.aligned;
  }
  t.on = shared <= kMostShared;
  return moves;
}

// The fewest bytes that are left to be reached element by element, then the fewest instructions
// that move an element, then rather staged loads than staged stores.
Choice make_choice(const KernelSpec& spec, const std::vector<bool>& used, const Pair& pair,
                   int widest, const DeviceModel& device) {
  Choice c{.tiling = {.along = pair.along, .across = pair.across}};
  Tiling& t = c.tiling;
  c.packing = choose_packing(spec, t.along, widest);
  choose_tile(spec, pair, c.packing.width, device, t);
  const double moves = stage_ports(spec, used, t, c.packing);
  const double waste = t.tiles * t.tile_along * t.tile_across * t.tile_through / elements(spec);
  c.rank = {static_cast<double>(pair.apart), std::round(4 * moves * waste),
            static_cast<double>(pair.stored)};
  return c;
}

// ---- rows that start anywhere

// What the misaligned tile of a port takes; as in codegen/device/core/misaligned_tile.cuh.
int misaligned_bytes(const KernelPort& p, const Tiling& t, int width) {
  const int pitch = (t.tile_across * bytes_of(p) + 31) / 16 * 16, groups = t.tile_along / width + 1;
  return groups * (width * pitch + (width * pitch % 32 == 0 ? 16 : 0)) + kMoveBytes;
}

// Tiles of long, narrow memory lines: what lies next to them is fetched in part, too.
void choose_misaligned_tile(const KernelSpec& spec, const Pair& pair, int width,
                            const DeviceModel& device, Tiling& t) {
  const std::int64_t n = spec.extent[pair.along], m = spec.extent[pair.across];
  t.lanes = 8;
  const int unit = t.lanes * width, early = width - 1;
  int rows = std::max(64, unit), columns = kSegment / pair.widest_staged;
  const auto tiles = [&] {
    return elements(spec) / static_cast<double>(n * m) *
           std::ceil(static_cast<double>(n + early) / rows) *
           std::ceil(static_cast<double>(m) / columns);
  };
  while (tiles() < device.enough_ctas && (columns > 32 || rows > unit))
    (rows > unit && rows * pair.widest_direct >= columns * pair.widest_staged ? rows : columns) /=
        2;
  // Tiles of equal size, in steps of what a warp takes side by side.
  const double across = std::ceil(static_cast<double>(m) / columns);
  columns = static_cast<int>(std::ceil(static_cast<double>(m) / across / 4) * 4);
  t.tile_along = rows;
  t.tile_across = columns;
  t.tiles = tiles();
  const int places = rows / width * columns;
  t.rounds = (places + kMisalignedThreads - 1) / kMisalignedThreads;
  t.threads = kMisalignedThreads;
}

// Packs that start where memory is aligned, column by column. Only loads are staged.
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
  if (spec.extent[t.along] < t.tile_along || spec.extent[t.across] < kFewest) return c;
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

// ---- small matrices that start anywhere

// Whether something moves by so little at once that it does not keep memory busy.
bool tile_moves_narrowly(const KernelSpec& spec, const Choice& c) {
  for (std::size_t i = 0; i < c.packing.ports.size(); ++i)
    if (const PortPack& p = c.packing.ports[i];
        (p.kind == PortPack::Kind::pack || p.kind == PortPack::Kind::staged) &&
        p.aligned * bytes_of(spec.ports[i]) <= kNarrowMove)
      return true;
  return false;
}

// The matrices of all that is moved follow one another without gaps. What does not lie so has no
// place in this: packs cross the ends of columns. Only loads are staged.
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

}  // namespace

Tiling tiling_as(const Tiling& decided, const KernelSpec& spec, int width, Packing& packing) {
  Tiling t = decided;
  packing = choose_packing(spec, t.along, width);
  stage_ports(spec, reached_ports(spec), t, packing);
  t.tiles = tiles_of(spec, {.along = t.along, .across = t.across, .through = t.through},
                     t.tile_along, t.tile_across, t.tile_through);
  return t;
}

Tiling choose_tiling(const KernelSpec& spec, int widest, const DeviceModel& device,
                     Packing& packing) {
  const int rank = spec.extent.size();
  if (rank < 2 || elements(spec) == 0) return {};
  for (const auto& p : spec.ports)
    if (p.together > 1) return {};
  const std::vector<bool> used = reached_ports(spec);
  const int untiled = judge(spec, used, rank - 1, rank - 1).apart;
  Choice best;
  const auto consider = [&](Choice c) {
    if (c.tiling.on && (!best.tiling.on || c.rank < best.rank)) best = std::move(c);
  };
  std::vector<Pair> pairs;
  for (int along = rank - 1; along >= 0; --along)
    for (int across = rank - 1; across >= 0; --across) {
      if (along == across) continue;
      const Pair pair = judge(spec, used, along, across);
      if (pair.apart < untiled && fits(spec, pair)) pairs.push_back(pair);
    }
  for (const Pair& pair : pairs) {
    consider(make_choice(spec, used, pair, widest, device));
    consider(make_misaligned_choice(spec, used, pair, widest, device));
  }
  if (tile_moves_narrowly(spec, best))
    for (const Pair& pair : pairs) consider(make_flat_choice(spec, used, pair, widest, device));
  if (best.tiling.on) packing = std::move(best.packing);
  return best.tiling;
}

}  // namespace sinter
