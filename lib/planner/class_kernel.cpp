#include "planner/class_kernel.hpp"

#include "emit/emit.hpp"

namespace sinter {

ClassKernel class_kernel(ScheduledKernel decided, const KernelSpec& other,
                         const PlanContext& context) {
  ClassKernel k{std::move(decided), {}, {}};
  const auto as = schedule_as(k.decided, other, context);
  if (as) k.text = class_text(k.decided, *as);
  if (!as)
    k.reason = "it is scheduled for its extents";
  else if (!k.text)
    k.reason = "its text holds more of its extents than a launch can bring";
  return k;
}

}  // namespace sinter
