// Attention that a user writes out: products, a softmax, and whatever pointwise nodes between them.
#pragma once
#include <optional>

#include "planner/spec/attention_spec.hpp"

namespace sinter {

// The attention whose second product a node is, found from the structure of the graph.
std::optional<AttentionNodes> attention_by_hand(const FusionState& state, NodeId second);

}  // namespace sinter
