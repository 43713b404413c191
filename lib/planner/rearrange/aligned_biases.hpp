// Biases and masks of attention whose rows begin where TMA cannot load them.
#pragma once
#include <optional>
#include <vector>

#include "planner/split/split.hpp"

namespace sinter {

// Kernels that copy what the score reads element by element to rows of whole pieces of 16 bytes,
// from where boxes bring it (LoadBeside); `spec` then reads the copies.
std::vector<KernelSpec> align_biases(KernelSpec& spec, const DeviceModel& device,
                                     Temporaries& temporaries);
// The same of gradients, which read one number of a score from boxes of 16 bits
// (AttentionBackwardConfig::beside).
std::optional<KernelSpec> align_gradient_bias(KernelSpec& spec, const DeviceModel& device,
                                              Temporaries& temporaries);

}  // namespace sinter
