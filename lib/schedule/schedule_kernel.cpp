#include <algorithm>
#include <cmath>

#include "plan/access.hpp"
#include "schedule/scheduled_kernel.hpp"

namespace sinter {
namespace {

// ---- times

double bytes_moved(const KernelSpec& spec) {
  double bytes = 0;
  for (const auto& p : spec.ports)
    bytes += static_cast<double>(elements_reached(spec.extent, p.access)) * info(p.type).bytes;
  return bytes;
}

double microseconds_of(const KernelSpec& spec, const PointwiseConfig& s,
                       const DeviceModel& device) {
  // Bytes a microsecond of a kernel that reads odd rows element by element, fitted on an H200.
  constexpr double kOneByOne = 2.6e6;
  const bool one_by_one = s.packing.width == 1 && !s.tiling.on;
  return device.launch_microseconds +
         bytes_moved(spec) / (one_by_one ? kOneByOne : device.memory_bandwidth);
}

// As if memory were all that it waits for.
double microseconds_of(const KernelSpec& spec, const DeviceModel& device) {
  return device.launch_microseconds + bytes_moved(spec) / device.memory_bandwidth;
}

// On ordinary cores, in tiles of which a multiprocessor works on one at a time or on several more
// slowly.
double microseconds_of(const KernelSpec& spec, const SimtConfig& s, const DeviceModel& device) {
  // Operations a microsecond, in small tiles and in large ones, fitted on an H200.
  constexpr double kOrdinary = 15e6, kOrdinaryLarge = 35e6;
  const ContractionSpec& c = spec.contraction();
  const int m = c.first_m(), n = c.first_n(), k = c.first_k();
  const auto extent = [&](int from, int to) {
    return static_cast<double>(count(spec.extent, from, to));
  };
  const double tiles =
      extent(0, m) * std::ceil(extent(m, n) / s.tile) * std::ceil(extent(n, k) / s.tile);
  const double rounds = std::ceil(tiles / device.sms);
  const double depth = extent(k, spec.extent.size());
  const double rate = s.tile == kLargeTile ? kOrdinaryLarge : kOrdinary;
  return device.launch_microseconds +
         std::max(rounds * device.sms * 2.0 * s.tile * s.tile * depth / rate,
                  bytes_moved(spec) / device.memory_bandwidth);
}

// `spec`: as the engine wants it.
double microseconds_of(const KernelSpec& spec, const MmaConfig& e, const DeviceModel& device) {
  // Fitted on an H200: operations a microsecond on operands that lie at odd addresses and so pass
  // through registers; by how much the model of such operands is too fast, at the least.
  constexpr double kOdd = 60e6, kThroughRegisters = 1.4;
  const double memory = bytes_moved(spec) / device.memory_bandwidth;
  const auto lies_odd = [&](const MmaOperand& o, const Body& body) {
    const KernelPort* const port = plainly_loaded(spec, body);
    return !o.copied && port && port->type == e.number;
  };
  const ContractionSpec& c = spec.contraction();
  const bool odd = lies_odd(e.a, c.a().body) || lies_odd(e.b, c.b().body);
  const bool copied = e.a.copied && e.b.copied;
  const double operations = 2.0 * static_cast<double>(count(spec.extent, 0, spec.extent.size()));
  return device.launch_microseconds + std::max({e.microseconds * (copied ? 1 : kThroughRegisters),
                                                odd ? operations / kOdd : 0, memory});
}

// ---- engines

// The engines' estimates were fitted one by one, and differ by so much where measurements are
// alike.
constexpr double kSurelyFaster = 1.5;

// Of the engines on tensor cores the one with the least estimated time: that of warpgroups (wgmma),
// unless the other is surely faster. (Where it is, the operands lie in steps: of a strided 1 x 1
// convolution only the pixels of one line make up the rows of a tile, so that most of it is empty.)
// Ordinary cores are for what no tensor core multiplies.
ScheduledKernel schedule_contraction(const KernelSpec& spec, const DeviceModel& device,
                                     const Tuning& tuning) {
  auto wgmma = plan_wgmma(spec, device, tuning);
  std::optional<MmaPlan> mma;
  if (!wgmma || !spec.contraction().paired()) mma = plan_mma(spec, device);
  if (wgmma && mma &&
      kSurelyFaster * microseconds_of(mma->spec, mma->engine, device) < wgmma->microseconds)
    wgmma.reset();
  if (wgmma) {
    return {std::move(wgmma->spec), std::move(wgmma->engine), wgmma->microseconds,
            std::move(wgmma->choice), wgmma->tuned};
  }
  if (mma) {
    const double microseconds = microseconds_of(mma->spec, mma->engine, device);
    return {std::move(mma->spec), std::move(mma->engine), microseconds, {}, false};
  }
  SimtConfig simt = schedule_simt(spec, device);
  const double microseconds = microseconds_of(spec, simt, device);
  return {spec, simt, microseconds, {}, false};
}

ScheduledKernel schedule_family(const KernelSpec& spec, const DeviceModel& device,
                                const Tuning& tuning) {
  return std::visit(
      Overloaded{
          [&](const PointwiseSpec&) -> ScheduledKernel {
            PointwiseConfig config = schedule_pointwise(spec, device);
            const double microseconds = microseconds_of(spec, config, device);
            return {spec, std::move(config), microseconds, {}, false};
          },
          [&](const RowwiseSpec&) -> ScheduledKernel {
            return {spec, schedule_rowwise(spec, device), microseconds_of(spec, device), {}, false};
          },
          [&](const ContractionSpec&) { return schedule_contraction(spec, device, tuning); }},
      spec.family);
}

}  // namespace

const Launch& ScheduledKernel::launch() const {
  return std::visit([](const Launch& l) -> const Launch& { return l; }, config);
}

const Packing* ScheduledKernel::packing() const {
  return std::visit(
      [](const auto& c) -> const Packing* {
        if constexpr (requires { c.packing; })
          return &c.packing;
        else
          return nullptr;
      },
      config);
}

int ScheduledKernel::unroll() const {
  return std::visit(
      [](const auto& c) {
        if constexpr (requires { c.unroll; })
          return c.unroll;
        else
          return 1;
      },
      config);
}

int ScheduledKernel::skew() const {
  return std::visit(
      [](const auto& c) {
        if constexpr (requires { c.skew; })
          return c.skew;
        else
          return -1;
      },
      config);
}

ScheduledKernel schedule_kernel(const KernelSpec& spec, const DeviceModel& device,
                                const Tuning& tuning) {
  ScheduledKernel kernel = schedule_family(spec, device, tuning);
  std::visit(
      [&](auto& c) {
        if constexpr (requires { c.packing; })
          for (const auto& s : kernel.spec.body.statements)
            c.packing.drawn.push_back(s.kind == StatementKind::random
                                          ? drawn_together(kernel.spec, c.packing, kernel.skew(), s)
                                          : 0);
      },
      kernel.config);
  return kernel;
}

}  // namespace sinter
