// Plans of graphs that differ in their extents alone and share the texts of their kernels. What
// depends on extents (tiles, threads, fused nodes) is decided once, for one graph of the class;
// plans of the others are scheduled as that one. Where a kernel's text then depends on the extents
// in nothing but lists of numbers, these are arguments of the launch (emit/class_text.hpp), so that
// a plan of the class compiles nothing that another one has compiled. A kernel for which that does
// not hold gets a text of its own, as in a plan that belongs to no class.
#pragma once
#include <memory>
#include <vector>

#include "compile/row_schedules.hpp"
#include "sinter/compile.hpp"

namespace sinter {

struct PlanClass {
  Decisions decisions;
  std::vector<std::pair<std::vector<NodeId>, int>> works;  // what tells the kernels apart
  std::vector<ClassKernel> kernels;                        // in the order they run

  std::vector<RowSchedules> by_rows;  // of some of these, which have several schedules

  // What each of a plan's kernels is scheduled as; null: as itself. `beside`: what that kernel is
  // scheduled as in other plans, which is compiled together with it; or null.
  struct Like {
    const ClassKernel* kernel = nullptr;
    const std::vector<ClassKernel>* beside = nullptr;
  };
  std::vector<Like> like(const std::vector<KernelSpec>& specs, const PlanContext& context) const;
};

// `one`: the graph for which is decided; it should divide by little and be as large as any of the
// class. `other`: another graph of the class, all of whose extents that change are others; numbers
// in which the two plans agree are taken for constants. `known`: schedules that other classes have,
// to which this one's are added.
Result<std::shared_ptr<PlanClass>> make_plan_class(Graph& one, Graph& other,
                                                   const PlanOptions& options,
                                                   RowSchedules::Known& known);
// `beside`, where not null: the kernels that other plans of the class have in place of this one's,
// to be compiled together with these.
Result<Plan> make_plan_of_class(Graph& graph, const PlanOptions& options, const PlanClass& of_class,
                                std::vector<ClassSource>* beside = nullptr);

}  // namespace sinter
