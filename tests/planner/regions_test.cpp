// Attention keeps what the node said beside its expansion, up to where kernels are chosen.
#include <algorithm>

#include "planner/match/fusion_state.hpp"
#include "planner/planner.hpp"
#include "planner/rewrite/pass.hpp"
#include "sinter/operations.hpp"
#include "support/catch.hpp"

using namespace sinter;

namespace {

// Causal attention of grouped heads, with the projections' heads before it and after it.
struct Layer {
  Graph g{{.io = bf16}};
  Tensor q = heads("q", 4), k = heads("k", 2), v = heads("v", 2);

  Tensor heads(const char* name, std::int64_t count) {
    const Tensor x = g.tensor({.name = std::string("in_") + name, .dim = {1, 32, 16}}),
                 w = g.tensor({.name = std::string("w_") + name, .dim = {1, 16, 8 * count}});
    const Tensor t = transpose(reshape(matmul(x, w), {1, 32, count, 8}), {0, 2, 1, 3});
    detail::GraphEditor(g).edit(t.id()).name = name;
    return t;
  }
};

// The nodes read the inputs, constants and each other; nobody else reads what they make.
void check_closed(const Lowered& l, const Region& r) {
  const Graph& g = *l.graph;
  const auto among = [](const auto& list, std::int32_t x) {
    return std::find(list.begin(), list.end(), x) != list.end();
  };
  for (NodeId n = 0; n < static_cast<NodeId>(g.nodes().size()); ++n)
    for (TensorId t : g.nodes()[static_cast<std::size_t>(n)].inputs) {
      if (t < 0 || g[t].has_value) continue;
      const bool made_inside = g[t].producer >= 0 && among(r.nodes, g[t].producer);
      if (among(r.nodes, n))
        CHECK((made_inside || among(r.inputs, t)));
      else if (made_inside)
        CHECK(among(r.outputs, t));
    }
}

}  // namespace

TEST_CASE("the region of a causal attention of grouped heads arrives where kernels are chosen") {
  Layer layer;
  Graph& g = layer.g;
  auto [o, stats] =
      sdpa(layer.q, layer.k, layer.v,
           {.attn_scale = 0.25, .causal_mask = true, .left_bound = 16, .generate_stats = true});
  detail::GraphEditor(g).edit(o.id()).name = "o";
  auto w = g.tensor({.name = "w_o", .dim = {1, 32, 16}});
  g.output(matmul(reshape(transpose(o, {0, 2, 1, 3}), {1, 32, 32}), w) +
               g.tensor({.name = "residual", .dim = {1, 32, 16}}),
           "y");
  g.output(stats, "stats");
  for (const auto& d : g.check()) FAIL(d.message());
  for (const std::string_view architecture : {"", "sm_90a"}) {
    const PlanContext context{device_model(architecture), {}};
    const Lowered l = rewritten(lower(g), context.device);
    REQUIRE(l.regions.size() == 1);
    const Region& r = l.regions[0];
    CHECK(r.op == OpKind::sdpa);
    CHECK(g.nodes()[static_cast<std::size_t>(r.origin)].op == OpKind::sdpa);
    CHECK(r.attributes.attn_scale == 0.25);
    CHECK(r.band.right == 0);
    CHECK(r.band.left == 16);
    CHECK_FALSE(r.band.bottom_right);
    const auto name = [&](TensorId t) { return t < 0 ? std::string() : (*l.graph)[t].name; };
    CHECK(name(r.inputs[0]) == "q");
    CHECK(name(r.inputs[1]) == "k");
    CHECK(name(r.inputs[2]) == "v");
    CHECK(r.inputs[3] == kNoTensor);
    CHECK(name(r.outputs[0]) == "o");
    CHECK(name(r.outputs[1]) == "stats");
    check_closed(l, r);
    const Storage storage(*l.graph);
    const FusionState state(*l.graph, storage, true, context, l.regions);
    REQUIRE(state.regions().size() == 1);
    std::size_t inside = 0;
    for (NodeId n = 0; n < static_cast<NodeId>(l.graph->nodes().size()); ++n)
      inside += state.region_of(n) == &state.regions()[0] ? 1 : 0;
    CHECK(inside == r.nodes.size());
    CHECK(inside > 8);
    CHECK(inside < l.graph->nodes().size());
    CHECK(partition(*l.graph, true, architecture, l.regions).kernels.size() ==
          partition(*l.graph, true, architecture).kernels.size());
  }
}

TEST_CASE("keys and values that are repeated for each head arrive as they were, both or none") {
  for (const bool both : {true, false}) {
    Graph g{{.io = bf16}};
    const auto input = [&](const char* name, std::int64_t heads) {
      return g.tensor({.name = name, .dim = {2, heads, 8, 16}});
    };
    const auto repeated = [](Tensor t) {
      const Tensor one = reshape(t, {2, 2, 1, 8, 16});
      return reshape(concatenate({one, one, one}, 2), {2, 6, 8, 16});
    };
    auto [o, stats] = sdpa(input("q", 6), repeated(input("k", 2)),
                           both ? repeated(input("v", 2)) : input("v", 6), {.causal_mask = true});
    g.output(o, "o");
    for (const auto& d : g.check()) FAIL(d.message());
    const Lowered l = rewritten(lower(g), device_model("sm_90a"));
    REQUIRE(l.regions.size() == 1);
    const Region& r = l.regions[0];
    CHECK(((*l.graph)[r.inputs[1]].name == "k") == both);
    CHECK((*l.graph)[r.inputs[2]].name == "v");
    check_closed(l, r);
  }
}

TEST_CASE(
    "gradients of attention stay its kernels' where halves of them are rotated or one is read") {
  for (const bool rotated : {true, false}) {
    Graph g{{.io = bf16, .intermediate = bf16}};
    const auto input = [&](const char* name) { return g.tensor(name, {2, 4, 128, 64}); };
    const Tensor q = input("q"), k = input("k"), v = input("v");
    const SdpaAttributes causal{.causal_mask = true, .generate_stats = true};
    const auto [o, stats] = sdpa(q, k, v, causal);
    const auto d = sdpa_backward(q, k, v, o, input("do"), stats, causal);
    const auto half = [&](std::int64_t from) {
      return slice(d.dq, {.start = {0, 0, 0, from}, .limit = {2, 4, 128, from + 32}});
    };
    if (rotated) {
      const Tensor a = half(0), b = half(32), cos = g.tensor("cos", {1, 1, 128, 32}),
                   sin = g.tensor("sin", {1, 1, 128, 32});
      g.output(concatenate({a * cos + b * sin, b * cos - a * sin}, 3), "dq");
    } else {
      g.output(relu(half(32)), "dq");
    }
    g.output(o, "o"), g.output(d.dk, "dk"), g.output(d.dv, "dv");
    for (const auto& problem : g.check()) FAIL(problem.message());
    const Lowered l = rewritten(lower(g), device_model("sm_90a"));
    REQUIRE(l.regions.size() == 2);
    check_closed(l, l.regions[0]);
    check_closed(l, l.regions[1]);
  }
}

TEST_CASE("repeated keys that are the values, too, arrive as they were") {
  Graph g{{.io = bf16}};
  const Tensor k = g.tensor({.name = "k", .dim = {2, 2, 8, 16}});
  const Tensor one = reshape(k, {2, 2, 1, 8, 16}),
               all = reshape(concatenate({one, one, one}, 2), {2, 6, 8, 16});
  g.output(sdpa(g.tensor({.name = "q", .dim = {2, 6, 8, 16}}), all, all, {.causal_mask = true}).o,
           "o");
  for (const auto& d : g.check()) FAIL(d.message());
  const Lowered l = rewritten(lower(g), device_model("sm_90a"));
  REQUIRE(l.regions.size() == 1);
  const Region& r = l.regions[0];
  for (const int port : {1, 2})
    CHECK((*l.graph)[r.inputs[static_cast<std::size_t>(port)]].name == "k");
  check_closed(l, r);
}

TEST_CASE("attention and its gradient are a region each, with the tensors that they share") {
  Graph g{{.io = bf16}};
  const auto input = [&](const char* name, std::int64_t heads) {
    return g.tensor({.name = name, .dim = {2, heads, 16, 8}});
  };
  const Tensor q = input("q", 4), k = input("k", 2), v = input("v", 2), d_o = input("do", 4);
  const SdpaAttributes a{.causal_mask_bottom_right = true, .generate_stats = true};
  const auto [o, stats] = sdpa(q, k, v, a);
  g.output(o, "o");
  g.output(stats, "stats");
  SdpaAttributes back = a;
  back.generate_stats.reset();
  const auto gradients = sdpa_backward(q, k, v, o, d_o, stats, back);
  g.output(gradients.dq, "dq");
  g.output(gradients.dk, "dk");
  g.output(gradients.dv, "dv");
  for (const auto& d : g.check()) FAIL(d.message());
  const Lowered l = rewritten(lower(g), device_model("sm_90a"));
  REQUIRE(l.regions.size() == 2);
  for (const Region& r : l.regions) {
    CHECK(r.band.bottom_right);
    CHECK(r.band.right == 0);
    check_closed(l, r);
  }
  CHECK(l.regions[1].op == OpKind::sdpa_backward);
  CHECK(l.regions[1].inputs[3] == l.regions[0].outputs[0]);
  CHECK(l.regions[1].inputs[5] == l.regions[0].outputs[1]);
}

TEST_CASE("a region with an output that a rewrite touched is dropped") {
  Layer layer;
  Graph& g = layer.g;
  const Tensor o = sdpa(layer.q, layer.k, layer.v, {.causal_mask = true}).o;
  // Only the last row is read, so that only it is computed.
  g.output(relu(slice(o, {.start = {0, 0, 31, 0}, .limit = {1, 4, 32, 8}})), "y");
  for (const auto& d : g.check()) FAIL(d.message());
  CHECK(lower(g).regions.size() == 1);
  const Lowered l = rewritten(lower(g), device_model("sm_90a"));
  CHECK(l.regions.empty());
  CHECK(l.graph->diagnostics().empty());
  CHECK_FALSE(partition(*l.graph, true, "sm_90a", l.regions).kernels.empty());
}

TEST_CASE("a region whose inside another node reads through a rewrite is dropped") {
  Graph g{{.io = f32}};
  const auto input = [&](const char* name) {
    return g.tensor({.name = name, .dim = {1, 2, 8, 8}});
  };
  // The keys are moved before and moved back inside: the scores then read what lies in memory.
  const Tensor k = transpose(input("k"), {0, 1, 3, 2});
  g.output(sdpa(input("q"), k, input("v"), {}).o, "o");
  for (const auto& d : g.check()) FAIL(d.message());
  CHECK(lower(g).regions.size() == 1);
  CHECK(rewritten(lower(g), {}).regions.empty());
}
