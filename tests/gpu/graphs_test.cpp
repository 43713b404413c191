// Every graph on the GPU against the float64 reference: fused, one kernel a node, repeated, reloaded.
#include <cstdio>
#include <cstdlib>

#include "gpu/gpu_support.hpp"
#include "planner/make_plan.hpp"
#include "support/catch.hpp"

using namespace sinter;
using namespace sinter::test;

namespace {

// Several processes share the work by starting at different seeds.
std::uint64_t first_seed() {
  return static_cast<std::uint64_t>(from_environment("SINTER_GPU_FIRST", 50000));
}

void check(const char* what, const std::vector<GraphSource>& graphs, const GraphChecks& checks) {
  REQUIRE_FALSE(graphs.empty());
  Failures failures;
  const Totals t = run_graphs(graphs, checks, failures);
  std::printf("%s: %lld graphs, %lld kernels, %lld elements compared, %.1f %% exact, %.1f %% not "
              "judged, worst error %.2f of its bound, %zu failed\n",
              what, static_cast<long long>(t.graphs), static_cast<long long>(t.kernels),
              static_cast<long long>(t.compared),
              100.0 * static_cast<double>(t.exact) / static_cast<double>(t.compared + 1),
              100.0 * static_cast<double>(t.untrusted) / static_cast<double>(t.compared + 1),
              t.worst_ratio, failures.all().size());
  INFO(failures.text());
  CHECK(failures.all().empty());
}

// Those that SINTER_REARRANGE, where it is set, gives another plan: the others ran as they are.
std::vector<GraphSource> rearranged(const std::vector<GraphSource>& graphs) {
  const char* const variable = "SINTER_REARRANGE";
  const std::string asked = std::getenv(variable) ? std::getenv(variable) : "";
  if (asked.empty()) return graphs;
  const auto plan_of = [](const GraphSource& source) {
    const auto plan = make_plan(*source.make(), {.architecture = *test_target()}, {}, nullptr);
    return plan ? plan->to_json() : "";
  };
  std::vector<GraphSource> result;
  for (const GraphSource& source : graphs) {
    const std::string plan = plan_of(source);
    unsetenv(variable);
    if (plan != plan_of(source)) result.push_back(source);
    setenv(variable, asked.c_str(), 1);
  }
  return result;
}

}  // namespace

TEST_CASE("corpus graphs, normal numbers: fused, one kernel a node, reloaded", "[corpus]") {
  check("corpus, normal", corpus_graphs(),
        {.unfused = 1, .repeatable = true, .reloaded = true});
}

TEST_CASE("corpus graphs, all-positive numbers", "[corpus]") {
  check("corpus, uniform", corpus_graphs(), {.fill = Fill::uniform});
}

// With SINTER_REARRANGE=on small convolutions, too, get other operands: channels last, joined groups;
// and f32 factors become parts that tensor cores multiply.
TEST_CASE("corpus convolutions", "[rearranged]") {
  std::vector<GraphSource> graphs;
  for (auto& graph : corpus_graphs())
    if (graph.name.starts_with("convolution_")) graphs.push_back(std::move(graph));
  check("convolutions", rearranged(graphs), {.repeatable = true});
}

// Magnitudes over many binades too; and sums that are exact in any order, so that the bits are
// those of ordinary cores.
TEST_CASE("products of f32 in parts", "[rearranged]") {
  std::vector<GraphSource> graphs;
  for (auto& graph : corpus_graphs())
    if (graph.name.starts_with("convolution_f32_") || graph.name.starts_with("matmul_f32_"))
      graphs.push_back(std::move(graph));
  graphs = rearranged(graphs);
  check("f32 in parts, normal", graphs, {.samples = 0, .repeatable = true});
  check("f32 in parts, uniform", graphs, {.fill = Fill::uniform, .samples = 0});
  check("f32 in parts, heavy tail", graphs, {.fill = Fill::heavy_tail, .samples = 0});
  check("f32 in parts, exact", graphs,
        {.fill = Fill::ternary, .samples = 0, .unfused = 1, .bit_equal = true});
}

// With SINTER_DEPTHWISE=mma small depthwise convolutions and those in narrow groups, too, run on tensor cores,
// with rows on ordinary cores with pixels that TMA brings.
TEST_CASE("depthwise convolutions of the corpus", "[depthwise]") {
  std::vector<GraphSource> graphs;
  for (auto& graph : corpus_graphs())
    if (graph.name.starts_with("convolution_depthwise") ||
        graph.name.starts_with("convolution_narrow_"))
      graphs.push_back(std::move(graph));
  check("depthwise", graphs, {.repeatable = true});
}

TEST_CASE("random graphs, normal numbers", "[random]") {
  check("random, normal", random_graphs(from_environment("SINTER_GPU_GRAPHS", 1000), first_seed(), false),
        {.unfused = 8, .repeatable = true, .reloaded = true});
}

TEST_CASE("random exact graphs, small integers: all plans agree bit for bit", "[random]") {
  check("random, exact",
        random_graphs(from_environment("SINTER_GPU_GRAPHS", 1000) / 4, 90000, true),
        {.fill = Fill::ternary, .samples = 0, .unfused = 2, .bit_equal = true});
}

TEST_CASE("a small set for the sanitizer", "[sanitize][small]") {
  check("sanitize, corpus", corpus_graphs(), {.samples = 16});
  check("sanitize, random",
        random_graphs(from_environment("SINTER_SANITIZE_GRAPHS", 60), 70000, false),
        {.samples = 16});
}
