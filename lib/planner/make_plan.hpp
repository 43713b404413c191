// Plan::make with given measurements in place of a tuning file's.
#pragma once
#include "plan/tuning.hpp"
#include "sinter/compile.hpp"

namespace sinter {

// `choices`, where not null: what could be measured, one for each kernel that has a choice.
Result<Plan> make_plan(Graph& graph, PlanOptions options, const Tuning& tuning,
                       std::vector<KernelChoice>* choices);

}  // namespace sinter
