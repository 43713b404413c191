// With d = seen - rounded, a correct kernel has |sum d v| at most sum e |v|, which its arithmetic
// may take, plus what rounding makes of it: each element that crosses a tie moves by a whole step,
// where the arithmetic moved it by less. Ties fall independently for values that differ, so that
// part grows like a root; equal values, up to a power of two, fall together and count as one.
#include "reference/slope.hpp"

#include <algorithm>
#include <cmath>

namespace sinter::reference {
namespace {

double mantissa(double v) {
  int exponent;
  return std::frexp(std::fabs(v), &exponent);
}

}  // namespace

bool slope_ok(std::vector<SlopePoint> points) {
  constexpr std::size_t least_groups = 64;  // below it chance has no root law to obey
  std::sort(points.begin(), points.end(), [](const SlopePoint& a, const SlopePoint& b) {
    return mantissa(a.expected.value) < mantissa(b.expected.value);
  });
  double deviation = 0, allowed = 0, variance = 0, group = 0, end = -1;
  std::size_t groups = 0;
  for (const SlopePoint& p : points) {
    const double v = p.expected.value, size = std::fabs(v);
    if (size == 0) continue;
    deviation += (p.seen - p.rounded) * v;
    allowed += p.expected.error * size;
    // Values closer than their errors may cross the same tie.
    const double m = mantissa(v), reach = 2 * p.expected.error / size + 0x1p-50;
    if (m > end) {
      variance += group * group;
      group = 0;
      ++groups;
    }
    end = std::max(end, m + reach);
    group += p.half_step * size;
  }
  variance += group * group;
  if (groups < least_groups) return true;
  return std::fabs(deviation) <= allowed * (1 + 1e-9) + 6 / std::sqrt(3.0) * std::sqrt(variance);
}

}  // namespace sinter::reference
