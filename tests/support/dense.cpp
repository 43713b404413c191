#include "support/dense.hpp"

#include <cmath>

namespace sinter::test {

double dot(const double* x, const double* y, std::size_t count) {
  double sum = 0;
  for (std::size_t i = 0; i < count; ++i) sum += x[i] * y[i];
  return sum;
}

void add_scaled(double factor, const double* x, std::size_t count, double* sums, double* sizes) {
  for (std::size_t i = 0; i < count; ++i) {
    const double part = factor * x[i];
    sums[i] += part;
    sizes[i] += std::fabs(part);
  }
}

}  // namespace sinter::test
