// In which order blocks take the parts of a kernel's domain.
#pragma once
#include "sinter/device/core/device.cuh"

namespace sinter {

// The number of the part that this block takes. With Config::from_end the first blocks to run take
// the last parts, which the kernel before has left in the second-level cache.
template <class Config>
SINTER_DEVICE unsigned block_number() {
  if constexpr (requires { Config::from_end; })
    return gridDim.x - 1 - blockIdx.x;
  else
    return blockIdx.x;
}

}  // namespace sinter
