// The parts of a generated file that only depthwise convolutions have.
#pragma once
#include "emit/kernel_names.hpp"
#include "emit/text_writer.hpp"
#include "schedule/contraction/depthwise.hpp"

namespace sinter {

// The spatial dims, for Config.
void print_depthwise_axes(TextWriter& out, const KernelSpec& spec, const DepthwiseConfig& engine);

// Image, and Filter or Gradient.
void print_depthwise_operands(TextWriter& out, const KernelSpec& spec, const KernelNames& names,
                              const DepthwiseConfig& engine);

}  // namespace sinter
