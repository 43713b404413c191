#include "planner/cost/estimate.hpp"

#include <algorithm>
#include <cmath>

#include "emit/mma.hpp"
#include "emit/schedule.hpp"
#include "emit/tensor_cores.hpp"
#include "plan/access.hpp"
#include "plan/device_model.hpp"

namespace sinter {
namespace {

// Measured on an H200, per microsecond: bytes of a kernel that reads odd rows element by element;
// operations on ordinary cores, in small tiles and in large ones, and on operands that lie at odd
// addresses and so pass through registers.
constexpr double kOneByOne = 2.6e6, kOrdinary = 15e6, kOrdinaryLarge = 35e6, kOdd = 60e6;
// By how much the model of operands that pass through registers is too fast, at the least.
constexpr double kThroughRegisters = 1.4;

double bytes_moved(const KernelSpec& spec) {
  double bytes = 0;
  for (const auto& p : spec.ports)
    bytes += static_cast<double>(elements_reached(spec.extent, p.access)) * info(p.type).bytes;
  return bytes;
}

// On ordinary cores, in tiles of which a multiprocessor works on one at a time or on several more
// slowly.
double ordinary_microseconds(const KernelSpec& spec) {
  const int m = spec.batch, n = m + spec.m, k = n + spec.n;
  const auto extent = [&](int from, int to) {
    return static_cast<double>(count(spec.extent, from, to));
  };
  const int tile = choose_schedule(spec).tile;
  const double tiles =
      extent(0, m) * std::ceil(extent(m, n) / tile) * std::ceil(extent(n, k) / tile);
  const double rounds = std::ceil(tiles / kMultiprocessors);
  const double depth = extent(k, spec.extent.size());
  const double rate = tile == kLargeTile ? kOrdinaryLarge : kOrdinary;
  return rounds * kMultiprocessors * 2.0 * tile * tile * depth / rate;
}

}  // namespace

double pointwise_microseconds(const KernelSpec& spec) {
  const Schedule s = choose_schedule(spec);
  const bool one_by_one = s.packing.width == 1 && !s.tiling.on;
  return kLaunchMicroseconds + bytes_moved(spec) / (one_by_one ? kOneByOne : kStreamedBytes);
}

double contraction_microseconds(const KernelSpec& spec, std::string_view architecture) {
  if (architecture == "sm_90a")
    if (const auto plan = plan_tensor_cores(spec, {})) return plan->engine.microseconds;
  const double memory = bytes_moved(spec) / kStreamedBytes;
  const auto mma = plan_mma(spec);
  if (!mma) return std::max(ordinary_microseconds(spec), memory);
  const Mma& e = mma->engine;
  const auto lies_odd = [&](const MmaOperand& o, const Body& body) {
    const KernelPort* const port = plainly_loaded(mma->spec, body);
    return !o.copied && port && port->type == e.number;
  };
  const bool odd = lies_odd(e.a, mma->spec.a) || lies_odd(e.b, mma->spec.b);
  const bool copied = e.a.copied && e.b.copied;
  const double operations = 2.0 * static_cast<double>(count(spec.extent, 0, spec.extent.size()));
  return std::max(
      {e.microseconds * (copied ? 1 : kThroughRegisters), odd ? operations / kOdd : 0, memory});
}

}  // namespace sinter
