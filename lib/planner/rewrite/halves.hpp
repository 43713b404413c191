// Two slices that cut the last axis of a tensor in the middle.
#pragma once
#include <vector>

#include "planner/rewrite/rewriter.hpp"

namespace sinter {

inline bool are_halves(const Rewriter& g, TensorId t, const std::vector<NodeId>& slices) {
  const Dims& dim = g[t].dim;
  const int last = dim.size() - 1;
  bool first = false, second = false;
  for (NodeId n : slices) {
    const auto* a = std::get_if<SliceAttributes>(&g.node(n).attributes);
    if (!a) return false;
    Dims half = dim;
    half[last] /= 2;
    if (g[g.node(n).outputs[0]].dim != half || (!a->step.empty() && a->step[last] != 1))
      return false;
    first |= a->start[last] == 0;
    second |= 2 * a->start[last] == dim[last];
  }
  return first && second && count(dim) > 0;
}

}  // namespace sinter
