// What every kernel's configuration has: how it is launched, what bounds its registers, and how
// long it is thought to take.
#pragma once
#include <cstdint>

namespace sinter {

// Kernels that want their shared memory from a multiple of so many bytes on ask for as many less
// one in addition: codegen/device/engine/shared_memory.cuh.
inline constexpr int kSharedAlignment = 1024, kLostToAlignment = kSharedAlignment - 1;

// Of static and dynamic shared memory together, that a launch gets on every GPU without opting in.
inline constexpr int kMostShared = 48 << 10;

struct Launch {
  bool wide_index = false;  // offsets need 64 bits
  int threads = 256;
  int least_blocks = 1;            // that an SM should hold at once: limits registers
  std::uint32_t grid = 1;          // thread blocks
  std::uint32_t shared_bytes = 0;  // dynamic shared memory; the kernel asserts its sum
  double microseconds = 0;         // estimated, from launch to end
};

}  // namespace sinter
