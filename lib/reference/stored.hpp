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
  // Zero or not zero, and a number or, below zero, NaN.
  const bool jump = (type == DataType::boolean && std::fabs(v) <= e) ||
                    (type == DataType::f8e8m0 && v - e < 0 && v + e >= 0);
  if (!(e < kUntrusted) || jump) return {r, r, r, false};
  return {r, round_to(type, v - e), round_to(type, v + e)};
}

}  // namespace sinter::reference
