// Kernels side by side that become one.
#include "planner/passes/siblings.hpp"

#include "planned.hpp"
#include "sinter/operations.hpp"

namespace sinter {
namespace {

Tensor of(Graph& g, const std::string& name, Dims dim, DataType type = f32) {
  return g.tensor({.name = name, .dim = dim, .data_type = type});
}

// w less its share of dw.
Tensor updated(Graph& g, const std::string& name, Dims dim, bool in_place = false) {
  const Tensor w = of(g, "w_" + name, dim), dw = of(g, "dw_" + name, dim);
  const Tensor next = w - dw * g.scalar(0.01, f32);
  g.output(next, "next_" + name, {.alias = in_place ? w : Tensor{}});
  return next;
}

Partition with_aliases(Graph& g) {
  REQUIRE(g.check().empty());
  const Lowered lowered = lower(g);
  const auto aliases = aliases_of(g, *lowered.graph);
  return partition(*lowered.graph, true, PlanContext{device_model("sm_90a"), {}}, lowered.regions,
                   aliases);
}

}  // namespace

TEST_CASE("updates of parameters are one kernel for each of their sizes, in place or not") {
  for (const bool in_place : {false, true}) {
    INFO(in_place);
    Graph g;
    for (const char* layer : {"a", "b", "c"}) {
      updated(g, layer + std::string("_weights"), {640, 1024}, in_place);  // of 7.9 MB of traffic
      updated(g, layer + std::string("_bias"), {1, 1024}, in_place);
    }
    const Partition p = with_aliases(g);
    REQUIRE(p.kernels.size() == 2);
    CHECK(p.kernels[0].ports.size() == 9);
    CHECK(p.kernels[1].ports.size() == 9);
  }
}

TEST_CASE("updates beside each other give the right values") {
  Graph g;
  for (const char* layer : {"a", "b", "c"}) {
    updated(g, layer + std::string("_weights"), {24, 40});
    updated(g, layer + std::string("_bias"), {1, 40});
  }
  test::check_values(g);
}

TEST_CASE("large kernels that turn what they read stay apart") {
  for (const bool turned : {false, true}) {
    Graph g;
    for (const char* name : {"one", "other"}) {
      const Tensor x = of(g, std::string("x_") + name, {1, 1024, 1024}),
                   y = of(g, std::string("y_") + name, {1, 1024, 1024});
      g.output(x * (turned ? transpose(y, {0, 2, 1}) : y), name);
    }
    INFO(turned);
    CHECK(test::for_sm_90a(g).kernels.size() == (turned ? 2u : 1u));
  }
}

TEST_CASE("a kernel is not merged past one that it waits for or holds up") {
  // Each reads what the one before it wrote, over a kernel of other extents in between.
  Graph g;
  const Tensor a = of(g, "a", {8, 16}), total = reduction(a * a, ReductionMode::add, {1, 1});
  g.output(of(g, "b", {8, 16}) * 2.0f, "first");
  g.output(of(g, "c", {8, 16}) * rsqrt(total), "second");
  g.output(total, "total");
  test::check_values(g);
  // Memory that is overwritten is read before.
  Graph h;
  const Tensor w = of(h, "w", {8, 16}), x = of(h, "x", {8, 16});
  h.output(x * 3.0f, "y");
  h.output(reduction(w * w, ReductionMode::add, {1, 1}), "norm");
  h.output(w - x, "next", {.alias = w});
  const Partition p = with_aliases(h);
  std::size_t reads = 0, writes = 0;
  for (std::size_t k = 0; k < p.kernels.size(); ++k)
    for (const KernelPort& port : p.kernels[k].ports) {
      if (port.name == "w") reads = std::max(reads, k);
      if (port.name == "next") writes = k;
    }
  CHECK(writes >= reads);
}

}  // namespace sinter
