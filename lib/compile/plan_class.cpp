#include "compile/plan_class.hpp"

#include <algorithm>
#include <map>
#include <numeric>
#include <set>

#include "compile/make_plan.hpp"
#include "emit/emit.hpp"
#include "lower/lower.hpp"
#include "planner/planner.hpp"
#include "planner/rewrite/pass.hpp"
#include "tuning/tuning_file.hpp"

namespace sinter {
namespace {

std::vector<KernelSpec> specs_of(const Graph& graph, const PlanOptions& options,
                                 const PlanContext& context) {
  return partition_lowered(graph, lower(graph), options, context).parts.kernels;
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

// The nodes of rowwise kernels whose rows are not as long in the two plans, and what divides both
// lengths.
std::map<NodeId, std::int64_t> changing_lengths(const std::vector<KernelSpec>& specs,
                                                const std::vector<const KernelSpec*>& others,
                                                const Decisions& one, const Decisions& other) {
  std::map<NodeId, std::int64_t> units;
  const auto lengths = other.of(Decisions::Kind::row_length);
  for (const auto& [node, length] : one.of(Decisions::Kind::row_length))
    if (const auto at = lengths.find(node); at != lengths.end() && at->second != length)
      units[node] = std::gcd(length, at->second);
  for (std::size_t i = 0; i < specs.size(); ++i)
    if (others[i] && has_rows_of_other_length(specs[i], *others[i]))
      units.emplace(specs[i].nodes.front(), 1);
  return units;
}

// The gradients of filters that are not summed over as many images in the two plans.
std::vector<NodeId> changing_images(const Decisions& one, const Decisions& other) {
  std::vector<NodeId> nodes;
  const auto others = other.of(Decisions::Kind::images);
  for (const auto& [node, images] : one.of(Decisions::Kind::images))
    if (const auto at = others.find(node); at != others.end() && at->second != images)
      nodes.push_back(node);
  return nodes;
}

// Sums of parts of a gradient's images are scheduled as for the number of images by which was
// decided, which is not always that of `spec`.
ScheduledKernel decided_kernel(const KernelSpec& spec, const PlanContext& context) {
  if (spec.as_contraction())
    for (const auto& [node, parts] : context.decisions.of(Decisions::Kind::split_k)) {
      if (parts >= 0 || std::count(spec.nodes.begin(), spec.nodes.end(), node) == 0) continue;
      KernelSpec by = spec;
      by.extent[0] = -parts;
      if (auto as = schedule_as(schedule_kernel(by, context), spec, context)) return std::move(*as);
    }
  return schedule_kernel(spec, context);
}

}  // namespace

Result<std::shared_ptr<PlanClass>> make_plan_class(Graph& one, Graph& other,
                                                   const PlanOptions& options,
                                                   RowSchedules::Known& known) {
  for (Graph* graph : {&one, &other})
    if (Diagnostics d = graph->check(); !d.empty()) return d;
  auto tuning = read_tuning(options.tuning_file);
  SINTER_TRY(tuning);
  PlanContext context{device_model(options.architecture), *tuning};
  context.of_class = true;
  auto specs = specs_of(one, options, context);
  using Kind = Decisions::Kind;
  const auto of_other = [&](const PlanContext& other_context) {
    return specs_of(other, options, other_context);
  };
  const auto as_decided = [&] {
    PlanContext of{context.device, *tuning, {}, context.decisions};
    for (const Kind extent : {Kind::row_length, Kind::images}) of.decisions.forget(extent);
    of.of_class = true;
    return of;
  };
  PlanContext other_context = as_decided();
  auto other_specs = of_other(other_context);
  const auto units = changing_lengths(specs, doing(works_of(specs), other_specs), context.decisions,
                                      other_context.decisions);
  const auto images = changing_images(context.decisions, other_context.decisions);
  if (!units.empty() || !images.empty()) {
    const auto cut_images = [&](Decisions& decisions, ImageParts how) {
      decisions.forget(Kind::image_parts);
      for (const NodeId node : images)
        decisions.decide(Kind::image_parts, node, [&] { return static_cast<std::int64_t>(how); });
    };
    context.decisions = {};
    for (const auto& [node, unit] : units)
      context.decisions.decide(Kind::row_unit, node, [&] { return unit; });
    cut_images(context.decisions, ImageParts::that_divide);
    specs = specs_of(one, options, context);
    PlanContext in_one = as_decided();
    cut_images(in_one.decisions, ImageParts::one);
    other_specs = of_other(in_one);
  }
  for (const Kind extent : {Kind::row_length, Kind::images}) context.decisions.forget(extent);
  auto result = std::make_shared<PlanClass>();
  result->works = works_of(specs);
  const auto others = doing(result->works, other_specs);
  for (std::size_t i = 0; i < specs.size(); ++i) {
    ScheduledKernel decided = decided_kernel(specs[i], context);
    result->kernels.push_back(
        others[i] ? class_kernel(std::move(decided), *others[i], context)
                  : ClassKernel{std::move(decided), {}, "not all plans have this kernel"});
  }
  result->by_rows = RowSchedules::all(specs, others, context, known);
  result->decisions = context.decisions;
  return result;
}

std::vector<PlanClass::Like> PlanClass::like(const std::vector<KernelSpec>& specs,
                                             const PlanContext& context) const {
  const auto doing_these = doing(works, specs);
  std::vector<Like> like(specs.size());
  const auto take = [&](std::size_t place, const Like& l) {
    if (const auto* const spec = doing_these[place])
      like[static_cast<std::size_t>(spec - specs.data())] = l;
  };
  for (std::size_t i = 0; i < kernels.size(); ++i) take(i, {&kernels[i]});
  for (const RowSchedules& s : by_rows)
    for (const auto& [place, kernel, all] : s.best(doing_these, context))
      take(place, {kernel, all});
  return like;
}

Result<Plan> make_plan_of_class(Graph& graph, const PlanOptions& options, const PlanClass& of_class,
                                std::vector<ClassSource>* beside) {
  auto tuning = read_tuning(options.tuning_file);
  SINTER_TRY(tuning);
  return make_plan(graph, options, *tuning, nullptr, &of_class, beside);
}

}  // namespace sinter
