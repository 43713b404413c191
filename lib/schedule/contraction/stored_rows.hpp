// Results of a contraction that leave as they are summed, see
// codegen/device/family/contraction_store.cuh.
#pragma once
#include "schedule/contraction/wgmma.hpp"

namespace sinter {

// Fills in the port of the one result, and of what is read in the same way, where it may leave as
// it is summed.
void store_as_summed(const KernelSpec& spec, WgmmaConfig& engine, bool all_rows_exist = true);

}  // namespace sinter
