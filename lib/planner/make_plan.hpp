// Plan::make with given measurements in place of a tuning file's.
#pragma once
#include "plan/tuning.hpp"
#include "sinter/compile.hpp"

namespace sinter {

struct PlanClass;

// `choices`, where not null: what could be measured, one for each kernel that has a choice.
// `of_class`, where not null: what was decided for graphs like this one (plan_class.hpp).
Result<Plan> make_plan(Graph& graph, PlanOptions options, const Tuning& tuning,
                       std::vector<KernelChoice>* choices, const PlanClass* of_class = nullptr);

// A plan with machine code for more targets; `options` say whom to tell how far that has come.
Result<Plan> with_machine_code(const Plan& plan, const std::vector<std::string>& targets,
                               const PlanOptions& options);

}  // namespace sinter
