// The inner loops of references that tests compute themselves. Tests are not optimised; these are.
#pragma once
#include <cstddef>

namespace sinter::test {

double dot(const double* x, const double* y, std::size_t count);
// Adds factor * x to sums, and its magnitudes to `sizes`.
void add_scaled(double factor, const double* x, std::size_t count, double* sums, double* sizes);

}  // namespace sinter::test
