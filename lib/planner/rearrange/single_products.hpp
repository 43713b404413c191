// Contractions whose sums are of one product each, as depthwise convolutions of 1 x 1 and outer
// products, sum nothing: a pointwise kernel multiplies, which moves packs and knows nothing of
// tiles.
#pragma once
#include <optional>

#include "plan/kernel_spec.hpp"

namespace sinter {

std::optional<KernelSpec> as_single_products(const KernelSpec& spec);

}  // namespace sinter
