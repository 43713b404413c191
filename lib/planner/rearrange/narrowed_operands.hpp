// Virtual f32 tensors that contractions alone read, and may round to 16 bits, are stored so.
#pragma once
#include "planner/match/fusion_state.hpp"
#include "planner/split/split.hpp"

namespace sinter {

void narrow_operands(const Graph& lowered, std::vector<KernelSpec>& kernels);
// The same of one kernel, before the others are known.
void narrow_alone(const FusionState& state, KernelSpec& spec);

}  // namespace sinter
