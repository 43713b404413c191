// Windows that never leave their image are no windows of an access: without padding, pixels and
// taps step through the image by strides, and a tap of the innermost dim is one index with channels
// that lie together. What rearranges convolutions of few channels wants to know them apart.
#pragma once
#include "plan/kernel_spec.hpp"

namespace sinter {

// The spec with a window for each spatial dim that has taps, or as it is where there are windows,
// or no taps to be found. The outermost of several pixel indices tells images apart; strides are
// alike in all dims, and at most as many pixels as TMA steps over.
KernelSpec with_windows(const KernelSpec& given);

}  // namespace sinter
