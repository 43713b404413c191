// Numbers that attention's scores may be made of and that are too large for some of its arithmetic.
#pragma once
#include <cmath>

namespace sinter {

// Past 2^14 the next f32 is 2^-9 away: beside such a mask the logarithm of a sum of exponentials is
// lost, and its product with log 2 is rounded by more than scores differ. -infinity is no such
// number: its exponential is 0 whatever is taken off.
inline bool is_large_score(double x) { return std::isfinite(x) && std::abs(x) >= 1 << 14; }

// A constant at or below this, in the place of a score or added to one, is a mask: the weight of
// what it hides is nothing beside any that is seen.
inline constexpr double kMaskNumber = -8192;

}  // namespace sinter
