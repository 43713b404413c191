// Numbers for a graph's inputs: a pure function of the seed, the tensor's name and the element, the
// same on every platform. What an input means decides its values where the fill alone would make no
// sense: variances are positive, indices valid (GRAPH_JSON.md, "random inputs"). Rows of a grouped
// matmul are split evenly by `normal`, by the others into groups of very different sizes, also
// empty ones.
#pragma once
#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "reference/reference.hpp"

namespace sinter {

enum class Fill : std::uint8_t {
  normal,      // close to normal, times 0.5
  uniform,     // [0, 1): all positive, so that a lost term shows
  ternary,     // -1, 0, 1, two thirds not zero: sums of products are exact in any order
  heavy_tail,  // magnitudes over many binades
  limits,  // zeros, infinities, NaN, the largest and smallest numbers, and where formulas overflow
};

// Fills the memory of every graph input that `memory` names, as its strides lay it out. Gaps get a
// NaN pattern. `graph` is the user's graph. O and Stats of an attention's gradient are those of its
// forward pass where that is small enough to run.
Status fill_inputs(const Graph& graph, Fill fill, std::uint64_t seed, const HostPointers& memory);

// Memory for all inputs of a graph, filled.
struct HostArrays {
  std::map<TensorId, std::vector<std::byte>> bytes;
  HostPointers pointers();
};
Result<HostArrays> random_inputs(const Graph& graph, Fill fill, std::uint64_t seed);

// The bytes that a tensor's strides reach.
std::size_t host_bytes(const Graph& graph, TensorId tensor);

}  // namespace sinter
