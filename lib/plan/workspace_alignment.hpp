// Where a workspace and the tensors in it begin: at multiples of what cuMemAlloc gives.
#pragma once
#include <cstdint>

namespace sinter {

inline constexpr std::int64_t kWorkspaceAlignment = 256;  // bytes

}  // namespace sinter
