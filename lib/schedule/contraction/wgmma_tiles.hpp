// The tiles in which a contraction can be multiplied by warpgroups (wgmma), with an
// estimate of the time that each takes. A pure function of the problem and the device model.
#pragma once
#include <compare>
#include <map>
#include <string>
#include <vector>

#include "target/device_model.hpp"

namespace sinter {

inline constexpr int kStageLine = 128;   // bytes of k in a stage
inline constexpr int kSwizzledRows = 8;  // after which the swizzle repeats
inline constexpr int kStoredRows = 16;   // of a box in which a warp's results leave by TMA
inline constexpr int kMostRegisters = 240, kRegistersOfThree = 160;  // of a consumer's thread
// Of a filter gradient whose pixels stay for all taps: a consumer's, and those of three.
inline constexpr int kMostTapsEach = 4, kMostTapsOfTile = 3 * kMostTapsEach;
inline constexpr int kInstructionRows = 64;  // of one MMA; sides up to it are short
inline constexpr int kFewestTogether = 32;   // columns of a tap that are loaded together

// What can be chosen freely.
struct Tile {
  // Rows and columns lie the other way round than they usually do; with window stages only in the
  // products, whose left operand is the filter then.
  bool swap_ab = false;
  int m = 128, n = 256;
  int consumers = 2;                 // warpgroups that multiply
  bool alternate = false;            // each consumer has tiles of its own
  int cluster_m = 1, cluster_n = 1;  // blocks that share an operand
  int split = 1;                     // blocks that share a tile and sum a part of k each
  int stages = 4;
  int window_stages = 0;  // of pixels that stay for all taps; `stages` are then the filter's
  bool block = false;     // the tile is one of the image
  int group = 8;          // rows of tiles that run side by side
  // Of the m rows, or n columns, those that a tile of these extents has, where the launch says it
  // (contraction_tiles.cuh: boxed_rows); 0: all.
  int boxed_m = 0, boxed_n = 0;
  constexpr int rows() const { return boxed_m > 0 ? boxed_m : m; }
  constexpr int columns() const { return boxed_n > 0 ? boxed_n : n; }
  constexpr bool boxed() const { return boxed_m > 0 || boxed_n > 0; }
};
std::string to_text(const Tile& tile);

constexpr int cluster_blocks(const Tile& t) { return t.cluster_m * t.cluster_n * t.split; }
constexpr int rows_of_consumer(const Tile& t) { return t.alternate ? t.m : t.m / t.consumers; }
// A consumer's, side by side.
constexpr int mmas_of_consumer(const Tile& t) { return rows_of_consumer(t) / kInstructionRows; }

// What is multiplied, as tiles see it.
struct TileProblem {
  double batches = 1, rows = 1, columns = 1, depth = 1;
  double zeros_of_k = 0;  // of the depth: behind a tap's channels, loaded but not multiplied
  double groups = 0;      // of batches: they share the rows, each has a part of them
  bool gathered = false;  // rows of A, by threads
  bool a_shifted = false, b_shifted = false;  // by threads: lines begin anywhere
  bool a_uneven = false, b_uneven = false;    // lines begin at odd multiples of 16 bytes
  int bytes = 2;                              // of an operand's element
  double extra_bytes = 0;                     // read and written for an element of the result
  bool reads = false;                         // some are read
  bool a_k_fastest = true, b_k_fastest = true;
  bool along_columns = true;          // the result lies in memory
  bool computes = false;              // more than sums, rounded, is stored
  bool stores_rows = false;           // results may leave as they are summed
  bool stores_pieces = false;         // in pieces of less, where the products' operands are swapped
  bool reduces = false;               // results
  bool integers = false;              // are multiplied
  bool promote_accumulators = false;  // sums of a stage are added apart
  bool scaled = false;  // and multiplied with scales, which pass through the epilogue tiles
  int products = 1;     // columns are those of all
  // Of a convolution whose pixels stay in shared memory for all taps: taps, and how many lines of
  // pixels a tile has besides its rows. 0: pixels are loaded for each tap.
  // With strides the taps of each plane of pixels come in turn.
  // `block`: pixels of a tile that is a block of the image, or 0; `block_lines`: with those that
  // its taps reach beside it.
  // `frames`: images of a volume that a tile's taps lie in.
  int taps = 0, reach = 0, planes = 1, frames = 1, block = 0, block_lines = 0;
  bool swappable = false;    // of these, whose products may have the filter as their left operand
  bool gradient = false;     // of a filter of that kind: columns are lines of channels of all taps
  double tap_batches = 1;    // batch entries that are taps, which see the same pixels
  bool window = false;       // a convolution
  bool pools = false;        // its pixels: results leave as they are summed
  int columns_together = 0;  // not 0: columns of B that one box brings divide these
  bool phased = false;       // its pixels fall into phases, which are batch entries
  bool stepped = false;      // of the gradient of one tap: its pixels lie in steps
  // Of these, if they have unlike depths: the depths, of their average, the deepest first.
  std::vector<double> depths{};
  // How many times a convolution reads each element of an operand, which the caches see.
  double a_again = 1, b_again = 1;
  double zeros = 0;  // rows at the zeros beside an image, for each that is none

  bool shifted() const { return a_shifted || b_shifted; }
  // Of a batch entry; of a group, on average.
  double rows_each() const { return groups > 0 ? rows / groups : rows; }

  auto operator<=>(const TileProblem&) const = default;
};

// Each block of those that share a tile has a part of k.
bool has_steps_for(const TileProblem& p, const Tile& t);
// Tile::group.
int tiles_beside(const TileProblem& p);
double tiles_of(const TileProblem& p, const Tile& t);
// As many as they can be: of groups, where each has all rows.
double most_tiles(const TileProblem& p, const Tile& t);
// Whether threads read A from shared memory: wgmma reads numbers of 32 bits only along k.
constexpr bool reads_left(const TileProblem& p) { return p.bytes == 4 && !p.a_k_fastest; }
// Rows of A that a tile brings; B's are its columns.
int loaded_rows(const TileProblem& p, const Tile& t);
// Columns of B that a tile brings: lines of them where k is not fastest.
constexpr int loaded_columns(int columns, bool k_fastest, int bytes) {
  const int line = kStageLine / bytes;
  return k_fastest ? columns : (columns + line - 1) / line * line;
}
// Of pixels that stay for all taps, whose strides make planes of them: few taps each.
constexpr bool has_few_taps_a_plane(const TileProblem& p) {
  constexpr int kFewTaps = 4;
  return p.planes > 1 && p.taps < kFewTaps * p.planes;
}
// Lines of pixels that a tile takes for each line of channels, where they stay for all taps.
int window_pixels(const TileProblem& p, const Tile& t);
// The same of a filter gradient's stage.
int gradient_pixels(const TileProblem& p);
int sums_per_thread(const Tile& t);
// Sets of sums beside those that are promoted: of two stages, or of one, while whose sums are added
// another warpgroup multiplies.
inline constexpr int kMostOfTwoStages = 64, kMostPromoted = 96;  // sums of a thread
inline int promoted_sets(const Tile& t) { return sums_per_thread(t) > kMostOfTwoStages ? 1 : 2; }
// The sums leave a thread few registers for packs of what the epilogue reads.
bool has_little_room(const Tile& t);
// Results leave as they are summed, through stmatrix (contraction_store.cuh).
bool stores_as_summed(const TileProblem& p, const Tile& t);
// Blocks that share an SM, and shared memory of each. Where one round of the narrowest
// tiles streams A, one leaves room for the next kernel's, which then is ready when this one ends.
// (8 x 8192 x 8192 of bf16 on an H200: 32.1 us with 12 stages and the SM alone, 31.6
// with 10 and half of it. Short sums miss the stages: 10.1 and 10.6 us for 8 x 4096 x 4096.)
int blocks_that_fit(const TileProblem& p, const Tile& t, const DeviceModel& device);
int shared_bytes(const TileProblem& p, const Tile& t, const DeviceModel& device);
// A block has one tile, whose results leave through the ring that nobody fills any more: it has a
// stage more than there would be room for beside the epilogue tiles.
bool leaves_through_ring(const TileProblem& p, const Tile& t, const DeviceModel& device);
// The fewest blocks that take no more rounds of tiles than all SMs would: more of them would cost
// power, and with it clocks, but no less time.
double balanced_grid(double tiles, int cluster, const DeviceModel& device);

// The blocks of a launch. Tiles of unlike depths want all SMs.
double grid_of(const TileProblem& p, const Tile& t, const DeviceModel& device);

struct EstimatedTile {
  double microseconds;
  Tile tile;
};
// Of a problem without window stages.
double tile_microseconds(const TileProblem& p, const Tile& t, const DeviceModel& device);
// The tiles that the kernel can have, unsorted.
std::vector<EstimatedTile> legal_tiles(const TileProblem& p, const DeviceModel& device);

// Those of the problems that planning for one device has met: layers repeat, and every kernel is
// scheduled several times before it is emitted.
class KnownTiles {
 public:
  const std::vector<EstimatedTile>& of(const TileProblem& p, const DeviceModel& device) {
    const auto [known, fresh] = tiles_.try_emplace(p);
    if (fresh) known->second = legal_tiles(p, device);
    return known->second;
  }

 private:
  std::map<TileProblem, std::vector<EstimatedTile>> tiles_;
};

}  // namespace sinter
