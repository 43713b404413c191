// Plan::make with given measurements in place of a tuning file's.
#pragma once
#include "plan/tuning.hpp"
#include "sinter/compile.hpp"

namespace sinter {

// `choices`, where not null: what could be measured, one for each kernel that has a choice.
Result<Plan> make_plan(Graph& graph, PlanOptions options, const Tuning& tuning,
                       std::vector<KernelChoice>* choices);

// A plan with machine code for more targets; `options` say whom to tell how far that has come.
Result<Plan> with_machine_code(const Plan& plan, const std::vector<std::string>& targets,
                               const PlanOptions& options);

}  // namespace sinter
