// Random graphs that are valid by construction: every node is made from dims, types and attributes
// that its rules allow, never by trying and looking at the diagnostics. What the generator can
// reach is what fuzzing covers, so it draws every operation, port, attribute, layout and type.
#pragma once
#include <cstdint>
#include <string_view>

#include "sinter/base/shared.hpp"
#include "sinter/graph.hpp"

namespace sinter::test {

// From this seed on graphs have constants, numbers by value, outputs in place, addresses that are
// multiples of few bytes, long chains, and extents of which nearly all are 1.
constexpr std::uint64_t kCallsVary = 40'000'000;

// From this one on the makers of random_graph_layers.cpp stand beside the others, attention is
// written out in more forms, and a few graphs have tensors eight times as large.
constexpr std::uint64_t kLayersVary = 48'000'000;

// From this one on some graphs show the caller results in the middle of what models write out, in
// f32 where the graph has 16 bits; masks are -infinity, too, and attention has rows without keys.
constexpr std::uint64_t kStoredVary = 54'000'000;

// From this one on the makers of random_graph_training.cpp stand beside the others, heads are of
// any width that models have, and the inputs of some graphs are all positive or of many binades.
constexpr std::uint64_t kTrainingVary = 64'000'000;

struct RandomGraphOptions {
  std::uint64_t seed = 0;
  int max_nodes = 12;
  std::int64_t max_elements = 4096;               // of one tensor
  std::int64_t max_work = std::int64_t{1} << 20;  // products of one contraction
  // Only operations and types that are exact on small integers, sized so that every sum stays exact
  // for inputs out of {-1, 0, 1}: all kernels must then agree bit for bit.
  bool exact_only = false;
  // The maker of this name (random_graph.cpp) makes every second node; empty: none does.
  std::string_view often = {};
  // Names with quotes, newlines, keywords and the like. Without, the same seed gives the same graph
  // under plain names.
  bool hostile_names = true;
};

// Throws std::logic_error with the diagnostic if the generator breaks a rule.
Shared<Graph> random_graph(const RandomGraphOptions& options);

}  // namespace sinter::test
