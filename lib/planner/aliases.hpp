// Outputs that may lie in the memory of an input: whether the kernels of a plan read each element
// before they write it, whatever the order in which their threads run. That is a matter of the
// schedule, too: what stays in registers is not read again.
#pragma once
#include <set>
#include <span>
#include <string>
#include <vector>

#include "schedule/scheduled_kernel.hpp"
#include "sinter/base/diagnostic.hpp"
#include "target/device_model.hpp"

namespace sinter {

struct Alias {
  TensorId output = kNoTensor, input = kNoTensor;
  bool apart = false;  // what makes the output has a kernel of its own
};
// Those that the user's graph declares, in the lowered graph; but for inputs that nothing reads.
// `apart`: names of outputs.
std::vector<Alias> aliases_of(const Graph& user, const Graph& lowered,
                              const std::set<std::string>& apart = {});

// What is wrong with the aliases that the user's graph declares, given the kernels in their order.
Diagnostics unsafe_aliases(const Graph& user, const Graph& lowered,
                           std::span<const ScheduledKernel> kernels, const DeviceModel& device);

}  // namespace sinter
