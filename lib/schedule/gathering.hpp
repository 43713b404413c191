// How a kernel gathers: which neighbours resampling computes together, and what they cost. A pure
// function of the spec.
#pragma once
#include <vector>

#include "plan/kernel_spec.hpp"

namespace sinter {

// Whether an element depends on this operand of its gather. Of a gradient of maxpool, Index is
// read; X and Y tell nothing more.
bool reads_operand(const Gather& g, int operand);

// The first gather that computes what number `i` does: value and index of one maximum are searched
// for together.
int gathered_with(const KernelSpec& spec, int i);
// In which of float and double.
DataType arithmetic_of(const KernelSpec& spec, int gather);
// Whether the positions of maxima are asked for, by this gather or one that is computed with it.
bool wants_positions(const KernelSpec& spec, int gather);

// The dim of the node that the domain's index is.
int node_dim(const Gather& g, int index);

// Whether a thread computes `width` neighbours along the domain's index together, see
// codegen/device/gather/resampled.cuh.
bool gathers_together(const KernelSpec& spec, const Gather& g, int index, int width);

// The most elements of the operand, a power of two, that lie aligned wherever such neighbours start
// to read.
int gather_alignment(const KernelSpec& spec, const Gather& g, int operand, int index, int width);

// What resampling reads: of its operands no more than there is.
double resampled_bytes(const KernelSpec& spec);

// Loops over at most so many places are written out, longer ones are loops that take as long.
inline constexpr int kWrittenOut = 16;
// What `width` neighbours read, in bytes.
int gathered_bytes(const KernelSpec& spec, const Gather& g, int width);
// What one element costs, in simple instructions, roughly, as far as they are written out.
int gather_cost(const KernelSpec& spec, int gather);

}  // namespace sinter
