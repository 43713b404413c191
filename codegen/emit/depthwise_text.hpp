// The parts of a generated file that only depthwise convolutions have.
#pragma once
#include <string_view>

#include "emit/kernel_names.hpp"
#include "emit/text_writer.hpp"
#include "schedule/contraction/depthwise.hpp"

namespace sinter {

// The spatial dims, for Config.
void print_depthwise_axes(TextWriter& out, const KernelSpec& spec, const DepthwiseConfig& engine);

// Image, and Filter or Gradient.
void print_depthwise_operands(TextWriter& out, const KernelSpec& spec, const KernelNames& names,
                              const DepthwiseConfig& engine);

// Which of them, and of void, the kernel has besides the image and the filter, or gradient.
std::string_view depthwise_results(const KernelSpec& spec, const DepthwiseConfig& e);

}  // namespace sinter
