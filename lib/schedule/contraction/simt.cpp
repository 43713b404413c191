#include "schedule/contraction/simt.hpp"

#include <algorithm>
#include <cmath>

#include "plan/access.hpp"
#include "schedule/schedule_parts.hpp"

namespace sinter {

namespace {

// In tiles of which an SM works on one at a time, or on several more slowly.
double microseconds(const KernelSpec& spec, int tile, double tiles, const DeviceModel& device) {
  // Of what CUDA cores could multiply and add, in small tiles and in large ones, and of what tensor
  // cores could in f64, fitted on an H200 (15, 35 and 35 million operations a microsecond).
  constexpr double kShare = 0.2775, kShareLarge = 0.6473, kShareDouble = 0.64;
  const double rounds = std::ceil(tiles / device.sms),
               depth = elements(spec.extent, spec.extent.size() - spec.contraction().k(),
                                spec.extent.size()),
               operations =
                   spec.contraction().accumulate == DataType::f64
                       ? kShareDouble * device.double_operations
                       : (tile == kLargeTile ? kShareLarge : kShare) * device.ordinary_operations,
               of_sm = operations * device.clock;
  return device.launch_microseconds + std::max(rounds * 2.0 * tile * tile * depth / of_sm,
                                               bytes_moved(spec) / device.memory_bandwidth);
}

double tiles_of(const KernelSpec& spec, int tile) {
  const ContractionSpec& c = spec.contraction();
  const auto along = [&](int from, int size) {
    return std::ceil(elements(spec.extent, from, from + size) / tile);
  };
  return elements(spec.extent, 0, c.first_m()) * along(c.first_m(), c.m) * along(c.first_n(), c.n);
}

constexpr int kBlocksBeside = 2;  // whose barriers and loads hide behind each other's products
bool is_plain_load(const Body& body) {
  return std::all_of(body.statements.begin(), body.statements.end(), is_load);
}

void take_tile(SimtConfig& s, int tile, const KernelSpec& spec, const DeviceModel& device) {
  s.tile = tile;
  s.grid = clamp_grid(tiles_of(spec, tile));
  s.microseconds = microseconds(spec, tile, tiles_of(spec, tile), device);
}

}  // namespace

SimtConfig schedule_simt(const KernelSpec& spec, const DeviceModel& device) {
  SimtConfig s;
  s.wide_index = needs_wide_index(spec);
  const ContractionSpec& c = spec.contraction();
  const int n = c.first_n(), k = c.first_k();
  const int last_m = c.m ? n - 1 : -1, last_n = c.n ? k - 1 : -1,
            last_k = c.k() ? k + c.k() - 1 : -1;
  s.a_k_fastest = !prefers(spec, c.a().body, last_k, last_m, is_load);
  s.b_k_fastest = !prefers(spec, c.b().body, last_k, last_n, is_load);
  s.n_fastest = !prefers(spec, spec.body, last_n, last_m, is_store);
  s.tensor_cores = c.accumulate == DataType::f64 && c.zero_dominates == ZeroOf::neither;
  if (s.tensor_cores && is_plain_load(c.a().body) && is_plain_load(c.b().body))
    s.least_blocks = kBlocksBeside;
  // Large tiles read half as many factors for each product and are 1.3 times as fast, but need
  // enough results to occupy most SMs, and four times the registers: those of doubles
  // would not fit.
  constexpr int kOperands = kLargeTile / 16;  // that a thread loads of each in a step
  const bool large =
      c.accumulate == DataType::f32 && c.zero_dominates == ZeroOf::neither && !c.rows.on &&
      3 * tiles_of(spec, kLargeTile) >= 2 * device.sms &&
      4 * tiles_of(spec, kLargeTile) <= 1.3 * tiles_of(spec, kSmallTile) &&
      (element_cost(spec, c.a().body) + element_cost(spec, c.b().body)) * kOperands <= kMostCode;
  take_tile(s, large ? kLargeTile : kSmallTile, spec, device);
  return s;
}

std::optional<SimtConfig> schedule_as(const SimtConfig& decided, const KernelSpec& spec,
                                      const DeviceModel& device) {
  SimtConfig s = schedule_simt(spec, device);
  if (spec.contraction().rows.on || !spec.gathers.empty() || s.a_k_fastest != decided.a_k_fastest ||
      s.b_k_fastest != decided.b_k_fastest || s.n_fastest != decided.n_fastest)
    return {};
  s.wide_index |= decided.wide_index;
  take_tile(s, decided.tile, spec, device);
  return s;
}

}  // namespace sinter
