// Kernels that planning makes of graphs, one of each engine's forms, at sizes that models have.
#pragma once
#include <string>
#include <vector>

#include "plan/plan_data.hpp"

namespace sinter::golden {

struct PlannedKernel {
  std::string name;  // of the form: its file in device/family
  PlanKernel kernel;
};
// Fails where a plan has no kernel of the form.
std::vector<PlannedKernel> planned_kernels();

}  // namespace sinter::golden
