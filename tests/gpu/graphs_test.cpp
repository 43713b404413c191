// Every graph on the GPU against the float64 reference: fused, one kernel a node, repeated,
// reloaded.
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "compile/make_plan.hpp"
#include "gpu/gpu_support.hpp"
#include "plan/plan_data.hpp"
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
  std::printf(
      "%s: %lld graphs, %lld kernels, %lld elements compared, %.1f %% exact, %.1f %% not "
      "judged, worst error %.2f of its bound, %lld refused for an alias, %zu failed\n",
      what, static_cast<long long>(t.graphs), static_cast<long long>(t.kernels),
      static_cast<long long>(t.compared),
      100.0 * static_cast<double>(t.exact) / static_cast<double>(t.compared + 1),
      100.0 * static_cast<double>(t.untrusted) / static_cast<double>(t.compared + 1), t.worst_ratio,
      static_cast<long long>(t.refused), failures.all().size());
  INFO(failures.text());
  CHECK(failures.all().empty());
}

// The texts of a graph's kernels.
std::string kernels_of(const GraphSource& source, const std::string& target) {
  std::string texts;
  if (const auto plan = make_plan(*source.make(), {.architecture = target}, {}, nullptr))
    for (const PlanKernel& k : plan->data().kernels) texts += k.source;
  return texts;
}

// Those that the variable, where it is set, gives other kernels than without it, or than `other`
// gives: the others ran so.
std::vector<GraphSource> changed_by(const char* variable, const std::vector<GraphSource>& graphs,
                                    const char* other = nullptr) {
  const std::string asked = std::getenv(variable) ? std::getenv(variable) : "";
  if (asked.empty()) return graphs;
  std::vector<GraphSource> result;
  for (const GraphSource& source : graphs) {
    const std::string kernels = kernels_of(source, *test_target());
    if (other)
      setenv(variable, other, 1);
    else
      unsetenv(variable);
    if (kernels != kernels_of(source, *test_target())) result.push_back(source);
    setenv(variable, asked.c_str(), 1);
  }
  return result;
}

// SINTER_CORPUS_PART=3/14: the third of 14 parts, so that several processes share the corpus.
std::vector<GraphSource> part_of_corpus() {
  std::vector<GraphSource> graphs = corpus_graphs();
  const char* const asked = std::getenv("SINTER_CORPUS_PART");
  if (!asked) return graphs;
  std::size_t part = 0, parts = 0;
  REQUIRE(std::sscanf(asked, "%zu/%zu", &part, &parts) == 2);
  REQUIRE((part >= 1 && part <= parts));
  std::vector<GraphSource> result;
  for (std::size_t i = part - 1; i < graphs.size(); i += parts)
    result.push_back(std::move(graphs[i]));
  return result;
}

// In the emulator of portable kernels those that have any: the others' are run in that of sm_90a.
std::vector<GraphSource> corpus_of_device() {
  std::vector<GraphSource> graphs = part_of_corpus();
  const char* const device = std::getenv("SINTER_TEST_DEVICE");
  if (device && std::string_view(device) == "emulator")
    std::erase_if(graphs, [](const GraphSource& source) {
      return kernels_of(source, "") == kernels_of(source, "sm_90a");
    });
  return graphs;
}

std::vector<GraphSource> corpus_convolutions() {
  std::vector<GraphSource> graphs = corpus_graphs();
  std::erase_if(graphs, [](const GraphSource& g) { return !g.name.starts_with("convolution_"); });
  return graphs;
}

}  // namespace

TEST_CASE("corpus graphs, normal numbers: fused, one kernel a node, reloaded", "[corpus]") {
  check("corpus, normal", corpus_of_device(), {.unfused = 1, .repeatable = true, .reloaded = true});
}

// The emulator, which has run each graph's kernels with normal numbers, takes every third one
// again: what differs are the sums' bounds, which the plan interpreter tries with all of them.
TEST_CASE("corpus graphs, all-positive numbers", "[corpus]") {
  std::vector<GraphSource> graphs = corpus_of_device();
  if (emulated()) {
    std::size_t at = 0;
    std::erase_if(graphs, [&](const GraphSource&) { return at++ % 3 != 0; });
  }
  check("corpus, uniform", graphs, {.fill = Fill::uniform});
}

// With SINTER_REARRANGE=on small convolutions, too, get other operands: channels last, joined
// groups; and f32 factors become parts that tensor cores multiply.
TEST_CASE("corpus convolutions", "[rearranged]") {
  check("convolutions", changed_by("SINTER_REARRANGE", corpus_convolutions()),
        {.repeatable = true});
}

// With SINTER_REARRANGE=first, what differs from them: sums of strided data gradients, channels
// first, that lie with their channels together until a last kernel brings them to where results
// lie; groups channels first that are put together.
TEST_CASE("corpus convolutions, the first of several ways", "[.][first_ways]") {
  check("first ways", changed_by("SINTER_REARRANGE", corpus_convolutions(), "on"),
        {.repeatable = true});
}

// Magnitudes over many binades too; and sums that are exact in any order, so that the bits are
// those of CUDA cores.
TEST_CASE("products of f32 in parts", "[rearranged]") {
  std::vector<GraphSource> graphs;
  for (auto& graph : corpus_graphs())
    if (graph.name.starts_with("convolution_f32_") || graph.name.starts_with("matmul_f32_"))
      graphs.push_back(std::move(graph));
  graphs = changed_by("SINTER_REARRANGE", graphs);
  check("f32 in parts, normal", graphs, {.samples = 0, .repeatable = true});
  check("f32 in parts, uniform", graphs, {.fill = Fill::uniform, .samples = 0});
  check("f32 in parts, heavy tail", graphs, {.fill = Fill::heavy_tail, .samples = 0});
  check("f32 in parts, exact", graphs,
        {.fill = Fill::ternary, .samples = 0, .unfused = 1, .bit_equal = true});
}

// With SINTER_DEPTHWISE=mma small depthwise convolutions and those in narrow groups, too, run on
// tensor cores, with rows on CUDA cores with pixels that TMA loads, with planes with those of
// whole channels in shared memory; with ordinary on these alone, groups too.
TEST_CASE("depthwise convolutions of the corpus", "[depthwise]") {
  std::vector<GraphSource> graphs;
  for (auto& graph : corpus_graphs())
    if (graph.name.starts_with("convolution_depthwise") ||
        graph.name.starts_with("convolution_narrow_"))
      graphs.push_back(std::move(graph));
  check("depthwise", changed_by("SINTER_DEPTHWISE", graphs), {.repeatable = true});
}

TEST_CASE("random graphs, normal numbers", "[random]") {
  check("random, normal",
        random_graphs(from_environment("SINTER_GPU_GRAPHS", 1000), first_seed(), false),
        {.unfused = 8, .repeatable = true, .reloaded = true, .joined = true});
}

TEST_CASE("random exact graphs, small integers: all plans agree bit for bit", "[random]") {
  check("random, exact",
        random_graphs(from_environment("SINTER_GPU_GRAPHS", 1000) / 4, first_seed() + 40000, true),
        {.fill = Fill::ternary, .samples = 0, .unfused = 2, .bit_equal = true});
}

TEST_CASE("a small set for the sanitizer", "[sanitize][small]") {
  check("sanitize, corpus", part_of_corpus(), {.samples = 16});
  check("sanitize, random",
        random_graphs(from_environment("SINTER_SANITIZE_GRAPHS", 60), 70000, false),
        {.samples = 16});
}
