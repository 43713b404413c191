// The shared memory that a launch asks for, from a multiple of 1024 on, as swizzles of 128 bytes
// want it: 1023 bytes more than is used.
#pragma once
#include "sinter/device/core/hopper.cuh"

namespace sinter {

struct SharedMemory {
  unsigned char* pointer;
  unsigned address;

  SINTER_DEVICE SharedMemory() {
    extern __shared__ unsigned char engine_memory[];
    const unsigned start = hopper::address(engine_memory);
    address = (start + 1023) & ~1023u;
    pointer = engine_memory + (address - start);
  }
};

}  // namespace sinter
