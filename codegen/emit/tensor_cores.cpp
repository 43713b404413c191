#include "emit/tensor_cores.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "emit/index_order.hpp"
#include "plan/access.hpp"
#include "plan/device_model.hpp"

namespace sinter {
namespace {

constexpr int kLine = 128;         // bytes of k in a stage
constexpr int kLooseBytes = 1024;  // lost where the ring starts at a multiple of 1024
constexpr int kBarrierBytes = 16;  // two of a stage
constexpr std::int64_t kMostExtent = std::int64_t{1} << 31;

// All indices of m and n but the innermost become batch indices: a tile then lies in two of them.
void widen_batch(KernelSpec& spec) {
  const int m = std::max(0, spec.m - 1), n = std::max(0, spec.n - 1);
  std::vector<int> order;
  const auto take = [&](int from, int count) {
    for (int i = 0; i < count; ++i) order.push_back(from + i);
  };
  const int first_m = spec.batch, first_n = first_m + spec.m, first_k = first_n + spec.n;
  take(0, spec.batch + m);
  take(first_n, n);
  take(first_m + m, spec.m - m);
  take(first_n + n, spec.n - n);
  take(first_k, spec.k);
  reorder(spec, order);
  spec.batch += m + n;
  spec.m -= m;
  spec.n -= n;
}

// The operands change places, and with them rows and columns.
void swap_operands(KernelSpec& spec) {
  std::vector<int> order;
  const int first_m = spec.batch, first_n = first_m + spec.m, first_k = first_n + spec.n;
  for (int i = 0; i < spec.batch; ++i) order.push_back(i);
  for (int i = first_n; i < first_k; ++i) order.push_back(i);
  for (int i = first_m; i < first_n; ++i) order.push_back(i);
  for (int i = first_k; i < spec.extent.size(); ++i) order.push_back(i);
  reorder(spec, order);
  std::swap(spec.a, spec.b);
  std::swap(spec.a_type, spec.b_type);
  std::swap(spec.m, spec.n);
  for (auto& c : spec.columns) std::swap(c.slot_m, c.slot_n);
}

// The operand as a tensor of two indices and batches, where the accelerator can bring it: one of
// the two is contiguous, every other step a multiple of 16 bytes. `row`: its index of the domain,
// -1 where there is one row. `type`: what the operand may be rounded to.
std::optional<BoxedOperand> boxed(const KernelSpec& spec, const Body& body, DataType type, int row,
                                  int k) {
  const KernelPort* const loaded = plainly_loaded(spec, body);
  if (!loaded) return {};
  const KernelPort& p = *loaded;
  const Access& a = p.access;
  const std::int64_t bytes = info(p.type).bytes;
  const bool pairs = p.type == DataType::bf16 || p.type == DataType::f16;
  const bool single = multiplied_as_bytes(p.type, p.type);
  const bool rounded = p.type == DataType::f32 && type == DataType::tf32;
  if (!pairs && !single && !rounded) return {};
  if (p.alignment < 16 || a.offset * bytes % 16 != 0) return {};
  BoxedOperand o;
  o.port = body.statements.front().port;
  o.map.type = rounded ? DataType::tf32 : p.type;  // the accelerator rounds
  o.map.offset = a.offset * bytes;
  o.map.swizzle = kLine;
  const auto steps = [&](std::int64_t stride) {
    return stride > 0 && stride * bytes % 16 == 0 && stride * bytes < (std::int64_t{1} << 40);
  };
  const std::int64_t rows = row < 0 ? 1 : spec.extent[row], depth = spec.extent[k];
  const std::int64_t of_row = row < 0 ? 0 : a.stride[row], of_k = a.stride[k];
  if (of_k == 1 && (rows == 1 || steps(of_row))) {
    o.k_fastest = true;
    o.map.dim = {depth, rows};
    o.map.stride = {rows == 1 ? (depth * bytes + 15) / 16 * 16 : of_row * bytes};
  } else if (pairs && of_row == 1 && (depth == 1 || steps(of_k))) {
    o.k_fastest = false;
    o.map.dim = {rows, depth};
    o.map.stride = {depth == 1 ? (rows * bytes + 15) / 16 * 16 : of_k * bytes};
  } else {
    return {};
  }
  for (int i = spec.batch - 1; i >= 0; --i) {
    if (a.stride[i] == 0 || spec.extent[i] == 1) continue;
    if (!steps(a.stride[i]) || o.map.dim.size() == 5) return {};
    o.batch.push_back(i);
    o.map.dim.push_back(spec.extent[i]);
    o.map.stride.push_back(a.stride[i] * bytes);
  }
  for (std::int64_t n : o.map.dim)
    if (n < 1 || n >= kMostExtent) return {};
  return o;
}

// Whether no sum of so many products of integers leaves 32 bits.
bool sums_fit(DataType a, DataType b, std::int64_t depth) {
  const auto largest = [](DataType t) { return std::max(-info(t).lowest, info(t).largest); };
  return static_cast<double>(depth) * largest(a) * largest(b) < 0x1p31;
}

// The box that one instruction brings: `rows` of the tile's.
void set_box(BoxedOperand& o, int rows) {
  const int elements = kLine / info(o.map.type).bytes;
  o.map.box = Dims::filled(o.map.dim.size(), 1);
  o.map.box[0] = elements;
  o.map.box[1] = o.k_fastest ? rows : elements;
}

struct Problem {
  double batches, rows, columns, depth;
  int bytes;
  double extra_bytes;  // read and written for an element of the result
  bool reads;          // some are read
  bool a_k_fastest, b_k_fastest;
  bool reduces;  // results
  int products;  // columns are those of all
};

double tiles_of(const Problem& p, const Tile& t) {
  return p.batches * std::ceil(p.rows / (t.m * t.cluster_m)) *
         std::ceil(p.columns / (t.n * t.cluster_n)) * t.cluster_m * t.cluster_n;
}

int stage_bytes(const Tile& t) { return (t.m + t.n) * kLine + kBarrierBytes; }
// Of shared memory besides the stages.
int fixed_bytes(const Tile& t) { return kLooseBytes + t.consumers * 4 * kSlabBytes; }
// `blocks` share a multiprocessor, which keeps some for each.
int stages_that_fit(const Tile& t, int blocks) {
  constexpr int kShared = 228 << 10, kKept = 1 << 10;
  return (kShared / blocks - kKept - fixed_bytes(t)) / stage_bytes(t);
}

constexpr int kNarrow = 32;
constexpr int kRoomy = 128;  // sums of a thread that leave registers for many packs at once

int rows_of_consumer(const Tile& t) { return t.alternate ? t.m : t.m / t.consumers; }
int sums_per_thread(const Tile& t) { return rows_of_consumer(t) / 64 * t.n / 2; }

// Blocks that fit on a multiprocessor. Where one round of the narrowest tiles streams A, one leaves
// room for the next kernel's, which then is ready when this one ends. (8 x 8192 x 8192 of bf16 on
// an H200: 32.1 us with 12 stages and the multiprocessor alone, 31.6 with 10 and half of it. Short
// sums miss the stages: 10.1 and 10.6 us for 8 x 4096 x 4096.)
int blocks_that_fit(const Problem& p, const Tile& t) {
  constexpr int kNarrowest = 8, kManySteps = 96;
  const bool leaves_room = t.n == kNarrowest && t.consumers == 1 && t.split == 1 &&
                           tiles_of(p, t) <= kMultiprocessors &&
                           p.depth * p.bytes >= kManySteps * kLine;
  return leaves_room ? 2 : 1;
}

// Clusters of so many blocks that run at once: their blocks lie in one group of multiprocessors, of
// which larger ones leave some over.
double clusters_at_once(int blocks) {
  return blocks == 8 ? 14 : blocks == 4 ? 30 : kMultiprocessors / blocks;
}

// Microseconds, roughly, for ranking: what a multiprocessor spends on its tiles, but no less than
// the time of memory and of the second-level cache. The constants were fitted to 2,900 measurements
// of 59 problems on an H200.
double estimate(const Problem& p, const Tile& t) {
  constexpr double kClock = 1600;                   // MHz
  constexpr double kMemory = 4.3e6, kCache = 12e6;  // bytes a microsecond
  constexpr double kShared = 128, kRead = 0.66;     // bytes a clock; what reading one costs of it
  constexpr double kStart = 4200, kTurn = 350, kNeighbours = 200;  // clocks: until the first stage
                                                                   // has come; a turn; a tile
  constexpr double kSlab = 1150, kSlabRead = 300, kSlabReadSlow = 1600, kPart = 5600;
  constexpr int kFewestColumns = 80;  // narrower multiplications wait for the rows of A
  const double tiles = tiles_of(p, t), blocks = cluster_blocks(t);
  const double rounds = std::ceil(tiles * t.split / blocks / clusters_at_once(cluster_blocks(t)));
  const double depth = p.depth / t.split, depth_bytes = depth * p.bytes;
  const double multiply = 2.0 * t.m * std::max(t.n, kFewestColumns) * depth / (8192.0 / p.bytes);
  const double moved =
      (static_cast<double>(t.m) / t.cluster_n + static_cast<double>(t.n) / t.cluster_m) *
      depth_bytes;
  // Every 64 rows of A are read with all columns of B.
  const double shared = (kRead * t.m / 64 * (64 + t.n) + (t.m + t.n)) * depth_bytes / kShared;
  // Moving costs power, and with it clocks, also where it is hidden.
  const double main = std::max({multiply, moved / 128, shared}) + 0.1 * moved / 64 +
                      (t.cluster_m * t.cluster_n > 1 ? kNeighbours : 0);
  const double slabs = rows_of_consumer(t) / 64.0 * std::ceil(t.n / 64.0);
  const bool slow = rows_of_consumer(t) > 64 || sums_per_thread(t) > kRoomy;
  const double read = !p.reads ? 0 : slow ? kSlabReadSlow : kSlabRead;
  const double finish = slabs * (kSlab + read) + (t.split > 1 ? kPart : 0);
  double clocks = rounds * (main + finish);
  if (t.alternate)
    clocks = std::max(rounds * (main + kTurn) + finish, std::ceil(rounds / 2) * (main + finish));
  const double results = p.batches * p.rows * p.columns * p.extra_bytes;
  const double memory = p.batches * (p.rows + p.columns) * p.depth * p.bytes + results;
  const double cached = tiles * t.split * moved + results;
  const double times[] = {clocks / kClock, memory / kMemory, cached / kCache};
  // The slowest counts; the others a little, so that equals do not waste power.
  return *std::max_element(times, times + 3) + 0.07 * (times[0] + times[1] + times[2]) +
         kStart / kClock;
}

bool legal(const Problem& p, const Tile& t) {
  const int rows = rows_of_consumer(t);
  if (rows % 64 != 0) return false;
  // What more sums would spill; of two warpgroups the producer gives up registers for 192.
  if (sums_per_thread(t) > (t.consumers == 1 ? 160 : 192)) return false;
  if (t.m / t.cluster_n > 256 || t.n / t.cluster_m > 256) return false;
  const int columns = t.n / p.products, part_m = t.m / t.cluster_n, part_n = columns / t.cluster_m;
  if (part_m % 8 != 0 || part_n % 8 != 0) return false;
  if (t.split > 1) {
    if (t.alternate || tiles_of(p, t) * t.split > 4 * kMultiprocessors) return false;
    if (std::ceil(p.depth * p.bytes / kLine) < 2 * t.split) return false;
    const int slab = 64 / p.products, across = (columns + slab - 1) / slab * 64;
    if (t.m * across * 4 > t.stages * (t.m + t.n) * kLine) return false;
  }
  if (!p.a_k_fastest && part_m % 64 != 0) return false;
  if (!p.b_k_fastest && part_n % 64 != 0) return false;
  if (p.reduces && columns % kReducedTogether != 0) return false;
  return t.stages >= 2;
}

// The fewest clusters that take no more rounds: the others would only make heat.
double balanced_grid(double tiles, int cluster) {
  const double clusters = tiles / cluster, most = kMultiprocessors / cluster;
  const double rounds = std::ceil(clusters / most);
  return std::ceil(clusters / rounds) * cluster;
}

// The sums, and those of two stages.
bool room_to_settle(const Tile& t) { return sums_per_thread(t) <= 64; }

std::string problem_text(const Problem& p, const TensorCores& e, const KernelSpec& spec) {
  const auto type = [&](const BoxedOperand& o) {
    return name(spec.ports[static_cast<std::size_t>(o.port)].type);
  };
  return fmt::format("{}{} x {}{}, batch {}, m {}, n {}, k {}, {} bytes a result{}{}", type(e.a),
                     e.a.k_fastest ? "" : " transposed", type(e.b),
                     e.b.k_fastest ? "" : " transposed", p.batches, p.rows, p.columns, p.depth,
                     p.extra_bytes, e.n_fastest ? "" : " along m", e.b2 ? ", two products" : "");
}

// The legal tiles, the likeliest first.
std::vector<Tile> ranked_tiles(const Problem& p, bool settle) {
  std::vector<std::pair<double, Tile>> tiles;
  const auto consider = [&](Tile t) {
    t.stages = std::min(stages_that_fit(t, blocks_that_fit(p, t)), t.consumers == 1 ? 12 : 7);
    if (!legal(p, t) || (settle && !room_to_settle(t))) return;
    tiles.push_back({estimate(p, t), t});
  };
  struct Shape {
    int m, consumers;
    bool alternate;
  };
  constexpr Shape kShapes[] = {{128, 2, false}, {256, 2, false}, {64, 2, true},
                               {128, 2, true},  {64, 1, false},  {128, 1, false}};
  for (const Shape& shape : kShapes)
    for (int n : {256, 224, 192, 160, 128, 96, 64, 32, 16, 8})
      for (int cluster : {0, 1, 2}) {
        Tile t{.m = shape.m, .n = n, .consumers = shape.consumers, .alternate = shape.alternate};
        if (cluster == 1) t.cluster_m = 2;
        if (cluster == 2) t.cluster_n = 2;
        consider(t);
        if (cluster == 0)
          for (t.split = 2; t.split <= 8; t.split *= 2) consider(t);
      }
  std::stable_sort(tiles.begin(), tiles.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<Tile> ranked;
  for (const auto& t : tiles) ranked.push_back(t.second);
  return ranked;
}

}  // namespace

std::string to_text(const Tile& t) {
  return fmt::format("{}x{} by {} {}, cluster {}x{}, split {}, stages {}, group {}", t.m, t.n,
                     t.consumers, t.alternate ? "alternating" : "together", t.cluster_m,
                     t.cluster_n, t.split, t.stages, t.group);
}

std::optional<Tile> tile_from_text(const std::string& text) {
  Tile t;
  char how[12] = {};
  const int read = std::sscanf(
      text.c_str(), "%dx%d by %d %11[a-z], cluster %dx%d, split %d, stages %d, group %d", &t.m,
      &t.n, &t.consumers, how, &t.cluster_m, &t.cluster_n, &t.split, &t.stages, &t.group);
  t.alternate = std::string(how) == "alternating";
  if (read != 9 || to_text(t) != text) return {};
  return t;
}

bool multiplied_as_bytes(DataType a, DataType b) {
  const auto of_floats = [](DataType t) { return t == DataType::f8e4m3 || t == DataType::f8e5m2; };
  const auto of_integers = [](DataType t) { return t == DataType::i8 || t == DataType::u8; };
  return (of_floats(a) && of_floats(b)) || (of_integers(a) && of_integers(b));
}

bool of_whole_tile(const KernelSpec& spec, const KernelPort& port) {
  const int m = spec.batch, n = m + spec.m, k = n + spec.n;
  const auto varies = [&](int from, int to) {
    for (int i = from; i < to; ++i)
      if (step(port.access, i) != 0) return true;
    return false;
  };
  return !port.written && varies(m, n) && varies(n, k);
}

std::optional<TensorCorePlan> plan_tensor_cores(const KernelSpec& given, const Tuning& tuning) {
  if (given.family != Family::contraction || given.annihilating_zero || given.rows.on ||
      given.k != 1 || reads_joined_indices(given))
    return {};
  // Rows and columns of reductions are numbered over all indices of m and of n.
  const bool two = given.two_products();
  if ((two || !given.columns.empty()) && (given.m != 1 || given.n != 1)) return {};
  TensorCorePlan plan{given, {}, {}};
  KernelSpec& spec = plan.spec;
  TensorCores& e = plan.engine;
  widen_batch(spec);
  const auto last = [](int from, int count) { return count > 0 ? from + count - 1 : -1; };
  const auto m_index = [&] { return last(spec.batch, spec.m); };
  const auto n_index = [&] { return last(spec.batch + spec.m, spec.n); };
  const auto extent = [&](int i) { return i < 0 ? std::int64_t{1} : spec.extent[i]; };
  // A short side lies along the tile's columns, which may be few; else what lies together in
  // memory.
  constexpr std::int64_t kShort = 64;
  const std::int64_t rows = extent(m_index()), columns = extent(n_index());
  bool columns_together = !prefers(spec, spec.body, n_index(), m_index(), is_store);
  const bool short_m = rows <= kShort && columns > rows,
             short_n = columns <= kShort && rows > columns;
  if (short_m || (!columns_together && !short_n)) {
    if (two) return {};  // they share rows
    swap_operands(spec);
    columns_together = !columns_together;
  }
  const int k = spec.extent.size() - 1;
  auto a = boxed(spec, spec.a, spec.a_type, m_index(), k),
       b = boxed(spec, spec.b, spec.b_type, n_index(), k);
  if (!a || !b) return {};
  if (two) {
    e.b2 = boxed(spec, spec.b2, spec.b_type, n_index(), k);
    if (!e.b2 || e.b2->map.type != b->map.type || e.b2->k_fastest != b->k_fastest) return {};
  }
  // Of 8-bit floats any two are multiplied, and of 8-bit integers; of others equal ones.
  if (a->map.type != b->map.type && !multiplied_as_bytes(a->map.type, b->map.type)) return {};
  e.integers = !is_floating(a->map.type);
  if (e.integers ? !sums_fit(a->map.type, b->map.type, spec.extent[k])
                 : spec.accumulate != DataType::f32)
    return {};
  e.a = *a;
  e.b = *b;
  e.operand_bytes = info(a->map.type).bytes;
  e.settle = e.operand_bytes == 1 && !e.integers;
  e.n_fastest = columns_together;

  Problem p{static_cast<double>(count(spec.extent, 0, spec.batch)),
            static_cast<double>(extent(m_index())),
            static_cast<double>(extent(n_index())),
            static_cast<double>(spec.extent[k]),
            e.operand_bytes,
            0,
            false,
            e.a.k_fastest,
            e.b.k_fastest,
            !spec.columns.empty(),
            two ? 2 : 1};
  p.columns *= p.products;
  for (const auto& s : spec.body.statements) {
    if (!is_load(s) && !is_store(s)) continue;
    const KernelPort& port = spec.ports[static_cast<std::size_t>(s.port)];
    p.reads |= of_whole_tile(spec, port);
    if (of_whole_tile(spec, port) || port.written) p.extra_bytes += info(port.type).bytes;
  }
  p.extra_bytes /= p.products;
  const std::vector<Tile> ranked = ranked_tiles(p, e.settle);
  if (ranked.empty()) return {};
  e.tile = ranked.front();
  plan.choice.problem = problem_text(p, e, spec);
  for (const Tile& t : ranked) plan.choice.configurations.push_back(to_text(t));
  if (const auto best = tuning.best.find(plan.choice.problem); best != tuning.best.end())
    if (const auto tuned = tile_from_text(best->second);
        tuned && std::find(ranked.begin(), ranked.end(), *tuned) != ranked.end())
      e.tile = *tuned;
  const Tile& t = e.tile;
  const double tiles = tiles_of(p, t);
  if (tiles >= 0x1p31 || p.rows + t.m * 2.0 >= 0x1p31 || p.columns + t.n * 2.0 >= 0x1p31) return {};
  e.microseconds = estimate(p, t);
  set_box(e.a, t.m / t.cluster_n);
  set_box(e.b, t.n / p.products / t.cluster_m);
  if (two) set_box(*e.b2, t.n / p.products / t.cluster_m);
  e.packing = choose_packing(spec, e.n_fastest ? n_index() : m_index(), 8);
  // Where every result reads memory of its own, several packs are read before one is computed.
  e.prefetch = p.reads;
  e.unroll = e.settle ? 1 : 2;
  if (e.prefetch) e.unroll = p.extra_bytes > 8 || sums_per_thread(t) > kRoomy ? 2 : 4;
  // Where every row of A is read by one tile alone, those that run at once should not all read the
  // same columns of memory. (64 x 8192 x 8192 of bf16 on an H200: 35.8 us, 34.6 with five steps
  // from one to the next; with 1, 3, 31 it gains less. Wider tiles whose k is split lose: 32.3
  // and 34.1 us for 64 x 4096 x 14336.)
  constexpr int kWide = 64, kApart = 5;
  const bool streams_a = t.n <= (t.split > 1 ? kNarrow : kWide) && p.columns <= t.n * t.cluster_n;
  e.rotate = streams_a ? kApart : 0;
  if (p.reduces && e.packing.width == 1) e.unroll = std::max(e.unroll, 2);
  if (two) e.unroll = std::min(e.unroll, 2);  // slabs of half the columns
  const int lane_packs = 1024 / p.products / 32 / e.packing.width;
  e.ahead = e.prefetch && t.split == 1 && e.unroll == lane_packs;
  e.threads = 128 * (t.consumers + 1);
  // Of the 504 that three warpgroups have, in steps of eight.
  const int kept = sums_per_thread(t) * (e.settle ? 3 : 1) + (e.ahead ? 64 : 0);
  e.producer_registers = kept >= 192 ? 24 : 40;
  e.consumer_registers = t.consumers == 1 ? 248 : kept >= 192 ? 240 : 232;
  e.blocks = blocks_that_fit(p, t);
  if (e.blocks > 1) e.consumer_registers = 216;  // with the producer's, half of all
  const int cluster = t.cluster_m * t.cluster_n;
  e.grid =
      static_cast<std::uint32_t>(t.split > 1 ? tiles * t.split : balanced_grid(tiles, cluster));
  e.shared_bytes = static_cast<std::uint32_t>(fixed_bytes(t) + t.stages * stage_bytes(t));
  return plan;
}

}  // namespace sinter
