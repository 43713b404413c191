// Convolutions whose operands TMA cannot walk over as they lie (channels that are not the fastest,
// lines that are no multiples of 16 bytes) read copies with their channels together, padded to such
// multiples. The result is written as the graph wants it.
#pragma once
#include "planner/split/split.hpp"

namespace sinter {

// The kernels in place of the contraction, which is the last of them. Empty where it is no
// convolution, or nothing would lie otherwise.
std::vector<KernelSpec> channels_last(const KernelSpec& contraction, Temporaries& temporaries);

}  // namespace sinter
