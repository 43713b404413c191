// The work of a graph as benchmarks state it: what any implementation would have to do.
#pragma once
#include <cstdint>

#include "sinter/graph.hpp"

namespace sinter::cli {

// Multiplications and additions of the matmuls, convolutions and attentions.
double operations(const Graph& graph);
// Bytes to touch each distinct element of the inputs that are read, or of those and the outputs,
// once (a stride of 0 repeats elements).
std::int64_t input_bytes(const Graph& graph);
std::int64_t bound_bytes(const Graph& graph);

}  // namespace sinter::cli
