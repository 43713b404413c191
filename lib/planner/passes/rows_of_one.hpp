// Reductions over one element, such as a sum over a batch of one, are that element:
//
//     x [n, 1] -> f -> sum -> g -> y [n, 1]   =>   x -> f -> g -> y, element by element
//
// so that packs of neighbours move together, which rows of one element do not.
#pragma once
#include "plan/kernel_spec.hpp"

namespace sinter {

// Makes a rowwise spec whose rows have one element a pointwise one; leaves all others.
void make_elementwise(KernelSpec& spec);

}  // namespace sinter
