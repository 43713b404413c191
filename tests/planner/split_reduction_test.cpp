// Means over more than the rows of the kernel that makes what is averaged.
#include <algorithm>

#include "planner/rewrite/pass.hpp"
#include "sinter/operations.hpp"
#include "support/catch.hpp"
#include "support/run_graph.hpp"

using namespace sinter;

namespace {

const Pass* const* split_reduction() {
  for (const PassGroup& group : rewrite_passes())
    for (const auto passes : {group.repeated, group.once})
      for (const Pass* const& pass : passes)
        if (pass->name == "split_reduction") return &pass;
  return nullptr;
}

}  // namespace

// Means of rows that are rounded would make an inexact one of sums that are exact.
TEST_CASE("a mean of rows' sums is divided once") {
  Graph g;
  auto x = g.tensor({.name = "x", .dim = {8, 3}});
  const Tensor y = x * reduction(x, ReductionMode::max, {8, 1});
  g.output(reduction(y, ReductionMode::avg, {1, 1}), "mean");
  for (const auto& d : g.check()) FAIL(d.message());
  test::GraphCase c(g, Fill::normal, 3);
  REQUIRE(split_reduction());
  const auto changed = run_passes(c.lowering(), {{}, {split_reduction(), 1}, {}});
  REQUIRE(changed);
  const Graph& after = *changed->graph;
  int sums = 0, quotients = 0;
  for (const Node& n : after.nodes()) {
    if (const auto* const r = std::get_if<ReductionAttributes>(&n.attributes)) {
      CHECK(r->mode != ReductionMode::avg);
      sums += r->mode == ReductionMode::add;
    }
    if (!after[n.outputs[0]].output) continue;
    const auto* const last = std::get_if<PointwiseAttributes>(&n.attributes);
    REQUIRE(last);
    CHECK(last->mode == PointwiseMode::div);
    CHECK(after[n.inputs[1]].value == 24);
    ++quotients;
  }
  CHECK(sums == 2);
  CHECK(quotients == 1);
}
