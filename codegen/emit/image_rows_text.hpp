// The constants of a convolution of few channels, whose pixels come as they lie in memory.
#pragma once
#include "emit/text_writer.hpp"
#include "schedule/contraction/image_rows.hpp"

namespace sinter {

void print_image_rows(TextWriter& out, const ImageRowsConfig& config);

}  // namespace sinter
