// The CPU backend's outer loop. Virtual tensors are whole arrays of doubles; where those of a large
// graph (attention over long sequences) would not fit in memory, the outputs are computed slab by
// slab, each with only what it depends on.
#pragma once
#include "reference/reference.hpp"

namespace sinter::reference {

// 1 where all that is alive at a time stays small.
std::int64_t slabs_needed(const Graph& lowered);

// Computes every output, in at most `slabs` parts along its leading axes.
Status evaluate_in_slabs(const Graph& lowered, const HostPointers& memory, std::int64_t slabs);

}  // namespace sinter::reference
