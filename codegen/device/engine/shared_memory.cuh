// The shared memory that a launch asks for, from a multiple of 1024 on, as swizzles of 128 bytes
// want it: 1023 bytes more than is used. What is used is stated twice: lib/schedule has to know
// what fits before there is a kernel, and the kernel lays it out. So Config::shared_bytes has what
// the launch asks for, and each kernel asserts that this is the sum of its own parts.
#pragma once
#include "sinter/device/core/hopper.cuh"

namespace sinter {

struct SharedMemory {
  static constexpr int alignment = 1024, lost = alignment - 1;

  unsigned char* pointer;
  unsigned address;

  SINTER_DEVICE SharedMemory() {
    extern __shared__ unsigned char engine_memory[];
    const unsigned start = hopper::address(engine_memory);
    address = (start + lost) & ~static_cast<unsigned>(lost);
    pointer = engine_memory + (address - start);
  }
};

}  // namespace sinter
