#include "schedule/contraction/wgmma_hindrance.hpp"

#include <algorithm>

#include "schedule/packing.hpp"

namespace sinter {
namespace {

// What more than one instruction's rows, but few, suffer from, as measured: where blocks share the
// operand of the short side, the long side's comes from memory to several clusters; and one
// warpgroup alone waits for every stage. (128 x 8192 x 8192 of bf16 on an H200, 128 columns a tile:
// 39.4 us where two warpgroups share those of the long side, 47.6 with one, 45.7 where they share
// those of the short side.)
double hindrance_of_matmul(const TileProblem& p, const Tile& t) {
  constexpr double kFew = 256, kOneWaits = 1.03;
  // Up to so many. (384 x 5120 x 5120 of bf16 on an H100: 36.1 us in pairs of 128 x 128 that share
  // rows of the short side, 34.2 alone; 256 x 2048 x 7168: 23.3 us in pairs of 64 x 64 that share
  // those of the short side, 20.5 alone, 18.7 in pairs that share those of the long side.)
  constexpr double kMedium = 512, kSharesShort = 1.05;
  // Fours gain where lines along k are short: all tiles beside each other ask for the same part of
  // the short side at once, and little behind it hides this. (128 x 128 of bf16 on an H200, with
  // copies, in fours that share rows of the short side, in pairs, and alone: 300 x 5000 x
  // 1111 17.7, 19.8, 22.1 us; 300 x 5120 x 1024 8.9, 10.0, 9.9; in fours and alone 300 x 5000 x
  // 2048 15.2 and 18.9, 384 x 5120 x 5120 35.6 and 35.5.)
  constexpr double kShortLine = 4096;  // bytes
  // Columns that are no multiple of 32, see below, in blocks that share B, or A, or a tile: 384 x
  // 5120 x 5120, both transposed, 41.0 us in pairs of 128 x 120, 32.9 alone; 768 x 3072 x
  // 3072: 25.9 and 24.0 of 128 x 144 (but 600 x 5000 x 1111 26.6 and 27.9 of 128 x 208); 384 x 1536
  // x 8960: 27.3 us in thirds of 128 x 120, 25.5 of 128 x 128.
  constexpr double kUnevenB = 1.2, kUnevenA = 1.1, kUnevenParts = 1.03;
  constexpr int kEven = 32;
  // Few rows of a wide tile: shared memory and the second-level cache are asked for as much as the
  // tensor cores. (512 x 3584 x 18944: 121.6 us in 64 x 224, 135.6 in pairs of them that share A,
  // 109.9 in 128 x 112.)
  constexpr double kWide = 1.05, kWidePairs = 1.1;
  // Of 32 bits whose rows lie together (estimated: a warpgroup reads 32 wavefronts of A a stage and
  // waits for its own products).
  constexpr double kRead = 1.25;
  if (reads_left(p)) return kRead;
  const bool uneven = t.n % kEven != 0 && t.n > kEpilogueTileColumns;
  if (uneven && (t.cluster_m > 1 || (t.split > 1 && mmas_of_consumer(t) > 1))) return kUnevenB;
  const bool wide = t.m == kInstructionRows && t.n > 3 * kEpilogueTileColumns;
  const double factor = (wide ? kWide : 1) * (wide && t.cluster_n == 2 ? kWidePairs : 1);
  if (uneven && t.cluster_n > 1) return factor * kUnevenA;
  if (uneven && t.split > 1) return factor * kUnevenParts;
  const double shorter = std::min(p.rows, p.columns);
  if (p.batches != 1 || shorter > kMedium) return factor;
  const bool short_rows = p.rows < p.columns;
  // Few rows whose tiles read a large long side more than once: it streams from memory, and SMs get
  // no more of it from the second-level cache than about the rate of that. (bf16 on an H200, tiles
  // of 32 of the short side and of 64, which split k: 33 x 4096 x 14336 48.3 and 30.6 us, 48 rows
  // 46.5 and 30.9, 64 rows 40.9 and 31.6; 33 x 4096 x 4096 15.4 and 10.9, 64 rows 14.4 and 11.8. By
  // the estimates they are within 1 %. A small one is over before that: 33 x 1024 x 4096 5.8.)
  constexpr double kReadAgain = 1.25, kLarge = 1 << 25;  // bytes
  if (shorter <= kInstructionRows) {
    const bool large = std::max(p.rows, p.columns) * p.depth * p.bytes >= kLarge;
    const int whole = short_rows ? t.m * t.cluster_m : t.n * t.cluster_n;
    // Blocks that share the few rows gain little by that. (Alone and in pairs: 16 x 4096 x 4096 in
    // tiles of 32 of the long side 10.1 and 11.4 us, 32 x 8192 x 1024 in 64 5.9 and 6.2; 64 x 4096
    // x 14336 in pairs of 32 32.0, in fours of 40 37.4.)
    constexpr double kPairs = 1.005, kFours = 1.01;
    const int sharing = t.cluster_m * t.cluster_n;
    const double shares = sharing > 2                                       ? kFours
                          : sharing == 2 && 2 * shorter <= kInstructionRows ? kPairs
                                                                            : 1;
    return factor * shares * (large && whole < shorter ? kReadAgain : 1);
  }
  // Blocks of which each reads a part of the long side that nobody else does wait for nobody. (200
  // x 14336 x 4096 of bf16 on an H200: 45.8 us in tiles of 128 of the long side and 208, 47.9 in
  // pairs of 128 x 224 that share 224 of the long side. 96 x 7168 x 7168 of f8e4m3: 17.1 us in
  // tiles of 64 of the long side and 96, 18.2 in pairs of 64 x 128, 21.6 in 64 x 112, which read it
  // twice. Of 256 no gain was seen.)
  constexpr double kAlone = 0.96;
  if (shorter < kFew && cluster_blocks(t) == 1 && (short_rows ? t.m : t.n) >= shorter)
    return factor * kAlone;
  const int sharing = short_rows ? t.cluster_n : t.cluster_m;
  if (sharing > 1 && !(sharing > 2 && p.depth * p.bytes <= kShortLine))
    return factor * kSharesShort;
  return factor * (t.consumers == 1 && shorter <= kFew ? kOneWaits : 1);
}

// The same of convolutions.
double hindrance_of_convolution(const TileProblem& p, const Tile& t) {
  constexpr double kFew = 256, kHindered = 1.03;
  // Of phases, as 17 strided data gradients of 2 to 15 tiles each showed on an H200: two parts of
  // rows a consumer leave few stages for what the next tile loads meanwhile (64 x 128 channels of
  // 56 x 56, 128 filters of 3 x 3, stride 2: 32.0 us in tiles of 128 x 128, 35.1 in 256 x 128); and
  // parts of k that blocks share (2 x 640 x 28 x 28, 1024 filters: 18.5 us in halves of 128 x 128,
  // 16.3 in 64 x 128).
  constexpr double kPhased = 0.86, kPhasedTall = 1.07, kPhasedParts = 1.1;
  // Phases without taps, whose tiles store nothing but zeros between the results of others (256 x
  // 256 x 56 x 56, 512 filters of 1 x 1, stride 2: 255 us, where 151 would be estimated).
  constexpr double kEmptyPhases = 1.68;
  // Of planes with few taps: 128 channels, 56 x 56, 3 x 3 of stride 2 on an H200 74 us where 53
  // were estimated. (Of 3 channels, in blocks, all other ways are slower yet.) With four stages of
  // pixels it takes 56, and no such product is faster than with pixels loaded for each tap: 64 x
  // 512 x 14 x 14, 512 32.0 and 26.7. Those of volumes: 2 x 32 x 64 x 64 x 64, 64 filters of 3 x 3
  // x 3 33.4 us in 256 x 64 where 26.3 were estimated, 32.1 and 28.3 in 128 x 64; of joined
  // pixels 27.6 and 23.2.
  constexpr double kPlanes = 1.25, kFramePlanes = 1.2;
  // Parts of B that are no multiple of 32 columns, or sums of such a tile that two blocks share:
  // 3136 x 512 x 2048 of bf16 on an H200 in tiles of 128 x 112 that share B 16.2 us, in 128 x 104
  // that share nothing 14.0; as a convolution of 4608 deep 32.5 and 27.6, and in halves of 256 x
  // 104 33.2.
  constexpr double kUneven = 1.2;
  constexpr int kEven = 32;
  const bool shared = t.cluster_m > 1 || (t.split > 1 && mmas_of_consumer(t) > 1);
  // Rows at zeros take no longer where an SM is free, but power. (512 channels of 7 x 7:
  // 27.9 us with pixels that stay and 25.8 without, where 29.9 and 31.0 were estimated.)
  constexpr double kOfZeros = 0.2, kFewZeros = 0.08;
  const double zeros = 1 + kOfZeros * std::max(0.0, p.zeros - kFewZeros);
  if (shared && t.n % kEven != 0 && t.n > kEpilogueTileColumns) return kUneven * zeros;
  if (p.phased)
    return kPhased * (mmas_of_consumer(t) > 1 ? kPhasedTall : 1) *
           (t.split > 1 ? kPhasedParts : 1) *
           (!p.depths.empty() && p.depths.back() == 0 ? kEmptyPhases : 1);
  if (has_few_taps_a_plane(p)) {
    if (p.columns > kInstructionRows) return kPlanes;
    if (p.frames > 1 && p.block == 0) return kFramePlanes;
  }
  const bool short_rows = p.rows < p.columns;
  const double shorter = std::min(p.rows, p.columns);
  const bool hindered = t.consumers == 1 || (short_rows ? t.cluster_n : t.cluster_m) > 1;
  const bool few = p.batches == 1 && shorter > kInstructionRows && shorter <= kFew;
  return (few && hindered ? kHindered : 1) * zeros;
}

}  // namespace

double hindrance(const TileProblem& p, const Tile& t) {
  return p.window ? hindrance_of_convolution(p, t) : hindrance_of_matmul(p, t);
}

}  // namespace sinter
