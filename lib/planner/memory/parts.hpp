// Concatenations that need no memory: whoever reads one reads, at each element, the part in which
// it lies. That costs one load for each part, of which the element's own is the only one to move
// memory.
#pragma once
#include <optional>
#include <vector>

#include "planner/memory/storage.hpp"

namespace sinter {

class Rewriter;

// The parts of a concatenation, those of the concatenations among them instead of these; empty
// where it is done part by part: where some part is not in memory anyway (the kernel that computes
// it writes it into the result), where no body value is exact (64-bit integers), or where packs
// would get narrow.
std::vector<Part> parts_in_memory(const Graph& g, NodeId concatenation);
std::vector<Part> parts_in_memory(const Rewriter& g, NodeId concatenation);
// The same of what a slice with steps of 1 shows of the concatenation.
std::vector<Part> parts_in_memory(const Rewriter& g, NodeId concatenation,
                                  const SliceAttributes& slice);

}  // namespace sinter
