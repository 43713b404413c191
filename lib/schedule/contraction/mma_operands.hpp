// How the operands of a contraction come to shared memory for the tensor cores of any GPU.
#pragma once
#include "schedule/contraction/mma.hpp"

namespace sinter {

struct Group {  // of indices: the rows of an operand, or k
  int last = -1, size = 0;
};

// Moves the index of k along which the operands lie together behind the others: A's, else B's.
void order_depth(KernelSpec& spec);

// `number`: the type of the factors; `rows`: m or n; `renumbered`: rows come out of a table.
// `transposed`: what lies along k is to lie along the rows in shared memory, and so is copied
// element by element.
MmaOperand choose_operand(const KernelSpec& spec, const Body& body, DataType number, Group rows,
                          bool renumbered, bool transposed = false);

// An operand of bytes that lie along k as it is streamed, in whole stages of `depth`; nothing where
// it is none. `held`: as it would pass through registers.
std::optional<MmaOperand> stream_operand(const KernelSpec& spec, const Body& body,
                                         const MmaOperand& held, int depth);

// What an operand that passes through registers takes of a thread for an element: registers that
// hold it until it is used, and instructions to load and to compute it. Copied ones take none.
struct OperandWeight {
  double held = 0, code = 0;
  bool narrow = false;  // computed from elements of a byte that come in whole packs
  bool streamed = false;
};
OperandWeight weigh(const KernelSpec& spec, const Body& body, const MmaOperand& o);

}  // namespace sinter
