// The gradients of attention: Delta, zeros for dQ's sums, one kernel on tensor cores, and dQ.
#include <memory>

#include "emit/emit.hpp"
#include "planned.hpp"
#include "planner/rewrite/pass.hpp"
#include "sinter/sinter.hpp"
#include "support/can_compile.hpp"
#include "support/compiled_kernels.hpp"
#include "target/device_model.hpp"

namespace sinter::test {
namespace {

struct Attention {
  std::int64_t heads = 4, key_heads = 4, queries = 200, keys = 300, d = 64, dv = 64;
  SdpaAttributes attributes = {};
  bool bias = false, dbias = false, lengths = false;
  DataType io = DataType::bf16;
  Dims bias_dim = {};  // of [2, heads, queries, keys], 1 where it is broadcast; else one a key
  DataType of_bias = DataType::none;
  bool block_mask = false;
  std::string_view wanted = "qkv";
  DataType gradients = DataType::none;  // of dK and dV
  bool computed_values = false;
};

std::unique_ptr<Graph> graph_of(const Attention& a) {
  auto made = std::make_unique<Graph>(GraphOptions{.io = a.io});
  Graph& g = *made;
  const auto input = [&](const char* name, std::int64_t heads, std::int64_t rows, std::int64_t d) {
    return g.tensor({.name = name, .dim = {2, heads, rows, d}});
  };
  const Tensor q = input("q", a.heads, a.queries, a.d), k = input("k", a.key_heads, a.keys, a.d),
               v = input("v", a.key_heads, a.keys, a.dv), o = input("o", a.heads, a.queries, a.dv),
               d_o = input("do", a.heads, a.queries, a.dv),
               stats = g.tensor({.name = "stats",
                                 .dim = {2, a.heads, a.queries, 1},
                                 .data_type = DataType::f32});
  SdpaInputs more;
  if (a.bias)
    more.bias = g.tensor({.name = "bias",
                          .dim = a.bias_dim.size() > 0 ? a.bias_dim : Dims{1, a.heads, 1, a.keys},
                          .data_type = a.of_bias});
  if (a.block_mask)
    more.block_mask =
        g.tensor({.name = "blocks",
                  .dim = {2, a.heads, (a.queries + 127) / 128, (a.keys + 1023) / 1024},
                  .data_type = DataType::u8});
  if (a.lengths) {
    more.seq_len_q = g.tensor({.name = "lq", .dim = {2, 1, 1, 1}, .data_type = DataType::i32});
    more.seq_len_kv = g.tensor({.name = "lk", .dim = {2, 1, 1, 1}, .data_type = DataType::i32});
  }
  if (a.attributes.dropout_probability > 0) {
    more.seed = g.tensor({.name = "seed", .dim = {1}, .data_type = DataType::i64});
    more.offset = g.tensor({.name = "offset", .dim = {1}, .data_type = DataType::i64});
  }
  const auto gradients =
      sdpa_backward(q, k, a.computed_values ? relu(v) : v, o, d_o, stats, a.attributes, more);
  const auto output = [&](char which, Tensor t, const char* name, DataType type) {
    if (a.wanted.find(which) != a.wanted.npos) g.output(t, name, {.data_type = type});
  };
  output('q', gradients.dq, "dq", DataType::none);
  output('k', gradients.dk, "dk", a.gradients);
  output('v', gradients.dv, "dv", a.gradients);
  if (a.dbias) g.output(gradients.dbias, "dbias", {.data_type = a.of_bias});
  for (const auto& d : g.check()) FAIL(d.message());
  return made;
}

Partition partitioned(const Graph& g, std::string_view target = "sm_90a") {
  const Lowered l = rewritten(lower(g), device_model(target));
  return partition(*l.graph, true, target, l.regions);
}
Partition planned(const Attention& a) { return partitioned(*graph_of(a)); }

bool is_fused(const Partition& p) {
  return std::any_of(p.kernels.begin(), p.kernels.end(),
                     [](const KernelSpec& k) { return k.as_attention_backward() != nullptr; });
}

// Delta, whose kernel writes the zeros of dQ's sums, too, where these have as many elements.
const std::vector<Family> kFused = {Family::rowwise, Family::attention_backward, Family::pointwise},
                          kZerosApart = {Family::rowwise, Family::pointwise,
                                         Family::attention_backward, Family::pointwise};

}  // namespace

TEST_CASE("attention backward is Delta with zeros, one kernel and dQ") {
  CHECK(families(planned({})) == kFused);
  CHECK(families(planned({.key_heads = 2})) == kFused);
  CHECK(families(planned({.d = 128, .dv = 128, .attributes = {.causal_mask = true}})) == kFused);
  for (const std::int64_t d : {136, 160, 192, 256})
    CHECK(families(planned({.d = d, .dv = d})) == kFused);
  CHECK(families(planned({.d = 192, .dv = 128})) == kZerosApart);
  CHECK(families(planned({.d = 64, .dv = 128})) == kZerosApart);
  CHECK(families(planned({.attributes = {.attn_scale = 0.125, .softcap = 20}})) == kFused);
  CHECK(families(planned({.attributes = {.alibi_mask = true}})) == kFused);
  CHECK(families(planned({.bias = true})) == kFused);
  CHECK(families(planned({.attributes = {.dropout_probability = 0.1}})) == kFused);
  CHECK(families(planned({.attributes = {.padding_mask = true}, .lengths = true})) == kFused);
}

TEST_CASE("the gradient of a bias is the kernel's") {
  const auto with = [](Dims dim, DataType type = DataType::none, SdpaAttributes attributes = {}) {
    return families(planned(
        {.attributes = attributes, .bias = true, .dbias = true, .bias_dim = dim, .of_bias = type}));
  };
  constexpr Family rows = Family::rowwise, each = Family::pointwise,
                   fused = Family::attention_backward;
  // Each element is stored once; before it are zeros where tiles may not be visited.
  CHECK(with({2, 4, 200, 300}) == kFused);
  CHECK(with({2, 4, 200, 300}, DataType::f32) == kFused);
  CHECK(with({2, 4, 200, 300}, DataType::none, {.causal_mask = true}) ==
        std::vector{rows, each, fused, each});
  // Sums of f32, which start as zeros; a result of 16 bits is converted from them.
  for (const Dims& dim : {Dims{1, 4, 200, 300}, Dims{2, 1, 200, 300}, Dims{2, 4, 1, 300},
                          Dims{2, 4, 200, 1}, Dims{2, 1, 1, 300}, Dims{1, 1, 1, 1}}) {
    CHECK(with(dim) == std::vector{rows, each, fused, each, each});
    CHECK(with(dim, DataType::f32) == std::vector{rows, each, fused, each});
  }
  CHECK(families(planned({.d = 192, .dv = 192, .bias = true, .dbias = true})) ==
        std::vector{rows, each, fused, each, each});
}

TEST_CASE("attention backward with a mask of blocks is one kernel") {
  CHECK(families(planned({.block_mask = true})) == kFused);
  CHECK(families(planned(
            {.d = 128, .dv = 128, .attributes = {.causal_mask = true}, .block_mask = true})) ==
        kFused);
  CHECK(families(planned({.d = 192, .dv = 128, .block_mask = true})) == kZerosApart);
}

TEST_CASE("what is not wanted of dQ, dK and dV has no kernels") {
  constexpr Family rows = Family::rowwise, fused = Family::attention_backward;
  for (const char* target : {"sm_90a", "sm_80"})
    for (const std::int64_t d : {64, 128}) {
      const auto with = [&](std::string_view wanted) {
        return families(partitioned(
            *graph_of({.heads = 32, .key_heads = 32, .d = d, .dv = d, .wanted = wanted}), target));
      };
      for (const char* wanted : {"q", "qk", "qv"}) CHECK(with(wanted) == kFused);
      for (const char* wanted : {"k", "kv"}) CHECK(with(wanted) == std::vector{rows, fused});
      CHECK(with("v") == std::vector{fused});  // without Delta
    }
  CHECK(families(planned({.d = 192, .dv = 128, .wanted = "k"})) == std::vector{rows, fused});
  CHECK(families(
            planned({.bias = true, .dbias = true, .bias_dim = {2, 4, 200, 300}, .wanted = ""})) ==
        std::vector{rows, fused});
}

TEST_CASE("gradients of any type and layout are the kernel's") {
  CHECK(families(planned({.gradients = DataType::f32})) == kFused);
  CHECK(families(planned({.gradients = DataType::f16})) == kFused);
  CHECK(families(planned({.d = 136, .dv = 136, .gradients = DataType::f32})) == kFused);
  CHECK(is_fused(partitioned(*graph_of({.gradients = DataType::f32}), "sm_80")));
  CHECK(is_fused(planned({.d = 20, .dv = 20})));
  CHECK(is_fused(partitioned(*graph_of({.d = 21, .dv = 21}), "sm_80")));
  // Virtual ones, of which another kernel makes something, and heads that it joins.
  for (const std::int64_t key_heads : {4, 2})
    for (const bool joined : {false, true}) {
      INFO(key_heads << " heads of keys, joined " << joined);
      Graph g({.io = DataType::bf16});
      const auto input = [&](const char* name, std::int64_t heads, std::int64_t width = 64) {
        return g.tensor({.name = name, .dim = {2, heads, 200, width}});
      };
      const Tensor q = input("q", 4), k = input("k", key_heads), v = input("v", key_heads),
                   o = input("o", 4), d_o = input("do", 4),
                   stats = input("stats", 4, 1).type(DataType::f32);
      const auto gradients = sdpa_backward(q, k, v, o, d_o, stats);
      const auto output = [&](const Tensor& gradient, const Tensor& of, const char* name) {
        g.output(joined ? transpose(gradient.type(DataType::bf16), {0, 2, 1, 3}) : gradient * of,
                 name);
      };
      output(gradients.dq, q, "dq");
      output(gradients.dk, k, "dk");
      output(gradients.dv, v, "dv");
      CHECK(is_fused(partitioned(g)));
      CHECK(is_fused(partitioned(g, "sm_80")));
    }
}

TEST_CASE("dQ in one order has counters behind its sums, where the order matters") {
  const auto in_order = [](Attention a, std::string_view target) {
    a.attributes.deterministic = true;
    const Partition p = partitioned(*graph_of(a), target);
    for (const KernelSpec& k : p.kernels)
      if (k.as_attention_backward())
        return plan_attention_backward(k, device_model(target))->in_order;
    FAIL("it is not one kernel");
    return false;
  };
  for (const char* target : {"sm_90a", "sm_80"}) {
    CHECK(in_order({.keys = 300}, target));
    CHECK_FALSE(in_order({.keys = 256}, target));
    CHECK_FALSE(in_order({.keys = 300, .wanted = "kv"}, target));
  }
  CHECK(in_order({.keys = 200, .d = 256, .dv = 256}, "sm_90a"));
  CHECK(in_order({.keys = 300, .block_mask = true}, "sm_90a"));
}

TEST_CASE("backward a bias of 16 bits for each pair comes in boxes") {
  struct Case {
    const char* name;
    Attention a;
    bool boxed;
  };
  const Dims all = {2, 4, 200, 304}, batch = {2, 1, 200, 304};
  const Case cases[] = {
      {"all", {.keys = 304, .bias = true, .bias_dim = all}, true},
      {"heads", {.keys = 304, .d = 128, .dv = 128, .bias = true, .bias_dim = batch}, true},
      {"f32", {.keys = 304, .bias = true, .bias_dim = all, .of_bias = DataType::f32}, false},
      {"keys alone", {.keys = 304, .bias = true}, false},
      {"lines that TMA does not take", {.bias = true, .bias_dim = {2, 4, 200, 300}}, false},
      {"wide heads", {.keys = 304, .d = 256, .dv = 256, .bias = true, .bias_dim = all}, false},
  };
  for (const Case& c : cases) {
    INFO(c.name);
    int boxes = -1;
    for (const KernelSpec& k : partitioned(*graph_of(c.a), "sm_90a").kernels)
      if (k.as_attention_backward())
        boxes = plan_attention_backward(k, device_model("sm_90a"))->beside.has_value();
    CHECK(boxes == c.boxed);
  }
}

TEST_CASE("CTAs share the queries of a tile of keys where tiles leave SMs idle") {
  constexpr Family rows = Family::rowwise, each = Family::pointwise,
                   fused = Family::attention_backward;
  const auto parts = [](const Attention& a, std::string_view target) {
    const Partition p = partitioned(*graph_of(a), target);
    for (const KernelSpec& k : p.kernels)
      if (k.as_attention_backward()) return k.attention_backward().parts;
    FAIL("it is not one kernel");
    return 0;
  };
  const Attention few_keys{.queries = 4096, .keys = 77},
      one_head{.heads = 16, .key_heads = 1, .queries = 1024, .keys = 1024};
  for (const char* target : {"sm_90a", "sm_80"}) {
    CHECK(parts(few_keys, target) > 4);
    CHECK(parts(one_head, target) > 4);
    // Tiles for all SMs; few queries; loops over tiles that are counted on the GPU.
    CHECK(parts({.heads = 64, .key_heads = 64, .queries = 1024, .keys = 1024}, target) == 1);
    CHECK(parts({.queries = 128, .keys = 77}, target) == 1);
    Attention blocks = few_keys;
    blocks.block_mask = true;
    CHECK(parts(blocks, target) == 1);
  }
  // dK and dV are added up by one kernel where they are alike, else by two; what is wanted alone.
  Attention a = few_keys;
  CHECK(families(planned(a)) == std::vector{rows, fused, each});
  a.dv = 32;
  CHECK(families(planned(a)) == std::vector{rows, fused, each, each});
  a.wanted = "v";
  CHECK(families(planned(a)) == std::vector{fused, each});
  a.wanted = "q";
  CHECK(families(planned(a)) == std::vector{rows, fused});
}

TEST_CASE("the workspace of attention backward has no scores") {
  const Attention a{.queries = 2048, .keys = 2048};
  // dQ's sums and Delta.
  const std::int64_t rows = 2 * a.heads * a.queries;
  CHECK(planned(a).workspace_bytes <= rows * 4 * (a.d + 1) + 256);
  Attention with_bias = a;
  with_bias.bias = with_bias.dbias = true;
  CHECK(planned(with_bias).workspace_bytes <=
        rows * 4 * (a.d + 1) + a.heads * a.keys * 4 + 2 * 256);
}

TEST_CASE("what the kernel of attention backward does not have keeps the expansion") {
  CHECK_FALSE(is_fused(planned({.d = 264, .dv = 264})));
  // A dBias that is added in any order.
  CHECK_FALSE(
      is_fused(planned({.attributes = {.deterministic = true}, .bias = true, .dbias = true})));
  // Of f32, wide heads, and sums of few terms.
  CHECK_FALSE(is_fused(planned({.d = 136, .dv = 136, .io = DataType::f32})));
  CHECK_FALSE(is_fused(planned({.queries = 7, .io = DataType::f32})));
  // V is not there where dV alone is wanted.
  CHECK_FALSE(is_fused(planned({.wanted = "v", .computed_values = true})));
}

TEST_CASE("attention backward of f32 operands is one kernel by warps") {
  for (const char* const target : {"sm_90a", "sm_80"})
    CHECK(families(partitioned(*graph_of({.heads = 16, .key_heads = 16, .io = DataType::f32}),
                               target)) == kFused);
  // As wide as shared memory allows.
  CHECK(families(planned({.heads = 32,
                          .key_heads = 32,
                          .queries = 40,
                          .d = 128,
                          .dv = 96,
                          .io = DataType::f32})) == kZerosApart);
  // Of few heads CTAs share the queries.
  CHECK(is_fused(planned({.io = DataType::f32})));
  // Of long rows the expansion is faster for wide heads, while its scores have room.
  const auto long_rows = [](std::int64_t heads, std::int64_t d, SdpaAttributes a = {}) {
    a.causal_mask = true;
    return is_fused(planned({.heads = heads,
                             .key_heads = heads,
                             .queries = 2048,
                             .keys = 2048,
                             .d = d,
                             .dv = d,
                             .attributes = a,
                             .io = DataType::f32}));
  };
  CHECK_FALSE(long_rows(4, 128));
  CHECK(long_rows(4, 64));
  CHECK(long_rows(16, 128));
  CHECK(long_rows(4, 128, {.dropout_probability = 0.1}));  // whose mask the expansion has in memory
}

TEST_CASE("other GPUs run attention backward of up to 128 elements a head in one kernel, too") {
  const auto on_sm_80 = [](const Attention& a) { return partitioned(*graph_of(a), "sm_80"); };
  CHECK(is_fused(on_sm_80({})));
  CHECK(families(on_sm_80({.heads = 32, .key_heads = 16, .d = 128, .dv = 128})) == kFused);
  CHECK(families(on_sm_80({.d = 40, .dv = 128, .attributes = {.causal_mask = true}})) ==
        kZerosApart);
  CHECK(is_fused(on_sm_80({.bias = true, .dbias = true})));
  CHECK_FALSE(is_fused(on_sm_80({.d = 136, .dv = 136})));
}

TEST_CASE("attention backward's kernels give what the expansion gives") {
  for (const Attention& a :
       {Attention{.key_heads = 2, .queries = 20, .keys = 30, .d = 16, .dv = 8},
        Attention{.queries = 20,
        .keys = 17,
        .d = 16,
        .dv = 8,
        .attributes = {.attn_scale = 0.3, .causal_mask_bottom_right = true}},
        Attention{.queries = 20,
        .keys = 17,
        .d = 16,
        .dv = 16,
        .attributes = {.attn_scale = 0.3, .left_bound = 5, .softcap = 2},
        .bias = true},
        Attention{.queries = 20,
        .keys = 17,
        .d = 16,
        .dv = 16,
        .attributes = {.dropout_probability = 0.4}},
        Attention{.queries = 20,
        .keys = 17,
        .d = 16,
        .dv = 16,
        .attributes = {.causal_mask = true, .softcap = 2},
        .bias = true,
        .dbias = true,
        .bias_dim = {2, 4, 20, 17}},
        Attention{.queries = 20,
        .keys = 17,
        .d = 16,
        .dv = 16,
        .bias = true,
        .dbias = true,
        .bias_dim = {1, 4, 1, 17}},
        Attention{.queries = 140,
        .keys = 150,
        .d = 8,
        .dv = 8,
        .bias = true,
        .dbias = true,
        .bias_dim = {2, 1, 140, 150},
        .of_bias = DataType::f32,
        .block_mask = true},
        Attention{.queries = 20, .keys = 17, .d = 16, .dv = 8, .wanted = "q"},
        Attention{.key_heads = 2,
        .queries = 20,
        .keys = 17,
        .d = 16,
        .dv = 8,
        .attributes = {.dropout_probability = 0.4},
        .wanted = "k",
        .gradients = DataType::f32},
        Attention{.queries = 20, .keys = 17, .d = 13, .dv = 9, .wanted = "v"},
        Attention{
            .queries = 20, .keys = 300, .d = 16, .dv = 8, .attributes = {.deterministic = true}},
        Attention{
            .queries = 20, .keys = 17, .d = 0, .dv = 8, .attributes = {.deterministic = true}}}) {
    const auto made = graph_of(a);
    Graph& g = *made;
    GraphCase c(g, Fill::normal, 7);
    for (const char* target : {"sm_90a", "sm_80"}) {
      c.clear_outputs();
      interpret(partition(c.lowered(), true, target, c.lowering().regions), c.memory(),
                c.lowered());
      const Comparison r = c.judge();
      INFO(target << ": " << r.first_wrong);
      CHECK(r.ok());
      CHECK(r.compared > 0);
    }
  }
}

namespace {
// Adds the kernels of a graph's gradients.
void add_kernels(const Attention& a, const char* target, std::vector<NamedKernel>& kernels) {
  const Partition p = partitioned(*graph_of(a), target);
  REQUIRE(is_fused(p));
  for (const KernelSpec& k : p.kernels) {
    const EmittedKernel kernel = emit_kernel(schedule_kernel(k, {device_model(target), Tuning{}}));
    kernels.push_back(
        {"d " + std::to_string(a.d) + ", dv " + std::to_string(a.dv), kernel.source, kernel.entry});
  }
}
void check_compiled_by_warps(std::initializer_list<Attention> all, const char* target) {
  constexpr std::string_view kComplaints[] = {"serialized", "setmaxnreg ignored", "spill"};
  std::vector<NamedKernel> with_bias, others;
  for (const Attention& a : all) add_kernels(a, target, a.bias ? with_bias : others);
  expect_no_complaint(others, target, kComplaints);
  // A bias beside 128 elements a head takes six registers more than there are.
  expect_no_complaint(with_bias, target, std::span(kComplaints).first(2));
}
}  // namespace

TEST_CASE("kernels of attention backward by warps compile without a complaint", "[nvrtc]") {
  if (!test::can_compile()) return;
  const Attention wide{.d = 128, .dv = 128, .attributes = {.causal_mask = true}};
  check_compiled_by_warps({wide}, "sm_89");
  check_compiled_by_warps({{}}, "sm_120a");  // of `wide` two registers are spilled there
  check_compiled_by_warps(
      {wide, Attention{},
       Attention{.d = 96, .dv = 72, .attributes = {.left_bound = 50, .right_bound = 3}},
       Attention{.d = 40, .dv = 24, .attributes = {.padding_mask = true}, .lengths = true},
       Attention{.d = 128, .dv = 128, .attributes = {.softcap = 20}, .bias = true},
       Attention{.attributes = {.dropout_probability = 0.1}},
       Attention{.d = 128, .dv = 128, .bias = true, .dbias = true},
       Attention{.d = 128, .dv = 128, .block_mask = true},
       Attention{.d = 128, .dv = 128, .wanted = "q"}, Attention{.wanted = "kv"},
       Attention{.d = 128, .dv = 128, .gradients = DataType::f32},
       Attention{.attributes = {.deterministic = true}}},
      "sm_80");
}

TEST_CASE("kernels of attention backward compile for sm_90a without a complaint", "[nvrtc]") {
  if (!test::can_compile()) return;
  const std::int64_t long_rows = 4096;
  std::vector<NamedKernel> kernels;
  for (const Attention& a :
       {Attention{.queries = long_rows, .keys = long_rows, .d = 128, .dv = 128},
        Attention{.queries = long_rows, .keys = long_rows},
        Attention{.key_heads = 1,
        .queries = long_rows,
        .keys = long_rows,
        .d = 128,
        .dv = 128,
        .attributes = {.causal_mask = true}},
        Attention{.queries = long_rows, .keys = long_rows, .attributes = {.causal_mask = true}},
        Attention{.d = 96, .dv = 72, .attributes = {.left_bound = 50, .right_bound = 3}},
        Attention{.d = 40, .dv = 24, .attributes = {.padding_mask = true}, .lengths = true},
        Attention{.d = 128, .dv = 128, .attributes = {.softcap = 20}, .bias = true},
        Attention{.queries = long_rows, .keys = long_rows, .d = 256, .dv = 256},
        Attention{.key_heads = 1,
        .queries = long_rows,
        .keys = long_rows,
        .d = 192,
        .dv = 128,
        .attributes = {.causal_mask = true}},
        Attention{.d = 160, .dv = 160, .attributes = {.padding_mask = true}, .lengths = true},
        Attention{.d = 64, .dv = 128, .attributes = {.left_bound = 50, .right_bound = 3}},
        Attention{.d = 256, .dv = 256, .attributes = {.softcap = 20}, .bias = true},
        Attention{.d = 192, .dv = 256, .attributes = {.dropout_probability = 0.1}},
        Attention{.attributes = {.alibi_mask = true}, .io = DataType::f16},
        Attention{.keys = 304, .bias = true, .bias_dim = {2, 4, 200, 304}},
        Attention{.queries = long_rows,
        .keys = long_rows,
        .d = 128,
        .dv = 128,
        .bias = true,
        .dbias = true,
        .bias_dim = {2, 4, long_rows, long_rows}},
        Attention{.queries = long_rows,
        .keys = long_rows,
        .d = 128,
        .dv = 128,
        .bias = true,
        .dbias = true,
        .bias_dim = {1, 4, long_rows, long_rows}},
        Attention{.d = 128, .dv = 128, .bias = true, .dbias = true},
        Attention{.d = 192, .dv = 192, .bias = true, .dbias = true},
        Attention{.queries = long_rows, .keys = long_rows, .d = 128, .dv = 128, .block_mask = true},
        Attention{.d = 192, .dv = 128, .block_mask = true},
        Attention{.d = 128, .dv = 128, .wanted = "q"},
        Attention{.wanted = "qv"},
        Attention{.d = 128, .dv = 128, .wanted = "kv"},
        Attention{.wanted = "v"},
        Attention{.d = 192, .dv = 128, .wanted = "q"},
        Attention{.d = 256, .dv = 256, .wanted = "kv"},
        Attention{.d = 128, .dv = 128, .gradients = DataType::f32},
        Attention{.d = 256, .dv = 256, .gradients = DataType::f32},
        Attention{.d = 128, .dv = 128, .attributes = {.causal_mask = true, .deterministic = true}},
        Attention{.d = 192, .dv = 192, .attributes = {.deterministic = true}},
        Attention{.attributes = {.deterministic = true}, .block_mask = true}})
    add_kernels(a, "sm_90a", kernels);
  expect_no_complaint(kernels, "sm_90a", {{"serialized", "setmaxnreg ignored"}});
}

}  // namespace sinter::test
