// Schedules of the kernels of a plan to which extents that change matter only by their product, as
// they do to products of all tokens of a batch with weights: one extent of each of these kernels
// is a number of rows, and all else is constant. Which tiles are best changes often and by leaps
// with it (of 129 rows a second row of tiles is empty but for one), so that no class of extents
// has one schedule that is good everywhere.
//
// Numbers of rows are cut in bands. Of a band few schedules of each kernel are kept, such that each
// number of rows has one of each kernel with which all of them are about as fast as with their own,
// by the estimates; they are compiled together. They depend on nothing but the kernels without
// their numbers of rows, so that plans of all classes of extents share them.
#pragma once
#include <map>
#include <memory>
#include <vector>

#include "compile/class_kernel.hpp"

namespace sinter {

class RowSchedules {
 public:
  // Numbers of rows up to `most` and above those of the band before, and of each kernel those that
  // they have.
  struct Band {
    std::int64_t most;
    std::vector<std::vector<ClassKernel>> kernels;
  };
  using Bands = std::vector<Band>;
  // Those that are known, by the kernels' texts.
  using Known = std::map<std::string, std::shared_ptr<const Bands>>;

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

  std::size_t kernels() const { return members_.size(); }
  std::size_t bands() const { return bands_->size(); }
  std::size_t texts() const;  // of all kernels and bands
  // Of a kernel of the plan the schedule that is the fastest, and all that its band has.
  struct Taken {
    std::size_t place;
    const ClassKernel* kernel;
    const std::vector<ClassKernel>* all;
  };
  // `kernels`: of a plan, in the order of the class, null where the plan has none. Nothing where
  // they have another structure.
  std::vector<Taken> best(const std::vector<const KernelSpec*>& kernels,
                          const PlanContext& context) const;

 private:
  struct Place {
    std::size_t place;
    int index;  // of the extent that is the number of rows
  };
  std::vector<Place> members_;
  std::shared_ptr<const Bands> bands_;
};

}  // namespace sinter
