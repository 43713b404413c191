#include "plan/kernel_problem.hpp"

#include <algorithm>

namespace sinter {

std::optional<PlanProblem> kernel_problem(const PlanData& plan, const PlanKernel& next) {
  const auto number = static_cast<std::int64_t>(plan.kernels.size());
  const auto held = [&](std::int64_t offset) {
    return std::any_of(plan.buffers.begin(), plan.buffers.end(), [&](const PlanBuffer& b) {
      return b.first <= number && number <= b.last && offset >= b.offset &&
             offset - b.offset <= std::max<std::int64_t>(b.bytes - 1, 0);
    });
  };
  const auto outside = [](const char* field, std::int64_t offset) {
    return PlanProblem{field, "workspace " + std::to_string(offset),
                       "a place in a buffer of this kernel"};
  };
  for (const KernelArgument& a : next.arguments)
    if (a.kind == KernelArgument::Kind::workspace && !held(a.value))
      return outside("arguments", a.value);
  for (const PlanMap& m : next.maps)
    if (m.workspace && !held(m.value)) return outside("maps", m.value);
  const bool writes = std::any_of(next.accesses.begin(), next.accesses.end(),
                                  [](const PlanAccess& a) { return a.written && a.bytes > 0; });
  if (next.grid == 0 && writes)
    return PlanProblem{"grid", "0", "blocks that write what its accesses say"};
  return {};
}

}  // namespace sinter
