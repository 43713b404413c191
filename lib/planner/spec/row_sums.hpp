// A contraction with a single row or column is a sum along k for every element of the result: it
// runs at the speed of memory as a rowwise kernel. So do many products of tiny matrices.
#pragma once
#include "plan/kernel_spec.hpp"

namespace sinter {

// The rowwise kernel in place of the contraction; the contraction itself where it has several rows
// and columns that are not tiny, or parts that rowwise kernels have not.
KernelSpec as_row_sums(KernelSpec contraction);

}  // namespace sinter
