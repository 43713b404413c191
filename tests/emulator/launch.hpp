// Stands behind the text of a kernel that is compiled for the host: what the test program calls.
#pragma once

#define EMULATOR_EXPORT extern "C" __attribute__((visibility("default")))
EMULATOR_EXPORT char* emulator_anchor() { return anchor; }
EMULATOR_EXPORT void emulator_start(unsigned shared_bytes) {
  std::memset(sinter::rowwise::dynamic_memory, 0xff, shared_bytes + sinter::kMargin);
  std::memset(sinter::contraction::dynamic_memory, 0xff, shared_bytes + sinter::kMargin);
  std::memset(sinter::engine_memory, 0xff, shared_bytes + sinter::kMargin);
}
EMULATOR_EXPORT bool emulator_end(unsigned shared_bytes) {
  const auto* one = sinter::rowwise::dynamic_memory + shared_bytes;
  const auto* other =
      reinterpret_cast<unsigned char*>(sinter::contraction::dynamic_memory) + shared_bytes;
  for (unsigned i = 0; i < sinter::kMargin; ++i)
    if (one[i] != 0xff || other[i] != 0xff || sinter::engine_memory[shared_bytes + i] != 0xff)
      return false;
  return true;
}
// Of a kernel with this entry in namespace `space`.
#define EMULATOR_RUN(entry, space)                                                            \
  EMULATOR_EXPORT void emulator_kernel_##entry(emulator::Machine& m, const void* arguments) { \
    machine = &m;                                                                             \
    dynamic_numbers = static_cast<const long long*>(arguments);                               \
    space::entry(*static_cast<const space::Args*>(arguments));                                \
  }
