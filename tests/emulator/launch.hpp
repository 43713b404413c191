// Stands behind the text of a kernel that is compiled for the host: the shared memory that a launch
// asks for, and what the test program calls.
#pragma once

namespace sinter {

inline constexpr unsigned kMostShared = 227 << 10;
namespace rowwise {
thread_local alignas(1024) unsigned char dynamic_memory[kMostShared];
}
namespace contraction {
#ifdef SINTER_MULTIPLY_SUMS
thread_local alignas(1024) unsigned char dynamic_memory[kMostShared];
#else
thread_local alignas(1024) uint4 dynamic_memory[kMostShared / sizeof(uint4)];
#endif
}  // namespace contraction

inline unsigned hopper::whole_address(unsigned bits) {
  const unsigned start = shared_address(contraction::dynamic_memory);
  return start + ((bits - start) & 0x3ffff);
}

}  // namespace sinter

#define EMULATOR_EXPORT extern "C" __attribute__((visibility("default")))
EMULATOR_EXPORT char* emulator_anchor() { return anchor; }
EMULATOR_EXPORT void emulator_kernel(emulator::Machine& m, const void* arguments) {
  machine = &m;
  EMULATOR_ENTRY(*static_cast<const Args*>(arguments));
}
