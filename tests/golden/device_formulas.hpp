// The formulas of pointwise.hpp with the device's elementary functions, compiled for the host.
#pragma once
#include "sinter/ops/attributes.hpp"

namespace sinter::test {

float device_formula(PointwiseMode mode, const float* operands, const float* params);
double device_formula(PointwiseMode mode, const double* operands, const double* params);

}  // namespace sinter::test
