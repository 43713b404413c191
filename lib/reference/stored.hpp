// A bounded number through the rounding of a storage type. Rounding is monotone, so the stored
// number lies between the rounded ends.
#pragma once
#include <algorithm>
#include <cmath>

#include "reference/bounded.hpp"
#include "reference/element.hpp"

namespace sinter::reference {

struct Stored {
  double value, low, high;
  bool trusted = true;
};

inline Stored stored(DataType type, double v, double e) {
  const double r = round_to(type, v);
  if (e == 0) return {r, r, r};
  const bool jump = type == DataType::boolean && std::fabs(v) <= e;  // zero or not zero
  if (!(e < kUntrusted) || jump) return {r, r, r, false};
  if (type == DataType::f8e8m0) {  // looks at magnitudes only
    const double a = std::fabs(v);
    return {r, round_to(type, std::max(a - e, 0.0)), round_to(type, a + e)};
  }
  return {r, round_to(type, v - e), round_to(type, v + e)};
}

}  // namespace sinter::reference
