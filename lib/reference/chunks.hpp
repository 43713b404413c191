// The CPU backend's outer loop. Virtual tensors are whole arrays of doubles; where those of a large
// graph (attention over long sequences) would not fit in memory, the outputs are computed chunk by
// chunk, each with only what it depends on.
#pragma once
#include "reference/reference.hpp"

namespace sinter::reference {

// 1 where all that is alive at a time stays small.
std::int64_t chunks_needed(const Graph& lowered);

// Computes every output, in at most `chunks` parts along its leading axes.
Status evaluate_in_chunks(const Graph& lowered, const HostPointers& memory, std::int64_t chunks);

}  // namespace sinter::reference
