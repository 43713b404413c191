// How much memory a device has left, asked before large allocations: on the host an allocation
// succeeds that the machine cannot hold, and a driver says of a refused one only its size.
#pragma once
#include <cstdint>

#include "sinter/base/result.hpp"
#include "sinter/compile.hpp"

namespace sinter {

// Bytes that can be allocated now. Of the CPU: what the system says is available, swap included,
// and at most what the process's control group may have.
Result<std::int64_t> free_memory(Device device);

}  // namespace sinter
