#include "planner/passes/tensor_uses.hpp"

namespace sinter {

std::unordered_map<TensorId, TensorUses> tensor_uses(const std::vector<KernelSpec>& kernels) {
  std::unordered_map<TensorId, TensorUses> uses;
  for (std::size_t i = 0; i < kernels.size(); ++i)
    for (const KernelPort& p : kernels[i].ports) {
      TensorUses& use = uses[p.tensor];
      if (p.written)
        use.writer = i, ++use.writes;
      else
        ++use.reads;
    }
  return uses;
}

}  // namespace sinter
