// Biases and masks of attention whose rows begin where TMA cannot load them.
#pragma once
#include <vector>

#include "planner/split/split.hpp"

namespace sinter {

// Kernels that copy what the score reads element by element to rows of whole pieces of 16 bytes,
// from where boxes bring it (LoadBeside); `spec` then reads the copies.
std::vector<KernelSpec> align_biases(KernelSpec& spec, const DeviceModel& device,
                                     Temporaries& temporaries);

}  // namespace sinter
