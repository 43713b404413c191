// Long sums with few results: k is cut in parts that are summed side by side, and a second kernel
// adds them up and runs the epilogue. It is chosen where the estimates say that it is faster; parts
// and their order depend on the shapes alone.
#pragma once
#include <vector>

#include "planner/match/fusion_state.hpp"
#include "planner/split/split.hpp"

namespace sinter {

struct SplitK {
  Dims parts;  // of each index of k; empty: k stays whole
  double microseconds = 0, whole_microseconds = 0;
  bool by_wgmma = false;    // the engine that multiplies
  bool any_images = false;  // the outermost index is cut, in plans of a class in other numbers
};
// `whole_images`: plans of a class have any number of the images that a filter's gradient is summed
// over, so that no number of parts divides all.
SplitK choose_split_k(const KernelSpec& contraction, const PlanContext& context,
                      bool whole_images = false);

// Whether a second product and reduced results, where the contraction has them, are better made by
// its kernel than by others: an engine on tensor cores does them, the same one as without the
// reductions, and the sums would not be cut.
// `engines`: which may do them, any on tensor cores or that of warpgroups (wgmma) alone.
enum class Engines { any, fastest };
bool fits_one_kernel(const KernelSpec& contraction, const PlanContext& context, Engines engines);

// The kernels in place of the contraction, in order; `cuts` gets the reason.
std::vector<KernelSpec> split_depth(KernelSpec contraction, const FusionState& state,
                                    Temporaries& temporaries, std::vector<PlanCut>& cuts);

}  // namespace sinter
