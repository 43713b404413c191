// The body of a pointwise kernel, and its tiles.
#pragma once
#include "emit/body_text.hpp"
#include "emit/kernel_names.hpp"
#include "emit/text_writer.hpp"
#include "schedule/pointwise/pointwise.hpp"

namespace sinter {

// The tiles of a block in shared memory.
void print_tiles(TextWriter& out, const KernelSpec& spec, const KernelNames& names,
                 const PointwiseConfig& schedule);
void print_pointwise(TextWriter& out, const KernelSpec& spec, const KernelNames& names,
                     const PointwiseConfig& schedule, const BodyText& body);

}  // namespace sinter
