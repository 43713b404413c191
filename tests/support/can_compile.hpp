// Whether kernels can be compiled on this machine.
#pragma once
#include "runtime/nvrtc.hpp"
#include "support/catch.hpp"

namespace sinter::test {

// A test says so where they cannot, and does without.
inline bool can_compile() {
  if (nvrtc()) return true;
  WARN("no NVRTC on this machine: nothing is compiled");
  return false;
}

}  // namespace sinter::test
