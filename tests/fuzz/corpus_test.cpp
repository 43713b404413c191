// The corpus: graphs that models have, one JSON file each. Every one is read, planned and computed.
#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "sinter/json.hpp"
#include "support/catch.hpp"
#include "support/environment.hpp"
#include "support/plan_interpreter.hpp"
#include "support/run_graph.hpp"

using namespace sinter;

namespace {

std::vector<std::filesystem::path> corpus() {
  const auto folder = std::filesystem::path(test::source_tree()) / "tests" / "corpus";
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    if (entry.path().extension() == ".json") files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  return files;
}

Shared<Graph> read(const std::filesystem::path& file) {
  std::ifstream in(file);
  const std::string text{std::istreambuf_iterator<char>(in), {}};
  auto graph = graph_from_json(text, file.filename().string());
  for (const auto& d : graph.errors()) FAIL(d.message());
  return std::move(*graph);
}

}  // namespace

TEST_CASE("every graph of the corpus survives JSON and the planner", "[corpus]") {
  const auto files = corpus();
  REQUIRE(files.size() >= 60);
  for (const auto& file : files) {
    INFO(file.filename());
    const auto graph = read(file);
    const std::string text = graph_to_json(*graph);
    const auto again = graph_from_json(text);
    for (const auto& d : again.errors()) FAIL(d.message());
    CHECK(graph_to_json(**again) == text);
    for (bool fuse : {true, false}) {
      const auto plan = Plan::make(*graph, {.fuse = fuse});
      for (const auto& d : plan.errors()) FAIL(d.message());
    }
  }
}

TEST_CASE("every graph of the corpus computes what the reference does", "[corpus]") {
  for (const auto& file : corpus()) {
    INFO(file.filename());
    const auto graph = read(file);
    for (const Fill fill : {Fill::normal, Fill::uniform}) {
      test::GraphCase c(*graph, fill, 1);
      test::interpret_fused(c.lowering(), {}, c.memory());
      const Comparison result = c.judge(512);
      INFO(result.first_wrong);
      CHECK(result.ok());
      // Attention's probabilities may be rounded before or behind the division by their sum, so
      // that its results are known to a rounding of 16 bits only; two more products and norms
      // behind it leave 52 % of the elements open.
      const bool behind_attention = file.filename() == "transformer_block.json";
      CHECK(result.untrusted * 100 <= result.compared * (behind_attention ? 60 : 35));
      CHECK(c.stray_write() == "");
    }
  }
}
