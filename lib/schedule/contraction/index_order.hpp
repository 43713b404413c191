// The order of a spec's indices, which decides what lies side by side in a tile.
#pragma once
#include <vector>

#include "plan/kernel_spec.hpp"

namespace sinter {

// Index i of the domain becomes what index `order[i]` was.
void reorder(KernelSpec& spec, const std::vector<int>& order);

// Whether something joins the domain's indices to one number, so that their order has a meaning.
bool reads_joined_indices(const KernelSpec& spec);

}  // namespace sinter
