// The gradient of few filters. Tensor cores multiply 64 rows at least, of which the filters fill
// few; taps and filters together fill more:
//
//   dW[(t, k), c] = sum over n and x of D[n, x, (t, k)] X[n, x, c],  D[n, x, (t, k)] = dY[n, (x +
//   pre - t) / u, k], 0 where there is none
//
// D is few columns, whose copy is small beside the image, and each pixel is read once, not for each
// tap. A last kernel brings the sums to where results lie.
#pragma once
#include "planner/split/split.hpp"

namespace sinter {

// The copy, the product and the last kernel. Empty where it is no such gradient.
std::vector<KernelSpec> few_filters_gradient(const KernelSpec& contraction,
                                             Temporaries& temporaries);

}  // namespace sinter
