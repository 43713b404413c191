// Kernels over the same domain, of which neither reads or overwrites what the other writes, become
// one: small ones, which take mostly their launches (the sums over all images that end the
// gradients of a norm's scale and bias), and of any size updates, which make outputs of inputs
// element by element (parameters of one size).
#pragma once
#include <span>
#include <vector>

#include "plan/kernel_spec.hpp"
#include "planner/aliases.hpp"
#include "target/device_model.hpp"

namespace sinter {

// Zeros that a kernel of their own would write (sums of dQ) are written by the row kernel in front
// of it that has as many elements (Delta), a launch less.
void write_zeros_beside(std::vector<KernelSpec>& kernels);

// `kernels` of `lowered` in the order in which they run. A kernel is merged to one before it, also
// past others that neither wait for it nor hold it up. Large ones are where each makes whole
// outputs of whole inputs, element by element, as training steps do.
void merge_siblings(std::vector<KernelSpec>& kernels, const Graph& lowered,
                    std::span<const Alias> aliases, const DeviceModel& device);

}  // namespace sinter
