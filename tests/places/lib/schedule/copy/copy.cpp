#include "schedule/copy/copy.hpp"

#include <cmath>

#include "schedule/schedule_parts.hpp"
#include "schedule/scheduled_kernel.hpp"

namespace sinter {

ScheduledKernel schedule(const CopySpec&, const KernelSpec& spec, const PlanContext&) {
  const double all = elements(spec.extent, 0, spec.extent.size());
  CopyConfig e;
  e.wide_index = needs_wide_index(spec);
  e.grid = clamp_grid(std::ceil(all / e.threads));
  e.microseconds = 2 + all / 1e6;
  return scheduled(spec, e);
}

}  // namespace sinter
