#include "schedule/attention/backward_time.hpp"

#include <cmath>

namespace sinter {
namespace {

using A = AttentionBackwardSpec;

}  // namespace

double microseconds_of_few_keys(const AttentionBackwardConfig& e, const KernelSpec& spec,
                                double grid, const DeviceModel& device) {
  const A& a = spec.attention_backward();
  const double rounds = std::ceil(grid / static_cast<double>(device.sms * e.least_blocks)),
               walked = std::ceil(static_cast<double>(spec.extent[A::m]) / e.tile_q) *
                        static_cast<double>(a.group) / a.parts;
  return rounds * e.windows * (1 + e.least_blocks + walked);
}

double microseconds_of_dbias(const KernelSpec& spec, double entries) {
  constexpr double kAdditions = 0.43e6;
  const BiasGradient b = bias_gradient_of(spec);
  if (!b.shared || !b.by_query || !b.by_key || spec.attention_backward().dbias < 0) return 0;
  return entries * static_cast<double>(spec.extent[A::m] * spec.extent[A::n]) / kAdditions;
}

double heads_of_windows(const KernelSpec& spec, int windows) {
  const std::int64_t entries = spec.extent[0];
  return static_cast<double>(spec.extent[A::head] * ((entries + windows - 1) / windows));
}

}  // namespace sinter
