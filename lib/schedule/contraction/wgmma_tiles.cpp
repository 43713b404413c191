#include "schedule/contraction/wgmma_tiles.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

#include "plan/kernel_spec.hpp"
#include "schedule/contraction/wgmma_hindrance.hpp"
#include "schedule/contraction/wgmma_stages.hpp"
#include "schedule/packing.hpp"

namespace sinter {
namespace {

constexpr int kCopiedRows = 16;  // at once, where threads copy
constexpr int kMostOfRun = 255;  // columns, as RunOfRows of the device library

// Batch entries that have a row at all, where rows fall into groups at random.
double batches_with_rows(const TileProblem& p) {
  return p.groups > 0 ? p.batches * (1 - std::exp(-p.rows_each())) : p.batches;
}

// Rows of tiles that all batches have together. Groups end anywhere in a tile.
double tile_rows(const TileProblem& p, const Tile& t) {
  const double step = t.rows() * t.cluster_m;
  if (p.groups == 0) return p.batches * std::ceil(p.rows / step);
  return std::max(batches_with_rows(p), p.batches * (p.rows_each() / step + 0.5));
}

// Of the bytes that memory moves most are results.
bool writes_mostly(const TileProblem& p) {
  return p.rows_each() * p.columns * p.extra_bytes >
         2 * (p.rows_each() + p.columns) * p.depth * p.bytes;
}

// Whether a block's stages keep their few columns of a k of one stage: Shape::columns_stay in
// contraction_tiles.cuh. (1 x 1 of 16 channels, 64 filters, 802,816 pixels, on an H200: 37.8 us so,
// 67.7 by mma; of 8, 48 filters 34.6 and 85.2. More columns are not faster so than shared by
// clusters: 24 channels, 144 filters, 200,704 pixels 23.7 and 21.8 us, 16 channels, 96 filters,
// 802,816 pixels 51.9 and 52.2.)
bool few_columns_stay(const TileProblem& p, const Tile& t) {
  const double line = p.depth * p.bytes;
  return line > 0 && line <= kStageLine && p.columns <= std::min(t.n, kInstructionRows) &&
         t.cluster_m * t.cluster_n * t.split == 1 && t.boxed_n == 0 && p.taps == 0 && !p.gradient &&
         p.groups == 0 && p.batches == 1 && !p.gathered && !p.shifted();
}

// What k shorter than a stage's line costs: TMA's time for each row of the longer side,
// and that of the second-level cache for lines of the other one, which all ask for again and again.
// (1 x 1 of 24 channels, 144 filters, 200,704 pixels, on an H200: 64 us in tiles of 128 x 64, 52 in
// 128 x 160, 29 where two of these share the filter.)
double short_lines(const TileProblem& p, const Tile& t, const DeviceModel& device) {
  const double line = p.depth * p.bytes;
  if (line >= kStageLine || p.taps > 0 || p.groups > 0 || tiles_of(p, t) <= device.sms ||
      few_columns_stay(p, t))
    return 0;
  constexpr double kRow = 5.9, kAgain = 0.0082;  // clocks; microseconds
  const bool tall = p.rows > p.columns;
  const double down = std::ceil(p.rows / (t.m * t.cluster_m)),
               across = std::ceil(p.columns / (t.n * t.cluster_n)),
               rows = p.batches * (tall ? p.rows * across : p.columns * down),
               in_a_line = (tall ? p.b_k_fastest : p.a_k_fastest) ? kStageLine / line : 1;
  return rows * kRow / device.sms / device.clock + (tall ? down : across) * in_a_line * kAgain;
}

// Clocks of the cluster that has the most to do where tiles are those of phases of unlike depths,
// one of average depth `main`; the walk is that of contraction_tiles.cuh.
double longest_walk(const TileProblem& p, const Tile& t, double main, double finish,
                    const DeviceModel& device) {
  const int cluster = cluster_blocks(t),
            tiles = static_cast<int>(tiles_of(p, t) * t.split) / cluster,
            clusters = static_cast<int>(std::min<double>(tiles, clusters_at_once(device, cluster))),
            batches = static_cast<int>(p.batches),
            copies = batches / static_cast<int>(p.depths.size()), places = tiles / batches,
            even = places / clusters * clusters, left = places - even;
  double most = 0;
  for (int c = 0; c < clusters; ++c) {
    double own = 0;
    for (int i = c, next = 2 * clusters - 1 - c; i < left * batches; i = next, next += clusters)
      own += p.depths[static_cast<std::size_t>(i / left / copies)] * main + finish;
    most = std::max(most, own);
  }
  return even / clusters * batches * (main + finish) + most;
}

// A product whose other operand is read once past few rows, as weights that lie along k.
bool has_few_rows(const TileProblem& p) {
  return !p.window && p.groups == 0 && p.a_k_fastest && p.b_k_fastest &&
         std::min(p.rows, p.columns) <= kInstructionRows;
}

// Of matmuls as 27 shapes of 24 tiles each showed on an H100, most of them one round of tiles with
// weights of language models; of convolutions as fitted before; of phases as 17 strided data
// gradients of ten tiles each did on an H200 (64 x 112 x 80 x 80, 256 filters of 3 x 3, stride 2:
// 111 us in 256 x 128 alone, 132 in pairs of them), and two filter gradients of 1 x 1 and stride 2
// (256 images, 16 parts of k in halves of 128 x 256 and in pairs of 128 x 128: 256 x 56 x 56, 512
// filters 104.3 and 112.5 us, 512 x 28 x 28, 1024 filters 92.1 and 90.9). What an SM takes of the
// second-level cache (bytes a clock); what blocks that share an operand wait for each other, a tile
// and a step of k (2048 x 2048 x 2048 of bf16: 27.3 us in pairs of 128 x 256 that share it, 25.5
// alone); what parts of k cost, which are added when all of a cluster have been summed, and nothing
// runs beside that (1000 x 1000 x 4096: 20.6 us in halves of 128 x 128, 19.0 in whole 128 x 64);
// and how much those count that are not the slowest.
struct TileCosts {
  double move, neighbours, step, parts, part, others;
};
const TileCosts& costs_of(const TileProblem& p) {
  static constexpr TileCosts kOfMatmuls = {75, 200, 10, 3400, 800, 0.1},
                             kOfConvolutions = {80, 200, 0, 1400, 400, 0.07},
                             kOfPhases = {80, 200, 50, 1400, 400, 0.07};
  return p.phased || p.stepped ? kOfPhases : p.window ? kOfConvolutions : kOfMatmuls;
}

// Microseconds, roughly, for ranking, with costs fitted on an H200: what an SM spends on
// its tiles, but no less than the time of memory and of the second-level cache.
class TileEstimate {
 public:
  TileEstimate(const TileProblem& problem, const Tile& tile, const DeviceModel& model)
      : p(problem), t(tile), device(model) {}

  double microseconds() const {
    constexpr double kStart = 4200;  // clocks until the first stage has come
    constexpr double kReady = 500;   // of these, where the kernel before left room
    // Of batch entries, such as parts of k, blocks that share an operand start late, clocks. (256 x
    // 512 x 12544 in 8 parts, both operands transposed, in tiles of 128 x 64 alone and in pairs 9.8
    // and 11.8 us.)
    constexpr double kLate = 600;
    const double late = !p.window && p.batches > 1 && neighbours ? kLate : 0;
    // Of convolutions three consumers gain less than it seems: 22.3 and 20.4 us for 8 x 320
    // channels of 56 x 56, 3 x 3, stride 2, estimated at 25.4 and 22.8, but 35.0 and 37.1 for 96
    // channels of 64 images, estimated at 32.3 and 31.0.
    constexpr double kThree = 1.05;
    const double three = t.consumers == 3 && p.window ? kThree : 1;
    // Between tiles of a short k warpgroups that have tiles of their own wait less for each other,
    // and what clusters take to start counts. (16 products of k from 128 to 2048 on an H200, 22
    // tiles each: what is chosen takes 0.9 % longer than the fastest, 5.6 % without this; 3136 x
    // 2048 x 512 15.6 and 13.6 us.)
    constexpr double kOwnTiles = 0.8, kStartTogether = 550;
    const bool brief = has_short_k(), own = t.alternate || t.consumers == 1;
    const auto times = limits();
    // The slowest counts; the others a little, so that equals do not waste power.
    const double sum = std::accumulate(times.begin(), times.end(), 0.0);
    return (*std::max_element(times.begin(), times.end()) + costs.others * sum) * hindrance(p, t) *
               three * streamed_by_fours() * (brief && own ? kOwnTiles : 1) +
           (kStart + late + (brief && neighbours ? kStartTogether : 0) -
            (blocks_that_fit(p, t, device) > 1 ? kReady : 0)) /
               device.clock;
  }

 private:
  const TileProblem& p;
  const Tile& t;
  const DeviceModel& device;
  const TileCosts& costs = costs_of(p);
  const bool swapped = t.window_stages > 0 && t.swap_ab, few_rows = has_few_rows(p),
             neighbours = t.cluster_m * t.cluster_n > 1;
  const double tiles = tiles_of(p, t),
               at_once = cluster_blocks(t) * clusters_at_once(device, cluster_blocks(t)),
               rounds = std::ceil(tiles * t.split / at_once);
  const double depth_bytes = p.depth / t.split * p.bytes,
               multiplied = (p.depth - p.zeros_of_k) / t.split;  // of a block's k
  // Rows of A that come for a step of k; of pixels that stay, a tap's share.
  const double rows = p.taps > 0      ? static_cast<double>(window_pixels(p, t)) * p.planes / p.taps
                      : t.boxed_m > 0 ? t.boxed_m
                                      : loaded_rows(p, t);
  const int columns = loaded_columns(t.columns(), p.b_k_fastest, p.bytes);
  const double moved = (rows / t.cluster_n + filter_columns()) * depth_bytes;
  const double results = p.batches * p.rows_each() * p.columns * p.extra_bytes;  // bytes
  const double finish = finish_clocks();

  double filter_columns() const {
    const bool filter_stays = p.block > 0 && t.stages * kStageLine >= p.depth * p.bytes;
    return filter_stays || few_columns_stay(p, t) ? 0 : static_cast<double>(columns) / t.cluster_m;
  }

  // A plain product of few stages: what else epilogues compute or read was not measured.
  bool has_short_k() const {
    constexpr double kFewest = 2, kMost = 8;
    const double stages = p.depth * p.bytes / kStageLine;
    return !p.window && p.groups == 0 && p.batches == 1 && !p.computes && !p.reads && !few_rows &&
           p.products == 1 && stages >= kFewest && stages <= kMost;
  }

  // ---- clocks of a tile

  double multiply_clocks() const {
    constexpr int kFewestColumns = 80;  // narrower MMAs wait for the rows of A
    return 2.0 * t.m * (swapped ? t.n : std::max(t.n, kFewestColumns)) * multiplied /
           (2.0 * device.tensor_operations / p.bytes);
  }
  // Every MMA's rows of A are read with all columns of B.
  double shared_clocks() const {
    constexpr double kShared = 128;  // bytes a clock
    constexpr double kRead = 0.66;   // what reading one costs of kShared
    const double reads =
        swapped ? kRead * t.m / rows_of_consumer(t) * (kInstructionRows + rows_of_consumer(t))
                : kRead * t.m / kInstructionRows * (kInstructionRows + t.n);
    return (reads * multiplied * p.bytes + (rows + t.columns()) * depth_bytes) / kShared;
  }
  // What threads take to shift so much: 1024 products of 197 x 64 x 197 whose left rows begin
  // anywhere 108 us on an H100, 62 stages of 128 lines an SM.
  double shift_clocks() const {
    constexpr double kShifted = 16384, kShiftedClocks = 3000;  // bytes
    return kShiftedClocks * depth_bytes / kStageLine *
           ((p.a_shifted ? std::ceil(rows * kStageLine / kShifted) : 0) +
            (p.b_shifted ? std::ceil(columns * kStageLine / kShifted) : 0));
  }
  // What TMA takes for lines of which some begin at odd multiples of 16 bytes. (Bf16 on an H200:
  // 1000 x 1000 x 20000 with k fastest 73.6 us, x 20008 106; 4096 x 4096 x 64 in 128 x 128 10.6, x
  // 72 in 192 x 64, 128 x 128, pairs of these and of 128 x 256 22.3, 18.5, 15.6, 14.0.)
  double uneven_clocks() const {
    constexpr double kEven = 1.7, kUneven = 4.2;
    if ((!p.a_uneven && !p.b_uneven) || p.depth * p.bytes < kStageLine) return 0;
    const double lines = std::ceil(depth_bytes / kStageLine);
    return lines * (rows / t.cluster_n * (p.a_uneven ? kUneven : kEven) +
                    filter_columns() * (p.b_uneven ? kUneven : kEven));
  }
  // What TMA takes for a filter whose columns are the fastest and end within a line. (3 x 3 x 3, 96
  // channels of 16 x 48 x 48 on an H200, in 128 x 96, a step of k: 384 clocks of products; 676, in
  // pairs of which one loads the line that ends 580; with k the fastest 400.)
  double ending_lines_clocks() const {
    constexpr double kWhole = 1.7, kEnding = 9;
    const int line = kStageLine / p.bytes;
    if (p.taps == 0 || p.b_k_fastest || std::fmod(p.columns, line) == 0) return 0;
    const double across = std::ceil(p.columns / t.columns()),  // tiles, of which the last ends
        lines = static_cast<double>(columns) / line / t.cluster_m;
    return depth_bytes / kStageLine * line * (kWhole * (lines - 1 / across) + kEnding / across);
  }
  // A warpgroup of 64 rows whose pixels stay for all taps waits for each step's products, longer
  // where others share the filter. (2 x 320 x 8 x 8 x 8, 320 filters of 3 x 3 x 3 on an H200 in 64
  // x 64, alone, in pairs, in fours: 25.0, 26.7, 34.0 us; estimated without at 19.9, 19.1, 18.6; in
  // 128 x 112 whose k is split 15.6.)
  double wait_clocks() const {
    constexpr double kAlone = 250, kSharing = 50;
    const bool alone = p.taps > 0 && mmas_of_consumer(t) == 1 && (t.consumers == 1 || t.alternate);
    return alone ? (kAlone + kSharing * (t.cluster_m - 1)) * depth_bytes / kStageLine : 0;
  }
  // Moving costs power, and with it clocks, also where it is hidden.
  double main_clocks() const {
    return std::max({multiply_clocks(), moved / costs.move, shared_clocks(), shift_clocks(),
                     uneven_clocks(), ending_lines_clocks(), wait_clocks()}) +
           0.1 * moved / 64 +
           (neighbours ? costs.neighbours + costs.step * depth_bytes / kStageLine : 0);
  }

  double epilogue_tile_clocks() const {
    constexpr double kEpilogueTile = 1150, kEpilogueStored = 500, kEpilogueRead = 300,
                     kEpilogueReadSlow = 1600, kEpilogueOfTwo = 600, kEpilogueOdd = 3000;
    // Odd rows that leave as they are summed, whole ones and parts. (On an H100, 192 products of
    // 128 x 77 x 32 7.9 us in parts of rows, 3.9 of 80 columns; 1024 of 100 x 197 x 96 64.6 us in
    // parts, in 64 x 224 46.2.)
    constexpr double kEpilogueRuns = 900, kEpilogueParts = 1800;
    constexpr double kEpilogueComputes = 400;  // more than sums, where they lie
    constexpr int kPack = 8;  // results of 16 or 8 bits that a thread stores at once
    const bool slow = mmas_of_consumer(t) > 1 || has_little_room(t);
    const double read = !p.reads ? 0 : slow ? kEpilogueReadSlow : kEpilogueRead;
    // Of narrow tiles no gain was seen, but where epilogue tiles leave element by element.
    const bool odd_rows = p.stores_rows && std::fmod(p.columns, kPack) != 0,
               stored = stores_as_summed(p, t) && (odd_rows || t.n >= kEpilogueTileColumns);
    const double computed = p.computes && !p.window ? kEpilogueComputes : 0,
                 odd_tile = p.columns <= std::min(t.n, kMostOfRun) ? kEpilogueRuns : kEpilogueParts;
    return (stored     ? (odd_rows ? odd_tile : kEpilogueStored) + computed
            : odd_rows ? kEpilogueOdd
                       : kEpilogueTile) +
           read + (p.products > 1 ? kEpilogueOfTwo : 0);
  }
  double finish_clocks() const {
    constexpr double kAlongRows = 500;
    const double across = static_cast<double>(t.columns()) / kEpilogueTileColumns,
                 epilogue_tiles = mmas_of_consumer(t) * std::ceil(across);
    return epilogue_tiles * epilogue_tile_clocks() +
           (p.along_columns ? 0 : kAlongRows * mmas_of_consumer(t) * across) +
           (t.split > 1 ? costs.parts + costs.part * t.split : 0);
  }

  // ---- of all tiles

  double clocks() const {
    constexpr int kManyRounds = 32;  // unlike tiles hardly matter
    // Two whose products follow each other, against two that multiply a wider tile together, which
    // read less, where power limits the clock: 8192^3 of bf16 1,632 and 1,599 us, 2048 x 128256 x
    // 4096 3,108 and 3,042, but 3000^3 90.6 and 92.8, and with a gelu 833 and 859 (4096 x 16384 x
    // 4096).
    constexpr double kAlternate = 1.015, kSustained = 300;  // microseconds
    constexpr double kTurn = 350;
    const double main = main_clocks();
    const double all = p.depths.empty() || rounds > kManyRounds
                           ? rounds * (main + finish)
                           : longest_walk(p, t, main, finish, device);
    if (!t.alternate || p.phased) return all;
    // Turns go by tiles, so that unlike ones wait for each other.
    const bool sustained =
        rounds * main / device.clock > kSustained && !p.computes && !p.reads && !p.window;
    return std::max(rounds * ((sustained ? kAlternate : 1) * main + kTurn) + finish,
                    std::ceil(rounds / 2) * (main + finish));
  }

  // Stages of a wide tile whose sums fill the registers are few: two tiles of short sums. Between
  // results that memory takes as fast as it can, loads wait longer. (16 batches of 20480 x 4096 x
  // 128 on an H100: 1,254 us in tiles of 128 x 192, 1,151 in 128 x 128; 16384 x 4096 x 1024: 219
  // and 199.)
  double waits() const {
    constexpr double kWaits = 1.08;
    return writes_mostly(p) && has_little_room(t) ? kWaits : 1;
  }

  // Neighbouring tiles of a convolution are not in step with each other. (L2-resident reads of
  // tens of MiB: 9.6 TB/s.) Of filter gradients of few filters, whose k is long, neither are the
  // blocks that share a tile: 6.6 TB/s in tiles of 64 x 192 (64 channels of 256 x 256, 8
  // images), 7.3 in 64 x 128.
  double reached_of_cache() const {
    constexpr double kWindowCache = 0.66, kGradientCache = 0.52, kPhasedCache = 0.7;
    const bool few_filters = p.window && !p.a_k_fastest && p.rows <= kInstructionRows;
    return p.phased ? kPhasedCache : few_filters ? kGradientCache : p.window ? kWindowCache : 1;
  }

  // Microseconds that the SMs, memory, what memory gives them, and the second-level cache take.
  std::array<double, 4> limits() const {
    constexpr double kStreams = 1.075;  // of what another streaming kernel reaches, large boxes do
    constexpr double kExposed = 0.3;    // of finishing, that memory waits for
    // Where all SMs stream one operand past few rows, each gets its share of what memory gives and
    // little more, so that idle ones are missed. (Bf16 on an H200: 16 x 14336 x 4096 in 128 tiles
    // of 64 x 112 and 112 of 64 x 128 28.6 and 31.7 us; 24 x 9216 x 7168 in 128 and 96 32.4
    // and 39.0.)
    constexpr double kStreamed = 0.44;                                // of what one alone would get
    const double busy = std::min(tiles * t.split / rounds, at_once);  // SMs
    const double memory =
        (p.batches * p.rows_each() / p.a_again + batches_with_rows(p) * p.columns / p.b_again) *
            p.depth * p.bytes +
        results;
    const double cached = tiles * t.split * moved + results;
    // TMA takes as long for zeros past the ends of the operands.
    const double past = tiles * t.split *
                        (std::max(0.0, rows - p.rows) + std::max(0.0, t.columns() - p.columns)) *
                        depth_bytes;
    const double exposed = kExposed * finish / device.clock, writes = waits();
    return {(p.window ? 1 : writes) * clocks() / device.clock,
            writes * memory / (kStreams * device.memory_bandwidth) + exposed +
                short_lines(p, t, device),
            (memory / (few_rows ? kStreamed : 1) + past) / (busy * device.sm_bandwidth) + exposed,
            cached / (device.l2_bandwidth * reached_of_cache())};
  }

  // Fours that share the few rows, of several tiles each, stream faster, if they have the stages
  // for it. (16 x 28672 x 4096 in 64 x 128 alone, in pairs, in fours 61.9, 62.6, 58.3 us; of 64
  // rows, with 8 stages, in pairs and fours 64.3 and 66.9.)
  double streamed_by_fours() const {
    constexpr double kFours = 0.94, kManyWeights = 6e7;  // bytes
    constexpr int kManyStages = 9;
    const bool fours = few_rows && t.cluster_m * t.cluster_n == 4 && rounds > 1 &&
                       t.stages >= kManyStages &&
                       std::max(p.rows, p.columns) * p.depth * p.bytes >= kManyWeights;
    return fours ? kFours : 1;
  }
};

double estimate_gradient(const TileProblem& p, const Tile& t, const DeviceModel& device) {
  constexpr double kMove = 64, kStart = 4200, kEpilogueTile = 1150, kStep = 80;
  const double tiles = tiles_of(p, t), rounds = std::ceil(tiles / device.sms),
               steps = std::ceil(p.depth * p.bytes / kStageLine);
  const int each = (p.taps + t.consumers - 1) / t.consumers;
  const double multiply = 2.0 * t.m * t.n * (kStageLine / p.bytes) /
                          (2.0 * device.tensor_operations / p.bytes),
               moved = static_cast<double>(kInstructionRows + gradient_pixels(p)) * kStageLine;
  const double clocks =
      rounds * (steps * (std::max(multiply, moved / kMove) + kStep) + each * kEpilogueTile);
  const double memory =
      (p.rows + p.columns / p.taps) * p.depth * p.batches / p.tap_batches * p.bytes +
      p.batches * p.rows * p.columns * p.extra_bytes;
  return std::max({clocks / device.clock, memory / device.memory_bandwidth,
                   tiles * steps * moved / device.l2_bandwidth}) +
         kStart / device.clock;
}

}  // namespace

std::string to_text(const Tile& t) {
  return fmt::format("{}x{} by {} {}, cluster {}x{}, split {}, stages {}, group {}{}{}{}", t.m, t.n,
                     t.consumers, t.alternate ? "alternating" : "together", t.cluster_m,
                     t.cluster_n, t.split, t.stages, t.group, t.swap_ab ? ", swap_ab" : "",
                     t.window_stages > 0 ? fmt::format(", window {}", t.window_stages) : "",
                     t.block ? ", block" : "");
}

double tile_microseconds(const TileProblem& p, const Tile& t, const DeviceModel& device) {
  return p.gradient ? estimate_gradient(p, t, device) : TileEstimate(p, t, device).microseconds();
}

bool has_steps_for(const TileProblem& p, const Tile& t) {
  return t.split == 1 || std::ceil(p.depth * p.bytes / kStageLine) >= 2 * t.split;
}

int tiles_beside(const TileProblem& p) {
  // Whole rows of results reach memory together. (As above, in tiles of 128 x 128 that share A:
  // 1,151 us with 8 rows of tiles side by side, 1,119 with one.)
  return writes_mostly(p) && !p.window && p.groups == 0 ? 1 : 8;
}

double tiles_of(const TileProblem& p, const Tile& t) {
  return tile_rows(p, t) * std::ceil(p.columns / (t.columns() * t.cluster_n)) * t.cluster_m *
         t.cluster_n;
}

double most_tiles(const TileProblem& p, const Tile& t) {
  const double rows = p.batches * std::ceil(p.rows / (t.rows() * t.cluster_m));
  return rows * std::ceil(p.columns / (t.columns() * t.cluster_n)) * t.cluster_m * t.cluster_n;
}

int loaded_rows(const TileProblem& p, const Tile& t) {
  if (p.taps > 0 || t.m > kInstructionRows || p.rows > kInstructionRows || !p.a_k_fastest ||
      t.boxed_m > 0)
    return t.m;
  const double unit = p.gathered ? kCopiedRows : kSwizzledRows * t.cluster_n;
  return std::min(t.m, static_cast<int>(unit * std::ceil(p.rows / unit)));
}

int window_pixels(const TileProblem& p, const Tile& t) {
  if (p.block > 0) return p.block_lines;
  return (t.m + p.reach + kSwizzledRows - 1) / kSwizzledRows * kSwizzledRows;
}

int gradient_pixels(const TileProblem& p) {
  if (p.block > 0) return p.block_lines;
  const int pixels = kStageLine / p.bytes + p.reach;
  return (pixels + kSwizzledRows - 1) / kSwizzledRows * kSwizzledRows;
}

int sums_per_thread(const Tile& t) { return mmas_of_consumer(t) * t.n / 2; }

namespace {

// Registers of a consumer's thread besides its sums, where there are most.
int registers_beside(const Tile& t) {
  return (t.consumers == 3 ? kRegistersOfThree : kMostRegisters) - sums_per_thread(t);
}

}  // namespace

bool has_little_room(const Tile& t) {
  constexpr int kRoomy = 112;
  return registers_beside(t) < kRoomy;
}

bool stores_as_summed(const TileProblem& p, const Tile& t) {
  constexpr int kStoredTogether = 16;  // columns that stmatrix puts
  // Registers beside the sums for an epilogue that computes, and for one that reads.
  constexpr int kComputes = 80, kReads = 112;
  const bool swapped = t.window_stages > 0 && t.swap_ab;
  return (p.stores_rows || (p.stores_pieces && swapped)) && t.split == 1 &&
         t.n % kStoredTogether == 0 && (!p.computes || registers_beside(t) >= kComputes) &&
         (!p.reads || registers_beside(t) >= kReads);
}

int blocks_that_fit(const TileProblem& p, const Tile& t, const DeviceModel& device) {
  constexpr int kNarrowest = 8, kManySteps = 96;
  const bool leaves_room = !p.gathered && p.taps == 0 && t.n == kNarrowest && t.consumers == 1 &&
                           cluster_blocks(t) == 1 && tiles_of(p, t) <= device.sms &&
                           p.depth * p.bytes >= kManySteps * kStageLine;
  return leaves_room ? 2 : 1;
}

double grid_of(const TileProblem& p, const Tile& t, const DeviceModel& device) {
  if (t.split > 1) return tiles_of(p, t) * t.split;
  // Of groups nobody knows the tiles: they may be a few more than on average.
  const double tiles = p.groups > 0 ? most_tiles(p, t) : tiles_of(p, t);
  const int cluster = cluster_blocks(t);
  return p.depths.empty()
             ? balanced_grid(tiles, cluster, device)
             : std::min(tiles, static_cast<double>(cluster) * clusters_at_once(device, cluster));
}

double balanced_grid(double tiles, int cluster, const DeviceModel& device) {
  const double clusters = tiles / cluster;
  return std::ceil(clusters / std::ceil(clusters / clusters_at_once(device, cluster))) * cluster;
}

}  // namespace sinter
