#include "schedule/pointwise/tiling.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <utility>

#include "plan/access.hpp"
#include "schedule/pointwise/tiling_as.hpp"
#include "schedule/pointwise/tiling_parts.hpp"
#include "schedule/schedule_parts.hpp"

namespace sinter {
namespace {

using namespace tiles;

// More threads with fewer vectors each load and store more evenly: 130.1 us with 512, 132.5 with
// 256 for 8192 x 16384 of bf16 on an H200. With one vector each they only wait (57 instead of 50 us
// for 16384 x 3072).
constexpr int kThreads = 512;
constexpr int kTileBytes = 64 * kThreads;  // that a block should have in flight
constexpr int kMostVectors = 16;           // of a thread
constexpr double kFewBlocks = 128;         // below it, blocks count more than what each wastes
constexpr int kFewTogether = 4;            // matrices of one tile that are worth it
constexpr int kSmallestTile = 512;         // elements, below which a block has nothing to do

// Whether tiles of all of `across` follow one another in memory, without gaps.
bool dense(const KernelSpec& spec, const Access& a, int along, int across) {
  return a.stride[along] == spec.extent[across];
}

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

// Neighbours along `across` are written so many bytes apart that the lines they are read from have
// left the first-level cache: fewer than else carry a tile then. (Bf16 on an H200: 8 x 4096 x 4096
// reversed 902 us element by element and 304 in tiles of 8 x 64 x 16.)
bool is_far(const KernelSpec& spec, const Pair& pair) {
  constexpr int kFewestFar = 4;
  constexpr double kFar = 1 << 16;
  const std::int64_t n = spec.extent[pair.along];
  return n < kFewest && n >= kFewestFar && pair.apart_across >= kFar;
}
// Of such a pair, the index along which what is written lies nearest.
int written_beside(const KernelSpec& spec, const std::vector<bool>& used, const Pair& pair) {
  int best = pair.through;
  double least = 0;
  for (int i = 0; i < spec.extent.size(); ++i) {
    if (i == pair.along || i == pair.across || spec.extent[i] < 2) continue;
    double apart = 0;
    for (std::size_t p = 0; p < used.size(); ++p)
      if (used[p] && spec.ports[p].written)
        apart += std::abs(static_cast<double>(common_step(spec, spec.ports[p].access, i, 1)));
    if (least == 0 || apart < least) best = i, least = apart;
  }
  return best;
}

// The index along which short runs of what is written follow one another, where that is another one
// than `across`; -1: none. Tiles of several of them write whole lines. (40 x 24 x 36 x 28 x 50 of
// bf16 reversed on an H200, us: through the index that is nearest in all 89.8, in what is
// read 86.3, in what is written 64.0.)
int runs_beside(const KernelSpec& spec, const std::vector<bool>& used, const Pair& pair) {
  constexpr std::int64_t kShort = 2 * kSegment;
  const std::int64_t n = spec.extent[pair.along];
  for (int i = 0; i < spec.extent.size(); ++i) {
    if (i == pair.along || i == pair.across || spec.extent[i] < kFewTogether) continue;
    bool beside = false, others = false;
    for (std::size_t p = 0; p < used.size(); ++p) {
      if (!used[p] || !spec.ports[p].written) continue;
      const Access& a = spec.ports[p].access;
      const bool follows = common_step(spec, a, pair.along, 1) == 1 &&
                           common_step(spec, a, i, 1) == n && n * bytes_of(spec.ports[p]) < kShort;
      (follows ? beside : others) = true;
    }
    if (beside && !others) return i;
  }
  return -1;
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
      if (p.written)
        pair.apart_across =
            std::max(pair.apart_across,
                     bytes * std::abs(static_cast<double>(common_step(spec, p.access, across, 1))));
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
  if (const int i = runs_beside(spec, used, pair); i >= 0) pair.through = i;
  if (is_far(spec, pair)) pair.through = written_beside(spec, used, pair);
  return pair;
}

// Whether the indices can carry tiles.
bool fits(const KernelSpec& spec, const Pair& pair) {
  const std::int64_t n = spec.extent[pair.along], m = spec.extent[pair.across];
  if (pair.staged == 0 || pair.direct == 0) return false;
  if ((n < kFewest && !is_far(spec, pair)) || (m < kFewest && !pair.all_dense)) return false;
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
                             kMostVectors * kThreads * width});
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
  const bool far = is_far(spec, pair);
  if (far) {
    // Lines to read, and as many of what lies next to each other where it is written.
    rows = static_cast<int>(n);
    const auto lines = static_cast<int>((m + segment - 1) / segment);
    columns = multiple(m, kMoveBytes) ? std::min<int>(m, segment)
                                      : static_cast<int>((m + lines - 1) / lines);
    all_columns = columns == m;
  } else {
    grow();
  }
  if (!far && (rows > n || (n < 2 * rows && n % rows != 0 && holds_all(columns, n)))) {
    const int usual = std::exchange(rows, static_cast<int>(n));
    if (n > usual && tiles() < kFewBlocks) rows = usual;
    grow();
  }
  // Of matrices that leave room, as many as half of it holds, and about as many in every block. (32
  // x 32 of bf16 on an H200: 133.4 us for 131,072 of them where they fill a tile, 131.7 with half.)
  if (rows == n && (far || columns == m) && kFewTogether * rows * columns <= most) {
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
  const int vectors = rows / width * columns * t.tile_through;
  const int rounds = std::max(kFewestRounds, (vectors + kThreads - 1) / kThreads);
  t.threads = ((vectors + rounds - 1) / rounds + 31) / 32 * 32;
  t.rounds = (vectors + t.threads - 1) / t.threads;
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
  if (!best.tiling.on) consider(make_block_choice(spec, used, widest, device));
  if (best.tiling.on) packing = std::move(best.packing);
  return best.tiling;
}

}  // namespace sinter
