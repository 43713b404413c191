// Scales of a contraction's operands.
#pragma once
#include "plan/kernel_spec.hpp"

namespace sinter {

// Where an operand is an 8-bit tensor times what is the same along k, or divided by it, multiplies
// the sum instead: sum(a s b) = s sum(a b). Quantised operands are then multiplied as they are, and
// with one rounding less an element. (8-bit factors cannot leave the range of f32 before they are
// scaled; only an element scaled past it would have become infinite.)
void move_scales_behind_sums(KernelSpec& contraction);

}  // namespace sinter
