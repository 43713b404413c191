// What a kernel has to do, however it is scheduled: bytes that it moves, and arithmetic.
#pragma once
#include <vector>

#include "plan/kernel_spec.hpp"

namespace sinter {

// Distinct bytes that the kernel reads or writes of a tensor at least.
struct Traffic {
  TensorId tensor = kNoTensor;
  bool written = false;
  std::int64_t bytes = 0;
};
std::vector<Traffic> compulsory_traffic(const Graph& lowered, const KernelSpec& spec);

// The kernel's multiplications and additions.
double operations(const KernelSpec& spec);

}  // namespace sinter
