// One rewrite pass by its name, and what it makes of a graph.
#pragma once
#include <algorithm>

#include "planner/rewrite/pass.hpp"
#include "reference/reference.hpp"
#include "sinter/operations.hpp"
#include "support/catch.hpp"
#include "support/run_graph.hpp"

namespace sinter::test::pass_alone {

inline std::vector<const Pass*> all_passes() {
  std::vector<const Pass*> all;
  for (const PassGroup& group : rewrite_passes())
    for (const auto passes : {group.repeated, group.once})
      all.insert(all.end(), passes.begin(), passes.end());
  return all;
}

inline int nodes(const Lowered& l, OpKind op) {
  const auto& nodes = l.graph->nodes();
  return static_cast<int>(
      std::count_if(nodes.begin(), nodes.end(), [&](const Node& n) { return n.op == op; }));
}

inline const Node& first(const Lowered& l, OpKind op) {
  const auto& nodes = l.graph->nodes();
  return *std::find_if(nodes.begin(), nodes.end(), [&](const Node& n) { return n.op == op; });
}

inline const Pass* const* pass_of(std::string_view name) {
  static const std::vector<const Pass*> passes = all_passes();
  const auto found =
      std::find_if(passes.begin(), passes.end(), [&](const Pass* p) { return p->name == name; });
  REQUIRE(found != passes.end());
  return &*found;
}

// Nothing where it does not find its case.
inline std::optional<Lowered> run_alone(std::string_view name, const Lowered& lowered) {
  return run_passes(lowered, {.repeated = {}, .once = {pass_of(name), 1}}, device_model("sm_90a"));
}

// The graph after this pass, each of whose nodes was visited once.
inline Lowered after(std::string_view name, Graph& g) {
  for (const auto& d : g.check()) FAIL(d.message());
  GraphCase c(g, Fill::normal, 3);
  auto changed = run_alone(name, c.lowering());
  REQUIRE(changed);
  REQUIRE(changed->graph->diagnostics().empty());
  CHECK(changed->origin.size() == changed->graph->nodes().size());
  c.clear_outputs();
  HostPointers memory;
  for (const auto& [t, pointer] : c.memory())
    if (const auto id = changed->graph->find(c.lowered()[t].name)) memory[*id] = pointer;
  REQUIRE(evaluate(*changed->graph, memory));
  const Comparison r = c.judge();
  INFO(r.first_wrong);
  CHECK(r.ok());
  return std::move(*changed);
}

}  // namespace sinter::test::pass_alone
