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
  // By a function that is optimised: this text is not.
  const auto intact = [shared_bytes](const void* memory) {
    const auto* margin = static_cast<const unsigned char*>(memory) + shared_bytes;
    return *margin == 0xff && std::memcmp(margin, margin + 1, sinter::kMargin - 1) == 0;
  };
  return intact(sinter::rowwise::dynamic_memory) && intact(sinter::contraction::dynamic_memory) &&
         intact(sinter::engine_memory);
}
// Of a kernel with this entry in namespace `space`.
#define EMULATOR_RUN(entry, space)                                                            \
  EMULATOR_EXPORT void emulator_kernel_##entry(emulator::Machine& m, const void* arguments) { \
    machine = &m;                                                                             \
    dynamic_numbers = static_cast<const long long*>(arguments);                               \
    space::entry(*static_cast<const space::Args*>(arguments));                                \
  }
