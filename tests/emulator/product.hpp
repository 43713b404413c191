// What tensor cores compute, for the threads of an emulated cluster. It is in the test program, so
// that no kernel's text compiles it again.
#pragma once
#include "emulator/machine.hpp"

namespace sinter::test {

// A product of wgmma by a warp's lanes: sums of exact products in double, rounded once. False: the
// lanes do not say the same of it.
bool multiply(const emulator::Product* const (&lanes)[emulator::kWarp]);

// The same of mma.sync.
bool multiply(const emulator::BlockProduct* const (&lanes)[emulator::kWarp]);

}  // namespace sinter::test
