// Rows that are shared by threads which lie along them.
#include <algorithm>
#include <bit>
#include <cmath>

#include "plan/access.hpp"
#include "plan/liveness.hpp"
#include "schedule/rowwise/column_walk.hpp"
#include "schedule/rowwise/rowwise_parts.hpp"

namespace sinter {
namespace {

// Threads of one warp for a row of at most 128 vectors, so that as few of them as possible idle. As
// few as that allows where instructions bound the row: what a warp does once, it then does for
// several rows. (Softmax of 100 columns in packs of 8 bytes, on an H200: 107 us with 32 threads, 70
// with 8. In packs of 16 bytes fewer threads move less of a line at once: 64 columns 62.5 and 67.8
// with 2.)
int threads_of_warp(double vectors, bool few_instructions) {
  const auto taken = [&](int threads) { return threads * std::ceil(vectors / threads); };
  int best = 32;
  for (int n = 16; n >= 1 && std::ceil(vectors / n) <= kUsualVectors; n /= 2)
    if (taken(n) < taken(best) || (few_instructions && taken(n) == taken(best))) best = n;
  return best;
}

// Threads of one warp for a short row that moves element by element: few, as instructions are what
// takes the time, but enough that they read whole sectors of memory together. Counts what each
// vector and each step of exchanging a reduction take. (Softmax of 49 columns on an H200: 160 -> 86
// us; of 127 columns it is slower so.)
int threads_of_narrow(double vectors, std::size_t reductions) {
  constexpr int kLeast = 8, kVector = 12, kExchange = 2;
  constexpr double kMostVectors = 8, kMostRow = 64;
  if (vectors > kMostRow) return 0;
  int best = 0;
  double least = 0;
  for (int n = 32; n >= kLeast; n /= 2) {
    const double each = std::ceil(vectors / n);
    if (each > kMostVectors) break;
    const double cost = n * (each * kVector + std::bit_width(static_cast<unsigned>(n) / 2) *
                                                  kExchange * static_cast<double>(reductions));
    if (best == 0 || cost < least) best = n, least = cost;
  }
  return best;
}

// Threads of a block for a row of which each has at most `most` vectors, so that few of them idle;
// 0 where so few cannot take it.
int threads_to_hold(double vectors, double most) {
  constexpr int kMostThreads = 512;
  int best = 0;
  double busiest = 0;
  for (double each = most; each >= 1; --each) {
    const int threads = threads_for(vectors, each);
    const double busy = busy_share(vectors, each);
    if (threads <= kMostThreads && busy > busiest) best = threads, busiest = busy;
  }
  return best;
}

constexpr int kHeldBytes = 128;            // of a row, that a thread holds in 56 or 64 registers
constexpr int kHeldByFew = 192;            // in blocks of at most 512 threads
constexpr double kThreadsTogether = 1152;  // of an SM's blocks, with 56 registers each

// Vectors of a long row that a thread holds: more where instructions bound the row and only what is
// reduced of it leaves, as what a thread does once is then a third of all. (Logarithms of sums of
// exponentials with 4 and 8 on an H200: 4096 x 50257 202.7 us and 142.8, 8192 x 32000 198.4 and
// 162.7, 2048 x 128256 191.7 and 173.4; a softmax is as fast either way.)
int vectors_of_thread(const KernelSpec& spec) {
  constexpr int kOfCostly = 8;
  const bool stores = std::ranges::any_of(
      spec.body.statements, [](const Statement& s) { return is_store(s) && !s.per_row; });
  return computes_costly(spec) && !stores ? kOfCostly : kUsualVectors;
}

// Blocks of at most 256 threads that share a row, so that several rows are in flight on a
// SM; 1 where their threads would idle too much. With weights the shares must be equal
// (109 and 137 us for an rmsnorm of 2048 x 50257 on an H200; a softmax is 14 % faster so).
int small_blocks(double vectors, int of_thread, bool weights) {
  constexpr double kLeast = 0.85;  // of the threads are busy
  for (int blocks = 1; blocks <= 8; blocks *= 2) {
    const double threads = vectors / (of_thread * blocks);
    if (threads > 256) continue;
    const double busy = threads / (std::ceil(threads / 32) * 32);
    return busy >= (weights ? 1 : kLeast) ? blocks : 1;
  }
  return 1;
}

// Blocks that share a row: where it is too long for one block's registers, or where few rows would
// leave SMs idle. Rows of several reductions wait so often that a block should not fill
// an SM alone, if the device has clusters instead. `held`: bytes at a vector, of which
// none costs less than a whole pack. `weights`: some are read by all rows.
int blocks_for_row(const KernelSpec& spec, double rows, double vectors, int held, bool weights,
                   const DeviceModel& device) {
  const bool clusters = device.has_clusters;
  if (!has_later_elements(spec)) return 1;
  // Blocks without clusters cannot share a row. What every GPU can run is one text, which GPUs with
  // clusters run so and others by the first block of a row alone.
  if (!clusters && !device.target.empty()) return 1;
  const double bytes = vectors * std::max(held, kMoveBytes);
  const bool waits = clusters && spec.rowwise().phases > 2 && held >= kMoveBytes;
  constexpr double kHalf = kThreadsTogether / 2 * kHeldBytes, kWhole = 128 << 10, kLeast = 16 << 10;
  int blocks = 1;
  // Weights that are fetched between two waits would delay the whole cluster.
  if (clusters && held >= kMoveBytes && held < 2 * kMoveBytes &&
      !(weights && spec.rowwise().phases > 2))
    blocks = small_blocks(vectors, vectors_of_thread(spec), weights);
  if (bytes > (waits ? kHalf : kWhole))
    while (blocks < 8 && bytes / blocks > kHalf) blocks *= 2;
  while (blocks < 8 && rows * blocks * 2 <= 2 * device.sms && bytes / (blocks * 2) >= kLeast)
    blocks *= 2;
  return blocks;
}

// Rows that a thread has in flight at once: several where one alone leaves memory idle. Rows that
// stay for later phases occupy registers, so that only what moves element by element gains, a
// little. (Sums of 32 columns on an H200: 81 -> 65 us; of 131, 151 -> 87; softmax of 197, 69 -> 67;
// norms of 128 columns are 3 % slower so.)
int rows_for_thread(const KernelSpec& spec, double rows, double each, int bytes,
                    const DeviceModel& device, const RowwiseConfig& s) {
  constexpr int kInFlight = 32, kMost = 4;  // bytes; rows
  if (!s.resident || s.threads_per_row > 32 || s.blocks_per_row > 1) return 1;
  const double of_row = each * std::max(bytes, 1);
  const bool narrow = s.packing.width * s.packing.narrowest <= 2;
  int most = power_of_two_from(kInFlight / of_row, kMost);
  if (has_later_elements(spec)) most = narrow && 2 * of_row < kInFlight ? 2 : 1;
  const double code = each * s.packing.width * element_cost(spec, spec.body);
  int n = 1;
  while (n < most && 2 * n * code <= kMostCode &&
         rows / (2 * n * s.rows_per_block) >= device.enough_ctas)
    n *= 2;
  return n;
}

// Threads for a row of so many vectors in each of the blocks that share it; `held`: bytes at a
// vector.
int usual_threads(const KernelSpec& spec, double rows, double vectors, int held,
                  const DeviceModel& device, const RowwiseConfig& s) {
  const int width = s.packing.width;
  // A thread holds more vectors where they are narrow, as long as there is a warp for each row; few
  // rows get more threads each. A short row's vectors go to neighbouring threads of one warp.
  const bool few = rows < device.enough_ctas;
  double narrow = kFlightBytes / (width * s.packing.narrowest);
  // What a third phase needs of the first two is computed again unless it stays in registers.
  if (spec.rowwise().phases > 2)
    narrow = std::min(narrow, static_cast<double>(kKeptValues) / width);
  // No more than registers hold, if other packs are wider.
  if (has_later_elements(spec)) narrow = std::min<double>(narrow, kHeldByFew / std::max(held, 1));
  const double usual =
      std::max<double>(vectors_of_thread(spec), std::min(narrow, std::ceil(vectors / 32)));
  const bool narrow_vectors = width * s.packing.narrowest <= 2 && s.aligned_by < 0 && !few;
  int threads_per_row;
  if (const int n =
          narrow_vectors ? threads_of_narrow(vectors, spec.rowwise().reductions.size()) : 0;
      n > 0)
    threads_per_row = n;
  else if (vectors <= 128 && !few)
    threads_per_row =
        threads_of_warp(vectors, width * s.packing.narrowest < kMoveBytes && computes_costly(spec));
  else
    threads_per_row = threads_for(vectors, few ? 1 : usual);
  // A warp less, with more vectors each, where many threads would idle.
  const auto busy = [&](int threads) { return vectors / (threads * std::ceil(vectors / threads)); };
  if (const int fewer = threads_per_row - 32; !few && fewer >= 32 && fewer <= 96 &&
                                              busy(threads_per_row) < 0.8 &&
                                              busy(fewer) > busy(threads_per_row))
    threads_per_row = fewer;
  // Instead of a large block, as many as can hold their rows share an SM, with all its
  // threads: one computes while others wait.
  if ((s.blocks_per_row > 1 || spec.rowwise().phases > 2) && threads_per_row > 512) {
    const double most = std::max(1, kHeldBytes / std::max(held, 1));  // vectors of a thread
    const double beside = std::min(std::floor(kThreadsTogether / threads_for(vectors, most)),
                                   std::ceil(rows * s.blocks_per_row / device.sms));
    if (beside > 1)
      threads_per_row = threads_for(vectors, std::min(most, std::ceil(vectors * beside / 1024)));
  }
  return threads_per_row;
}

// Costly values of several tensors (two softmaxes and their difference) are kept by as many threads
// of a cluster as hold them. (On an H200, with one or two blocks of 512 threads that compute them
// again, and so: 8192 rows of 16384 bf16 of each tensor 282 us and 238, 4096 of 32000 293 and 280.
// Rows that 256 threads have are 6 to 9 % slower so.)
bool keep_costly(const KernelSpec& spec, double rows, double vectors, const DeviceModel& device,
                 RowwiseConfig& s) {
  constexpr int kMostThreads = 256, kMostBlocks = 8;
  constexpr double kLeastBusy = 0.85;
  if (!device.has_clusters || !s.resident ||
      (s.blocks_per_row == 1 && s.threads_per_row <= kMostThreads) || !computes_costly(spec) ||
      spec.rowwise().segment > 0 || s.aligned_by >= 0 || rows < device.enough_ctas ||
      !kept_values(spec, s).empty())
    return false;
  RowwiseConfig kept = s;
  kept.recompute = false;
  for (int blocks = s.blocks_per_row; blocks <= kMostBlocks; blocks *= 2)
    for (int each = kUsualVectors; each >= 1; --each) {
      const double of_block = std::ceil(vectors / blocks);
      const int threads = threads_for(of_block, each);
      if (threads > kMostThreads || busy_share(of_block, each) < kLeastBusy) continue;
      kept.blocks_per_row = blocks;
      kept.threads_per_row = threads;
      kept.threads = threads;
      if (kept_values(spec, kept).empty()) continue;
      s = std::move(kept);
      return true;
    }
  return false;
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
               vectors_of_row = choose_vectors(spec, widest_pack(spec), s);
  if (way.late && !fetch_late(spec, s.packing)) return false;
  const int cost = element_cost(spec, spec.body), width = s.packing.width;
  const VectorBytes bytes = vector_bytes(spec, s.packing);
  const int held = std::max(bytes.row, bytes.kept);
  s.blocks_per_row = blocks_for_row(spec, rows, vectors_of_row, held, bytes.weights > 0, device);
  const double vectors = std::ceil(vectors_of_row / s.blocks_per_row);  // of one block
  if (way.more) {
    const double most =
        std::floor(std::min(static_cast<double>(kHeldByFew) / std::max(held, 1),
                            static_cast<double>(kMostCode) / std::max(width * cost, 1)));
    s.threads_per_row = threads_to_hold(vectors, most);
    if (s.blocks_per_row > 1 || s.threads_per_row == 0) return false;
  } else {
    s.threads_per_row = usual_threads(spec, rows, vectors, held, device, s);
  }
  if (const int lanes = static_cast<int>(spec.rowwise().segment / width);
      lanes > 0 && s.threads_per_row % lanes != 0)
    s.threads_per_row = (s.threads_per_row + lanes - 1) / lanes * lanes;
  s.rows_per_block = s.blocks_per_row > 1 ? 1 : std::max(1, 256 / s.threads_per_row);
  while (s.rows_per_block > 1 && s.rows_per_block * s.threads_per_row > 32 &&
         rows / s.rows_per_block < device.enough_ctas)
    s.rows_per_block /= 2;
  s.threads = s.threads_per_row * s.rows_per_block;
  const double each = std::ceil(vectors / s.threads_per_row);
  const int all = bytes.row + bytes.weights + bytes.late;
  s.resident = each * held <= (s.threads > 512 ? kHeldBytes : kHeldByFew) &&
               each * width * cost <= kMostCode;
  if (s.resident) {
    // Values that many registers would hold are cheaper to compute again from the packs.
    const bool many = s.threads > 256 || s.blocks_per_row > 1;
    const int values = many ? std::max(width, bytes.values) : width;
    s.recompute = s.threads > 512 || each * values > kKeptValues;
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
  if (walk_with_weights(spec, device, rows, vectors_of_row, s)) return true;
  if (keep_costly(spec, rows, vectors_of_row, device, s)) {
    s.prefetch = std::ceil(vectors_of_row / (s.threads_per_row * s.blocks_per_row)) * all <= 128;
    s.least_blocks = 1;
  }
  if (!s.resident || s.blocks_per_row > 1)  // what has no clusters streams such rows
    s.unroll = power_of_two_to(
        std::min(kMostCode / std::max(cost * width, 1), kFlightBytes / std::max(all, 1)), 4);
  s.rows_at_once = rows_for_thread(spec, rows, each, bytes.row, device, s);
  s.grid = clamp_grid(std::ceil(rows / (s.rows_per_block * s.rows_at_once)) * s.blocks_per_row);
  stage_rows(spec, device, rows, vectors_of_row, s);
  return true;
}

}  // namespace

void schedule_along(const KernelSpec& spec, const DeviceModel& device, RowwiseConfig& s) {
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

}  // namespace sinter
