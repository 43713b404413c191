// What `sinter explain` says of a plan: the times of planning, the user's names and lines, what
// passes through memory and what would remove it.
#include "planner/explain/explain.hpp"

#include "plan/plan_data.hpp"
#include "planner/images.hpp"
#include "sinter/compile.hpp"
#include "sinter/json.hpp"
#include "sinter/operations.hpp"
#include "support/catch.hpp"
#include "target/device_model.hpp"

using namespace sinter;

namespace {

constexpr std::int64_t kRows = 2048, kColumns = 1024;

struct Planned {
  Shared<Graph> graph;
  PlanData plan;
};

Planned planned(const std::string& text, bool fuse = true) {
  auto graph = graph_from_json(text, "mlp.json");
  if (!graph) FAIL(graph.error().message());
  auto plan = Plan::make(**graph, {.fuse = fuse, .architecture = "sm_90a"});
  if (!plan) FAIL(plan.error().message());
  return {*graph, plan->data()};
}

// Two products with what stands between them, a line each.
std::string products_around(const std::string& tensors, const std::string& node) {
  return R"({"format": "sinter.graph", "version": 1, "name": "mlp", "io_data_type": "bf16",
 "tensors": {"x": {"dim": [2048, 1024]}, "w": {"dim": [1024, 1024]}, "v": {"dim": [1024, 1024]},
             )" +
         tensors + R"("y": {"output": true}},
 "nodes": [
  {"op": "matmul", "name": "up", "inputs": {"A": "x", "B": "w"}, "outputs": {"C": "s"}},
  )" + node +
         R"(,
  {"op": "matmul", "name": "down", "inputs": {"A": "h", "B": "v"}, "outputs": {"C": "y"}}]})";
}

Planned two_products(const std::string& stored, bool fuse = true) {
  return planned(products_around(R"("h": {"data_type": ")" + stored + "\"}, ",
                                 R"({"op": "pointwise", "mode": "relu_fwd", "name": "act",
   "inputs": {"IN_0": "s"}, "outputs": {"OUT_0": "h"}})"),
                 fuse);
}

Crossing crossing(const Explanation& e, const std::string& tensor) {
  for (const auto& c : e.crossings)
    if (c.tensor == tensor) return c;
  FAIL("nothing is said of " << tensor);
  return {};
}

bool says(const std::string& text, const std::string& part) {
  INFO(text);
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("the estimates of explain are those that planning chose by", "[explain]") {
  const auto p = two_products("bf16");
  REQUIRE(p.plan.kernels.size() == 2);
  const Explanation e = explain(p.plan, &*p.graph);
  double sum = 0;
  for (const auto& k : p.plan.kernels) {
    CHECK(k.microseconds > 0);
    std::int64_t bytes = 0;
    for (const auto& a : k.accesses) bytes += a.bytes;
    CHECK(bytes == k.bytes);
    for (const auto& [name, value] : k.config)
      if (name == "estimated_ns")
        CHECK(static_cast<double>(value) == Approx(k.microseconds * 1000).epsilon(0.01));
    sum += k.microseconds;
  }
  CHECK(e.microseconds == Approx(sum));
}

TEST_CASE("what passes between kernels costs its traffic and a launch, and explain says why",
          "[explain]") {
  const auto p = two_products("bf16");
  const Crossing c = crossing(explain(p.plan, &*p.graph), "h");
  const std::int64_t stored = kRows * kColumns * 2;
  CHECK(c.bytes == 2 * stored);
  const DeviceModel device = device_model("sm_90a");
  CHECK(c.microseconds == Approx(static_cast<double>(2 * stored) / device.memory_bandwidth +
                                 device.launch_microseconds));
  CHECK(c.writers == std::vector<int>{0});
  CHECK(c.readers == std::vector<int>{1});
  REQUIRE_FALSE(c.cuts.empty());
  CHECK(says(explain_text(p.plan, &*p.graph), "down stays out of the kernel of up"));
}

TEST_CASE("a tensor between nodes is named, whatever a rewrite made of it, and one inside is not",
          "[explain]") {
  Graph g({.io = f16});
  auto x = g.tensor("x", {2, 32, 8, 8}), w = g.tensor("w", {16, 32, 3, 3});
  auto scale = g.tensor("scale", {1, 32, 1, 1}), bias = g.tensor("bias", {1, 32, 1, 1});
  auto a = swish(groupnorm(x, scale, bias, g.scalar(1e-5f), {.groups = 8}).y).named("a");
  g.output(conv_fprop(a, w, {.pre_padding = {1, 1}, .post_padding = {1, 1}}), "y");
  const auto plan = Plan::make(g, {.architecture = "sm_90a"});
  REQUIRE(plan);
  const Crossing c = crossing(explain(plan->data(), &g), "a");  // stored in another shape
  CHECK(c.bytes == 2 * 2 * count({2, 32, 8, 8}));
  CHECK(c.inside.empty());
  for (const bool fuse : {true, false}) {
    const auto p = planned(R"({"format": "sinter.graph", "version": 1, "io_data_type": "bf16",
 "tensors": {"x": {"dim": [1, 64, 64], "data_type": "f8e4m3"},
             "s": {"dim": [1, 64, 2], "data_type": "f8e8m0"}, "w": {"dim": [1, 64, 64]},
             "y": {"output": true}},
 "nodes": [
  {"op": "block_scale_dequantize", "name": "wide", "inputs": {"X": "x", "Scale": "s"},
   "outputs": {"Y": "xs"}, "block_size": 32, "axis": 2},
  {"op": "matmul", "inputs": {"A": "xs", "B": "w"}, "outputs": {"C": "xw"}},
  {"op": "softmax", "inputs": {"X": "xw"}, "outputs": {"Y": "y"}}]})",
                           fuse);
    for (const auto& each : explain(p.plan, &*p.graph).crossings) {
      INFO(each.tensor);
      CHECK(each.tensor.find("softmax") == std::string::npos);
    }
    if (!fuse) crossing(explain(p.plan, &*p.graph), "product (inside wide)");  // read by the matmul
  }
}

TEST_CASE("the costliest crossing comes first", "[explain]") {
  const auto p = two_products("f32", false);
  const Explanation e = explain(p.plan, &*p.graph);
  REQUIRE(e.crossings.size() == 2);
  CHECK(e.crossings[0].microseconds >= e.crossings[1].microseconds);
}

TEST_CASE("a change of the graph that removes a cut is named", "[explain]") {
  Graph g({.name = "sums"});
  auto x = g.tensor({.name = "x", .dim = {512, 256, 64}}),
       y = g.tensor({.name = "y", .dim = {512, 256, 64}});  // both are more than e
  auto e = sqrt(exp(x) + y);
  g.output(reduction(e, ReductionMode::add, {512, 1, 1}), "totals");
  g.output(reduction(e, ReductionMode::add, {1, 256, 1}), "columns");
  auto plan = Plan::make(g);
  if (!plan) FAIL(plan.error().message());
  CHECK(says(explain_text(plan->data(), &g), "to remove it: give both reductions the same axes"));
}

TEST_CASE("an f32 tensor between kernels of a bf16 graph gets a hint, a bf16 one does not",
          "[explain]") {
  const auto softmax_of = [](const std::string& stored) {
    return planned(products_around(
        R"("s": {"data_type": ")" + stored + "\"}, ",
        R"({"op": "softmax", "name": "act", "inputs": {"X": "s"}, "outputs": {"Y": "h"}})"));
  };
  const auto wide = softmax_of("f32"), narrow = softmax_of("bf16");
  const auto hints = explain(wide.plan, &*wide.graph).hints;
  REQUIRE(hints.size() == 1);
  CHECK(hints[0].tensor == "s");
  // It is written and read in half the bytes.
  CHECK(hints[0].bytes == 2 * kRows * kColumns * 2);
  CHECK(says(explain_text(wide.plan, &*wide.graph),
             "hint: tensor s is stored as f32, bf16 would save 8.4 MB"));
  CHECK(explain(narrow.plan, &*narrow.graph).hints.empty());
}

TEST_CASE("a comparison's result gets the hint that it is exact as bool, small ones get none",
          "[explain]") {
  const auto chosen = [](const std::string& rows) {
    return planned(R"({"format": "sinter.graph", "version": 1, "io_data_type": "bf16",
 "tensors": {"x": {"dim": [)" +
                       rows + R"(, 1024]}, "y": {"output": true}},
 "nodes": [
  {"op": "pointwise", "mode": "cmp_gt", "inputs": {"IN_0": "x", "IN_1": "x"},
   "outputs": {"OUT_0": "larger"}},
  {"op": "pointwise", "mode": "mul", "inputs": {"IN_0": "x", "IN_1": "larger"},
   "outputs": {"OUT_0": "y"}}]})",
                   false);
  };
  const auto large = chosen("2048"), small = chosen("2");
  const auto hints = explain(large.plan, &*large.graph).hints;
  REQUIRE(hints.size() == 1);
  CHECK(hints[0].narrow == DataType::boolean);
  CHECK(hints[0].bytes == 2 * kRows * kColumns * 3);
  CHECK(says(explain_text(large.plan, &*large.graph), "data_type, which holds it exactly"));
  CHECK(explain(small.plan, &*small.graph).hints.empty());
}

TEST_CASE("kernels that add partial results up compute the sums and what is behind them",
          "[explain]") {
  const auto of = [](const std::string& tensors, const std::string& last) {
    return planned(R"({"format": "sinter.graph", "version": 1, "io_data_type": "bf16",
 "tensors": {)" + tensors +
                   R"("y": {"output": true}},
 "nodes": [
  {"op": "matmul", "name": "up", "inputs": {"A": "x", "B": "w"}, "outputs": {"C": "s"}},
  {"op": "pointwise", "mode": "gelu_fwd", "name": "act", "inputs": {"IN_0": "s"},
   "outputs": {"OUT_0": "y"}})" +
                   last + "]}");
  };
  using Labels = std::vector<std::string>;
  const auto reduced = of(R"("x": {"dim": [2048, 1024]}, "w": {"dim": [1024, 1024]},
                             "most": {"dim": [1, 1], "output": true, "data_type": "f32"}, )",
                          R"(, {"op": "reduction", "mode": "amax", "name": "largest",
                              "inputs": {"X": "y"}, "outputs": {"Y": "most"}})");
  REQUIRE(reduced.plan.kernels.size() > 1);
  CHECK(reduced.plan.kernels[0].nodes.size() > 1);
  for (std::size_t k = 1; k < reduced.plan.kernels.size(); ++k)
    CHECK(reduced.plan.kernels[k].nodes == Labels{"largest"});
  for (const PlanBuffer& b : reduced.plan.buffers) CHECK(b.inside == "largest");
  const auto split = of(R"("x": {"dim": [64, 65536]}, "w": {"dim": [65536, 64]}, )", "");
  REQUIRE(split.plan.kernels.size() == 2);
  CHECK(split.plan.kernels[1].nodes == Labels{"up", "act"});
}

TEST_CASE("reductions of which neither reads the other's result are not told to have its axes",
          "[explain]") {
  Graph g({.name = "norms"});
  auto x = g.tensor("x", {512, 512}), y = g.tensor("y", {512, 64});
  auto all =
      reduction(x * x, ReductionMode::add, {1, 1}) + reduction(y * y, ReductionMode::add, {1, 1});
  g.output(sqrt(all), "norm");
  auto plan = Plan::make(g, {.architecture = "sm_90a"});
  REQUIRE(plan);
  for (const PlanCut& c : plan->data().cuts) CHECK(c.fix.find("same axes") == std::string::npos);
}

TEST_CASE("a convolution's image that is copied is to have its channels innermost", "[explain]") {
  Graph g({.io = f16});
  auto x = g.tensor("x", {2, 320, 64, 64}), w = g.tensor("w", {320, 320, 3, 3});
  auto scale = g.tensor("scale", {1, 320, 1, 1}), bias = g.tensor("bias", {1, 320, 1, 1});
  auto a = swish(groupnorm(x, scale, bias, g.scalar(1e-5f), {.groups = 32}).y).named("a").type(f16);
  g.output(conv_fprop(a, w, {.pre_padding = {1, 1}, .post_padding = {1, 1}}), "y");
  const auto plan = Plan::make(g, {.architecture = "sm_90a"});
  REQUIRE(plan);
  CHECK(says(explain_text(plan->data(), &g),
             "to remove it: give the tensor that is copied its channels innermost"));
}

TEST_CASE("the peak of the workspace is listed by tensor", "[explain]") {
  const auto p = two_products("bf16");
  const Explanation e = explain(p.plan, &*p.graph);
  CHECK(e.peak_bytes == kRows * kColumns * 2);
  REQUIRE(e.peak_buffers.size() == 1);
  CHECK(p.plan.buffers[static_cast<std::size_t>(e.peak_buffers[0])].name == "h");
  CHECK(p.plan.workspace_bytes == e.peak_bytes);
}

TEST_CASE("the table has the user's lines, estimates, and measurements where there are some",
          "[explain]") {
  const auto p = two_products("bf16");
  const Explanation e = explain(p.plan, &*p.graph);
  CHECK(e.file == "mlp.json");
  CHECK(e.lines == std::vector<std::string>{"5-6", "8"});
  const std::string estimated = explain_text(p.plan, &*p.graph);
  CHECK_FALSE(says(estimated, "us measured"));
  CHECK(estimated.find("up, act") < estimated.find("kernel 0"));  // the table is first
  const std::string measured = explain_text(p.plan, &*p.graph, {30, 10});
  CHECK(says(measured, "us measured"));
  CHECK(says(measured, "75 %"));
  CHECK(says(measured, "40.0"));
}

TEST_CASE("parts of a composite have the user's name of it", "[explain]") {
  const auto p = planned(products_around(
      "", R"({"op": "softmax", "name": "weights", "inputs": {"X": "s"}, "outputs": {"Y": "h"}})"));
  REQUIRE_FALSE(p.plan.cuts.empty());
  for (const auto& c : p.plan.cuts)
    for (const auto& label : {c.node, c.with})
      CHECK((label == "up" || label == "weights" || label == "down" || label.empty()));
}

TEST_CASE("--why names the kernels, what is between them, and the reason", "[explain]") {
  const auto p = two_products("bf16");
  CHECK(explain_why(p.plan, &*p.graph, "up", "act") == "up and act are both in kernel 0\n");
  for (const auto& [a, b] : {std::pair("up", "down"), std::pair("down", "up")}) {
    const std::string text = explain_why(p.plan, &*p.graph, a, b);
    CHECK(says(text, "between them: h, 8.4 MB"));
    CHECK(says(text, "down stays out of the kernel of up: matmul reads its operands from memory"));
  }
  CHECK(kernels_with(p.plan, &*p.graph, "no such node").empty());
}

TEST_CASE("a node that its readers compute again is named with their kernels", "[explain]") {
  const auto p = planned(R"({"format": "sinter.graph", "version": 1, "io_data_type": "bf16",
 "tensors": {"x": {"dim": [2048, 64]}, "row": {"dim": [1, 64]}, "w": {"dim": [64, 64]},
             "y": {"output": true}, "z": {"output": true}},
 "nodes": [
  {"op": "reshape", "name": "seen", "inputs": {"X": "row"}, "outputs": {"Y": "r"}, "dim": [64]},
  {"op": "pointwise", "mode": "neg", "name": "less", "inputs": {"IN_0": "r"},
   "outputs": {"OUT_0": "n"}},
  {"op": "pointwise", "mode": "mul", "name": "scaled", "inputs": {"IN_0": "x", "IN_1": "n"},
   "outputs": {"OUT_0": "y"}},
  {"op": "matmul", "name": "down", "inputs": {"A": "y", "B": "w"}, "outputs": {"C": "p"}},
  {"op": "pointwise", "mode": "add", "name": "biased", "inputs": {"IN_0": "p", "IN_1": "n"},
   "outputs": {"OUT_0": "z"}}]})");
  REQUIRE(p.plan.kernels.size() == 2);
  using Labels = std::vector<std::string>;
  CHECK(p.plan.kernels[0].nodes == Labels{"scaled"});
  CHECK(explain(p.plan, &*p.graph).again == std::vector{Labels{"less"}, Labels{"less"}});
  CHECK(kernels_with(p.plan, &*p.graph, "less") == std::vector{0, 1});
  CHECK(kernels_with(p.plan, &*p.graph, "seen").empty());
  CHECK(says(explain_text(p.plan, &*p.graph), "down, biased; also computed here: less"));
  CHECK(explain_why(p.plan, &*p.graph, "less", "down") == "less and down are both in kernel 1\n");
}

TEST_CASE("--diff shows kernels that changed and counts the others", "[explain]") {
  const auto fused = two_products("bf16"), apart = two_products("bf16", false);
  const std::string same = explain_diff(fused.plan, fused.plan);
  CHECK(says(same, "unchanged: the kernels of 2 sets of nodes"));
  CHECK_FALSE(says(same, "->"));
  const std::string text = explain_diff(apart.plan, fused.plan);
  CHECK(says(text, "up, act: - -> contraction"));
  CHECK(says(text, "act: pointwise"));
  CHECK(says(text, "unchanged: the kernels of 1 sets of nodes"));
}

TEST_CASE("--dot draws each tensor between kernels, from who writes it to who reads it",
          "[explain]") {
  const auto p = two_products("bf16");
  const std::string dot = explain_dot(p.plan);
  CHECK(says(dot, "b0 [shape=oval style=dashed label=\"h\"]"));
  CHECK(says(dot, "k0 -> b0 [label=\"4.2 MB\"]"));
  CHECK(says(dot, "b0 -> k1"));
  CHECK_FALSE(says(dot, "b0 -> k0"));
}

TEST_CASE("a cut says where no change of the graph is known that removes it") {
  Graph g({.io = bf16});
  auto x = g.tensor("x", {512, 512}), w = g.tensor("w", {512, 512});
  auto scaled = (x * w).named("scaled").type(bf16);
  g.output(matmul(scaled, w), "y");
  g.output(scaled, "seen");
  const auto plan = Plan::make(g);
  REQUIRE(plan);
  CHECK(says(explain_text(plan->data(), &g), "no change of the graph is known that removes it"));
}

TEST_CASE("a filter that is copied is to be prepared") {
  Graph g({.io = bf16});
  auto x = g.tensor("x", {32, 64, 56, 56}), w = g.tensor("w", {64, 64, 3, 3});
  g.output(conv_fprop(x, w, {.pre_padding = {1, 1}, .post_padding = {1, 1}}), "y");
  const auto plan = Plan::make(g, {.architecture = "sm_90a"});
  REQUIRE(plan);
  CHECK(says(explain_text(plan->data(), &g), "to remove it: declare it constant"));
}

TEST_CASE("narrow groups are said to be multiplied on tensor cores", "[explain]") {
  const Dims dim{128, 128, 56, 56}, filter{128, 4, 3, 3};
  for (const bool gradient : {false, true}) {
    const test::Images images;
    const Tensor x = images.input("x", dim), other = images.input("other", gradient ? dim : filter);
    const ConvAttributes attributes = test::padded(1, 1, 32);
    if (gradient)
      images.output(conv_wgrad(other, x, filter, attributes), "y", filter);
    else
      images.output(conv_fprop(x, other, attributes), "y", dim);
    const auto plan = Plan::make(*images.g, {.architecture = "sm_90a"});
    REQUIRE(plan);
    CHECK(says(explain_text(plan->data(), &*images.g), "a unit: tensor cores"));
  }
}
