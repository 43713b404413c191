#include "planner/passes/kernel_passes.hpp"

#include <set>
#include <string_view>

#include "lower/lower.hpp"
#include "sinter/operations.hpp"
#include "support/catch.hpp"

namespace sinter {
namespace {

TEST_CASE("every pass over kernels has a name of its own, a law and a reason for its place") {
  std::set<std::string_view> names;
  for (const KernelPass& p : kernel_passes()) {
    INFO(p.name);
    CHECK(names.insert(p.name).second);
    CHECK(p.law.ends_with('.'));
    CHECK(p.place.ends_with('.'));
  }
  CHECK(names.size() == 11);
}

TEST_CASE("kernels without results are those with no index of one") {
  KernelSpec spec;
  spec.family = PointwiseSpec{};
  spec.extent = {4, 0};
  CHECK(has_no_results(spec));
  spec.family = RowwiseSpec{.outer_rank = 1};  // a sum of nothing has a result
  CHECK_FALSE(has_no_results(spec));
  spec.extent = {0, 4};
  CHECK(has_no_results(spec));
}

TEST_CASE("a reduction over one element is elementwise, of those modes that keep it") {
  for (const auto& [mode, elementwise] :
       {std::pair(ReductionMode::add, true), std::pair(ReductionMode::avg, true),
        std::pair(ReductionMode::amax, true), std::pair(ReductionMode::norm2, false),
        std::pair(ReductionMode::mul_no_zeros, false)}) {
    Graph g;
    const Tensor x = g.tensor({.name = "x", .dim = {40, 1, 24}});
    g.output(reduction(relu(x), mode, {40, 1, 24}), "y");
    const auto p = partition(*lower(g).graph, true, "sm_90a");
    REQUIRE(p.kernels.size() == 1);
    INFO(static_cast<int>(mode));
    CHECK((p.kernels[0].as_pointwise() != nullptr) == elementwise);
  }
}

}  // namespace
}  // namespace sinter
