#include "schedule/contraction/simt.hpp"

#include <cmath>

#include "plan/access.hpp"
#include "schedule/schedule_parts.hpp"

namespace sinter {

SimtConfig schedule_simt(const KernelSpec& spec, const DeviceModel& device) {
  SimtConfig s;
  s.wide_index = needs_wide_index(spec);
  const ContractionSpec& c = spec.contraction();
  const int m = c.first_m(), n = c.first_n(), k = c.first_k();
  const int last_m = c.m ? n - 1 : -1, last_n = c.n ? k - 1 : -1,
            last_k = c.k() ? k + c.k() - 1 : -1;
  s.a_k_fastest = !prefers(spec, c.a().body, last_k, last_m, is_load);
  s.b_k_fastest = !prefers(spec, c.b().body, last_k, last_n, is_load);
  s.n_fastest = !prefers(spec, spec.body, last_n, last_m, is_store);
  // Large tiles read half as many factors for each product and are 1.3 times as fast, but need
  // enough results to occupy most multiprocessors, and four times the registers: those of doubles
  // would not fit.
  const auto tiles = [&](int tile) {
    const auto along = [&](int from, int size) {
      return std::ceil(elements(spec.extent, from, from + size) / tile);
    };
    return elements(spec.extent, 0, m) * along(m, c.m) * along(n, c.n);
  };
  constexpr int kOperands = kLargeTile / 16;  // that a thread loads of each in a step
  const bool large =
      c.accumulate == DataType::f32 && c.zero_dominates == ZeroOf::neither && !c.rows.on &&
      3 * tiles(kLargeTile) >= 2 * device.sms && 4 * tiles(kLargeTile) <= 1.3 * tiles(kSmallTile) &&
      (element_cost(spec, c.a().body) + element_cost(spec, c.b().body)) * kOperands <= kMostCode;
  s.tile = large ? kLargeTile : kSmallTile;
  s.grid = clamp_grid(tiles(s.tile));
  return s;
}

}  // namespace sinter
