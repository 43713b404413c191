// Filter gradients sum over images and pixels. Types that tensor cores multiply only where k is the
// fastest index (tf32 and 8 bits) read copies in which the images lie together, pixel by pixel: a
// tap of the filter moves pixels, and the accelerator loads from multiples of 16 bytes on.
#pragma once
#include "planner/split/split.hpp"

namespace sinter {

// The kernels in place of the contraction, which is the last of them. Empty where it is no such
// gradient.
std::vector<KernelSpec> images_last(const KernelSpec& contraction, Temporaries& temporaries);

}  // namespace sinter
