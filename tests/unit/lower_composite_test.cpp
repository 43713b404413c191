// The structure of each expansion: every composite operation with its options becomes primitives of
// the right dims and types, extents of 0 included.
#include <functional>
#include <map>

#include "sinter/ops/default_attributes.hpp"
#include "unit/lower_support.hpp"

namespace sinter {
namespace {

using test::checked_lower;
using test::count_nodes;
using test::find_node;
using test::find_tensor;

TEST_CASE("groupnorm normalises over split channels, beyond the rank that users may declare") {
  Graph g;
  const Tensor x = g.tensor({.name = "x", .dim = {2, 6, 1, 2, 1, 2, 1, 3}});
  const Tensor scale = g.tensor({.name = "scale", .dim = {1, 6, 1, 1, 1, 1, 1, 1}});
  auto r = groupnorm(x, scale, scale, 1e-5, {.forward_phase = ForwardPhase::training, .groups = 3});
  g.output(r.y, "y");
  g.output(r.mean, "mean");
  const Lowered lowered = checked_lower(g);
  CHECK(find_tensor(*lowered.graph, "groupnorm #0/centred").dim == Dims{2, 3, 2, 1, 2, 1, 2, 1, 3});
  CHECK(find_tensor(*lowered.graph, "groupnorm #0/variance").dim ==
        Dims{2, 3, 1, 1, 1, 1, 1, 1, 1});
  CHECK(find_tensor(*lowered.graph, "mean").dim == Dims{2, 3, 1, 1, 1, 1, 1, 1});
}

TEST_CASE("a split or transposed tensor keeps the type of what it views") {
  Graph g({.io = bf16});
  const Tensor q = g.tensor({.name = "q", .dim = {2, 4, 8, 16}});
  g.output(sdpa(q, q, q).o, "o");
  const Lowered lowered = checked_lower(g);
  CHECK(find_tensor(*lowered.graph, "sdpa #0/keys_transposed").data_type == bf16);
  CHECK(find_tensor(*lowered.graph, "sdpa #0/scores").data_type == f32);
  // Which kernels may round, before or behind the division by their sum.
  CHECK(find_tensor(*lowered.graph, "sdpa #0/probabilities").data_type == f32);
}

TEST_CASE("attention without masks has none and multiplies plainly") {
  Graph g;
  const Tensor q = g.tensor({.name = "q", .dim = {2, 4, 8, 16}});
  const Tensor k = g.tensor({.name = "k", .dim = {2, 2, 5, 16}});
  g.output(sdpa(q, k, k).o, "o");
  const Lowered lowered = checked_lower(g);
  CHECK(count_nodes(*lowered.graph, OpKind::rng) == 0);
  for (const auto& n : lowered.graph->nodes()) {
    if (const auto* m = std::get_if<MatmulAttributes>(&n.attributes))
      CHECK_FALSE(m->zero_dominates);
    if (const auto* p = std::get_if<PointwiseAttributes>(&n.attributes))
      CHECK(p->mode != PointwiseMode::gen_index);
  }
}

TEST_CASE("masked attention hides what the masked columns hold") {
  Graph g({.io = f16});
  const Tensor q = g.tensor({.name = "q", .dim = {2, 4, 8, 16}});
  const Tensor k = g.tensor({.name = "k", .dim = {2, 2, 5, 16}});
  g.output(sdpa(q, k, k, {.causal_mask = true}).o, "o");
  const Lowered lowered = checked_lower(g);
  const Node* last = find_node(*lowered.graph, "sdpa #0/O");
  REQUIRE(last);
  CHECK(std::get<MatmulAttributes>(last->attributes).zero_dominates);
  CHECK(find_tensor(*lowered.graph, "sdpa #0/keep_right").dim == Dims{1, 1, 8, 5});
  CHECK(find_tensor(*lowered.graph, "sdpa #0/keep_right").data_type == boolean);
}

TEST_CASE("attention with i32 lengths and i64 seeds still computes in f32") {
  Graph g;
  const Tensor q = g.tensor({.name = "q", .dim = {2, 4, 8, 16}});
  const Tensor n = g.tensor({.name = "n", .dim = {2, 1, 1, 1}, .data_type = i32});
  const Tensor seed = g.tensor({.name = "seed", .dim = {1}, .data_type = i64});
  g.output(sdpa(q, q, q, {.padding_mask = true, .dropout_probability = 0.5},
                {.seq_len_q = n, .seq_len_kv = n, .seed = seed, .offset = seed})
               .o,
           "o");
  const Lowered lowered = checked_lower(g);
  CHECK(find_tensor(*lowered.graph, "sdpa #0/scores").data_type == f32);
  CHECK(find_tensor(*lowered.graph, "sdpa #0/length_kv").data_type == f32);
  CHECK(find_tensor(*lowered.graph, "sdpa #0/dropped").data_type == boolean);
}

TEST_CASE("positions that f32 does not hold are computed in f64") {
  Graph g;
  const Tensor q = g.tensor({.name = "q", .dim = {1, 1, 1, 1}});
  const Tensor k = g.tensor({.name = "k", .dim = {1, 1, (1 << 24) + 2, 1}});
  g.output(sdpa(q, k, k, {.causal_mask_bottom_right = true}).o, "o");
  const Lowered lowered = checked_lower(g);
  CHECK(find_tensor(*lowered.graph, "sdpa #0/column").data_type == f64);
  CHECK(find_tensor(*lowered.graph, "sdpa #0/diagonal").data_type == f64);
  CHECK(find_tensor(*lowered.graph, "sdpa #0/exp").data_type == f32);
}

TEST_CASE("maxpool without Index runs the forward again for it") {
  Graph g;
  const Tensor x = g.tensor({.name = "x", .dim = {1, 2, 6, 6}});
  const Tensor dy = g.tensor({.name = "dy", .dim = {1, 2, 3, 3}});
  const ResampleAttributes a{.mode = ResampleMode::maxpool, .window = {2, 2}, .stride = {2, 2}};
  g.output(resample_backward(dy, a, {1, 2, 6, 6}, {}, x), "dx");
  const Lowered lowered = checked_lower(g);
  REQUIRE(lowered.graph->nodes().size() == 2);
  const Node& backward = lowered.graph->nodes()[1];
  CHECK(backward.op == OpKind::resample_backward);
  CHECK(backward.inputs[1] == kNoTensor);
  CHECK(lowered.graph->type(backward.inputs[3]) == i8);
}

TEST_CASE("block scaling divides by the scale as it is stored") {
  Graph g;
  const Tensor x = g.tensor({.name = "x", .dim = {4, 64}});
  auto r = block_scale_quantize(x, {.block_size = 32}, f8e4m3, f8e8m0);
  g.output(r.y, "y");
  g.output(r.scale, "scale");
  const Lowered lowered = checked_lower(g);
  CHECK(find_tensor(*lowered.graph, "block_scale_quantize #0/scale").data_type == f8e8m0);
  CHECK(find_tensor(*lowered.graph, "block_scale_quantize #0/scale").dim == Dims{4, 2, 1});
  CHECK(find_tensor(*lowered.graph, "scale").dim == Dims{4, 2});
}

// ---- every composite operation lowers, whatever the extents

void attention(Graph& g, Dims q_dim, Dims k_dim, Dims v_dim, SdpaAttributes a, bool backward) {
  const Tensor q = g.tensor({.name = "q", .dim = q_dim}), k = g.tensor({.name = "k", .dim = k_dim}),
               v = g.tensor({.name = "v", .dim = v_dim});
  const Dims row{q_dim[0], q_dim[1], q_dim[2], 1}, o_dim{q_dim[0], q_dim[1], q_dim[2], v_dim[3]};
  SdpaInputs in;
  in.bias = g.tensor({.name = "bias", .dim = {1, q_dim[1], 1, k_dim[2]}});
  in.seq_len_q = g.tensor({.name = "nq", .dim = {q_dim[0], 1, 1, 1}, .data_type = i32});
  in.seq_len_kv = g.tensor({.name = "nk", .dim = {q_dim[0], 1, 1, 1}, .data_type = i32});
  in.seed = g.tensor({.name = "seed", .dim = {1}, .data_type = i64});
  in.offset = g.tensor({.name = "offset", .dim = {1}, .data_type = i64});
  in.sink_token = g.tensor({.name = "sink", .dim = {1, q_dim[1], 1, 1}});
  in.block_mask =
      g.tensor({.name = "tiles",
                .dim = {q_dim[0], q_dim[1], (q_dim[2] + 127) / 128, (k_dim[2] + 1023) / 1024},
                .data_type = u8});
  if (!backward) {
    a.generate_stats = true;
    auto r = sdpa(q, k, v, a, in);
    g.output(r.o, "o");
    g.output(r.stats, "stats", {.data_type = f32});
    return;
  }
  const Tensor o = g.tensor({.name = "o", .dim = o_dim});
  const Tensor stats = g.tensor({.name = "stats", .dim = row, .data_type = f32});
  auto r = sdpa_backward(q, k, v, o, o, stats, a, in);
  g.output(r.dq, "dq");
  g.output(r.dk, "dk");
  g.output(r.dv, "dv");
  g.output(r.dbias, "dbias");
}

TEST_CASE("attention with every option lowers for all head counts and empty extents") {
  const SdpaAttributes all{.attn_scale = 0.3,
                           .causal_mask_bottom_right = true,
                           .left_bound = 5,
                           .padding_mask = true,
                           .alibi_mask = true,
                           .dropout_probability = 0.25,
                           .softcap = 30};
  struct Case {
    Dims q, k, v;
  };
  const Case cases[] = {{{2, 6, 8, 16}, {2, 2, 10, 16}, {2, 3, 10, 4}},
                        {{2, 6, 8, 16}, {2, 1, 10, 16}, {2, 6, 10, 4}},
                        {{0, 6, 8, 16}, {0, 2, 10, 16}, {0, 3, 10, 4}},
                        {{2, 0, 8, 16}, {2, 2, 10, 16}, {2, 3, 10, 4}},
                        {{2, 6, 0, 16}, {2, 2, 10, 16}, {2, 3, 10, 4}},
                        {{2, 6, 8, 16}, {2, 2, 0, 16}, {2, 3, 0, 4}},
                        {{2, 6, 8, 0}, {2, 2, 10, 0}, {2, 3, 10, 0}}};
  for (const auto& c : cases)
    for (const bool backward : {false, true}) {
      INFO(to_string(c.q) << to_string(c.k) << to_string(c.v) << " backward " << backward);
      Graph g({.io = bf16});
      attention(g, c.q, c.k, c.v, all, backward);
      checked_lower(g);
    }
}

TEST_CASE("paged keys and values are gathered first") {
  Graph g({.io = f16});
  const Tensor q = g.tensor({.name = "q", .dim = {2, 4, 1, 8}});
  const Tensor k = g.tensor({.name = "k", .dim = {9, 2, 16, 8}});
  const Tensor table = g.tensor({.name = "table", .dim = {2, 1, 3, 1}, .data_type = i32});
  const Tensor n = g.tensor({.name = "n", .dim = {2, 1, 1, 1}, .data_type = i32});
  g.output(sdpa(q, k, k, {.padding_mask = true},
                {.seq_len_q = n, .seq_len_kv = n, .page_table_k = table, .page_table_v = table})
               .o,
           "o");
  const Lowered lowered = checked_lower(g);
  CHECK(count_nodes(*lowered.graph, OpKind::page_gather) == 2);
  CHECK(find_tensor(*lowered.graph, "sdpa #0/keys").dim == Dims{2, 2, 48, 8});
  CHECK(find_tensor(*lowered.graph, "sdpa #0/keys").data_type == f16);
}

TEST_CASE("every normalisation and its gradient lowers, empty and extent-1 cases included") {
  struct Case {
    OpKind op;
    Dims x, scale, statistics;
    std::int64_t groups = 0;
  };
  using K = OpKind;
  const Case cases[] = {{K::layernorm, {4, 8}, {8}, {4, 1}},
                        {K::layernorm, {4, 3, 8}, {1, 3, 8}, {4, 1, 1}},
                        {K::layernorm, {4, 8}, {1, 1}, {4, 8}},
                        {K::layernorm, {4, 0}, {1, 8}, {4, 1}},
                        {K::layernorm, {0, 8}, {1, 8}, {0, 1}},
                        {K::layernorm, {1, 1}, {1}, {1, 1}},
                        {K::adaptive_layernorm, {4, 3, 8}, {4, 1, 8}, {4, 3, 1}},
                        {K::instancenorm, {2, 3, 4, 4}, {1, 3, 1, 1}, {2, 3, 1, 1}},
                        {K::instancenorm, {2, 3, 0, 4}, {1, 3, 1, 1}, {2, 3, 1, 1}},
                        {K::groupnorm, {2, 6, 4}, {1, 6, 1}, {2, 3, 1}, 3},
                        {K::groupnorm, {2, 6, 4}, {1, 6, 1}, {2, 1, 1}, 1},
                        {K::groupnorm, {2, 6, 4}, {1, 6, 1}, {2, 6, 1}, 6},
                        {K::groupnorm, {0, 6, 4}, {1, 6, 1}, {0, 2, 1}, 2},
                        {K::batchnorm, {2, 3, 4}, {1, 3, 1}, {1, 3, 1}},
                        {K::batchnorm, {1, 3}, {1, 3}, {1, 3}},
                        {K::rmsnorm, {4, 8}, {8}, {4, 1}},
                        {K::rmsnorm, {2, 4, 8}, {4, 1}, {2, 1, 8}}};
  const std::map<K, K> backward{{K::layernorm, K::layernorm_backward},
                                {K::adaptive_layernorm, K::adaptive_layernorm_backward},
                                {K::instancenorm, K::instancenorm_backward},
                                {K::groupnorm, K::groupnorm_backward},
                                {K::batchnorm, K::batchnorm_backward},
                                {K::rmsnorm, K::rmsnorm_backward}};
  for (const auto& c : cases) {
    INFO(name(c.op) << " " << to_string(c.x) << " " << to_string(c.scale));
    Graph g({.io = bf16});
    const Tensor x = g.tensor({.name = "x", .dim = c.x}),
                 scale = g.tensor({.name = "scale", .dim = c.scale}),
                 epsilon = g.tensor({.name = "epsilon", .dim = {1, 1, 1, 1, 1}}),
                 stat = g.tensor({.name = "stat", .dim = c.statistics, .data_type = f32});
    Attributes a = default_attributes(c.op);
    if (auto* gn = std::get_if<GroupNormAttributes>(&a)) gn->groups = c.groups;
    const auto made = detail::GraphEditor(g).add(
        c.op, a, {x.id(), scale.id(), scale.id(), epsilon.id()},
        std::vector<TensorId>(c.op == K::rmsnorm ? 2 : 3, kNewTensor), {}, {});
    for (std::size_t i = 0; i < made.size(); ++i)
      if (made[i] >= 0) g.output(Tensor(&g, made[i]), "forward" + std::to_string(i));
    auto r = norm_backward(backward.at(c.op), x, x, scale, stat, stat);
    g.output(r.dx, "dx");
    g.output(r.dscale, "dscale");
    g.output(r.dbias, "dbias");
    checked_lower(g);
  }
}

}  // namespace
}  // namespace sinter
