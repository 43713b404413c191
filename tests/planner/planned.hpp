// What the planner makes of a graph, and whether that gives the right values.
#pragma once
#include <vector>

#include "lower/lower.hpp"
#include "planner/planner.hpp"
#include "support/catch.hpp"
#include "support/plan_interpreter.hpp"
#include "support/run_graph.hpp"

namespace sinter::test {

inline std::vector<Family> families(const Partition& p) {
  std::vector<Family> f;
  for (const auto& k : p.kernels) f.push_back(family_of(k));
  return f;
}

inline Partition for_target(const Graph& g, std::string_view target) {
  const Lowered lowered = lower(g);
  return partition(*lowered.graph, true, target, lowered.regions);
}
inline Partition for_sm_90a(const Graph& g) { return for_target(g, "sm_90a"); }

// What the plan for sm_90a computes, by the interpreter.
inline void check_values(Graph& g) {
  REQUIRE(g.check().empty());
  GraphCase c(g, Fill::normal, 7);
  c.clear_outputs();
  interpret(partition(c.lowered(), true, "sm_90a", c.lowering().regions), c.memory(), c.lowered());
  const Comparison r = c.judge();
  INFO(r.first_wrong);
  CHECK(r.ok());
  CHECK(r.compared > 0);
}

}  // namespace sinter::test
