// Products of f32 numbers on tensor cores that are no less exact than on ordinary ones: a number is
// the sum of three bf16 numbers, its parts, and a product of two numbers that of six products of
// parts, but for 2^-22 of it at most. Below 2^-109 parts fall under bf16's smallest numbers.
// Where bf16 holds one of the numbers (bf16, 8 bits), three products make up theirs.
// (NVIDIA, "Floating point emulation", cuBLAS 12.9: nine products.)
#pragma once
#include <vector>

#include "planner/split/split.hpp"

namespace sinter {

// The kernels that write the parts of both factors to memory, side by side along one index of k,
// and the one that multiplies them, whose k is six, or three, times as long. Empty where the
// factors are not of f32, at least one, or do not lie packed behind that index.
std::vector<KernelSpec> bf16_parts(KernelSpec spec, Temporaries& temporaries);

}  // namespace sinter
