// Stands behind the text of a kernel that is compiled for the host: what the test program calls.
#pragma once

#define EMULATOR_EXPORT extern "C" __attribute__((visibility("default")))
EMULATOR_EXPORT char* emulator_anchor() { return anchor; }
EMULATOR_EXPORT void emulator_kernel(emulator::Machine& m, const void* arguments) {
  machine = &m;
  EMULATOR_ENTRY(*static_cast<const Args*>(arguments));
}
