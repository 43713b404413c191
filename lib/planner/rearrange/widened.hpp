// Convolutions of 8-bit floats whose channels are not summed over, or in narrow groups: no engine
// on tensor cores multiplies these as they are, and on CUDA cores each pixel is converted where
// it meets a tap. bf16 holds all such numbers.
#pragma once
#include <vector>

#include "planner/split/split.hpp"

namespace sinter {

// The kernels that write both operands to memory as bf16, in the order in which they lie, and the
// one that multiplies them. Empty where the operands are not 8-bit floats that are loaded as they
// lie, or have gaps.
std::vector<KernelSpec> widened(const KernelSpec& spec, Temporaries& temporaries);

}  // namespace sinter
