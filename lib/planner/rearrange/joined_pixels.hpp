// Convolutions, forward and gradients of filters, with strides, whose channels fill half a line of
// shared memory or less (128 bytes): the `u` pixels of a stride along the innermost dim lie
// together in memory, so that they can be read as one pixel of u times the channels. An image of an
// even number of them needs no copy; the filter does, t = u j + a - shift with zeros where it has
// no tap t (as in space_to_depth.hpp):
//
//   Y[n, p, k] = sum over j and (a, c) of X[n, p + j - first, (a, c)] W'[k, j, (a, c)]
//
// Of 3 taps of stride 2 two such pixels are loaded and multiplied, not three lines half empty. The
// filter's gradient has columns j and (a, c), of which those without a tap are not stored.
#pragma once
#include "planner/split/split.hpp"

namespace sinter {

// The kernels in place of the contraction: the filter's copy and the product, or the gradient
// alone. Empty where it is no such convolution.
std::vector<KernelSpec> joined_pixels(const KernelSpec& contraction, Temporaries& temporaries);

}  // namespace sinter
