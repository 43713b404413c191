// The parts of a generated file that only attention backward has.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "emit/kernel_names.hpp"
#include "emit/text_writer.hpp"
#include "schedule/attention/backward.hpp"

namespace sinter {

// What core/wgmma_instruction.cuh is to provide.
void print_backward_products(TextWriter& out, const AttentionBackwardConfig& e,
                             const KernelSpec& spec);

// Operands, bounds, score and its derivative, what belongs to rows, and results.
void print_attention_backward(TextWriter& out, const KernelSpec& spec,
                              const AttentionBackwardConfig& e, const KernelNames& names);

std::string backward_call(const AttentionBackwardConfig& e);

struct NamedMap {
  std::string_view name;
  const BoxedOperand* box;
};
// In the order of Args. By warps: none.
std::vector<NamedMap> maps_of(const AttentionBackwardConfig& e);

}  // namespace sinter
