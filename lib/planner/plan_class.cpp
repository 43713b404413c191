#include "planner/plan_class.hpp"

#include <algorithm>

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

}  // namespace

Result<std::shared_ptr<const PlanClass>> make_plan_class(Graph& one, Graph& other,
                                                         const PlanOptions& options) {
  for (Graph* graph : {&one, &other})
    if (Diagnostics d = graph->check(); !d.empty()) return d;
  auto tuning = read_tuning(options.tuning_file);
  SINTER_TRY(tuning);
  const PlanContext context{device_model(options.architecture), *tuning};
  const auto specs = specs_of(one, options, context);
  const PlanContext as_decided{context.device, *tuning, {}, context.decisions};
  const auto others = specs_of(other, options, as_decided);
  auto result = std::make_shared<PlanClass>();
  for (std::size_t i = 0; i < specs.size(); ++i) {
    ScheduledKernel decided = schedule_kernel(specs[i], context);
    result->kernels.push_back(
        i < others.size() ? class_kernel(std::move(decided), others[i], context)
                          : ClassKernel{std::move(decided), {}, "plans have unlike kernels"});
  }
  result->by_rows = RowSchedules::all(specs, others, context);
  result->decisions = context.decisions;
  return std::shared_ptr<const PlanClass>(std::move(result));
}

std::vector<const ClassKernel*> PlanClass::like(const std::vector<KernelSpec>& specs,
                                                const PlanContext& context) const {
  std::vector<const ClassKernel*> like(specs.size());
  for (std::size_t i = 0; i < std::min(specs.size(), kernels.size()); ++i) like[i] = &kernels[i];
  for (const RowSchedules& s : by_rows)
    if (const auto* const best = s.best(specs, context))
      for (std::size_t i = 0; i < best->places.size(); ++i)
        like[best->places[i]] = &best->kernels[i];
  return like;
}

Result<Plan> make_plan_of_class(Graph& graph, const PlanOptions& options,
                                const PlanClass& of_class) {
  auto tuning = read_tuning(options.tuning_file);
  SINTER_TRY(tuning);
  return make_plan(graph, options, *tuning, nullptr, &of_class);
}

}  // namespace sinter
