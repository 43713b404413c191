// Operands of contractions that go through memory so that the fastest engine can multiply them.
#pragma once
#include "planner/match/fusion_state.hpp"
#include "planner/split/split.hpp"

namespace sinter {

// Whether attention runs in one kernel, once the operands that it cannot load as they lie have been
// written to where it can.
bool can_run_attention(const FusionState& state, KernelSpec attention);
bool can_run_attention_backward(const FusionState& state, KernelSpec attention);

// The kernels in place of the contraction, in order. TMA loads
// operands only as they lie in memory. One that is computed or converted, or lies where it cannot
// reach, is first written to where it can by a pointwise kernel, if the estimates say that this is
// faster than to bring it through registers; `cuts` then gets the reason.
std::vector<KernelSpec> materialise_operands(KernelSpec spec, const FusionState& state,
                                             Temporaries& temporaries, std::vector<PlanCut>& cuts);

// What these kernels are thought to take, together.
double microseconds_of_all(KernelSpec spec, const FusionState& state);

}  // namespace sinter
