// Products whose left operand is made of another product's results: a pattern of contractions.
#pragma once
#include "planner/match/pattern.hpp"

namespace sinter {

const Pattern& chained_pattern();

}  // namespace sinter
