// Pass-by-value scalars and small operands: copied to memory for what reads them there, and moved
// with views.
#include "planner/planned.hpp"
#include "planner/rewrite/pass.hpp"
#include "sinter/compile.hpp"
#include "sinter/json.hpp"

using namespace sinter;
using namespace sinter::test;

namespace {

// How many there are of the rewritten graph, whose values are right.
std::size_t kernel_count(Graph& g) {
  REQUIRE(g.check().empty());
  GraphCase c(g, Fill::normal, 7);
  c.clear_outputs();
  interpret_fused(g, {.architecture = "sm_90a"}, c.lowered(), c.memory());
  const Comparison r = c.judge();
  INFO(r.first_wrong);
  CHECK((r.ok() && r.compared > 0));
  const Lowered l = rewritten(lower(g), device_model("sm_90a"));
  return partition(*l.graph, true, "sm_90a", l.regions).kernels.size();
}

}  // namespace

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

// A sink's exponential is taken when the kernel's text is written, so that nothing else rounds it.
TEST_CASE("a number that a builder is given counts as its type holds it") {
  for (const DataType type : {f8e8m0, f8e4m3, bf16}) {
    CAPTURE(name(type));
    Graph g({.io = f16});
    const auto q = g.tensor("q", {1, 1, 40, 64}), k = g.tensor("k", {1, 1, 8, 64}),
               v = g.tensor("v", {1, 1, 8, 64});
    g.output(sdpa(q, k, v, {}, {.sink_token = g.scalar(3.14, type).of_rank(4)}).o, "o",
             {.data_type = f32});
    check_values(g);
  }
  Graph g({.io = i32});
  const auto x = g.tensor("x", {33});
  g.output(x + g.scalar(2.7, i32), "sum");
  g.output(x - g.scalar(3e9, i32), "difference", {.data_type = i64});
  check_values(g);
  const auto text = graph_to_json(g);
  CHECK(text.find("\"value\": 3}") != std::string::npos);
  CHECK(text.find("\"value\": 2147483647}") != std::string::npos);
  CHECK(lower(g).graph->tensors()[1].integer_value == 3);
}

// As cuDNN's frontend gives them: of as many dims as what reads them, which a view changes.
TEST_CASE("numbers of any rank move with views") {
  // Heads that share keys, written out: one kernel has them as batches of fewer dims.
  for (const int rank : {1, 5}) {
    CAPTURE(rank);
    Graph g({.io = bf16});
    const auto q = g.tensor("q", {1, 2, 3, 40, 32}), k = g.tensor("k", {1, 2, 1, 40, 32}),
               v = g.tensor("v", {1, 2, 1, 40, 32});
    const auto scores = matmul(q, transpose(k, {0, 1, 2, 4, 3})) * g.scalar(0.2).of_rank(rank);
    g.output(matmul(softmax(scores, {.axis = 4}).y, v), "o");
    CHECK(kernel_count(g) == 1);
  }
}

// Each operand converted for itself, as where a graph computes in f32: channels that become pixels.
TEST_CASE("converted operands that broadcast move with views") {
  Graph g({.io = bf16});
  const auto x = identity(g.tensor("x", {2, 12, 6, 10})),
             b = identity(g.tensor("b", {1, 12, 1, 1})), c = identity(g.tensor("c", {1, 12, 1, 1}));
  const auto shuffled = transpose(reshape(x * b + c, {2, 3, 2, 2, 6, 10}), {0, 1, 4, 2, 5, 3});
  g.output(relu(reshape(shuffled, {2, 3, 12, 20})), "y");
  CHECK(kernel_count(g) == 1);
}
