// Random graphs computed in two ways that share no schedule: the CPU backend, and the plan as its
// kernels would run it. Both have to lie inside the reference's bounds and to write nothing else.
#include <cstdio>
#include <cstdlib>
#include <string>

#include "support/catch.hpp"
#include "support/environment.hpp"
#include "support/plan_interpreter.hpp"
#include "support/random_graph.hpp"
#include "support/run_graph.hpp"
#include "support/shrink_graph.hpp"

using namespace sinter;

namespace {

int graphs_to_run() { return test::from_environment("SINTER_FUZZ_VALUES", 400); }

test::RandomGraphOptions value_options_of(int seed) {
  test::RandomGraphOptions o;
  o.seed = static_cast<std::uint64_t>(200000 + seed) + (seed % 4 == 1   ? test::kCallsVary
                                                        : seed % 4 == 2 ? test::kTrainingVary
                                                                        : 0);
  o.max_nodes = seed % 10 == 0 ? 30 : 8;
  o.max_elements = 1024;
  o.max_work = 1 << 17;
  o.exact_only = seed % 4 == 3;
  return o;
}

Fill fill_of(int seed) {
  if (seed % 4 == 3) return Fill::ternary;
  return seed % 4 == 0 ? Fill::uniform : Fill::normal;
}

// What is wrong with the outputs as they stand; adds to `total`.
std::string wrong_outputs(const test::GraphCase& c, const char* by, Comparison& total) {
  const Comparison result = c.judge();
  total.merge(result);
  if (!result.ok()) return std::string("by ") + by + ": " + result.first_wrong;
  const std::string stray = c.stray_write();
  return stray.empty() ? "" : std::string("by ") + by + ": " + stray;
}

std::string failure(Graph& graph, Fill fill, std::uint64_t seed, Comparison& total) {
  test::GraphCase c(graph, fill, seed);
  const Status evaluated = evaluate(c.lowered(), c.memory());
  if (!evaluated) return evaluated.error().message();
  std::string wrong = wrong_outputs(c, "the CPU backend", total);
  for (bool fuse : {true, false}) {
    if (!wrong.empty()) return wrong;
    c.clear_outputs();
    if (fuse)
      test::interpret_fused(graph, {.architecture = "sm_90a"}, c.lowered(), c.memory());
    else
      test::interpret(partition(c.lowered(), false, "sm_90a"), c.memory(), c.lowered());
    wrong = wrong_outputs(c, fuse ? "the fused plan" : "the plan of one kernel a node", total);
  }
  return wrong;
}

}  // namespace

TEST_CASE("plans of random graphs compute what the reference does", "[fuzz]") {
  Comparison total, exact;
  const int graphs = graphs_to_run();
  for (int seed = 0; seed < graphs; ++seed) {
    INFO("seed " << seed);
    const auto options = value_options_of(seed);
    const auto graph = test::random_graph(options);
    REQUIRE(graph->check().empty());
    auto& sum = options.exact_only ? exact : total;
    const auto wrong = test::smallest_failure(
        *graph, [&](Graph& g) { return failure(g, fill_of(seed), options.seed, sum); });
    if (!wrong.empty()) FAIL_CHECK(wrong);
  }
  for (const auto& [what, sum] : {std::pair{"any", &total}, std::pair{"exact", &exact}})
    std::printf("random graphs (%s): %lld elements, %.1f %% not judged, %.1f %% exact\n", what,
                static_cast<long long>(sum->compared),
                100.0 * static_cast<double>(sum->untrusted) / static_cast<double>(sum->compared),
                100.0 * static_cast<double>(sum->exact) / static_cast<double>(sum->compared));
  // A judge that judges nothing finds nothing.
  CHECK(total.untrusted * 100 < total.compared * 35);
  CHECK(exact.exact == exact.compared);
}

TEST_CASE("a failing graph with an output in place is made small") {
  Graph g;
  const Tensor x = g.tensor("x", {4, 8});
  g.output(exp(x * 2.0), "other");
  g.output(x + 1.0, "y", {.alias = x});
  const auto small = test::shrink(g, [](Graph& part) {
    const auto y = part.find("y");
    return std::string(y && part[*y].output ? "fails" : "");
  });
  REQUIRE(small);
  CHECK(small->nodes().size() == 1);
  CHECK((*small)[*small->find("y")].alias == *small->find("x"));
}

// 32,768 times the same number and as many zeros, whose sum one by one is off by more than the
// bound allows: that of a kernel in f32, and in f64 the reference's own.
TEST_CASE("sums of few different numbers are as exact as kernels' are") {
  for (const DataType type : {f32, f64}) {
    Graph graph({.name = "sum", .io = type, .intermediate = type, .compute = type});
    const Tensor x = graph.tensor("x", {1, 32768}), zero = x * 0.0;
    const Tensor all = concatenate({zero + 0.1, zero}, 1);
    graph.output(reduction(all, ReductionMode::add, {1, 1}), "sum");
    test::GraphCase c(graph, Fill::normal, 1);
    c.clear_outputs();
    test::interpret(partition(c.lowered(), false), c.memory(), c.lowered());
    const Comparison result = c.judge();
    INFO(result.first_wrong);
    CHECK(result.ok());
    CHECK(result.untrusted == 0);
  }
}
