// Schedules of the kernels of a plan to which extents that change matter only by their product, as
// they do to products of all tokens of a batch with weights: one extent of each of these kernels
// is a number of rows, and all else is constant. Which tiles are best changes often and by leaps
// with it (of 129 rows a second row of tiles is empty but for one), so that no class of extents
// has one schedule that is good everywhere.
//
// The kernels are scheduled together, as they are compiled together, for many numbers of rows; of
// these schedules few are kept, such that each number of rows has one that is about as fast as its
// own, by the estimates. They depend on nothing but the kernels without their numbers of rows, so
// that plans of all classes of extents share them.
#pragma once
#include <map>
#include <memory>
#include <vector>

#include "planner/class_kernel.hpp"

namespace sinter {

class RowSchedules {
 public:
  // Each schedules all of the kernels.
  using Schedules = std::vector<std::vector<ClassKernel>>;
  // Those that are known, by the kernels' texts.
  using Known = std::map<std::string, std::shared_ptr<const Schedules>>;

  // A kernel of the plan whose extent `index` is the number of rows.
  struct Member {
    std::size_t place;
    KernelSpec spec;
    int index;
  };

  // Those of the kernels that two plans of a class have, a list for each number of rows. `other`:
  // that which does what the kernel of `one` does, or null.
  static std::vector<RowSchedules> all(const std::vector<KernelSpec>& one,
                                       const std::vector<const KernelSpec*>& other,
                                       const PlanContext& context, Known& known);

  // In the plan, of the kernels.
  const std::vector<std::size_t>& places() const { return places_; }
  const Schedules& schedules() const { return *schedules_; }
  // The schedule under which those of `kernels`, all of a plan, are the fastest; null where they
  // have another structure. In the order of the class, null where the plan has none.
  const std::vector<ClassKernel>* best(const std::vector<const KernelSpec*>& kernels,
                                       const PlanContext& context) const;

 private:
  std::vector<std::size_t> places_;
  std::shared_ptr<const Schedules> schedules_;
};

}  // namespace sinter
