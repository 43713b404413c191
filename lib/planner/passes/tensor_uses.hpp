// Which kernels write and read the tensors of a plan that is being made.
#pragma once
#include <cstddef>
#include <unordered_map>
#include <vector>

#include "plan/kernel_spec.hpp"

namespace sinter {

struct TensorUses {
  std::size_t writer = 0;  // the last kernel that writes it
  int writes = 0, reads = 0;
};

std::unordered_map<TensorId, TensorUses> tensor_uses(const std::vector<KernelSpec>& kernels);

}  // namespace sinter
