// What kernels add to or count with starts as zeros, which a kernel before them writes.
#pragma once
#include "plan/kernel_spec.hpp"

namespace sinter {

// Of f32, or of i32, whose zeros have the same bits.
KernelSpec zeros(KernelPort to, const Dims& extent);

}  // namespace sinter
