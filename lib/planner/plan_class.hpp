// Plans of graphs that differ in their extents alone and share the texts of their kernels. What
// depends on extents (tiles, threads, fused nodes) is decided once, for one graph of the class;
// plans of the others are scheduled as that one. Where a kernel's text then depends on the extents
// in nothing but lists of numbers, these are arguments of the launch (emit/class_text.hpp), so that
// a plan of the class compiles nothing that another one has compiled. A kernel for which that does
// not hold gets a text of its own, as in a plan that belongs to no class.
#pragma once
#include <memory>
#include <vector>

#include "emit/emit.hpp"
#include "schedule/scheduled_kernel.hpp"
#include "sinter/compile.hpp"

namespace sinter {

struct ClassKernel {
  ScheduledKernel decided;
  std::optional<ClassText> text;  // nothing: each of the class has a text of its own
};

struct PlanClass {
  Decisions decisions;
  std::vector<ClassKernel> kernels;  // in the order they run

  const ClassKernel* kernel(std::size_t i) const {
    return i < kernels.size() ? &kernels[i] : nullptr;
  }
};

// `one`: the graph for which is decided; it should divide by little and be as large as any of the
// class. `other`: another graph of the class, all of whose extents that change are others; numbers
// in which the two plans agree are taken for constants.
Result<std::shared_ptr<const PlanClass>> make_plan_class(Graph& one, Graph& other,
                                                         const PlanOptions& options);
Result<Plan> make_plan_of_class(Graph& graph, const PlanOptions& options,
                                const PlanClass& of_class);

}  // namespace sinter
