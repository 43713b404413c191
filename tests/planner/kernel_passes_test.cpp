#include "planner/kernel_passes.hpp"

#include <set>
#include <string_view>

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
  CHECK(names.size() == 8);
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

}  // namespace
}  // namespace sinter
