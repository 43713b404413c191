// Whether what a plan's kernel is given fits the rest of the plan.
#pragma once
#include <optional>

#include "plan/plan_data.hpp"
#include "plan/plan_problem.hpp"

namespace sinter {

// What is wrong with the kernel that follows those that the plan has: what it is given of the
// workspace is to be a buffer's that is there while it runs, and one that writes has blocks.
std::optional<PlanProblem> kernel_problem(const PlanData& plan, const PlanKernel& next);

}  // namespace sinter
