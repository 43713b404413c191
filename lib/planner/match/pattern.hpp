// A fusion pattern: looks at the graph around an anchor node and proposes which nodes one kernel
// could compute, then turns a chosen proposal into a KernelSpec. Patterns are stateless.
#pragma once
#include <algorithm>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "plan/kernel_spec.hpp"
#include "planner/match/fusion_state.hpp"

namespace sinter {

struct Match {
  std::vector<NodeId> nodes;
  NodeId anchor = -1;
  std::int64_t saved_bytes = 0;  // memory traffic that fusing avoids
  bool full = false;             // more would fit but for kMaxKernelNodes or kMaxKernelTensors
};

class Pattern {
 public:
  virtual ~Pattern() = default;
  virtual std::string_view name() const = 0;
  // Whether kernels of this pattern are built around such a node. The first pattern of the list
  // that says so is asked; each node is some pattern's anchor.
  virtual bool anchors(const FusionState& state, NodeId n) const = 0;
  // The largest legal set of free nodes around an anchor, or nothing. Refused neighbours are
  // recorded in `state` when `explain` is set. What `state` says of nodes decides, and nothing
  // else: a proposal is kept until that has changed.
  virtual std::optional<Match> propose(FusionState& state, NodeId anchor, bool explain) const = 0;
  // Whether the set is proposed from `other`, another anchor in it, too: one of them is enough.
  virtual bool same_from(const FusionState&, const Match&, NodeId /*other*/) const { return false; }
  // A match may need several kernels (a concatenation of parts that stay where they are).
  virtual std::vector<KernelSpec> lower(const FusionState& state, const Match& match) const = 0;
};

// In order of preference between equal savings: family by family, as lib/plan/spec/families.hpp
// lists them.
std::span<const Pattern* const> patterns();
// Those of each family, in a file of its own.
#define SINTER_FAMILY(name, Spec) std::span<const Pattern* const> name##_patterns();
SINTER_FAMILIES(SINTER_FAMILY)
#undef SINTER_FAMILY
// The one that the node anchors.
const Pattern& pattern_of(const FusionState& state, NodeId n);

// Limits that keep one kernel compilable and its arguments within 4 KB: 8 bytes a tensor, and at
// most two constants of 8 bytes a node.
inline constexpr int kMaxKernelNodes = 160;
inline constexpr int kMaxKernelTensors = 96;

// True for the nodes that a body computes element by element over their output's dims.
bool is_elementwise(const FusionState& state, NodeId n);

// Whether the caller or a reader outside needs the tensor in memory. `inside`: whether a node is.
template <class Inside>
bool leaves(const FusionState& state, TensorId t, const Inside& inside) {
  const auto& readers = state.consumers(t);
  return state.graph()[t].output || !std::all_of(readers.begin(), readers.end(), inside);
}

// A remedy that several patterns name.
inline constexpr const char* kStoreAsMultiplied =
    "let whoever makes the operand store it in the type and layout in which it is multiplied; one "
    "of constants is stored once by prepare()";

// Memory traffic that joining `nodes` saves: what would be written and read between them.
std::int64_t saved_bytes(const FusionState& state, const std::vector<NodeId>& nodes);

}  // namespace sinter
