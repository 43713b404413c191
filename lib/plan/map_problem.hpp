// Whether a tensor map is one that hardware and plan allow. Plan files and the runtime both ask.
#pragma once
#include <optional>

#include "plan/plan_data.hpp"
#include "plan/plan_problem.hpp"

namespace sinter {

// The first thing that is wrong with it, in the order of its fields.
std::optional<PlanProblem> map_problem(const PlanData& plan, const PlanMap& map);

// Bytes from the map's own start to the end of its last element; the map has no problem.
std::int64_t map_span(const TensorMap& map);

}  // namespace sinter
