// Which elements of a large result are judged: corners, both sides of tile edges, and pseudo-random
// ones. They form a grid of few rows and few columns, because elements of one row or column share
// most of what they depend on.
#pragma once
#include <cstdint>
#include <vector>

#include "sinter/base/dims.hpp"

namespace sinter::reference {

// Row-major indices, sorted and distinct; all elements where `most` is 0 or reaches their number.
// The choice is a function of its arguments alone.
std::vector<std::int64_t> sample_elements(const Dims& dim, std::int64_t most, std::uint64_t seed);

// Steele, Lea and Flood, "Fast splittable pseudorandom number generators": one step of SplitMix64.
constexpr std::uint64_t mix(std::uint64_t x) {
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

}  // namespace sinter::reference
