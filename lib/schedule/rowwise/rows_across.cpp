// Rows that lie next to each other in memory: neighbouring threads hold neighbouring rows.
#include <algorithm>
#include <cmath>
#include <initializer_list>

#include "plan/access.hpp"
#include "plan/liveness.hpp"
#include "schedule/rowwise/rowwise_parts.hpp"

namespace sinter {
namespace {

constexpr double kCached = 0.08;  // of the second-level cache, that surely holds it

// Rows as the fastest index, of several phases, stay in registers where so few threads side by side
// that they still move whole lines of memory leave enough others along the rows.
bool hold_across(const KernelSpec& spec, double columns, const DeviceModel& device,
                 RowwiseConfig& s) {
  constexpr int kBytes = 128, kLine = 128, kSector = 32;  // that a thread holds; of memory
  if (!has_later_elements(spec)) return false;
  const int width = s.packing.width, cost = element_cost(spec, spec.body) * width;
  const VectorBytes bytes = vector_bytes(spec, s.packing);
  const int held = std::max(bytes.row, bytes.kept);
  // What a light body computes with the packs fits in 80 registers with them.
  constexpr int kLight = 6, kThreads = 768;
  const bool light = element_cost(spec, spec.body) <= kLight && !computes_doubles(spec);
  // Of rows with fewer columns than threads along them, more lie side by side. (Results of 4096
  // rows of 512 in two parts, on an H100: 60 us with six of eight threads idle.)
  const int most_along = power_of_two_from(columns, 1024);
  const auto try_side = [&](int threads, int side, int most) {
    const int along = std::min(threads / side, most_along);
    const double each = std::ceil(columns / along);
    if (side > s.rows_per_block || each * held > most || each * cost > kMostCode) return false;
    s.resident = true;
    s.threads = threads;
    s.rows_per_block = threads / along;
    s.threads_per_row = along;
    s.prefetch = each * (bytes.row + bytes.weights) <= kBytes;
    s.recompute = each * width > kKeptValues;
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
  if (!(!light && !computes_doubles(spec) && try_threads({256, 512, 1024}, most)) &&
      !try_threads({256, 512}, kBytes))
    return false;
  // Few blocks of as many threads as can be are bound by their own instructions. What the
  // second-level cache holds comes in sectors, which more blocks share. (A batch norm whose 64
  // channels have 896 partial results each, on an H200: 26.4 us with two blocks of 1024 threads to
  // combine these, 24.2 with eight of 256.)
  constexpr double kFewBlocks = 4;
  const double rows = elements(spec.extent, 0, spec.rowwise().outer_rank);
  if (!spec.rowwise().any_length && s.threads == 1024 &&
      rows / (s.rows_per_block * width) <= kFewBlocks &&
      rows * columns * s.packing.narrowest <= kCached * static_cast<double>(device.l2_bytes))
    for (int threads : {256, 512, 1024})
      if (try_side(threads, std::max(1, kSector / (width * s.packing.narrowest)), most)) break;
  return true;
}

// Short rows have no more threads along them than can hold them where there are enough rows for
// every SM: what is computed of a row is computed by each of its threads. A thread holds as many
// costly values as it keeps. (Scales of 16 f4 numbers of bf16 and their quotients, on an H100: 145
// us with eight threads, 103 with four, 83 with two; softmax over 12 of 12 x 5000: 97, 82 and 85
// us.)
// Partial results lie in the second-level cache, and rows of them are few: what takes their time is
// what threads exchange, so that each has eight packs in flight, unless SMs are idle then. (One
// query of 64 heads of one, 16,384 keys, d128, with the attention on an H200, us: 8 parts of 16
// entries by eight threads 40.9, four 39.9, two 39.6, one 39.2; 16 parts of 4 by eight 16.1,
// four 15.0, two 14.9, one 15.4; 66 parts of one by 32 10.6, 16 9.3. 8 parts of 32 rows by eight
// and two 21.9 and 22.0.)
void share_short_rows(const KernelSpec& spec, const DeviceModel& device, double rows,
                      double columns, RowwiseConfig& s) {
  constexpr double kBytes = 128, kPacksOfParts = 8;  // that a thread holds
  constexpr double kThreadsForParts = 64;            // of an SM
  const bool parts = spec.rowwise().combines_partials;
  const double threads = device.sms * (parts ? kThreadsForParts : device.threads_per_sm);
  RowwiseConfig fewer = s;
  for (int along = 1; along < s.threads_per_row; along *= 2) {
    const double each = std::ceil(columns / along);
    fewer.threads_per_row = along;
    fewer.rows_per_block = s.threads / along;
    fewer.recompute = each * s.packing.width > kKeptValues;
    fewer.prefetch = s.prefetch || parts;
    const bool holds =
        parts ? each <= kPacksOfParts : each * vector_bytes(spec, s.packing).row <= kBytes;
    if (rows / s.packing.width * along < threads || !holds) continue;
    if (fewer.recompute && !kept_values(spec, s).empty()) continue;
    s = std::move(fewer);
    return;
  }
}

// How many rows lie next to each other in memory, by what is read of them.
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
// around them if there are enough for all SMs. Returns the rows, with those that two
// packs hold counted twice.
double choose_across(const KernelSpec& spec, const DeviceModel& device, RowwiseConfig& s) {
  constexpr int kLeast = 8;  // packs side by side, of an SM
  const int widest = std::min(8, widest_pack(spec)), dim = spec.rowwise().outer_rank - 1;
  const double runs = elements(spec.extent, 0, dim);
  const auto beside = static_cast<double>(spec.extent[dim]);
  s.packing = choose_packing(spec, dim, widest, true);
  Packing cut;
  int aligned_by = -1;
  if (spec.rowwise().group == 1 && moves_narrowly(spec, s.packing) &&
      choose_misaligned_across(spec, widest, cut, aligned_by)) {
    const double packs = runs * std::ceil(beside / cut.width);
    if (packs >= kLeast * device.sms) {
      s.packing = std::move(cut);
      s.aligned_by = aligned_by;
      return packs * s.packing.width;
    }
  }
  return runs * beside;
}

// Partial results that the kernel before has just written, so that the second-level cache holds
// them, are summed up by few large blocks, all of whose packs are in flight at once: what they
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
  const bool any_length = spec.rowwise().any_length;
  if (!any_length && hold_parts(spec, rows, columns, device, s)) return;
  // Narrower blocks, down to a line of memory, where there are few; with many threads along a row
  // where rows are long, or may be, and all surely lies in the second-level cache: of long ones
  // down to a sector. (Rows of any length, H200: 128 rows of 1024 bf16 in 1.25 us by lines, 1.37 by
  // sectors; 8 of 4096 f32 in 0.80 and 0.86.)
  constexpr double kLong = 1024;  // columns
  const bool cached =
      (columns >= kLong || any_length) &&
      rows * columns * s.packing.narrowest <= kCached * static_cast<double>(device.l2_bytes);
  const int least = cached && columns >= kLong ? 2 : 8;
  s.threads = cached ? 1024 : 256;
  s.rows_per_block = power_of_two_from(rows / width, 32);
  while (s.rows_per_block > least && rows / (width * s.rows_per_block) < device.sms)
    s.rows_per_block /= 2;
  // No wider than rows are contiguous, if the rows are long enough for the threads.
  const double beside = rows_in_line(spec, s.packing) / width;
  while (s.rows_per_block > 1 && s.rows_per_block >= 2 * beside &&
         2 * s.threads <= columns * s.rows_per_block)
    s.rows_per_block /= 2;
  // Where rows may have any length, each thread has some of it: what threads have is added up at
  // the end. (128 rows of 1024 bf16 on an H200: 1.7 us with eight each, 1.2 where the length is
  // constant.)
  constexpr double kSome = 8, kWarp = 32;
  const double along =
      any_length ? std::max(columns / kSome, std::min(columns, kWarp / s.rows_per_block)) : columns;
  s.threads_per_row = std::min(s.threads / s.rows_per_block, power_of_two_from(along, 1024));
  // Short rows have few threads along them where there are enough rows for every SM: each then has
  // more in flight, and less is exchanged. (Sums of 12 x 1000 of 80 million bf16 on an H200: 60.5
  // us with 8 threads, 45.5 with 2.)
  constexpr double kShortRow = 8;
  const int few = power_of_two_from(columns / kShortRow, s.threads_per_row);
  if (!any_length && !cached && few < s.threads_per_row &&
      rows / width * few >= static_cast<double>(device.sms) * device.threads_per_sm) {
    s.threads_per_row = few;
    s.rows_per_block = s.threads / few;
  }
  s.threads = s.rows_per_block * s.threads_per_row;
  const int cost = element_cost(spec, spec.body) * width;
  const int bytes = std::max(1, s.packing.fetched_bytes);
  s.unroll = power_of_two_to(std::min(kMostCode / std::max(cost, 1), 2 * kFlightBytes / bytes), 8);
  // What is cut out of pieces takes registers twice. (Columns of 131 x 1000003 on an H200: of i8
  // 69 us by elements and with eight packs of eight in flight, 58 with four; of bf16 86 by
  // elements, 80 and 74 with four and eight packs of four.)
  constexpr int kCut = 32;
  if (s.aligned_by >= 0) s.unroll = std::min(s.unroll, kCut / width);
  // Other plans of a class have longer rows, up to so much: of 16 images, where one of 13 stands
  // for all. Their vectors past the end are fetched by no thread.
  constexpr double kLonger = 1.25;
  const double longest = any_length ? kLonger * columns : columns;
  if (hold_across(spec, longest, device, s)) {
    if (!any_length) share_short_rows(spec, device, rows, columns, s);
    if (any_length) s.held_vectors = static_cast<int>(std::ceil(longest / s.threads_per_row));
    return;
  }
  if (any_length) return;
  // Rows that are not much longer than a round are fetched in one go, which takes less code.
  const double each = std::ceil(columns / s.threads_per_row);
  s.resident = !has_later_elements(spec) && 2 * each <= 3 * s.unroll;
  // With so many registers the compiler leaves all packs of a round in flight.
  const bool light = spec.rowwise().reductions.size() == 1 &&
                     partial_type(spec.rowwise().reductions[0].mode,
                                  spec.rowwise().reductions[0].arithmetic) == DataType::f32;
  if (light && s.threads == 256) s.least_blocks = 4;
}

// Costly values that a later phase needs again are held by as few threads along the rows as can, in
// packs of four: what threads exchange is then little beside what each computes, and those side by
// side still move whole lines. (Softmax along an axis that lies apart, on an H200: 64 M bf16 in
// rows of 33 92.2 us in packs of eight by 16 threads, 65.4 in four by four; of 64 69.3 and 68.1, of
// 100 79.2 and 76.5, of 150 100.2 and 68.5; 50 M in rows of 200 66.4 and 61.9, of 250 62.3 and
// 57.3, of 300 94.9 and 52.7; 63 M in rows of 320 115.5 and 65.3.)
bool hold_costly(const KernelSpec& spec, const DeviceModel& device, double rows, double columns,
                 RowwiseConfig& s) {
  constexpr int kWidth = 4, kVectorBytes = 8, kMostAlong = 32, kSide = 32, kFewestThreads = 128,
                kMostThreads = 512;
  constexpr double kVectors = kKeptAcross / kWidth, kShortest = 17;
  if (!has_later_elements(spec) || computes_doubles(spec) || spec.rowwise().any_length ||
      s.aligned_by >= 0 || columns < kShortest || columns > kVectors * kMostAlong)
    return false;
  RowwiseConfig held = s;
  held.packing = choose_packing(spec, s.packing.dim, kWidth, true);
  const VectorBytes bytes = vector_bytes(spec, held.packing);
  if (held.packing.width != kWidth || std::max(bytes.row, bytes.kept) > kVectorBytes) return false;
  held.threads_per_row = power_of_two_from(std::ceil(columns / kVectors), kMostAlong);
  held.threads = std::clamp(kSide * held.threads_per_row, kFewestThreads, kMostThreads);
  held.rows_per_block = held.threads / held.threads_per_row;
  const double beside = held.rows_per_block * kWidth;
  if (rows_in_line(spec, held.packing) < beside || rows / beside < 2 * device.sms) return false;
  held.resident = true;
  held.prefetch = true;
  held.unroll = 1;
  if (kept_values(spec, held).empty()) return false;
  s = std::move(held);
  return true;
}

// In packs as wide as groups allow. The planner makes groups where a cluster holds them
// (split.cpp); what is stored may have become narrower since.
void hold_groups(const KernelSpec& spec, const DeviceModel& device, RowwiseConfig& s) {
  for (int widest = s.packing.width; widest >= 1; widest /= 2) {
    s.packing = choose_packing(spec, s.packing.dim, widest, true);
    if (hold_by_cluster(spec, device, s)) return;
  }
  s.rows_per_block = static_cast<int>(spec.rowwise().group);
  s.threads_per_row = std::max(1, 256 / s.rows_per_block);
  s.threads = s.rows_per_block * s.threads_per_row;
}

}  // namespace

std::vector<int> rows_together(const KernelSpec& spec, const Packing& packing) {
  std::vector<int> aligned(spec.ports.size());
  for (const Statement& s : spec.body.statements) {
    if (s.kind != StatementKind::store || !s.per_row) continue;
    const KernelPort& p = spec.ports[static_cast<std::size_t>(s.port)];
    if (p.together == 1 && spec.extent[packing.dim] % packing.width == 0 &&
        common_step(spec, p.access, packing.dim, packing.width) == 1)
      aligned[static_cast<std::size_t>(s.port)] = alignment(spec, p, packing.dim, packing.width);
  }
  return aligned;
}

void schedule_across(const KernelSpec& spec, const DeviceModel& device, RowwiseConfig& s) {
  const double rows = choose_across(spec, device, s),
               columns = elements(spec.extent, spec.rowwise().outer_rank, spec.extent.size());
  if (spec.rowwise().group > 1) {
    hold_groups(spec, device, s);
  } else if (!hold_costly(spec, device, rows, columns, s)) {
    RowwiseConfig held = s;
    divide_across(spec, rows, columns, device, s);
    if (!s.resident && s.aligned_by < 0 && !spec.rowwise().any_length &&
        hold_by_cluster(spec, device, held))
      s = std::move(held);
  }
  s.grid = clamp_grid(std::ceil(rows / (s.rows_per_block * s.packing.width)) * s.blocks_per_row);
  if (s.aligned_by < 0) s.row_aligned = rows_together(spec, s.packing);
}

}  // namespace sinter
