#include <algorithm>
#include <bit>
#include <cmath>
#include <initializer_list>

#include "plan/access.hpp"
#include "plan/liveness.hpp"
#include "schedule/rowwise/column_walk.hpp"
#include "schedule/rowwise/rowwise.hpp"
#include "schedule/schedule_parts.hpp"

namespace sinter {
namespace {

// What the loads of one place move, in bytes: those of the row, and those that all rows share or
// (`late`) that many do; `kept`: of all, what several phases need. `values`: elements of the row.
struct PlaceBytes {
  int row = 0, weights = 0, late = 0, kept = 0, values = 0;
};
PlaceBytes place_bytes(const KernelSpec& spec, const Packing& packing) {
  std::vector<int> phases(spec.ports.size());
  for (int p = 0; p < spec.rowwise().phases; ++p) {
    std::vector<bool> used(spec.ports.size());
    const auto live = live_statements(spec.body, effects(spec.body, p));
    for (std::size_t i = 0; i < live.size(); ++i)
      if (const Statement& s = spec.body.statements[i];
          live[i] && s.kind == StatementKind::load && !s.per_row)
        used[static_cast<std::size_t>(s.port)] = true;
    for (std::size_t i = 0; i < used.size(); ++i) phases[i] += used[i];
  }
  PlaceBytes bytes;
  for (std::size_t i = 0; i < phases.size(); ++i) {
    const PortPack::Kind kind = packing.ports[i].kind;
    if (phases[i] == 0 || !has_pack(packing.ports[i])) continue;
    const bool shifted = kind == PortPack::Kind::shifted;
    const int values = kind == PortPack::Kind::pack || shifted ? packing.width : 1;
    const int moved = info(spec.ports[i].type).bytes * values +
                      (shifted ? std::min(kMoveBytes, info(spec.ports[i].type).bytes * values) : 0);
    const PortPack& pack = packing.ports[i];
    (pack.weight ? bytes.weights : pack.late ? bytes.late : bytes.row) += moved;
    if (!pack.weight && !pack.late) bytes.values += values;
    if (phases[i] > 1) bytes.kept += moved;
  }
  // Numbers that are drawn stay, too; of Bernoulli's there is but a bit each.
  for (const auto& s : spec.body.statements) {
    if (s.kind != StatementKind::random || s.per_row) continue;
    if (s.rng.distribution == Distribution::bernoulli) continue;
    bytes.row += info(s.arithmetic).bytes * packing.width;
    bytes.kept += info(s.arithmetic).bytes * packing.width;
    bytes.values += packing.width;
  }
  return bytes;
}

bool computes_doubles(const KernelSpec& spec) {
  return std::any_of(spec.body.statements.begin(), spec.body.statements.end(),
                     [](const Statement& s) { return s.arithmetic == DataType::f64; });
}

constexpr int kKeptValues = 32;  // that a thread has computed and keeps from phase to phase

// Rows that lie together, of several phases, stay in registers where so few threads side by side
// that they still move whole lines of memory leave enough others along the rows.
bool hold_across(const KernelSpec& spec, double columns, RowwiseConfig& s) {
  constexpr int kBytes = 128, kLine = 128;  // that a thread holds; of memory
  if (!has_later_elements(spec)) return false;
  const int width = s.packing.width, cost = element_cost(spec, spec.body) * width;
  const PlaceBytes bytes = place_bytes(spec, s.packing);
  const int held = std::max(bytes.row, bytes.kept);
  // What a light body computes with the packs fits in 80 registers with them.
  constexpr int kLight = 6, kThreads = 768;
  const bool light = element_cost(spec, spec.body) <= kLight && !computes_doubles(spec);
  const auto try_side = [&](int threads, int side, int most) {
    const double along = threads / side, each = std::ceil(columns / along);
    if (side > s.rows_per_block || each * held > most || each * cost > kMostCode) return false;
    s.resident = true;
    s.threads = threads;
    s.rows_per_block = side;
    s.threads_per_row = static_cast<int>(along);
    s.prefetch = each * (bytes.row + bytes.weights) <= kBytes;
    s.renew = each * width > kKeptValues;
    s.unroll = 1;
    if (light) s.least_blocks = kThreads / threads;
    return true;
  };
  const auto try_threads = [&](std::initializer_list<int> all, int most) {
    // Half a line beats reading the rows again: 116 instead of 138 us for a softmax over 1024 rows
    // of 64 columns on an H200.
    for (int line : {kLine, kLine / 2})
      for (int threads : all)
        for (int side = 32; side * width * s.packing.narrowest >= line; side /= 2)
          if (try_side(threads, side, most)) return true;
    return false;
  };
  // Other bodies rather take more threads that hold half as much, but values as many as they keep:
  // 100 instead of 116 us for that softmax, and 0.15 s less to compile.
  const int most = std::max(kBytes / 2, kKeptValues * held / width);
  if (!light && !computes_doubles(spec) && try_threads({256, 512, 1024}, most)) return true;
  return try_threads({256, 512}, kBytes);
}

// How many rows lie one beside the other in memory, by what is read of them.
double rows_in_line(const KernelSpec& spec, const Packing& packing) {
  double most = 1;
  for (int p : ports_of_rows(spec, packing)) {
    const Access& a = spec.ports[static_cast<std::size_t>(p)].access;
    const PortPack::Kind kind = packing.ports[static_cast<std::size_t>(p)].kind;
    if (kind != PortPack::Kind::pack && kind != PortPack::Kind::shifted) continue;
    std::int64_t rows = 1;
    for (int i = spec.rowwise().outer_rank - 1; a.via.empty() && i >= 0 && a.stride[i] == rows; --i)
      rows *= spec.extent[i];
    most = std::max(most, static_cast<double>(rows));
  }
  return most;
}

// Packs across the rows. Where these start anywhere in memory, packs are cut out of the pieces
// around them if there are enough for all multiprocessors. Returns the rows, with those that two
// packs hold counted twice.
double choose_across(const KernelSpec& spec, const DeviceModel& device, RowwiseConfig& s) {
  constexpr int kLeast = 8;  // packs side by side, of a multiprocessor
  const int widest = std::min(8, widest_pack(spec)), dim = spec.rowwise().outer_rank - 1;
  const double runs = elements(spec.extent, 0, dim);
  const auto beside = static_cast<double>(spec.extent[dim]);
  s.packing = choose_packing(spec, dim, widest, true);
  Packing cut;
  int skew = -1;
  if (moves_narrowly(spec, s.packing) && choose_skewed_across(spec, widest, cut, skew)) {
    const double packs = runs * std::ceil(beside / cut.width);
    if (packs >= kLeast * device.sms) {
      s.packing = std::move(cut);
      s.skew = skew;
      return packs * s.packing.width;
    }
  }
  return runs * beside;
}

// Partial results that the kernel before has just written, so that the second-level cache holds
// them, are summed up by few large blocks, all of whose packs are under way at once: what they
// leave idle, the kernel after can take. (The gradients of a layernorm of 4096 x 5120 on an
// H200: 38.1 us with 160 blocks of 256 threads, 35.9 with 40 of 512; of 1024 x 5120, 16.2
// and 14.8.)
bool hold_parts(const KernelSpec& spec, double rows, double columns, const DeviceModel& device,
                RowwiseConfig& s) {
  constexpr double kMostCached = 0.64;                         // of the cache, surely still there
  constexpr int kThreads = 512, kSide = 32, kHeldPacks = 320;  // bytes
  const double cached = kMostCached * static_cast<double>(device.l2_bytes);
  if (!spec.rowwise().combines_partials || has_later_elements(spec) ||
      rows * columns * s.packing.narrowest > cached)
    return false;
  const int side = power_of_two_from(rows / s.packing.width, kSide),
            along = power_of_two_from(columns, kThreads / side);
  if (std::ceil(columns / along) * s.packing.fetched_bytes > kHeldPacks) return false;
  s.threads_per_row = along;
  s.rows_per_block = power_of_two_from(rows / s.packing.width, kThreads / along);
  s.threads = s.threads_per_row * s.rows_per_block;
  s.resident = true;
  s.unroll = 1;
  return true;
}

// The threads of a block, side by side and along the rows, and what each holds.
void divide_across(const KernelSpec& spec, double rows, double columns, const DeviceModel& device,
                   RowwiseConfig& s) {
  const int width = s.packing.width;
  if (hold_parts(spec, rows, columns, device, s)) return;
  // Narrower blocks, down to a line of memory, where there are few; down to a sector, with many
  // threads along a row, where rows are long and all surely lies in the second-level cache.
  constexpr double kCached = 0.08, kLong = 1024;  // of the cache; columns
  const bool cached = columns >= kLong && rows * columns * s.packing.narrowest <=
                                              kCached * static_cast<double>(device.l2_bytes);
  const int least = cached ? 2 : 8;
  s.threads = cached ? 1024 : 256;
  s.rows_per_block = power_of_two_from(rows / width, 32);
  while (s.rows_per_block > least && rows / (width * s.rows_per_block) < device.sms)
    s.rows_per_block /= 2;
  // No wider than rows do lie together, if the rows are long enough for the threads.
  const double beside = rows_in_line(spec, s.packing) / width;
  while (s.rows_per_block > 1 && s.rows_per_block >= 2 * beside &&
         2 * s.threads <= columns * s.rows_per_block)
    s.rows_per_block /= 2;
  s.threads_per_row = std::min(s.threads / s.rows_per_block, power_of_two_from(columns, 1024));
  s.threads = s.rows_per_block * s.threads_per_row;
  const int cost = element_cost(spec, spec.body) * width;
  const int bytes = std::max(1, s.packing.fetched_bytes);
  s.unroll = power_of_two_to(std::min(kMostCode / std::max(cost, 1), 2 * kFlightBytes / bytes), 8);
  // What is cut out of pieces takes registers twice. (Columns of 131 x 1000003 on an H200: of i8
  // 69 us by elements and with eight packs of eight under way, 58 with four; of bf16 86 by
  // elements, 80 and 74 with four and eight packs of four.)
  constexpr int kCut = 32;
  if (s.skew >= 0) s.unroll = std::min(s.unroll, kCut / width);
  if (hold_across(spec, columns, s)) return;
  // Rows that are not much longer than a round are fetched in one go, which takes less code.
  const double each = std::ceil(columns / s.threads_per_row);
  s.resident = !has_later_elements(spec) && 2 * each <= 3 * s.unroll;
  // With so many registers the compiler leaves all packs of a round under way.
  const bool light = spec.rowwise().reductions.size() == 1 &&
                     partial_type(spec.rowwise().reductions[0].mode,
                                  spec.rowwise().reductions[0].arithmetic) == DataType::f32;
  if (light && s.threads == 256) s.least_blocks = 4;
}

// Neighbouring threads hold neighbouring rows: columns of a matrix that are summed up.
void schedule_across(const KernelSpec& spec, const DeviceModel& device, RowwiseConfig& s) {
  const double rows = choose_across(spec, device, s),
               columns = elements(spec.extent, spec.rowwise().outer_rank, spec.extent.size());
  divide_across(spec, rows, columns, device, s);
  s.grid = clamp_grid(std::ceil(rows / (s.rows_per_block * s.packing.width)));
}

// Threads for a row so that each has `each` places: whole warps where one is not enough.
int threads_for(double places, double each) {
  each = std::max({each, std::ceil(places / 1024), 1.0});
  const double n = std::ceil(places / each);
  if (n <= 32) return power_of_two_from(n, 32);
  return static_cast<int>(std::ceil(n / 32) * 32);
}

// The share of those threads that have work.
double busy_share(double places, double each) {
  return places / (threads_for(places, each) * each);
}

constexpr int kUsualPlaces = 4;  // of a long row, that a thread holds

// Threads of one warp for a row of at most 128 places, so that as few of them as possible idle.
int threads_of_warp(double places) {
  const auto taken = [&](int threads) { return threads * std::ceil(places / threads); };
  int best = 32;
  for (int n = 16; n >= 1 && std::ceil(places / n) <= kUsualPlaces; n /= 2)
    if (taken(n) < taken(best)) best = n;
  return best;
}

// Threads of one warp for a short row that moves element by element: few, as instructions are what
// takes the time, but enough that they read whole sectors of memory together. Counts what each
// place and each step of exchanging a reduction take. (Softmax of 49 columns on an H200: 160 -> 86
// us; of 127 columns it is slower so.)
int threads_of_narrow(double places, std::size_t reductions) {
  constexpr int kLeast = 8, kPlace = 12, kExchange = 2;
  constexpr double kMostPlaces = 8, kMostRow = 64;
  if (places > kMostRow) return 0;
  int best = 0;
  double least = 0;
  for (int n = 32; n >= kLeast; n /= 2) {
    const double each = std::ceil(places / n);
    if (each > kMostPlaces) break;
    const double cost = n * (each * kPlace + std::bit_width(static_cast<unsigned>(n) / 2) *
                                                 kExchange * static_cast<double>(reductions));
    if (best == 0 || cost < least) best = n, least = cost;
  }
  return best;
}

// Threads of a block for a row of which each has at most `most` places, so that few of them idle;
// 0 where so few cannot take it.
int threads_to_hold(double places, double most) {
  constexpr int kMostThreads = 512;
  int best = 0;
  double busiest = 0;
  for (double each = most; each >= 1; --each) {
    const int threads = threads_for(places, each);
    const double busy = busy_share(places, each);
    if (threads <= kMostThreads && busy > busiest) best = threads, busiest = busy;
  }
  return best;
}

constexpr int kHeldBytes = 128;            // of a row, that a thread holds in 56 or 64 registers
constexpr int kHeldByFew = 192;            // in blocks of at most 512 threads
constexpr double kThreadsTogether = 1152;  // of a multiprocessor's blocks, with 56 registers each
constexpr int kLongRow = 32 << 10, kShortSkewed = 1536;  // bytes
// Columns of rows that are walked over, up to which instructions bound them rather than memory.
constexpr int kShortWalk = 2304;

// Blocks of at most 256 threads that share a row, so that several rows are under way on a
// multiprocessor; 1 where their threads would idle too much. With weights the shares must be equal
// (109 and 137 us for an rmsnorm of 2048 x 50257 on an H200; a softmax is 14 % faster so).
int small_blocks(double places, bool weights) {
  constexpr double kLeast = 0.85;  // of the threads are busy
  for (int blocks = 1; blocks <= 8; blocks *= 2) {
    const double threads = places / (kUsualPlaces * blocks);
    if (threads > 256) continue;
    const double busy = threads / (std::ceil(threads / 32) * 32);
    return busy >= (weights ? 1 : kLeast) ? blocks : 1;
  }
  return 1;
}

// Blocks that share a row: where it is too long for one block's registers, or where few rows would
// leave multiprocessors idle. Rows of several reductions wait so often that a block should not fill
// a multiprocessor alone, if the device has clusters instead. `held`: bytes at a place, of which
// none costs less than a whole pack. `weights`: some are read by all rows.
int blocks_for_row(const KernelSpec& spec, double rows, double places, int held, bool weights,
                   const DeviceModel& device) {
  const bool clusters = device.has_clusters;
  if (!has_later_elements(spec)) return 1;
  const double bytes = places * std::max(held, kMoveBytes);
  const bool waits = clusters && spec.rowwise().phases > 2 && held >= kMoveBytes;
  constexpr double kHalf = kThreadsTogether / 2 * kHeldBytes, kWhole = 128 << 10, kLeast = 16 << 10;
  int blocks = 1;
  // Weights that are fetched between two waits would delay the whole cluster.
  if (clusters && held >= kMoveBytes && held < 2 * kMoveBytes &&
      !(weights && spec.rowwise().phases > 2))
    blocks = small_blocks(places, weights);
  if (bytes > (waits ? kHalf : kWhole))
    while (blocks < 8 && bytes / blocks > kHalf) blocks *= 2;
  while (blocks < 8 && rows * blocks * 2 <= 2 * device.sms && bytes / (blocks * 2) >= kLeast)
    blocks *= 2;
  return blocks;
}

// Packs along the rows. Rows that start anywhere in memory are cut where it is aligned, but short
// ones are not: their ends cost more than that saves, the more so if two elements would move
// together. Returns the places of a row.
double choose_places(const KernelSpec& spec, int widest, RowwiseConfig& s) {
  const int rank = spec.extent.size();
  const double columns = elements(spec.extent, spec.rowwise().outer_rank, rank);
  // Short rows of gradients keep wide packs, as instructions bound them. (From bf16 to f32, 1152
  // columns take 80 us with 32 bytes a thread and 86 with 16; 5120 columns 62 and 46.)
  const bool stores = spec.columns.empty() || columns > kShortWalk;
  s.packing =
      choose_packing(spec, rank > spec.rowwise().outer_rank ? rank - 1 : -1, widest, stores);
  const double row_bytes = columns * s.packing.narrowest;
  const bool is_short = spec.columns.empty() ? row_bytes < kShortSkewed : columns <= kShortRow;
  const bool apart = s.packing.width * s.packing.narrowest <= (row_bytes > kLongRow ? 4 : 2);
  if (apart && !is_short && column_kinds(spec) == 1 &&
      choose_skewed_rows(spec, widest, s.packing, s.skew))
    return std::floor((columns - 2) / s.packing.width) + 2;
  return columns / s.packing.width;
}

// Rows that a thread has under way at once: several where one alone leaves memory idle. Rows that
// stay for later phases occupy registers, so that only what moves element by element gains, a
// little. (Sums of 32 columns on an H200: 81 -> 65 us; of 131, 151 -> 87; softmax of 197, 69 -> 67;
// norms of 128 columns are 3 % slower so.)
int rows_for_thread(const KernelSpec& spec, double rows, double each, int bytes,
                    const DeviceModel& device, const RowwiseConfig& s) {
  constexpr int kUnderWay = 32, kMost = 4;  // bytes; rows
  if (!s.resident || s.threads_per_row > 32 || s.blocks_per_row > 1) return 1;
  const double of_row = each * std::max(bytes, 1);
  const bool narrow = s.packing.width * s.packing.narrowest <= 2;
  int most = power_of_two_from(kUnderWay / of_row, kMost);
  if (has_later_elements(spec)) most = narrow && 2 * of_row < kUnderWay ? 2 : 1;
  const double code = each * s.packing.width * element_cost(spec, spec.body);
  int n = 1;
  while (n < most && 2 * n * code <= kMostCode &&
         rows / (2 * n * s.rows_per_block) >= device.enough_ctas)
    n *= 2;
  return n;
}

// Threads for a row of so many places in each of the blocks that share it; `held`: bytes at a
// place.
int usual_threads(const KernelSpec& spec, double rows, double places, int held,
                  const DeviceModel& device, const RowwiseConfig& s) {
  const int width = s.packing.width;
  // A thread holds more places where they are narrow, as long as there is a warp for each row; few
  // rows get more threads each. A short row's places go to neighbouring threads of one warp.
  const bool few = rows < device.enough_ctas;
  double narrow = kFlightBytes / (width * s.packing.narrowest);
  // What a third phase needs of the first two is computed again unless it stays in registers.
  if (spec.rowwise().phases > 2)
    narrow = std::min(narrow, static_cast<double>(kKeptValues) / width);
  // No more than registers hold, if other packs are wider.
  if (has_later_elements(spec)) narrow = std::min<double>(narrow, kHeldByFew / std::max(held, 1));
  const double usual = std::max<double>(kUsualPlaces, std::min(narrow, std::ceil(places / 32)));
  const bool narrow_places = width * s.packing.narrowest <= 2 && s.skew < 0 && !few;
  int threads_per_row;
  if (const int n = narrow_places ? threads_of_narrow(places, spec.rowwise().reductions.size()) : 0;
      n > 0)
    threads_per_row = n;
  else if (places <= 128 && !few)
    threads_per_row = threads_of_warp(places);
  else
    threads_per_row = threads_for(places, few ? 1 : usual);
  // A warp less, with more places each, where many threads would idle.
  const auto busy = [&](int threads) { return places / (threads * std::ceil(places / threads)); };
  if (const int fewer = threads_per_row - 32; !few && fewer >= 32 && fewer <= 96 &&
                                              busy(threads_per_row) < 0.8 &&
                                              busy(fewer) > busy(threads_per_row))
    threads_per_row = fewer;
  // Instead of a large block, as many as can hold their rows share a multiprocessor, with all its
  // threads: one computes while others wait.
  if ((s.blocks_per_row > 1 || spec.rowwise().phases > 2) && threads_per_row > 512) {
    const double most = std::max(1, kHeldBytes / std::max(held, 1));  // places of a thread
    const double beside = std::min(std::floor(kThreadsTogether / threads_for(places, most)),
                                   std::ceil(rows * s.blocks_per_row / device.sms));
    if (beside > 1)
      threads_per_row = threads_for(places, std::min(most, std::ceil(places * beside / 1024)));
  }
  return threads_per_row;
}

// A row can be held in two other ways than the usual.
struct Holding {
  bool late = false;  // what many rows share is not held with the row, if there is such a thing
  bool more = false;  // by as many threads of a block as can hold it
};

// False where the way does not apply.
bool schedule_along(const KernelSpec& spec, const DeviceModel& device, Holding way,
                    RowwiseConfig& s) {
  const double rows = elements(spec.extent, 0, spec.rowwise().outer_rank),
               places_of_row = choose_places(spec, widest_pack(spec), s);
  if (way.late && !fetch_late(spec, s.packing)) return false;
  const int cost = element_cost(spec, spec.body), width = s.packing.width;
  const PlaceBytes bytes = place_bytes(spec, s.packing);
  const int held = std::max(bytes.row, bytes.kept);
  s.blocks_per_row = blocks_for_row(spec, rows, places_of_row, held, bytes.weights > 0, device);
  const double places = std::ceil(places_of_row / s.blocks_per_row);  // of one block
  if (way.more) {
    const double most =
        std::floor(std::min(static_cast<double>(kHeldByFew) / std::max(held, 1),
                            static_cast<double>(kMostCode) / std::max(width * cost, 1)));
    s.threads_per_row = threads_to_hold(places, most);
    if (s.blocks_per_row > 1 || s.threads_per_row == 0) return false;
  } else {
    s.threads_per_row = usual_threads(spec, rows, places, held, device, s);
  }
  s.rows_per_block = s.blocks_per_row > 1 ? 1 : std::max(1, 256 / s.threads_per_row);
  while (s.rows_per_block > 1 && s.rows_per_block * s.threads_per_row > 32 &&
         rows / s.rows_per_block < device.enough_ctas)
    s.rows_per_block /= 2;
  s.threads = s.threads_per_row * s.rows_per_block;
  const double each = std::ceil(places / s.threads_per_row);
  const int all = bytes.row + bytes.weights + bytes.late;
  s.resident = each * held <= (s.threads > 512 ? kHeldBytes : kHeldByFew) &&
               each * width * cost <= kMostCode;
  if (s.resident) {
    // Values that many registers would hold are cheaper to compute again from the packs.
    const bool many = s.threads > 256 || s.blocks_per_row > 1;
    const int values = many ? std::max(width, bytes.values) : width;
    s.renew = s.threads > 512 || each * values > kKeptValues;
    s.prefetch = !way.late && s.threads <= 256 && each * all <= 128;
    // A block of many threads occupies registers in large steps. Smaller ones are limited, too,
    // where 64 registers hold a thread's values.
    // What is held beside them for a third phase needs 80. (An rmsnorm scaled to f8 by its rows'
    // largest values on an H200: 75 -> 64 us.)
    constexpr double kThird = 48;
    const double numbers = each * std::max(width, bytes.values) * (computes_doubles(spec) ? 2 : 1);
    const double packs = each * (bytes.row + (s.prefetch ? bytes.weights : 0)) / 4;
    const bool third = s.threads == 256 && spec.rowwise().phases > 2 && numbers + packs > kThird;
    const int together = third ? 768 : 1024,
              least = std::max(1, (together + s.threads / 2) / s.threads);
    const bool limited =
        s.threads > 256 || (s.threads == 256 && s.blocks_per_row == 1 && numbers <= 32);
    if (limited && least * s.threads <= kThreadsTogether) s.least_blocks = least;
    // Beside what is held there is room for one run of random numbers.
    if (s.threads > 256) s.packing.runs_beside = 1;
  }
  if (!s.resident || s.blocks_per_row > 1)  // what has no clusters streams such rows
    s.unroll = power_of_two_to(
        std::min(kMostCode / std::max(cost * width, 1), kFlightBytes / std::max(all, 1)), 4);
  s.rows_at_once = rows_for_thread(spec, rows, each, bytes.row, device, s);
  s.grid = clamp_grid(std::ceil(rows / (s.rows_per_block * s.rows_at_once)) * s.blocks_per_row);
  return true;
}

// Bytes that a place brings of its row to shared memory, or 0 where something cannot be brought so.
int bytes_ahead(const KernelSpec& spec, const Packing& packing) {
  int bytes = 0;
  for (int i : ports_of_rows(spec, packing)) {
    const KernelPort& p = spec.ports[static_cast<std::size_t>(i)];
    const PortPack& pack = packing.ports[static_cast<std::size_t>(i)];
    const int size = info(p.type).bytes;
    if (pack.kind != PortPack::Kind::pack || !p.access.windows.empty() ||
        std::min(pack.aligned, packing.width) * size < 4)
      return 0;
    bytes += packing.width * size;
  }
  return bytes;
}

// Registers that each thread can have where so many share a multiprocessor. Each quarter of it has
// its own, for whole warps.
double registers_with(const DeviceModel& device, int threads) {
  const int of_quarter = device.registers_per_sm / 4;
  const int warps = (threads + 127) / 128;  // of a quarter
  return std::min(of_quarter / (32 * warps) / 8 * 8, 248);
}

constexpr double kBesideHeld = 24, kBesideValues = 20;  // registers, beside what a thread holds
constexpr double kLongWalk = 10;  // rows, in which a ring pays for its filling

// How the threads of a block that has a multiprocessor for itself are divided among rows, where
// columns have several results; `numbers`: registers of a place, `walk`: rows of each block. What a
// step costs a warp beside its elements is a third of all, so that a thread holds some places: the
// threads of a row are few, and there are more rows. (A layernorm's gradients on an H200: 2560
// columns 71.8 -> 66.0 us, 3072 81.5 -> 77.5, 1152 66.8 -> 60.7.) 0 rows: not divided.
struct Division {
  int threads_per_row = 0, rows = 0;
};
Division divide_block(double places, double numbers, double walk, int place_bytes,
                      const DeviceModel& device) {
  constexpr int kThreads = 640, kFewThreads = 384, kEnoughWarps = 16, kSlotBytes = 56 << 10;
  constexpr double kShort = 288;  // places of a row, which instructions bound rather than memory
  Division best;
  double busiest = 0;
  for (int each : {2, 3}) {
    const int threads = threads_for(places, each);
    int most = 0;  // rows that fit
    while ((most + 1) * kLongWalk <= walk && (most + 1) * threads <= kThreads &&
           (most + 1) * threads * each * place_bytes <= kSlotBytes &&
           registers_with(device, (most + 1) * threads) >= each * numbers + kBesideHeld)
      ++most;
    const double busy = busy_share(places, each);
    // Among equals, of long rows, those that leave a block more than one.
    if (most * threads < kFewThreads || busy < busiest ||
        (busy == busiest && places > kShort && best.rows > 1))
      continue;
    busiest = busy;
    best = {threads, 0};
    // Whole quarters of a multiprocessor, and a last step that is whole, too.
    double fullest = 0;
    for (int rows = most; 2 * rows > most; --rows) {
      if (rows * threads % 32 != 0) continue;  // no whole warps
      const double warps = rows * threads / 32.0, steps = walk / rows,
                   full = warps / (4 * std::ceil(warps / 4)) * steps / std::ceil(steps) *
                          std::min(1.0, warps / kEnoughWarps);
      if (full > fullest) fullest = full, best.rows = rows;
    }
  }
  return best;
}

// Whether all that belongs to rows as a whole are numbers of f32 at places of their own.
bool loads_row_numbers(const KernelSpec& spec) {
  int loads = 0;
  for (const auto& s : spec.body.statements) {
    if (s.kind != StatementKind::load || !s.per_row) continue;
    const KernelPort& p = spec.ports[static_cast<std::size_t>(s.port)];
    if (p.type != DataType::f32 || !p.access.windows.empty()) return false;
    ++loads;
  }
  return loads > 0;
}

// Blocks that walk over the rows and keep running results of the columns. The planner gives as many
// slots as pay (columns.cpp): fewer than there are multiprocessors, or some on each, which then
// share its threads.
void schedule_columns(const KernelSpec& spec, const DeviceModel& device, RowwiseConfig& s) {
  // For the rings of a multiprocessor's blocks, beside what their totals take: 192 KB of 228, 80 of
  // 100.
  const int ring_bytes = device.shared_per_sm / 100 * 85 >> 14 << 14;
  constexpr double kLeastBusy = 0.85;      // of a row's warps
  constexpr double kFewNumbers = 20;       // that a thread holds beside what else it needs
  constexpr std::size_t kLittleCode = 24;  // statements
  const int rank = spec.extent.size();
  const RowwiseSpec& r = spec.rowwise();
  const double rows = elements(spec.extent, 0, r.outer_rank),
               columns = elements(spec.extent, r.outer_rank, rank);
  const double slots = static_cast<double>(r.num_partials), beside = r.rows_per_cta;
  s.blocks_per_row =
      column_cluster(static_cast<std::int64_t>(columns), spec.columns.size(), device);
  const double places =
      std::ceil(choose_places(spec, std::min(8, widest_pack(spec) / 2), s) / s.blocks_per_row);
  // Of a multiprocessor: its blocks, and the rows that it takes side by side.
  const double blocks = std::ceil(slots * s.blocks_per_row / device.sms), walkers = blocks * beside;
  const PlaceBytes bytes = place_bytes(spec, s.packing);
  const double numbers = s.packing.width * static_cast<double>(spec.columns.size()) +
                         (bytes.row + bytes.weights) / 4;  // of a place
  // Sums of doubles take twice the registers.
  const bool doubles = spec.sums_doubles();
  // A short row's places go to neighbouring threads of one warp, which need no barrier; so do those
  // of a longer one whose warps would idle, to half as many threads. (Gradients of 517 and 777
  // columns on an H200: 61 -> 34 us and 42 -> 34; of 1001, which 126 of 128 threads take: 33
  // and 34.)
  const bool idle = places > 32 && places <= 32 * kUsualPlaces &&
                    places / (std::ceil(places / 32) * 32) < kLeastBusy;
  const bool one_warp = columns <= kShortRow || idle;
  // With 48 registers there are more threads: 5120 columns in 64 instead of 78 us.
  const bool light =
      !doubles && numbers <= kFewNumbers && spec.body.statements.size() <= kLittleCode;
  // Where columns have several results, a body that needs more registers gets half as many threads.
  const bool several = spec.columns.size() > 1,
             heavy = several && numbers + bytes.values + kBesideValues >
                                    registers_with(device, kColumnThreads);
  const double together = idle || heavy ? kColumnThreads / 2
                          : light       ? kLightColumnThreads
                                        : kColumnThreads;
  // Long rows then take fewer threads, too, if these can hold them. (A layernorm's gradients of
  // 8192 x 7168 on an H200: 103 us with 896 threads, 95 with 448.)
  constexpr int kMany = 640, kFewer = 512;
  const bool fewer = (several || s.blocks_per_row > 1) && places > kMany &&
                     std::ceil(places / static_cast<double>(kFewer)) * numbers + kBesideHeld <=
                         registers_with(device, kFewer);
  // A block has at most 1024, of the rows that it takes side by side.
  const double most = std::min(fewer ? kFewer : 1024.0, std::floor(1024 / beside / 32) * 32),
               threads = std::min(together / walkers, most);
  s.threads_per_row = threads_for(places, std::ceil(places / (one_warp ? 32 : threads)));
  // (An rmsnorm's gradients of 4096 x 20480: 136 us with 448 threads of three places, 123 with 640
  // of two. A layernorm's are 2 % slower so.)
  if (fewer && !several && places <= 2 * kMany && busy_share(places, 2) > busy_share(places, 3))
    s.threads_per_row = threads_for(places, 2);
  const int least = std::max(1, 32 / s.threads_per_row);  // rows of a warp
  s.rows_per_block =
      std::max(least, power_of_two_to(std::min(threads / (doubles ? 2 : 1) / s.threads_per_row,
                                               rows / std::max(slots * beside, 1.0)),
                                      1024));
  if (s.blocks_per_row > 1) s.rows_per_block = 1;
  s.rows_per_block *= spec.rowwise().rows_per_cta;
  const int place_ahead = bytes_ahead(spec, s.packing);
  const bool narrow_sums = std::none_of(
      spec.columns.begin(), spec.columns.end(),
      [](const ColumnReduction& c) { return partial_type(c.mode, c.arithmetic) == DataType::f64; });
  Division divided;
  if (several && narrow_sums && s.blocks_per_row == 1 && slots <= device.sms &&
      columns > kShortRow && rows >= kLongWalk * slots && place_ahead > 0)
    divided = divide_block(places, numbers, rows / slots, place_ahead, device);
  if (divided.rows > 0) {
    s.threads_per_row = divided.threads_per_row;
    s.rows_per_block = divided.rows;
  }
  s.threads = s.threads_per_row * s.rows_per_block;
  s.least_blocks = doubles ? 1 : static_cast<int>(blocks);
  s.resident = true;
  // Weights stay in registers where these suffice; a row's values are computed again from its packs
  // where they would not fit beside those.
  const double each = std::ceil(places / s.threads_per_row),
               registers = registers_with(device, s.threads * s.least_blocks);
  s.prefetch = each * numbers + kBesideHeld <= registers;
  s.renew = each * (numbers + bytes.values) + kBesideValues > registers;
  const int slot_bytes = s.threads * static_cast<int>(each) * place_ahead;
  const bool few = rows < kLongWalk * slots * s.rows_per_block;
  if (slot_bytes > 0 && !few)
    s.ring = std::min(2, ring_bytes / static_cast<int>(blocks) / slot_bytes);
  if (s.ring > 0) {
    // More on their way at once than keep memory busy hinder each other. (12288 columns: 91 -> 84
    // us; with dropout and a residual, 4096 columns, 194 -> 183.)
    constexpr int kUnderWay = 48 << 10;
    s.slot_bytes = slot_bytes;
    s.under_way = divided.rows > 0 && slot_bytes >= kUnderWay ? 0 : s.ring - 1;
    // (12288 columns: 97 -> 91 us; 10240: 77 -> 64; 2304: 57.1 -> 56.0; but 4096: 54 -> 57.)
    s.by_lanes = divided.rows > 0 && (s.rows_per_block == 1 || columns <= kShortWalk) &&
                 s.threads_per_row % 32 == 0 && loads_row_numbers(spec);
  }
  s.ahead = s.ring > 0 || s.prefetch;
  s.grid = static_cast<std::uint32_t>(spec.rowwise().num_partials * s.blocks_per_row);
}

void choose_rowwise(const KernelSpec& spec, const DeviceModel& device, RowwiseConfig& s) {
  if (!spec.columns.empty()) return schedule_columns(spec, device, s);
  s.rows_fastest = rows_lie_together(spec);
  if (s.rows_fastest) return schedule_across(spec, device, s);
  const RowwiseConfig start = s;
  schedule_along(spec, device, {}, s);
  if (s.resident || !has_later_elements(spec)) return;
  constexpr Holding kWays[] = {{.late = true}, {.late = true, .more = true}, {.more = true}};
  for (const Holding& way : kWays) {
    RowwiseConfig other = start;
    if (schedule_along(spec, device, way, other) && other.resident) {
      s = other;
      return;
    }
  }
}

// Blocks that run at once, at the most, if they should prefetch: rows that are needed in several
// phases.
int early_blocks(const KernelSpec& spec, const DeviceModel& device, const RowwiseConfig& s) {
  if (!s.resident || !has_later_elements(spec)) return 0;
  return device.sms * device.threads_per_sm / s.threads;
}

}  // namespace

RowwiseConfig schedule_rowwise(const KernelSpec& spec, const DeviceModel& device) {
  RowwiseConfig s;
  s.wide_index = needs_wide_index(spec);
  choose_rowwise(spec, device, s);
  s.early = early_blocks(spec, device, s);
  s.shared_bytes = static_cast<std::uint32_t>(s.ring * s.slot_bytes);
  return s;
}

}  // namespace sinter
