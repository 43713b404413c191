// Data gradients of strided 1 x 1 convolutions: of every s x s pixels one has products, the others
// have none. The product is computed over those alone, and what comes behind it is computed from
// zeros for the others. There are two ways: by the kernel of the product beside each of its
// results, which saves launches but stores less at once; or by a kernel of its own, whose threads
// store the others of s x s pixels each (where these are many kernels, dim by dim: rows of pixels
// without products first, which lie together, then the pixels between the others). (256 x 56 x 56 x
// 256 of bf16 on an H200: 332 us as phases of one kernel, whose thread blocks multiply or write
// zeros in turn, 175 with zeros beside results and 163 apart in kernels dim by dim; on another day
// these took 167.6, and one kernel in their place 165.3. 64 x 1024 x 14 x 14 28.5 and 29.2.)
#pragma once
#include "planner/split/split.hpp"

namespace sinter {

inline constexpr int kEmptyPhasesWays = 2;

// The kernels in place of the contraction, which is the first of them. Empty where it is no such
// gradient.
std::vector<KernelSpec> empty_phases(const KernelSpec& contraction, int way);

}  // namespace sinter
