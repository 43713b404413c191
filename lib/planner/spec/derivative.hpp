// The derivative of a body by its sum.
#pragma once
#include <optional>

#include "plan/kernel_spec.hpp"

namespace sinter {

// `body`: from an accumulator statement of number 0 to its last statement. The result has the same
// statements and behind them, last, the derivative times accumulator 1: forward differentiation,
// which is the chain rule for one number. Nothing where a mode's derivative is not known here.
std::optional<Body> derivative(KernelSpec& spec, const Body& body);

}  // namespace sinter
