// Filter gradients sum over images and pixels. Types that tensor cores multiply only where k is the
// fastest index (tf32 and 8 bits) read copies in which the images lie together, pixel by pixel: a
// tap of the filter moves pixels, and TMA loads from multiples of 16 bytes on. There
// are two ways: k runs over images, then pixels; or, of few images, over rows of the images'
// pixels, which a tap shifts by whole images (stride 1, images that fill 16 bytes).
#pragma once
#include "planner/split/split.hpp"

namespace sinter {

inline constexpr int kImagesLastWays = 2;

// The kernels in place of the contraction, which is the last of them. Empty where it is no such
// gradient.
std::vector<KernelSpec> images_last(const KernelSpec& contraction, int way,
                                    Temporaries& temporaries);

}  // namespace sinter
