// Plans of a graph's classes of extents, for tests.
#pragma once
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "compile/extent_classes.hpp"
#include "plan/canonical_text.hpp"
#include "plan/plan_data.hpp"
#include "support/catch.hpp"

namespace sinter::test {

inline const GraphOptions kBf16{.name = "extents", .io = DataType::bf16};

struct Classes {
  Classes(GraphBuilder b, std::vector<DynamicExtent> extents, std::string architecture = "sm_90a",
          GraphOptions options = kBf16)
      : builder(std::move(b)),
        graph_options(options),
        classes(builder, std::move(extents), std::move(options),
                {.architecture = std::move(architecture)}) {}
  Result<Plan> plan(std::vector<std::int64_t> extents, std::vector<ClassSource>* beside = nullptr) {
    Graph graph(graph_options);
    builder(graph, extents);
    return classes.plan(graph, extents, beside);
  }
  // Whether the plan has a kernel that is not compiled yet, for it or beside one before.
  bool compiles(std::vector<std::int64_t> extents) {
    std::vector<ClassSource> beside;
    const auto made = plan(std::move(extents), &beside);
    REQUIRE(made);
    bool any = false;
    for (const PlanKernel& k : made->data().kernels) any |= seen.insert(canonical_text(k)).second;
    for (const ClassSource& k : beside)
      if (any) seen.insert(k.text);
    return any;
  }
  GraphBuilder builder;
  GraphOptions graph_options;
  ExtentClasses classes;
  std::set<std::string> seen;
};

}  // namespace sinter::test
