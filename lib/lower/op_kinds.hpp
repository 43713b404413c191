// Kinds of primitives that several parts of planning ask for.
#pragma once
#include "sinter/ops/op_table.hpp"

namespace sinter {

inline bool is_matmul(OpKind op) {  // also of groups of rows
  return op == OpKind::matmul || op == OpKind::moe_grouped_matmul;
}
inline bool is_contraction(OpKind op) {
  return is_matmul(op) || op == OpKind::conv_fprop || op == OpKind::conv_dgrad ||
         op == OpKind::conv_wgrad;
}
// Gathers and contractions: their operands must lie in memory when their kernel starts.
inline bool reads_from_memory(OpKind op) {
  return is_contraction(op) || op == OpKind::resample || op == OpKind::resample_backward ||
         op == OpKind::page_gather || op == OpKind::block_mask;
}

}  // namespace sinter
