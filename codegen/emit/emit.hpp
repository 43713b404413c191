// From a KernelSpec to the text of one kernel. A pure function: the same spec gives the same bytes.
// No user text reaches the source; names become identifiers of [a-z0-9_] first.
#pragma once
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "plan/kernel_spec.hpp"

namespace sinter {

struct EmittedArgument {  // one member of the kernel's Args struct, in order
  bool scalar = false;
  int index = 0;           // of KernelSpec::ports or ::scalars
  int bytes = 8;           // scalar: 4 (float) or 8 (double, long long)
  std::uint64_t bits = 0;  // scalar: its value
};

struct EmittedKernel {
  std::string entry, source;
  std::uint32_t grid = 1, block = 1;
  std::vector<std::pair<std::string, std::int64_t>> config;
  std::vector<EmittedArgument> arguments;
};

EmittedKernel emit_kernel(const KernelSpec& spec);

}  // namespace sinter
