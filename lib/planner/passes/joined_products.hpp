// Products whose sums are added: x W + y V is one product whose operands are x and y, W and V, one
// behind the other along k. (A low-rank update beside its layer, the input and the state of a
// recurrent one, the gradient of what several projections read.)
#pragma once
#include <span>
#include <vector>

#include "planner/match/fusion_state.hpp"
#include "planner/split/split.hpp"

namespace sinter {

// Where a kernel's product is added to what another one's epilogue reads of memory, one kernel sums
// both, and nothing is stored between them. A factor of the sums multiplies the smaller operand
// where that is computed. `overwritten`: inputs whose memory an output takes.
void join_products(std::vector<KernelSpec>& kernels, const FusionState& state,
                   std::span<const TensorId> overwritten, Temporaries& temporaries);

}  // namespace sinter
