// The list of patterns. A new one is added here and nowhere else.
#include "fusion_patterns/pattern.hpp"

namespace sinter {

std::span<const Pattern* const> patterns() {
  static const Pattern* const all[] = {&contraction_pattern(), &rowwise_pattern(),
                                       &pointwise_pattern(), &data_movement_pattern()};
  return all;
}

}  // namespace sinter
