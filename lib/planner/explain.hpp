// What a plan does, for people and for tools.
#pragma once
#include <string>

#include "plan/plan_data.hpp"

namespace sinter {

std::string explain_text(const PlanData& plan);
std::string explain_dot(const PlanData& plan);  // Graphviz: kernels as clusters of nodes

}  // namespace sinter
