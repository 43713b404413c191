#include "schedule/contraction/fma_tiles.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace sinter {
namespace {

// A thread has m / warps_m / 4 x n / warps_n / 8 results.
constexpr MmaTile kTiles[] = {{128, 128, 2, 2}, {64, 128, 2, 2}, {128, 64, 2, 2}, {64, 64, 2, 2},
                              {32, 128, 1, 4},  {128, 32, 4, 1}, {32, 64, 2, 2},  {64, 32, 4, 1},
                              {16, 128, 1, 4},  {16, 64, 1, 2}};
constexpr struct Pipeline {
  int line, stages;  // bytes of k in a stage
} kPipelines[] = {{64, 4}, {64, 3}, {128, 3}};
constexpr int kLanesM = 4, kLanesN = 8;

int thread_rows(const MmaTile& t) { return t.m / t.warps_m / kLanesM; }
int thread_columns(const MmaTile& t) { return t.n / t.warps_n / kLanesN; }

// Those of a thread: sums, two slices of its columns, chunks of its rows, what waits, addresses.
int registers(const MmaWork& w, const MmaTile& t) {
  constexpr int kAddresses = 48;
  return held_sums(w, t) + 8 * thread_columns(t) + 12 + static_cast<int>(held_registers(w, t)) +
         kAddresses;
}

// Instructions that the SM issues for the device model's clock with so many warps, as
// parts of the most. Fitted on an H200, whose clock is higher here than under tensor cores.
double issued(double warps) { return std::min(1.07, 0.17 + 0.1125 * warps); }

// Clocks of an SM, roughly.
double estimate(const MmaWork& w, const MmaTile& t, const DeviceModel& device) {
  const double each = std::ceil(tiles_of(w, t) / device.sms),
               beside = std::min<double>(fma_blocks(w, t, device), each);
  const int warps = t.warps_m * t.warps_n, products = thread_rows(t) * thread_columns(t);
  // Instructions of a warp for one element of k: multiplications, chunks read, copies with their
  // addresses, what is computed of operands, and the loop's own, some a turn: see ThreadTiles.
  constexpr double kCopy = 5, kTurn = 48;
  const int slices = t.line / 16, turn = slices * products <= 256 ? slices : 2;
  const double read = (thread_rows(t) + thread_columns(t)) / 4.0,
               copy = (t.m + t.n) / 4.0 / (32 * warps) * kCopy,
               compute = (t.m * w.a.code + t.n * w.b.code) / (32 * warps);
  const double schedulers = device.ordinary_operations / 64.0,
               clocks =
                   (products + read + copy + compute + kTurn / (4 * turn)) * warps / schedulers;
  // Long stages have fewer barriers, and more addresses at once where these are not simple. (Of a
  // convolution a step's addresses take time, which few products hide: 64 channels of 56 x 56, 3 x
  // 3, 16 images: 98 us forward, 175 the filter's gradient, where 79 and 89 were estimated
  // without.)
  constexpr double kStep = 48, kStepOfPlaces = 240, kAddresses = 1.05;
  const bool places = !w.light && w.a.held + w.b.held == 0;
  const double step = w.light  ? kStep
                      : places ? kStepOfPlaces
                               : 0,
               stage = (1 + step / (t.line / w.bytes) / products) *
                       (!w.light && t.line > 64 ? kAddresses : 1);
  const double moved = (t.m + t.n) * w.bytes / 48.0;
  constexpr double kLatency = 1500, kWait = 1000;  // until the first step has come, and others
  const double wait = w.a.held + w.b.held > 0 ? kWait * w.bytes / t.line : 0;
  // Tiles that run side by side, the last ones fewer.
  const auto round = [&](double tiles) {
    const double step =
        std::max({tiles * clocks * stage / issued(warps * tiles), tiles * moved, wait});
    return tiles > 0 ? w.depth * step + kLatency : 0;
  };
  const double epilogue = t.m * t.n * (4.0 + w.extra_bytes) / 64;
  const double rounds = std::floor(each / beside);
  return rounds * round(beside) + round(each - rounds * beside) + each * epilogue;
}

}  // namespace

int fma_blocks(const MmaWork& w, const MmaTile& t, const DeviceModel& device) {
  const int threads = 32 * t.warps_m * t.warps_n,
            by_registers = device.registers_per_sm / (std::min(255, registers(w, t)) * threads),
            by_memory = device.shared_per_sm / (shared_bytes(w, t) + device.shared_reserved);
  return std::clamp(std::min(by_registers, by_memory), 1, 8);
}

std::string to_text(const MmaTile& t) {
  return fmt::format("{}x{} by {}x{} warps of {}x{}, stages {} of {}", t.m, t.n, t.warps_m,
                     t.warps_n, t.m / t.warps_m, t.n / t.warps_n, t.stages, t.line / 4);
}

std::vector<EstimatedMmaTile> fma_tiles(const MmaWork& w, const DeviceModel& device) {
  for (double most_code : kMostOperandCode) {
    std::vector<EstimatedMmaTile> legal;
    for (MmaTile t : kTiles)
      for (const Pipeline& p : kPipelines) {
        t.line = p.line;
        t.stages = p.stages;
        if (shared_bytes(w, t) <= device.shared_per_cta && held_registers(w, t) <= kMostHeld &&
            registers(w, t) <= 255 && code_size(w, t) <= most_code)
          legal.push_back({t, estimate(w, t, device) / device.clock});
      }
    if (!legal.empty()) return legal;
  }
  return {};
}

}  // namespace sinter
