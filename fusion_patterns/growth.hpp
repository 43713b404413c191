// What all patterns share: growing a set of nodes over one domain, and why a neighbour is refused.
#pragma once
#include <functional>
#include <limits>

#include "lower/op_kinds.hpp"
#include "planner/match/pattern.hpp"

namespace sinter {

// Whether node n computes element by element over this domain, and why not.
bool runs_over(const FusionState& state, NodeId n, const Dims& domain);
Refusal refuse_other_domain(const FusionState& state, NodeId n, const Dims& domain);
// Of elementwise and row kernels: an elementwise node whose result is narrower than the sums of a
// product or convolution that it alone reads. It is the end of that kernel, which otherwise stores
// its sums as f32. (A bias and bf16 in front of a layernorm or a batch norm.)
Refusal left_to_product(const FusionState& state, NodeId n);
// What reads from memory joins no kernel that others grow; a product may compute an operand itself.
Refusal refuse_product(OpKind op);

// Grows `nodes` by free neighbours that `refuse` does not refuse with a reason: consumers,
// producers, and nodes that read the same tensors, where these have at least `shared` elements, so
// that reading them once is worth it. True where only the limits of a kernel kept some out.
struct Growth {
  std::string_view pattern;
  std::int64_t shared = std::numeric_limits<std::int64_t>::max();
  bool explain = false;
  // Whether a kernel may have such a node at all; `refuse` has a reason where it may not.
  bool (*takes)(const FusionState&, NodeId) = [](const FusionState&, NodeId) { return true; };
};
bool grow(FusionState& state, std::vector<NodeId>& nodes, const Growth& growth,
          const std::function<Refusal(NodeId)>& refuse);

}  // namespace sinter
