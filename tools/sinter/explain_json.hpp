// What `sinter explain --json` prints.
#pragma once
#include <string>
#include <vector>

#include "plan/plan_data.hpp"
#include "sinter/graph.hpp"

namespace sinter::cli {

// `graph`, `measured`: as those of sinter::explain_text. `indent`: of nested values; -1: all on one
// line.
std::string explain_json(const PlanData& plan, const Graph* graph,
                         const std::vector<double>& measured, int indent = 1);
// The same of --why and of --diff.
std::string why_json(const PlanData& plan, const Graph* graph, const std::string& a,
                     const std::string& b);
std::string diff_json(const PlanData& before, const PlanData& after);

}  // namespace sinter::cli
