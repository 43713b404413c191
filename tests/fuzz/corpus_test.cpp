// The corpus: graphs that models have, one JSON file each. Every one is read and planned here, and
// computed by tests/gpu/graphs_test.cpp on the interpreter, the emulator and the GPU.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "sinter/compile.hpp"
#include "sinter/json.hpp"
#include "support/catch.hpp"
#include "support/environment.hpp"

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
