// Simplifying a kernel's iteration domain: order the indices by how the memory lies, join those that
// always step together, drop those of extent 1. What is computed stays the same.
#pragma once
#include "plan/kernel_spec.hpp"

namespace sinter {

void simplify_domain(KernelSpec& spec);

// Takes ports and scalars away that nothing reads or writes any more.
void drop_unused(KernelSpec& spec);

}  // namespace sinter
