// Which types hold the values of an operand as they are computed, so that nothing is lost where it
// is multiplied in one of them.
#pragma once
#include "plan/kernel_spec.hpp"

namespace sinter {

// Whether every value of type `from` is one of floating type `to`.
bool holds_type(DataType to, DataType from);

// The largest magnitude of a number of the type.
double largest_of(DataType type);

// A type that holds every value of the body: of its loads, where it selects, clips or converts to
// wider types; none where it computes others.
DataType held_type(const KernelSpec& spec, const Body& body);

}  // namespace sinter
