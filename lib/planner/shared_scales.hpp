// Products that share a scaled 8-bit operand (the activations of a query, a key and a value).
#pragma once
#include <optional>

#include "lower/lower.hpp"

namespace sinter {

// Gives each product its own copy of the nodes that scale the operand, where it multiplies it with
// another of 8 bits: it then loads the 8 bits and scales its sums, and nothing is written between.
// Two products that meet again (gated units) keep one, as one kernel's. Nothing where none is shared.
std::optional<Lowered> unshare_scales(const Lowered& lowered);

}  // namespace sinter
