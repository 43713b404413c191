// The kernels of a graph when its data movement has been moved out of the way.
#pragma once
#include <vector>

#include "lower/lower.hpp"
#include "plan/access.hpp"
#include "planner/planner.hpp"
#include "planner/rewrite/pass.hpp"
#include "planner/traffic.hpp"
#include "support/catch.hpp"

namespace sinter::test {

inline std::vector<KernelSpec> kernels(Graph& g, std::string_view architecture = "sm_90a") {
  for (const auto& d : g.check()) FAIL(d.message());
  const Lowered moved = rewritten(lower(g), device_model());
  for (const auto& d : moved.graph->diagnostics()) FAIL(d.message());
  return partition(*moved.graph, true, architecture).kernels;
}

// The bytes that the kernels move in all.
inline std::int64_t moved_bytes(Graph& g) {
  std::int64_t bytes = 0;
  const Lowered moved = rewritten(lower(g), device_model());
  for (const auto& k : partition(*moved.graph, true, "sm_90a").kernels)
    bytes += compulsory_bytes(*moved.graph, k);
  return bytes;
}

}  // namespace sinter::test
