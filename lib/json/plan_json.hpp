// Plan files (format sinter.plan): all of a plan as canonical text, machine code included, once
// where several kernels have the same, with a hash that tells accidental damage. The hash is no
// signature: a plan holds code that will run, so it is to be trusted as a program is.
#pragma once
#include <string>
#include <string_view>

#include "plan/plan_data.hpp"
#include "sinter/base/result.hpp"

namespace sinter::json {

std::string plan_to_json(const PlanData& plan);

// Every number that reaches a launch is checked: positions, offsets, grids and the list of tensors,
// which has to be what the embedded graph says. Errors are of Rule::plan_format.
Result<PlanData> plan_from_json(std::string_view text, std::string_view file);

}  // namespace sinter::json
