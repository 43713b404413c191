// The list of patterns: a new one is a file of its own and two lines here.
#include <algorithm>

#include "planner/match/pattern.hpp"

namespace sinter {

const Pattern& attention_pattern();
const Pattern& attention_backward_pattern();
const Pattern& chained_pattern();
const Pattern& contraction_pattern();
const Pattern& rowwise_pattern();
const Pattern& pointwise_pattern();
const Pattern& data_movement_pattern();

std::span<const Pattern* const> patterns() {
  static const Pattern* const all[] = {&attention_pattern(),    &attention_backward_pattern(),
                                       &chained_pattern(),      &contraction_pattern(),
                                       &rowwise_pattern(),      &pointwise_pattern(),
                                       &data_movement_pattern()};
  return all;
}

const Pattern& pattern_of(const FusionState& state, NodeId n) {
  const auto all = patterns();
  const auto found = std::find_if(all.begin(), all.end() - 1,
                                  [&](const Pattern* p) { return p->anchors(state, n); });
  return **found;
}

}  // namespace sinter
