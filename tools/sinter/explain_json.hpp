// What `sinter explain --json` prints.
#pragma once
#include <string>
#include <vector>

#include "plan/plan_data.hpp"
#include "sinter/graph.hpp"

namespace sinter::cli {

// `graph`, `measured`: as those of sinter::explain_text.
std::string explain_json(const PlanData& plan, const Graph* graph,
                         const std::vector<double>& measured);

}  // namespace sinter::cli
