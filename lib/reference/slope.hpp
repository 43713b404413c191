// Looks for a systematic scale error beneath the roundings: a factor of 0.999 hides in every single
// 16-bit element, but not in the sum over many.
#pragma once
#include <vector>

#include "reference/reference.hpp"

namespace sinter::reference {

struct SlopePoint {
  double seen;       // what the kernel stored
  Judged expected;   // before rounding, with its bound
  double rounded;    // the reference's stored value
  double half_step;  // half the distance of neighbours of the stored type at `rounded`
};

// False where the kernel's deviations lean to one side more than their bounds and chance explain.
bool slope_ok(std::vector<SlopePoint> points);

}  // namespace sinter::reference
