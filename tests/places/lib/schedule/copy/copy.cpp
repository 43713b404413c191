#include "schedule/copy/copy.hpp"

#include <cmath>

#include "schedule/schedule_parts.hpp"
#include "schedule/scheduled_kernel.hpp"

namespace sinter {

ScheduledKernel schedule(const CopySpec&, const KernelSpec& spec, const PlanContext& context) {
  const double all = elements(spec.extent, 0, spec.extent.size());
  CopyConfig e;
  e.wide_index = needs_wide_index(spec);
  e.grid = clamp_grid(std::ceil(all / e.threads));
  e.microseconds =
      context.device.launch_microseconds + bytes_moved(spec) / context.device.memory_bandwidth;
  return scheduled(spec, e);
}

}  // namespace sinter
