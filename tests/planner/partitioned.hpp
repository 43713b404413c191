// A graph's kernels and where it was cut, for tests of what is fused.
#pragma once
#include <algorithm>
#include <memory>

#include "lower/lower.hpp"
#include "planner/planner.hpp"
#include "support/catch.hpp"

namespace sinter::test {

struct Partitioned {
  std::unique_ptr<Graph> lowered;
  Partition partition;

  std::vector<Family> families() const {
    std::vector<Family> f;
    for (const auto& k : partition.kernels) f.push_back(family_of(k));
    return f;
  }
  bool has_cut(std::string_view reason) const {
    return std::any_of(partition.cuts.begin(), partition.cuts.end(), [&](const PlanCut& c) {
      return c.reason.find(reason) != std::string::npos;
    });
  }
};

inline Partitioned plan(Graph& g, bool fuse = true) {
  for (const auto& d : g.check()) FAIL(d.message());
  Partitioned p;
  p.lowered = lower(g).graph;
  p.partition = partition(*p.lowered, fuse);
  return p;
}

}  // namespace sinter::test
