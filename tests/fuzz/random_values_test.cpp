// Random graphs computed in two ways that share no schedule: the CPU backend, and the plan as its
// kernels would run it. Both have to lie inside the reference's bounds and to write nothing else.
#include <cstdio>
#include <cstdlib>

#include "support/catch.hpp"
#include "support/plan_interpreter.hpp"
#include "support/random_graph.hpp"
#include "support/run_graph.hpp"

using namespace sinter;

namespace {

int graphs_to_run() {
  const char* given = std::getenv("SINTER_FUZZ_VALUES");
  return given ? std::atoi(given) : 400;
}

test::RandomGraphOptions options_of(int seed) {
  test::RandomGraphOptions o;
  o.seed = static_cast<std::uint64_t>(200000 + seed);
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

void check_outputs(const test::GraphCase& c, Comparison& total) {
  const Comparison result = c.judge();
  INFO(result.first_wrong);
  CHECK(result.ok());
  CHECK(c.stray_write() == "");
  total.merge(result);
}

}  // namespace

TEST_CASE("plans of random graphs compute what the reference does", "[fuzz]") {
  Comparison total, exact;
  const int graphs = graphs_to_run();
  for (int seed = 0; seed < graphs; ++seed) {
    INFO("seed " << seed);
    const auto options = options_of(seed);
    const auto graph = test::random_graph(options);
    for (const auto& d : graph->check()) FAIL(d.message());
    test::GraphCase c(*graph, fill_of(seed), options.seed);
    auto& sum = options.exact_only ? exact : total;
    {
      INFO("by the CPU backend");
      const Status evaluated = evaluate(c.lowered(), c.memory());
      for (const auto& d : evaluated.errors()) FAIL(d.message());
      check_outputs(c, sum);
    }
    for (bool fuse : {true, false}) {
      INFO((fuse ? "by the fused plan" : "by the plan of one kernel a node"));
      c.clear_outputs();
      test::interpret(partition(c.lowered(), fuse), c.memory());
      check_outputs(c, sum);
    }
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
