// Attention forward of f8 operands on the tensor cores as f8, which take half the time of 16 bits.
#pragma once
#include "schedule/attention/forward.hpp"

namespace sinter {

// The spec with the types in which its products are multiplied as f8; nothing where it does not
// load such operands, or another kernel is faster. Q and K are; V is where weights may be rounded
// to f8, else it and they have 16 bits.
std::optional<KernelSpec> multiplied_as_f8(const KernelSpec& spec, const DeviceModel& device);

// Whether statement `value` of the body is the sum times numbers that are the same wherever these
// indices of the domain are: of all rows, and keys or columns, of a head.
bool is_scaled_sum(const KernelSpec& product, std::size_t value, const std::vector<int>& of_head);

}  // namespace sinter
