// What is wrong with a part of a plan, as a diagnostic says it.
#pragma once
#include <string>

namespace sinter {

struct PlanProblem {
  std::string field, seen, allowed;
};

}  // namespace sinter
