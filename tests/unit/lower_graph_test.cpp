// What lowering keeps of the user's graph, and what it calls and drops.
#include "unit/lower_support.hpp"

namespace sinter {
namespace {

using test::checked_lower;
using test::find_node;
using test::find_tensor;

TEST_CASE("lowering copies a primitive graph node by node with every tensor as declared") {
  Graph g({.name = "plain", .io = bf16, .intermediate = f16, .compute = tf32});
  const Tensor a = g.tensor({.name = "a", .dim = {2, 3, 4}, .stride = {0, 4, 1}, .uid = 7});
  const Tensor b = g.tensor({.name = "b", .dim = {4, 5}, .data_type = f32, .alignment = 64});
  const Tensor c = matmul(a, b);
  g.output(relu(c), "y", {.stride = {100, 1, 3}, .uid = 9});
  const Lowered lowered = checked_lower(g);
  REQUIRE(lowered.graph->nodes().size() == 2);
  CHECK(lowered.graph->options().name == "plain");
  CHECK(lowered.graph->options().compute == tf32);
  CHECK(find_node(*lowered.graph, "matmul #0"));
  CHECK(lowered.graph->type(lowered.graph->nodes()[0].outputs[0]) == f16);
  CHECK(find_tensor(*lowered.graph, "a").stride == Dims{0, 4, 1});
}

TEST_CASE("lowering drops what no output depends on and keeps unread inputs and scalars") {
  Graph g;
  const Tensor x = g.tensor({.name = "x", .dim = {4}});
  g.tensor({.name = "unread", .dim = {3}});
  g.scalar(2, f32, "two");
  const Tensor dead = exp(x);
  softmax(dead);
  g.output(-x, "y");
  const Lowered lowered = checked_lower(g);
  REQUIRE(lowered.graph->nodes().size() == 1);
  CHECK(lowered.origin == std::vector<NodeId>{2});
  CHECK(lowered.graph->find("unread"));
  CHECK(lowered.graph->find("two"));
}

TEST_CASE("the nodes and tensors of an expansion are called after the user's node") {
  Graph g;
  const Tensor x = g.tensor({.name = "x", .dim = {4, 8}});
  g.output(softmax(x).y, "softmax #0/max");  // a name that the expansion would have taken
  const Lowered lowered = checked_lower(g);
  CHECK(find_node(*lowered.graph, "softmax #0/max"));
  CHECK(find_node(*lowered.graph, "softmax #0/Y"));
  CHECK(find_tensor(*lowered.graph, "softmax #0/max").output);
  CHECK(find_tensor(*lowered.graph, "softmax #0/max_2").dim == Dims{4, 1});
  CHECK(find_tensor(*lowered.graph, "softmax #0/sum").dim == Dims{4, 1});
}

TEST_CASE("intermediate results of an expansion are f32 whatever the user's default is") {
  Graph g({.io = f16, .intermediate = bf16});
  const Tensor x = g.tensor({.name = "x", .dim = {4, 8}});
  const Tensor y = softmax(x, {.axis = 0});
  g.output(exp(y), "z");
  const Lowered lowered = checked_lower(g);
  CHECK(find_tensor(*lowered.graph, "softmax #0/exp").data_type == f32);
  CHECK(find_tensor(*lowered.graph, "softmax #0/max").dim == Dims{1, 8});
  const Node* last = find_node(*lowered.graph, "softmax #0/Y");
  REQUIRE(last);
  CHECK(lowered.graph->type(last->outputs[0]) == bf16);
}

TEST_CASE("an expansion computes in f64 where its node does") {
  for (const bool by_operand : {true, false}) {
    Graph g({.io = by_operand ? f64 : f32, .compute = by_operand ? f32 : f64});
    const Tensor x = g.tensor({.name = "x", .dim = {4, 8}});
    const Tensor scale = g.tensor({.name = "scale", .dim = {8}});
    g.output(rmsnorm(x, scale, Tensor{}, 1e-5).y, "y");
    const Lowered lowered = checked_lower(g);
    CHECK(find_tensor(*lowered.graph, "rmsnorm #0/mean_square").data_type == f64);
    for (const auto& n : lowered.graph->nodes()) CHECK(lowered.graph->arithmetic(n) == f64);
  }
}

TEST_CASE("a narrow output that the expansion reads again is stored by a node of its own") {
  Graph g({.io = bf16});
  const Tensor x = g.tensor({.name = "x", .dim = {4, 8}});
  const Tensor scale = g.tensor({.name = "scale", .dim = {8}});
  auto r = layernorm(x, scale, Tensor{}, 1e-5, {.forward_phase = ForwardPhase::training});
  g.output(r.y, "y");
  g.output(r.mean, "mean", {.data_type = f32});
  g.output(r.inv_variance, "inv");
  const Lowered lowered = checked_lower(g);
  const Graph& l = *lowered.graph;
  const Node* inv = find_node(l, "layernorm #0/INV_VARIANCE");
  REQUIRE(inv);
  CHECK(std::get<PointwiseAttributes>(inv->attributes).mode == PointwiseMode::identity);
  CHECK_FALSE(find_tensor(l, "inv").read);
  CHECK(find_tensor(l, "layernorm #0/inv_variance").data_type == f32);
  // The f32 mean is what the expansion reads: nothing is rounded there.
  CHECK(find_tensor(l, "mean").read);
  const Node* mean = find_node(l, "layernorm #0/MEAN");
  REQUIRE(mean);
  CHECK(mean->op == OpKind::reduction);
}

TEST_CASE("two outputs that are the same tensor inside are both written") {
  Graph g({.compute = f32});
  const Tensor x = g.tensor({.name = "x", .dim = {1, 3, 4, 4}});
  const Tensor dy = g.tensor({.name = "dy", .dim = {1, 3, 4, 4}});
  const Tensor bias = g.tensor({.name = "bias", .dim = {1, 1, 1, 1}});
  const Tensor stats = g.tensor({.name = "stats", .dim = {1, 3, 4, 1}});
  auto r = sdpa_backward(x, x, x, dy, dy, stats, {}, {.bias = bias});
  g.output(r.dq, "dq");
  g.output(r.dk, "dk");
  g.output(r.dv, "dv");
  g.output(r.dbias, "dbias");
  const Lowered lowered = checked_lower(g);
  CHECK(find_tensor(*lowered.graph, "dbias").dim == Dims{1, 1, 1, 1});
}

TEST_CASE("unwanted results of a composite node cost nothing") {
  Graph g;
  const Tensor x = g.tensor({.name = "x", .dim = {2, 3, 4}});
  const Tensor scale = g.tensor({.name = "scale", .dim = {1, 3, 1}});
  const Tensor stat = g.tensor({.name = "stat", .dim = {1, 3, 1}});
  g.output(norm_backward(OpKind::batchnorm_backward, x, x, scale, stat, stat).dbias, "dbias");
  const Lowered lowered = checked_lower(g);
  REQUIRE(lowered.graph->nodes().size() == 1);
  CHECK(lowered.graph->nodes()[0].op == OpKind::reduction);
}

TEST_CASE("an expansion whose intermediate is too large is reported and not half made") {
  Graph g;
  const std::int64_t many = std::int64_t{1} << 32;
  const Tensor q = g.tensor({.name = "q", .dim = {1, 1, many, 1}});
  g.output(sdpa(q, q, q).o, "o");
  REQUIRE(g.check().empty());
  const Lowered lowered = lower(g);
  REQUIRE_FALSE(lowered.graph->diagnostics().empty());
  CHECK(lowered.graph->diagnostics()[0].rule == Rule::tensor_size);
}

}  // namespace
}  // namespace sinter
