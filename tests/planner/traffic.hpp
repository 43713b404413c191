// The compulsory traffic of a kernel in all.
#pragma once
#include "planner/kernel_work.hpp"

namespace sinter::test {

inline std::int64_t compulsory_bytes(const Graph& lowered, const KernelSpec& spec) {
  std::int64_t bytes = 0;
  for (const auto& t : compulsory_traffic(lowered, spec)) bytes += t.bytes;
  return bytes;
}

}  // namespace sinter::test
