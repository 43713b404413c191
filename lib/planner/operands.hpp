// Matmul operands that the tensor memory accelerator cannot bring, because their rows do not start
// at multiples of 16 bytes or nothing of them is contiguous, are first copied to where it can, if
// that takes less time than to multiply them without it.
#pragma once
#include "planner/split.hpp"

namespace sinter {

// The kernels in place of the contraction, in order; the contraction alone where no copy helps.
std::vector<KernelSpec> copy_operands(KernelSpec spec, std::string_view architecture,
                                      Temporaries& temporaries);

}  // namespace sinter
