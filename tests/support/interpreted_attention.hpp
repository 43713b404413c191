// Kernels of attention and of its gradients on the CPU, row by row.
#pragma once
#include <vector>

#include "plan/kernel_spec.hpp"

namespace sinter::test {

// `memory`: by port.
void interpret_attention(const KernelSpec& spec, std::vector<void*> memory);

}  // namespace sinter::test
