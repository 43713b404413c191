// Takes data movement out of the way of fusion. Only nodes that compute over the same domain share
// a kernel, so slices, reshapes and transposes between them are moved to where strides alone do
// them (up to the tensors that lie in memory) or behind what follows them, concatenations of what
// is computed behind what reads them, and reductions to less than the rows of the kernel that makes
// their operand are done in two steps. Values, their types and roundings stay; sums are added in
// another order.
#pragma once
#include "lower/lower.hpp"

namespace sinter {

Lowered move_data_movement(const Lowered& lowered);

}  // namespace sinter
