// How attention forward runs on the tensor cores that every GPU from sm_80 on has; see
// codegen/device/family/attention_forward_mma.cuh.
#pragma once
#include "schedule/attention/forward.hpp"

namespace sinter {

// An operand whose rows are copied to shared memory as they lie: their elements, along index
// `column` of the product's domain, lie together, from a multiple of 16 bytes on. `widened`: they
// may have 8 bits, from which the kernel makes the operand's 16.
std::optional<BoxedOperand> copied_rows(const KernelSpec& product, const ProductOperand& operand,
                                        int column, bool widened = false);

// What a configuration takes, `items` tiles of rows in all, roughly.
double microseconds_by_warps(const KernelSpec& spec, const AttentionConfig& e, double items,
                             const DeviceModel& device);
// Completes a plan that has its operands. False where heads are wider than registers hold.
bool plan_by_warps(const KernelSpec& spec, const DeviceModel& device, AttentionPlan& plan);

}  // namespace sinter
