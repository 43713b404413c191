// Which tiles a contraction may have.
#include <algorithm>
#include <cmath>
#include <iterator>
#include <numeric>

#include "plan/kernel_spec.hpp"
#include "plan/tma_limits.hpp"
#include "schedule/contraction/wgmma_stages.hpp"
#include "schedule/contraction/wgmma_tiles.hpp"
#include "schedule/packing.hpp"

namespace sinter {
namespace {

constexpr int kMostColumns = 256;  // of an MMA
constexpr int kFewestFilterStages = 3;
constexpr int kMostBlockStages = 4;
constexpr double kShortRows = 512;  // a side that hardly fills the tiles' rows

// Stages of pixels of planes with few taps each, which are soon used up: as many as leave the
// filter a few. (2 x 32 x 64 x 64 x 64, 64 filters of 3 x 3 x 3, stride 2, on an H200: 46.9 us with
// two in tiles of 256 x 64, 33.4 with four; of joined pixels, in 128 x 64, 35.9, 30.1, 29.7
// and 29.8 with two, three, four and six; 32 x 64 x 112 x 112, 128 of 3 x 3 39.7 with two, 31.4
// with four.)
constexpr int kMostPlaneStages = 6, kFewestBesidePlanes = 4;

// Columns of an MMA: those whose sums core/wgmma_named.cuh lists, though the instruction
// takes any eight up to the most, and 24 columns of integers.
bool multipliable(int columns, bool integers) {
  return columns % 16 == 0 || columns <= (integers ? 8 : 128);
}

// What a block's part of an operand is a multiple of: rows after which the swizzle repeats, or,
// with k not fastest, those that lie in a line.
int unit_of_part(const TileProblem& p, bool k_fastest) {
  return k_fastest ? kSwizzledRows : kStageLine / p.bytes;
}

// Right operands that have the columns fastest, as a data gradient's filter, or the result's
// gradient where a filter gradient has it as its columns, may have tiles that end within a line of
// them: its other half is loaded in vain. (8 x 1280 channels of 16 x 16, 3 x 3: 160 columns leave
// no SM idle, 192 one in seven. On an H200, in 256 x 192 and 256 x 160: 2048 x 2560 x 4096 65.3
// and 61.7 us, 3000 x 1600 x 4096 63.1 and 58.7, 4096 x 1280 x 5120 83.5 and 73.0. Not of few rows,
// whose operand streams from memory.)
bool ends_within_line(const TileProblem& p, const Tile& t) {
  const bool gradient = p.a_again > 1, product = !p.window && p.groups == 0 && p.rows > kShortRows;
  const int lines = loaded_columns(t.n, false, p.bytes) / kInstructionRows;
  return (p.window ? gradient : product) && p.bytes == 2 && p.products == 1 && t.split == 1 &&
         lines % t.cluster_m == 0 && t.n > kInstructionRows && t.n % (kInstructionRows / 2) == 0;
}

// The kernel counts in 32 bits: rows and columns to the ends of the last clusters, tiles to the one
// that a block would take next, and those of a group.
bool countable(const TileProblem& p, const Tile& t, const DeviceModel& device) {
  constexpr double kMost = 0x1p31;
  const double rows = t.m * t.cluster_m, columns = t.n * t.cluster_n;
  return p.rows + rows < kMost && (p.columns + columns) / p.products < kMost &&
         most_tiles(p, t) + device.sms < kMost && t.group * std::ceil(p.columns / columns) < kMost;
}

bool legal(const TileProblem& p, const Tile& t, const DeviceModel& device) {
  // A group's tiles are counted as the kernel runs; who copies rows has registers for 128.
  if (p.groups > 0 && t.split > 1) return false;
  if (p.gathered && (t.m > 128 || t.cluster_n > 1)) return false;
  // Who shifts lines holds eight pieces of 16 bytes and what ends them; two consumers have what
  // that leaves.
  constexpr int kMostBesideShifts = 96;
  if (p.shifted() && (cluster_blocks(t) > 1 || t.consumers == 3 ||
                      (t.consumers == 2 && sums_per_thread(t) > kMostBesideShifts)))
    return false;
  if (t.alternate && t.m > 128 && p.taps == 0) return false;
  if (p.block > 0 && (t.m != p.block || t.cluster_m > 1)) return false;
  if (p.pools && !stores_as_summed(p, t)) return false;
  if (p.taps > 0 && (t.split > 1 || t.cluster_n > 1 || t.stages < kFewestFilterStages ||
                     window_pixels(p, t) > tma::kMostPixels))
    return false;
  // Parts of 64 pixels take turns in shared memory.
  if (p.taps > 0 && t.swap_ab &&
      (t.n != kInstructionRows || rows_of_consumer(t) % (2 * kInstructionRows) != 0))
    return false;
  // Blocks that would own no results in any cluster.
  if ((t.cluster_m - 1) * t.m >= p.rows_each() || (t.cluster_n - 1) * t.n >= p.columns)
    return false;
  // What more sums would spill; of two warpgroups the producer gives up registers for 192.
  if (sums_per_thread(t) > (t.consumers == 1 ? 160 : t.consumers == 2 ? 192 : 96)) return false;
  // Threads hold what they read of A beside the sums, and one warpgroup multiplies while another
  // reads.
  if (reads_left(p) && (t.consumers != 2 || t.alternate || sums_per_thread(t) > 128)) return false;
  // Three have fewer registers for all that is held beside the sums. In gradients of convolutions
  // they lose to two. (Data gradients of 16 x 160 channels of 80 x 80, 3 x 3, on an H200: 42.9 us
  // in tiles of 256 x 64, 50.4 in 192 x 160; of stride 2 3 to 8 %.)
  if (t.consumers == 3 &&
      (p.promote_accumulators || p.products > 1 || p.reduces || p.groups > 0 || p.taps > 0 ||
       t.split > 1 || (p.window && !(p.a_k_fastest && p.b_k_fastest))))
    return false;
  // Three stages are too few for them where lines of an operand are no lines of k. (7000 x 1000 x
  // 6000 of f16, both transposed, with swish, in 192 x 160 by three stages on an H100: 216 us where
  // 152 were estimated; cuBLASLt and swish take 146. 128 x 256 by four is estimated at 154.)
  constexpr int kFewestOfThree = 4;
  if (t.consumers == 3 && t.stages < kFewestOfThree && !(p.a_k_fastest && p.b_k_fastest))
    return false;
  // One set of one stage: the other consumer multiplies meanwhile. (333 x 8192 x 3072 of f8e4m3 on
  // an H100: 24.0 us in 128 x 128, 18.6 in 128 x 192; 2048 x 6144 x 4096 88.5 and 85.7.)
  if (p.promote_accumulators && promoted_sets(t) == 1 &&
      (p.scaled || t.consumers != 2 || t.alternate || sums_per_thread(t) > kMostPromoted))
    return false;
  const int loaded = p.taps > 0 ? t.m : loaded_rows(p, t), columns = t.n / p.products;
  if (loaded / t.cluster_n % unit_of_part(p, p.a_k_fastest) != 0) return false;
  if (columns / t.cluster_m % unit_of_part(p, p.b_k_fastest) != 0 && !ends_within_line(p, t))
    return false;
  if (p.columns_together > 0 &&
      std::gcd(columns / t.cluster_m, p.columns_together) < kFewestTogether)
    return false;
  if (p.reduces && columns % kReducedTogether != 0) return false;
  if (t.split > 1) {
    if (t.alternate || tiles_of(p, t) * t.split > 4 * device.sms) return false;
    if (!has_steps_for(p, t)) return false;
    const int epilogue_tile = kEpilogueTileColumns / p.products,
              epilogue_tiles = (columns + epilogue_tile - 1) / epilogue_tile;
    if (t.m * epilogue_tiles * kEpilogueTileColumns * 4 > t.stages * (loaded + t.n) * kStageLine)
      return false;
  }
  return countable(p, t, device);
}

// The least width of a legal tile of which one round covers the result, or 0.
int width_of_round(const TileProblem& p, const Tile& t, const DeviceModel& device) {
  if (p.groups > 0) return 0;
  const double rows = p.batches * std::ceil(p.rows / (t.m * t.cluster_m)),
               across =
                   std::floor(clusters_at_once(device, cluster_blocks(t)) / rows) * t.cluster_n;
  if (across < 1) return 0;
  const int part = unit_of_part(p, p.b_k_fastest) * t.cluster_m,
            together = p.reduces ? static_cast<int>(kReducedTogether) : 1,
            unit = p.products * std::lcm(part, together);
  const double n = unit * std::ceil(p.columns / across / unit);
  if (n > kMostColumns) return 0;
  const int width = static_cast<int>(n);
  return multipliable(width, p.integers) ? width : width + unit;
}

// Filter gradients whose pixels stay for all taps: one shape, in as many stages as fit. What a
// consumer sums lies in up to 128 registers.
std::vector<EstimatedTile> gradient_tiles(const TileProblem& p, const DeviceModel& device) {
  constexpr int kFewestStages = 2;
  std::vector<EstimatedTile> tiles;
  for (int consumers : {3, 2}) {
    Tile t{.m = kInstructionRows,
           .n = p.taps * kStageLine / p.bytes,
           .consumers = consumers,
           .window_stages = 1,
           .block = p.block > 0};
    const int each = (p.taps + consumers - 1) / consumers;
    if (each > kMostTapsEach || (consumers - 1) * each >= p.taps) continue;  // each has some
    t.stages = gradient_stages_that_fit(p, t, device);
    if (t.stages < kFewestStages || !countable(p, t, device)) continue;
    tiles.push_back({tile_microseconds(p, t, device), t});
  }
  return tiles;
}

}  // namespace

std::vector<EstimatedTile> legal_tiles(const TileProblem& p, const DeviceModel& device) {
  if (p.gradient) return gradient_tiles(p, device);
  struct Shape {
    int m, consumers;
    bool alternate;
  };
  struct Sharing {
    int cluster_m, cluster_n, split;
  };
  constexpr Shape kShapes[] = {{128, 2, false}, {256, 2, false}, {64, 2, true},
                               {128, 2, true},  {64, 1, false},  {128, 1, false},
                               {192, 3, false}, {256, 2, true}};  // the last of convolutions alone
  constexpr Sharing kSharings[] = {{1, 1, 1}, {2, 1, 1}, {1, 2, 1}, {4, 1, 1},
                                   {1, 4, 1}, {1, 1, 2}, {1, 1, 3}, {1, 1, 4},
                                   {1, 1, 5}, {1, 1, 6}, {1, 1, 7}, {1, 1, 8}};
  constexpr int kWidths[] = {256, 224, 192, 160, 128, 96, 64, 32, 16, 8};
  std::vector<EstimatedTile> tiles;
  const auto consider = [&](Tile t) {
    t.group = tiles_beside(p);
    if (p.taps > 0) t.window_stages = 2;
    t.stages = stages_that_fit(p, t, blocks_that_fit(p, t, device), device);
    if (has_few_taps_a_plane(p) && p.block == 0)
      for (Tile more = t; ++more.window_stages <= kMostPlaneStages;) {
        more.stages = stages_that_fit(p, more, 1, device);
        if (more.stages < kFewestBesidePlanes) break;
        t.stages = more.stages;
        t.window_stages = more.window_stages;
      }
    if (p.block > 0) {
      // The filter stays, and leaves its room to pixels.
      t.block = true;
      const int steps = static_cast<int>(p.depth * p.bytes / kStageLine);
      if (t.stages >= steps && p.columns <= t.n) {
        t.stages = std::max(steps, kFewestFilterStages);
        for (Tile more = t; ++more.window_stages <= kMostBlockStages;) {
          if (stages_that_fit(p, more, 1, device) < t.stages) break;
          t.window_stages = more.window_stages;
        }
      }
    }
    for (const bool swapped : {false, true}) {
      if (swapped && !p.swappable) break;
      t.swap_ab = swapped;
      if (legal(p, t, device)) tiles.push_back({tile_microseconds(p, t, device), t});
    }
  };
  for (const Shape& shape : kShapes)
    for (const Sharing& sharing : kSharings) {
      Tile t{.m = shape.m,
             .consumers = shape.consumers,
             .alternate = shape.alternate,
             .cluster_m = sharing.cluster_m,
             .cluster_n = sharing.cluster_n,
             .split = sharing.split};
      for (int n : kWidths) {
        t.n = n;
        consider(t);
      }
      t.n = width_of_round(p, t, device);
      if (t.n > 0 && std::find(std::begin(kWidths), std::end(kWidths), t.n) == std::end(kWidths))
        consider(t);
    }
  return tiles;
}

}  // namespace sinter
