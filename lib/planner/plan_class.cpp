#include "planner/plan_class.hpp"

#include <map>
#include <set>

#include "lower/lower.hpp"
#include "planner/make_plan.hpp"
#include "planner/planner.hpp"
#include "planner/rewrite/pass.hpp"
#include "tuning/tuning_file.hpp"

namespace sinter {
namespace {

std::vector<KernelSpec> specs_of(const Graph& graph, const PlanOptions& options,
                                 const PlanContext& context) {
  Lowered lowered = lower(graph);
  if (options.fuse) lowered = rewritten(std::move(lowered), context.device);
  return partition(*lowered.graph, options.fuse, context, lowered.regions).kernels;
}

// What tells the kernels of a plan apart, and is the same in plans of other extents: the nodes that
// they compute, and which of several that compute parts of these they are.
using Work = std::pair<std::vector<NodeId>, int>;
std::vector<Work> works_of(const std::vector<KernelSpec>& specs) {
  std::map<std::vector<NodeId>, int> parts;
  std::vector<Work> works;
  for (const auto& s : specs) works.emplace_back(s.nodes, parts[s.nodes]++);
  return works;
}
// Of each work the kernel that does it, or that at its place, which does none of the others (nodes
// have other numbers where extents decide how an operation is expanded); null where there is none.
std::vector<const KernelSpec*> doing(const std::vector<Work>& works,
                                     const std::vector<KernelSpec>& specs) {
  std::map<Work, const KernelSpec*> of;
  const auto own = works_of(specs);
  for (std::size_t i = 0; i < specs.size(); ++i) of.emplace(own[i], &specs[i]);
  const std::set<Work> all(works.begin(), works.end());
  std::vector<const KernelSpec*> result;
  for (std::size_t i = 0; i < works.size(); ++i) {
    const bool at_place = i < specs.size() && !all.count(own[i]);
    result.push_back(of.count(works[i]) ? of.at(works[i]) : at_place ? &specs[i] : nullptr);
  }
  return result;
}

// The nodes of rowwise kernels whose rows are not as long in the two plans.
std::vector<NodeId> sums_of_changing_length(const std::vector<KernelSpec>& specs,
                                            const std::vector<const KernelSpec*>& others) {
  std::vector<NodeId> nodes;
  for (std::size_t i = 0; i < specs.size(); ++i)
    if (others[i] && has_rows_of_other_length(specs[i], *others[i]))
      nodes.push_back(specs[i].nodes.front());
  return nodes;
}

}  // namespace

Result<std::shared_ptr<const PlanClass>> make_plan_class(Graph& one, Graph& other,
                                                         const PlanOptions& options,
                                                         RowSchedules::Known& known) {
  for (Graph* graph : {&one, &other})
    if (Diagnostics d = graph->check(); !d.empty()) return d;
  auto tuning = read_tuning(options.tuning_file);
  SINTER_TRY(tuning);
  PlanContext context{device_model(options.architecture), *tuning};
  auto specs = specs_of(one, options, context);
  const auto of_other = [&] {
    return specs_of(other, options, {context.device, *tuning, {}, context.decisions});
  };
  auto other_specs = of_other();
  if (auto walked = sums_of_changing_length(specs, doing(works_of(specs), other_specs));
      !walked.empty()) {
    context.decisions = {};
    for (const NodeId n : walked)
      context.decisions.decide(Decisions::Kind::walked_sums, n, [] { return 1; });
    specs = specs_of(one, options, context);
    other_specs = of_other();
  }
  auto result = std::make_shared<PlanClass>();
  result->works = works_of(specs);
  const auto others = doing(result->works, other_specs);
  for (std::size_t i = 0; i < specs.size(); ++i) {
    ScheduledKernel decided = schedule_kernel(specs[i], context);
    result->kernels.push_back(
        others[i] ? class_kernel(std::move(decided), *others[i], context)
                  : ClassKernel{std::move(decided), {}, "not all plans have this kernel"});
  }
  result->by_rows = RowSchedules::all(specs, others, context, known);
  result->decisions = context.decisions;
  return std::shared_ptr<const PlanClass>(std::move(result));
}

std::vector<const ClassKernel*> PlanClass::like(const std::vector<KernelSpec>& specs,
                                                const PlanContext& context) const {
  const auto doing_these = doing(works, specs);
  std::vector<const ClassKernel*> like(specs.size());
  const auto take = [&](std::size_t place, const ClassKernel& k) {
    if (const auto* const spec = doing_these[place])
      like[static_cast<std::size_t>(spec - specs.data())] = &k;
  };
  for (std::size_t i = 0; i < kernels.size(); ++i) take(i, kernels[i]);
  for (const RowSchedules& s : by_rows)
    if (const auto* const best = s.best(doing_these, context))
      for (std::size_t i = 0; i < best->size(); ++i) take(s.places()[i], (*best)[i]);
  return like;
}

Result<Plan> make_plan_of_class(Graph& graph, const PlanOptions& options,
                                const PlanClass& of_class) {
  auto tuning = read_tuning(options.tuning_file);
  SINTER_TRY(tuning);
  return make_plan(graph, options, *tuning, nullptr, &of_class);
}

}  // namespace sinter
