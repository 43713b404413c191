// The patterns of all families.
#include <algorithm>
#include <iterator>
#include <vector>

#include "planner/match/pattern.hpp"

namespace sinter {

std::span<const Pattern* const> patterns() {
  static const std::vector<const Pattern*> all = [] {
    std::vector<const Pattern*> list;
#define SINTER_FAMILY(name, Spec) std::ranges::copy(name##_patterns(), std::back_inserter(list));
    SINTER_FAMILIES(SINTER_FAMILY)
#undef SINTER_FAMILY
    return list;
  }();
  return all;
}

const Pattern& pattern_of(const FusionState& state, NodeId n) {
  const auto all = patterns();
  const auto found = std::find_if(all.begin(), all.end() - 1,
                                  [&](const Pattern* p) { return p->anchors(state, n); });
  return **found;
}

}  // namespace sinter
