// What tensor cores compute, for the threads of an emulated cluster. It is in the test program, so
// that no kernel's text compiles it again.
#pragma once
#include "emulator/machine.hpp"

namespace sinter::test {

// A thread's part of a product of wgmma: sums of exact products in double, rounded once.
void multiply(const emulator::Product& product);

// A lane's four sums of mma.sync with what all lanes of its warp show, which are their operands.
void multiply_shown(emulator::Number type, const emulator::Warp& warp, unsigned lane, float* sums);

}  // namespace sinter::test
