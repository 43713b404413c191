// Operands that a pointwise kernel writes to memory before the kernel that multiplies them runs.
#pragma once
#include <vector>

#include "planner/split/split.hpp"

namespace sinter {

// Of a contraction of one product.
struct OperandPlace {
  int input;      // of the node: 0 for A, 1 for B
  int row, rows;  // its own group of indices
};
inline const ProductOperand& operand_at(const KernelSpec& spec, const OperandPlace& o) {
  return o.input == 0 ? spec.contraction().a() : spec.contraction().b();
}
inline ProductOperand& operand_at(KernelSpec& spec, const OperandPlace& o) {
  return o.input == 0 ? spec.contraction().a() : spec.contraction().b();
}

// The indices that tell the operand's elements apart, in the order in which they are written: all
// of its rows and of k, and of the batch those on which it depends. Of the two last ones that comes
// behind which lies together in what is read, but k where the MMA wants it there.
std::vector<int> indices_of(const KernelSpec& spec, const OperandPlace& operand, DataType type);

// What belongs to these indices, in their order.
Dims at_indices(const Dims& dims, const std::vector<int>& indices);

// A pointwise kernel of a body of `spec` that depends on these indices of its domain alone, which
// are the kernel's.
KernelSpec over_indices(const KernelSpec& spec, const Body& body, const std::vector<int>& indices);
// The kernel that writes the operand as `type`, in this order of the indices that tell its elements
// apart, of which the last `of_line` are a line that begins where TMA may; `spec` then loads what
// it wrote.
KernelSpec written_first(KernelSpec& spec, ProductOperand& operand, const std::vector<int>& indices,
                         DataType type, Temporaries& temporaries, int of_line = 1);
// The same of a load of one of the spec's bodies, in its own type.
KernelSpec copied_first(KernelSpec& spec, Body& body, int load, const std::vector<int>& indices,
                        Temporaries& temporaries);

}  // namespace sinter
