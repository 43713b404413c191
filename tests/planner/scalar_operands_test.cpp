// Pass-by-value scalars as operands of what reads memory: they are copied there first.
#include "planner/planned.hpp"
#include "sinter/compile.hpp"
#include "sinter/json.hpp"

using namespace sinter;
using namespace sinter::test;

TEST_CASE("gradients of resampling read scalars from memory") {
  for (const char* node : {R"("mode": "maxpool", "inputs": {"DY": "dy", "X": "x"})",
                           R"("mode": "avgpool_include_padding", "inputs": {"DY": "dy"})"}) {
    const std::string text = std::string(R"({"format": "sinter.graph", "version": 1,
          "tensors": {"x": {"dim": [1, 1, 1], "value": 2}, "dy": {"dim": [1, 1, 1], "value": 3},
                      "dx": {"dim": [1, 1, 1], "output": true}},
          "nodes": [{"op": "resample_backward", "window": [1], "stride": [1],
                     "outputs": {"DX": "dx"}, )") +
                             node + "}]}";
    CAPTURE(node);
    const auto graph = graph_from_json(text, "scalars.json");
    REQUIRE(graph);
    CHECK(Plan::make(**graph));
    CHECK(Plan::make(**graph, {.architecture = "sm_90a"}));
    check_values(**graph);
  }
}
