// The forward pass that the inputs O and Stats of an attention's gradient come from: with random
// numbers in their place, probabilities would not sum to one and gradients would overflow.
#pragma once
#include "reference/reference.hpp"

namespace sinter::reference {

// Writes O and Stats of `node`, an sdpa_backward of `graph`, where they are graph inputs: from the
// forward pass where that is small and its own inputs are bound, else Stats from a bound alone.
Status store_forward_results(const Graph& graph, const Node& node, const HostPointers& memory);

}  // namespace sinter::reference
