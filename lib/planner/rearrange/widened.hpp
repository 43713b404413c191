// Convolutions of 8-bit numbers whose lines of channels are none of TMA's, not summed over, or in
// narrow groups: no engine on tensor cores multiplies these as they are, and elsewhere each pixel
// is converted where it meets a tap. bf16 holds all such numbers, and sums in f32 are exact for as
// many integers as sums_as_right_in_f32 takes.
#pragma once
#include <vector>

#include "planner/split/split.hpp"

namespace sinter {

// The kernels that write both operands to memory as bf16, in the order in which they lie, and the
// one that multiplies them. Empty where the operands are not 8-bit numbers that are loaded as they
// lie, or have gaps.
std::vector<KernelSpec> widened(const KernelSpec& spec, Temporaries& temporaries);

}  // namespace sinter
