// Norms over groups of channels that lie together, pixel by pixel: a row is many short pieces of
// memory. With a row for each channel, whose reductions are those of its group
// (RowwiseSpec::group), neighbouring threads move what lies together, and a cluster of blocks holds
// an image's groups from phase to phase.
//
//     n, g | pixels, c  ->  n, (g, c) | pixels
#pragma once
#include <optional>

#include "plan/kernel_spec.hpp"

namespace sinter {

// Nothing where the last index is no such piece, or a statement knows its number.
std::optional<KernelSpec> as_grouped_rows(const KernelSpec& spec);

}  // namespace sinter
