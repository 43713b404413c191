// What every kernel's configuration has: how it is launched, and what bounds its registers.
#pragma once
#include <cstdint>

namespace sinter {

struct Launch {
  bool wide_index = false;  // offsets need 64 bits
  int threads = 256;
  int least_blocks = 1;            // that an SM should hold at once: limits registers
  std::uint32_t grid = 1;          // thread blocks
  std::uint32_t shared_bytes = 0;  // dynamic shared memory
};

}  // namespace sinter
