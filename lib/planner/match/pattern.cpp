#include "planner/match/pattern.hpp"

#include <algorithm>

namespace sinter {

bool is_elementwise(const FusionState& state, NodeId n) {
  switch (state.op(n)) {
    case OpKind::concatenate:
      return !state.storage().parts(n).empty();
    case OpKind::pointwise:
    case OpKind::rng:
    case OpKind::resample:
    case OpKind::resample_backward:
    case OpKind::page_gather:
    case OpKind::block_mask:
      return true;
    default:
      return false;
  }
}

std::int64_t saved_bytes(const FusionState& state, const std::vector<NodeId>& nodes) {
  const JoinedNodes joined(state, nodes);
  const auto inside = [&](NodeId n) { return joined.contains(n); };
  std::vector<TensorId> read;
  for (NodeId n : nodes)
    for (TensorId t : state.operands(n))
      if (t >= 0 && state.producer(t) >= 0 && inside(state.producer(t))) read.push_back(t);
  std::sort(read.begin(), read.end());
  read.erase(std::unique(read.begin(), read.end()), read.end());
  std::int64_t saved = 0;
  for (TensorId t : read) saved += state.bytes(t) * (leaves(state, t, inside) ? 1 : 2);
  return saved;
}

}  // namespace sinter
