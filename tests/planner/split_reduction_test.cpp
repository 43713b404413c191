// Means over more than the rows of the kernel that makes what is averaged.
#include <algorithm>

#include "pass_alone.hpp"
#include "planned.hpp"
#include "schedule/rowwise/rowwise.hpp"
#include "sinter/operations.hpp"
#include "support/catch.hpp"
#include "support/run_graph.hpp"
#include "support/scheduled.hpp"

using namespace sinter;
using namespace sinter::test::pass_alone;

// Means of rows that are rounded would make an inexact one of sums that are exact.
TEST_CASE("a mean of rows' sums is divided once") {
  Graph g;
  auto x = g.tensor({.name = "x", .dim = {8, 3}});
  const Tensor y = x * reduction(x, ReductionMode::max, {8, 1});
  g.output(reduction(y, ReductionMode::avg, {1, 1}), "mean");
  for (const auto& d : g.check()) FAIL(d.message());
  test::GraphCase c(g, Fill::normal, 3);
  const auto changed = run_alone("split_reduction", c.lowering());
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

// Rows that no number of parts divides: even parts, whose vectors are whole, and what they leave.
TEST_CASE("parts of rows are even, and what is left is a kernel of its own") {
  for (const Dims& dim : {Dims{1, 1, 100003}, Dims{3, 2, 50021}}) {
    Graph g({.io = DataType::bf16});
    const auto x = g.tensor({.name = "x", .dim = dim});
    const Tensor y = x * 0.5;
    const Dims row{1, dim[1], 1};
    g.output(y, "y");
    g.output(reduction(y, ReductionMode::avg, row), "mean", {.data_type = DataType::f32});
    g.output(reduction(y, ReductionMode::max, row), "largest");
    g.output(reduction(y, ReductionMode::norm2, row), "length", {.data_type = DataType::f32});
    REQUIRE(g.check().empty());
    const Partition p = test::for_sm_90a(g);
    REQUIRE(p.kernels.size() == 3);
    for (const auto& port : p.kernels[0].ports) CHECK(port.access.windows.empty());
    CHECK(scheduled(p.kernels[0], "sm_90a").packing()->width == 8);
    CHECK(count(p.kernels[0].extent) + count(p.kernels[1].extent) == count(dim));
    test::check_values(g);
  }
}

// As many parts as run at once, or whole rounds of these: a few more would run alone.
TEST_CASE("the last parts of rows do not run alone") {
  const auto blocks = [](const Dims& dim, const Dims& kept, bool weighted) {
    Graph g({.io = DataType::bf16});
    Tensor x = g.tensor({.name = "x", .dim = dim});
    if (weighted) x = x * g.tensor({.name = "w", .dim = {dim[0], 1}});
    g.output(reduction(x, ReductionMode::add, kept), "y");
    const Partition p = test::for_sm_90a(g);
    REQUIRE(p.kernels.size() == 2);
    CHECK(count(p.kernels[0].extent) == count(dim));
    return schedule_rowwise(p.kernels[0], device_model("sm_90a")).grid;
  };
  CHECK(blocks({12000, 7000}, {1, 7000}, true) == 438);    // 16 parts of 750, not 20 of 600
  CHECK(blocks({20000, 3072}, {1, 3072}, false) == 480);   // 40 parts of 500, not 50 of 400
  CHECK(blocks({8192, 16384}, {1, 16384}, false) == 512);  // all at once
  CHECK(blocks({64, 96, 77, 77}, {1, 96, 1, 1}, false) == 768);
}
