// With d = seen - rounded, a correct kernel has |sum d v| at most sum e |v|, which its arithmetic
// may take, plus what rounding makes of it: an element that crosses a tie moves by a whole step
// where the arithmetic moved it by less. On average the two agree when values lie anywhere between
// ties; then the rest grows like a root of the number of distinct values.
#include "reference/slope.hpp"

#include <algorithm>
#include <array>
#include <cmath>

namespace sinter::reference {
namespace {

double mantissa(double v) {
  int exponent;
  return std::frexp(std::fabs(v), &exponent);
}

// Whether the values lie evenly between their neighbours in the stored type. Where they cluster,
// all of them may cross a tie together.
bool spread_evenly(const std::vector<SlopePoint>& points) {
  std::array<double, 16> bins{};
  for (const SlopePoint& p : points) {
    const double position = p.expected.value / (2 * p.half_step);
    const double fraction = position - std::floor(position);
    ++bins[static_cast<std::size_t>(fraction * bins.size()) % bins.size()];
  }
  const double even = static_cast<double>(points.size()) / bins.size();
  return *std::max_element(bins.begin(), bins.end()) <= 2.5 * even;
}

}  // namespace

bool slope_ok(std::vector<SlopePoint> points) {
  constexpr std::size_t least_values = 256;  // distinct ones; below it chance obeys no root law
  std::erase_if(points, [](const SlopePoint& p) { return p.expected.value == 0; });
  if (points.size() < least_values || !spread_evenly(points)) return true;
  std::sort(points.begin(), points.end(), [](const SlopePoint& a, const SlopePoint& b) {
    return mantissa(a.expected.value) < mantissa(b.expected.value);
  });
  // Equal values, up to a power of two, round together and count as one.
  double deviation = 0, allowed = 0, variance = 0, group = 0, last = -1;
  std::size_t values = 0;
  for (const SlopePoint& p : points) {
    const double v = p.expected.value, size = std::fabs(v), m = mantissa(v);
    deviation += (p.seen - p.rounded) * v;
    allowed += p.expected.error * size;
    if (m - last > 0x1p-40) {
      variance += group * group;
      group = 0;
      ++values;
    }
    last = m;
    group += p.half_step * size;
  }
  variance += group * group;
  if (values < least_values) return true;
  return std::fabs(deviation) <= allowed * (1 + 1e-9) + 6 / std::sqrt(3.0) * std::sqrt(variance);
}

}  // namespace sinter::reference
