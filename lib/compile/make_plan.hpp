// Plan::make in its steps, and with given measurements in place of a tuning file's.
#pragma once
#include <set>
#include <string>

#include "lower/lower.hpp"
#include "planner/planner.hpp"
#include "sinter/compile.hpp"

namespace sinter {

struct PlanClass;
struct ClassSource;

// `choices`, where not null: what could be measured, one for each kernel that has a choice.
// `of_class`, where not null: what was decided for graphs like this one (plan_class.hpp); `beside`,
// where not null: what is compiled together with the plan's kernels.
Result<Plan> make_plan(Graph& graph, PlanOptions options, const Tuning& tuning,
                       std::vector<KernelChoice>* choices, const PlanClass* of_class = nullptr,
                       std::vector<ClassSource>* beside = nullptr);

// With the engines of the target where machine code is asked for one alone.
inline PlanOptions with_architecture(PlanOptions options) {
  if (options.architecture.empty() && options.targets.size() == 1)
    options.architecture = options.targets.front();
  return options;
}

// The steps: which kernels a graph becomes, and the plan of such kernels, without machine code.
// `apart`: outputs with an alias that have kernels of their own.
struct Partitioned {
  Lowered lowered;
  Partition parts;
};
// The rewritten graph and its kernels. Gradients that are written out stay so where no kernel takes
// them as a whole.
Partitioned partition_lowered(const Graph& graph, Lowered lowered, const PlanOptions& options,
                              const PlanContext& context, const std::set<std::string>& apart = {});
Result<Partitioned> partition_graph(Graph& graph, const PlanOptions& options,
                                    const PlanContext& context,
                                    const std::set<std::string>& apart = {});
Result<PlanData> plan_of(Graph& graph, const Lowered& lowered, const Partition& parts,
                         const PlanOptions& options, const PlanContext& context,
                         std::vector<KernelChoice>* choices = nullptr,
                         const PlanClass* of_class = nullptr,
                         std::vector<ClassSource>* beside = nullptr);
// Where a kernel that writes over an input would still read it, the output gets one of its own.
// `attempt`: plans, given the outputs that have. What was wrong first is said where none helps.
template <class Attempt>
auto with_outputs_apart(const Attempt& attempt) {
  std::set<std::string> apart;
  const auto more_apart = [&](const Diagnostics& errors) {
    bool more = false;
    for (const Diagnostic& d : errors)
      more |= d.rule == Rule::tensor_alias && apart.insert(d.tensor).second;
    return more;
  };
  auto first = attempt(apart);
  if (first) return first;
  Diagnostics errors = first.errors();
  while (more_apart(errors)) {
    auto next = attempt(apart);
    if (next) return next;
    errors = next.errors();
  }
  return first;
}
// What a plan says of its graph; no kernels yet.
PlanData plan_head(Graph& graph, const PlanOptions& options);

// A plan with machine code for more targets; `options` say whom to tell how far that has come.
Result<Plan> with_machine_code(const Plan& plan, const std::vector<std::string>& targets,
                               const PlanOptions& options);

}  // namespace sinter
