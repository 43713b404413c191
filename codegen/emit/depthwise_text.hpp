// The spatial dims of depthwise convolutions, for Config.
#pragma once
#include "emit/text_writer.hpp"
#include "schedule/contraction/depthwise_config.hpp"

namespace sinter {

void print_depthwise_axes(TextWriter& out, const KernelSpec& spec, const DepthwiseConfig& engine);

}  // namespace sinter
