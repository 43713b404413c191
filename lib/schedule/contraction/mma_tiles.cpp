#include "schedule/contraction/mma_tiles.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

namespace sinter {
namespace {

constexpr MmaTile kTiles[] = {{128, 256, 2, 4},
                              {256, 128, 4, 2},
                              {128, 128, 2, 2},
                              {128, 128, 2, 4},
                              {64, 128, 2, 2},
                              {128, 64, 2, 2},
                              {64, 64, 2, 2},
                              {32, 128, 1, 4},
                              {128, 32, 4, 1},
                              {32, 64, 2, 2},
                              {64, 32, 2, 2},
                              {16, 128, 1, 4},
                              {128, 16, 4, 1},
                              {16, 64, 1, 4},
                              {64, 16, 4, 1},
                              // For operands that pass through registers: more threads share them.
                              {64, 128, 2, 4},
                              {128, 64, 4, 2},
                              {64, 64, 4, 2},
                              // Of tf32, see is_long().
                              {64, 256, 2, 4},
                              {256, 64, 4, 2}};
// Tiles for numbers of 4 bytes that are copied, in three stages of twice the depth. (Filter
// gradient of 64 x 256 x 56 x 56, 64 of 1 x 1, in tf32 in 128 parts on an H200: in tiles of 64 x
// 128 88.2 us, of 64 x 256 78.3, in such stages 70.2.)
bool is_long(const MmaTile& t) {
  return std::max(t.m, t.n) == 4 * std::min(t.m, t.n) && t.m * t.n == 64 * 256;
}
bool is_streamed(const MmaWork& w) { return w.a.streamed || w.b.streamed; }

// A tile for few rows, its sides swapped where the columns are the few.
MmaTile swapped_for(const MmaWork& w, MmaTile t) {
  if (!rows_are_fewer(w)) std::swap(t.m, t.n), std::swap(t.warps_m, t.warps_n);
  return t;
}

// Bytes that come as they are: whole lines of memory, in as many stages as leave room for two
// blocks. Where the tiles are about as many as SMs, pairs of blocks share k. (R x N x K of i8 with
// a scale a column on an H200, us. 16 x 4096 x 14336 in 8 parts in tiles of 128 columns and of
// 64 20.9 and 24.8; clusters of 8 of 3 stages, as four leave no room for all, 23.5. 16 x 14336 x
// 4096 in pairs 20.1. 64 x 4096 x 14336 in 8 parts by 2 x 4 warps 40.6, in clusters of 8, which
// take two rounds, by 2 x 4 and by 1 x 4 60.6 and 56.2.)
MmaTile streamed_tile(const MmaWork& w, const DeviceModel& device) {
  constexpr int kLeastSteps = 4;  // of each
  const double short_side = std::min(w.rows, w.columns);
  MmaTile t = short_side <= 16   ? MmaTile{16, 128, 1, 4}
              : short_side <= 32 ? MmaTile{32, 128, 1, 4}
                                 : MmaTile{64, 128, 1, 4};
  t = swapped_for(w, t);
  t.stages = short_side <= 32 ? 4 : 3;
  t.line = streamed_depth(w) * w.bytes;
  const double tiles = tiles_of(w, t);
  if (device.has_clusters && w.batches == 1 && 2 * tiles > device.sms && tiles <= device.sms &&
      w.depth >= 2 * kLeastSteps * streamed_depth(w))
    t.split = 2;
  return t;
}

// Those that pass through registers are bound by the bytes that are under way, so that registers
// hold several steps. Each of them is the loop's code once more, to be compiled. (R x 4096 x 14336
// on an H200, us, all in 8 parts. 16 rows, one step, two, four: i8 with a scale a
// column 52.4, 35.9, 31.3, with one for 32 along k 62.4, 46.4, 32.0; two of 16 x 128 57.6 and 69.5.
// 32 rows, one and four: 50.8 and 36.5, 49.7 and 41.2. 64 rows, one and two: 51.7 and 43.1, 49.0
// and 47.7; four of 64 x 64 55.5 and 72.6.)
MmaTile held_tile(const MmaWork& w) {
  constexpr double kMostStreamed = 96;  // registers
  constexpr int kLeastTurns = 2;
  const double short_side = std::min(w.rows, w.columns);
  MmaTile t = swapped_for(w, short_side <= 16   ? MmaTile{16, 64, 1, 4}
                             : short_side <= 32 ? MmaTile{32, 64, 2, 2}
                                                : MmaTile{64, 128, 2, 4});
  const int most_steps = short_side <= 32 ? 4 : 2;
  t.line = 128;
  t.stages = 3;
  for (t.held_steps = most_steps; t.held_steps > 1; --t.held_steps)
    if (held_registers(w, t) <= kMostStreamed &&
        t.held_steps * code_size(w, t) <= kMostOperandCode[1] &&
        w.depth * w.bytes / t.line >= kLeastTurns * t.held_steps)
      break;
  return t;
}
bool waits(const MmaWork& w) { return w.a.held + w.b.held > 0; }
int stage_bytes(const MmaWork& w, const MmaTile& t) {
  return t.m * t.line / (w.a.streamed ? w.bytes : 1) + t.n * t.line / (w.b.streamed ? w.bytes : 1);
}
// Blocks that an SM holds, by shared memory and registers. kShared was fitted with the
// other numbers of this estimate and is no GPU's own figure.
int blocks_of(const MmaWork& w, const MmaTile& t, const DeviceModel& device) {
  constexpr int kShared = 160 << 10;
  const int warps = t.warps_m * t.warps_n;
  const int each =
      held_sums(w, t) + (streams(w) ? 64 : 96) + static_cast<int>(held_registers(w, t));
  const int registers = std::min(255, each) * warps * 32;
  const int blocks = std::max(device.registers_per_sm / registers, least_blocks(w, t));
  return std::clamp(std::min(kShared / shared_bytes(w, t), blocks), 1, 8);
}

// Clocks of an SM, roughly.
double estimate(const MmaWork& w, const MmaTile& t, const DeviceModel& device) {
  const double tiles = worked_tiles(w, t), each = std::ceil(tiles / device.sms);
  const double beside = std::min<double>(blocks_of(w, t, device), each);
  const int warps = t.warps_m * t.warps_n;
  // Of one element of k: MMAs, fragments read from shared memory, what comes from
  // memory.
  const double multiply = 1.0 * t.m * t.n * w.bytes / device.mma_operations,
               read = (t.m / t.warps_m + t.n / t.warps_n) * warps * w.bytes / 100.0,
               move = (t.m + t.n) * w.bytes / 48.0;
  // Few warps do not keep an SM busy.
  const double busy = std::min(1.0, 0.25 + 0.1 * warps * beside);
  constexpr double kLatency = 1500, kWait = 1000;  // until the first step has come, and others
  // Each step waits for memory, but for what other blocks do meanwhile.
  const double compute = (t.m * w.a.code + t.n * w.b.code) / 100;
  const double wait = waits(w) ? (kWait * w.bytes / t.line + compute) / beside : 0;
  const double steps = w.depth * std::max(std::max({multiply, read, move}) / busy + compute, wait);
  // Packs that alignment makes narrower are so many more, of as many instructions each. One by one:
  // 192 products of 128 x 77 x 32 with odd rows of B on an H100 took 18.3 us where 7.5 were
  // estimated, of 128 x 32 x 77 6.3 where 5.1 were. In pairs: 100352 x 58 x 58 with scale, bias and
  // relu on an H200 18.5 us, 10.4 estimated without and 18.8 so, in fours 25088 x 116 x 116 10.0,
  // 7.1 and 8.6.
  constexpr double kPack = 0.8, kEight = 1.0 / 8;
  const double epilogue =
      t.m * t.n * ((4.0 + w.extra_bytes) / 64 + kPack * (1.0 / w.packed - kEight));
  if (is_streamed(w)) {
    // Bytes that an SM gets in a clock, two blocks' and one's: those of the rows come from the
    // second-level cache. Of more rows the tensor cores' part shows.
    constexpr double kBytes = 18.5, kAlone = 15, kRow = 2, kStart = 3000, kPair = 1500;
    const double blocks = std::ceil(tiles * t.split / device.sms),
                 bytes = std::max(t.m, t.n) + kRow * (std::min(t.m, t.n) - 16);
    return blocks * (w.depth / t.split * bytes / (blocks > 1 ? kBytes : kAlone) + epilogue) +
           kStart + (t.split > 1 ? kPair : 0);
  }
  if (streams(w)) {  // one wait for all the steps that registers hold, and none computed meanwhile
    constexpr double kTurn = 1250, kElement = 0.05, kProduct = 0.0004;
    const double turn = kTurn * w.bytes / t.line / t.held_steps / beside,
                 element = kElement * std::max(t.m, t.n) + kProduct * t.m * t.n;
    return each * (w.depth * (turn + element) + epilogue) + kLatency;
  }
  return each * (steps + epilogue) + std::ceil(each / beside) * kLatency;
}

// The best tile with operands of at most so much code.
std::optional<MmaTile> choose_tile(const MmaWork& w, double most_code, const DeviceModel& device) {
  std::optional<MmaTile> best;
  double least = std::numeric_limits<double>::infinity();
  const int registers = (w.a.held > 0) + (w.b.held > 0);
  for (MmaTile t : kTiles) {
    // Small tiles take longer steps, so that as many bytes are in flight.
    if (t.m * t.n <= 64 * 64 && registers == 0) t.line = 128;
    const int sums = held_sums(w, t);
    if (!w.light && sums > 64) continue;
    t.stages = 4 - registers;
    if (is_long(t)) {
      if (w.bytes != 4 || registers > 0) continue;
      t.line = 128, t.stages = 3;
    }
    for (; t.line <= 128; t.line *= 2) {
      const double held = held_registers(w, t);
      if (held > kMostHeld || held + sums > 96 + 32 * w.light || code_size(w, t) > most_code) break;
      const double clocks = estimate(w, t, device);
      if (clocks < least) least = clocks, best = t;
      if (registers == 0) break;
    }
  }
  return best;
}

}  // namespace

bool streams(const MmaWork& w) {
  constexpr int kFewRows = 64;
  const bool rows = rows_are_fewer(w);
  return std::min(w.rows, w.columns) <= kFewRows && (rows ? w.b : w.a).narrow &&
         (rows ? w.a : w.b).held == 0 && w.bytes == 2 && w.groups == 0;
}

int streamed_depth(const MmaWork& w) {
  constexpr int kLine = 128;  // bytes
  return std::fmod(w.depth, kLine) == 0 ? kLine : kLine / 2;
}

double held_registers(const MmaWork& w, const MmaTile& t) {
  return (t.m * w.a.held + t.n * w.b.held) * t.held_steps * t.line / w.bytes /
         (32 * t.warps_m * t.warps_n);
}

int held_sums(const MmaWork& w, const MmaTile& t) {
  return t.m * t.n / (32 * t.warps_m * t.warps_n) * (w.promotes ? 2 : 1);
}

double code_size(const MmaWork& w, const MmaTile& t) {
  return (t.m * w.a.code + t.n * w.b.code) * t.line / w.bytes / (32 * t.warps_m * t.warps_n);
}

int shared_bytes(const MmaWork& w, const MmaTile& t) {
  const int warps = t.warps_m * t.warps_n,
            across = (t.n / t.warps_n + kEpilogueTileColumns - 1) / kEpilogueTileColumns,
            of_warp = t.split > 1 ? t.m / t.warps_m / 16 * across + 1 : 1;  // epilogue tiles
  return std::max(t.stages * stage_bytes(w, t), warps * of_warp * kEpilogueTileBytes);
}

double tiles_of(const MmaWork& w, const MmaTile& t) {
  return w.batches * std::ceil(w.rows / t.m) * std::ceil(w.columns / t.n);
}

double worked_tiles(const MmaWork& w, const MmaTile& t) {
  if (w.groups == 0) return tiles_of(w, t);
  return std::min(w.rows, w.rows / t.m + w.groups / 2) * std::ceil(w.columns / t.n);
}

double most_tiles(const MmaWork& w, const MmaTile& t) {
  if (w.groups == 0) return tiles_of(w, t);
  return std::min(w.rows, std::floor(w.rows / t.m) + w.groups) * std::ceil(w.columns / t.n);
}

double tile_microseconds(const MmaWork& w, const MmaTile& t, const DeviceModel& device) {
  return estimate(w, t, device) / device.clock;
}

double warps_beside(const MmaWork& w, const MmaTile& t, const DeviceModel& device) {
  const double each = std::ceil(worked_tiles(w, t) / device.sms);
  return t.warps_m * t.warps_n * std::min<double>(blocks_of(w, t, device), each);
}

int least_blocks(const MmaWork& w, const MmaTile& t) {
  const int threads = 32 * t.warps_m * t.warps_n;
  const double kept = held_sums(w, t) + held_registers(w, t);
  return waits(w) && threads == 256 && kept <= 52 ? 2 : 1;
}

std::optional<MmaTile> choose_tile(const MmaWork& w, const DeviceModel& device) {
  if (is_streamed(w)) return streamed_tile(w, device);
  if (streams(w)) return held_tile(w);
  for (double limit : kMostOperandCode)
    if (const auto tile = choose_tile(w, limit, device)) return tile;
  return {};
}

}  // namespace sinter
