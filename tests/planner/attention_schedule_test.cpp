// How many CTAs of attention forward lie on an SM, and how many warps have the same rows; in which
// order gradients walk over queries, and how those of few keys are computed.
#include <algorithm>
#include <utility>

#include "emit/emit.hpp"
#include "planned.hpp"
#include "schedule/attention/backward.hpp"
#include "schedule/attention/forward.hpp"
#include "schedule/scheduled_kernel.hpp"
#include "sinter/sinter.hpp"
#include "support/can_compile.hpp"
#include "support/catch.hpp"
#include "support/compiled_kernels.hpp"
#include "target/device_model.hpp"

namespace sinter::test {
namespace {

struct Heads {
  std::int64_t count, keys, d = 64, queries = 1;
  double softcap = 0;
  DataType cache = bf16;
  std::int64_t shared = 1;  // heads of q for each of k and v
};

AttentionConfig schedule_of(const Heads& h) {
  Graph g({.name = "attention", .io = bf16, .intermediate = f32});
  const auto tensor = [&](const char* name, std::int64_t rows) {
    return g.tensor({.name = name, .dim = {1, h.count * h.shared, rows, h.d}});
  };
  const auto cache = [&](const char* name) {
    return g.tensor({.name = name, .dim = {1, h.count, h.keys, h.d}, .data_type = h.cache});
  };
  const Tensor q = tensor("q", h.queries), k = cache("k"), v = cache("v");
  g.output(sdpa(q, k, v, {.attn_scale = 0.125, .softcap = h.softcap}).o, "o");
  const Partition p = for_sm_90a(g);
  for (const KernelSpec& spec : p.kernels)
    if (spec.as_attention())
      return *schedule_kernel(spec, {device_model("sm_90a"), Tuning{}}).attention();
  FAIL("no attention");
  return {};
}

TEST_CASE("heads of few rows have several CTAs on an SM where that is faster") {
  const DeviceModel device = device_model("sm_90a");
  // All at once; two on nearly every SM, where a third would leave others none; several rounds.
  const std::pair<Heads, int> several[] = {{{320, 1500}, 3},    {{160, 1500}, 3}, {{192, 2000}, 3},
                                           {{140, 300, 32}, 3}, {{256, 1024}, 2}, {{1024, 577}, 2}};
  for (const auto& [h, blocks] : several) {
    INFO(h.count << " heads of " << h.keys << " keys");
    const AttentionConfig e = schedule_of(h);
    CHECK(e.least_blocks == blocks);
    CHECK(e.grid ==
          static_cast<std::uint32_t>(std::min<std::int64_t>(h.count, device.sms * blocks)));
  }
  // One on each SM at most; wider heads; scores with a body; many rows.
  for (const Heads& h : {Heads{100, 1500}, Heads{320, 1500, 128}, Heads{320, 1500, 64, 1, 20.0},
                         Heads{160, 2048, 64, 100}}) {
    INFO(h.count << " heads of " << h.d << ", " << h.keys << " keys");
    CHECK(schedule_of(h).least_blocks == 1);
  }
}

TEST_CASE("windows of few keys have one tile of keys, three CTAs on an SM and no shares") {
  for (const std::int64_t keys : {49, 64}) {
    INFO(keys << " keys");
    const AttentionConfig e = schedule_of({6144, keys, 32, keys});
    CHECK(e.least_blocks == 3);
    CHECK(e.tile_k == 64);
  }
  CHECK(schedule_of({6144, 48, 32, 48}).least_blocks == 4);
}

TEST_CASE("warps divide the keys of f8 where each has many tiles") {
  const auto cached = [](std::int64_t count, std::int64_t keys, std::int64_t d = 128,
                         std::int64_t queries = 1) {
    return schedule_of({count, keys, d, queries, 0, f8e4m3});
  };
  CHECK(cached(128, 8192).key_warps == 4);
  CHECK(cached(512, 2048).key_warps == 4);
  CHECK(cached(128, 16384, 64, 16).key_warps == 4);
  // Parts of a cache fill the SMs with CTAs of four warps.
  CHECK(cached(128, 8192).attention.splits == 2);
  // Few keys; rows or heads whose tiles are widened in shared memory.
  for (const AttentionConfig& e :
       {cached(8, 8192), cached(32, 1024), cached(512, 2048, 128, 17), cached(512, 2048, 144)}) {
    CHECK(e.key_warps == 1);
    CHECK(e.by_warps);
  }
  CHECK(cached(8, 8192).stages == 3);
}

TEST_CASE("parts of the keys of many heads over one leave half of the SMs idle or fill them") {
  const auto parts = [](std::int64_t count, std::int64_t keys, std::int64_t shared,
                        std::int64_t d = 128) {
    return schedule_of({.count = count, .keys = keys, .d = d, .shared = shared}).attention.splits;
  };
  CHECK(parts(16, 65536, 64) == 8);
  CHECK(parts(16, 65536, 64, 64) == 8);  // in four, one warpgroup is later than memory
  CHECK(parts(32, 16384, 64) == 4);
  CHECK(parts(8, 8192, 32) == 8);
  CHECK(parts(8, 32768, 4) == 9);  // few rows
}

TEST_CASE("blocks of clusters on most SMs join the parts of many rows, each some") {
  const auto schedule = [](std::int64_t count, std::int64_t keys, std::int64_t shared,
                           std::int64_t d = 128) {
    return schedule_of({.count = count, .keys = keys, .d = d, .shared = shared});
  };
  // Of so many parts that memory, and no warpgroup, is late, two warpgroups would leave twice.
  for (const AttentionConfig& e : {schedule(16, 16384, 64), schedule(16, 4096, 32)}) {
    CHECK(e.key_blocks == 6);
    CHECK(e.alternating == 1);
  }
  const AttentionConfig narrow = schedule(16, 16384, 64, 64);
  CHECK(narrow.key_blocks == 6);
  CHECK(narrow.alternating == 2);
  // Long caches; on half of the SMs, or by few blocks, one would join too much.
  for (const AttentionConfig& e :
       {schedule(16, 65536, 64), schedule(8, 16384, 64), schedule(4, 16384, 64)})
    CHECK(e.key_blocks == 1);
  CHECK(schedule(32, 16384, 64).key_blocks == 1);
}

struct Gradients {
  std::int64_t heads = 64, key_heads = 8, d = 128, dv = 128;
  SdpaAttributes attributes = {.causal_mask = true};
  std::int64_t queries = 8192, keys = 8192;
  bool bias = false, lengths = false, blocks = false;
  bool in_place = false;     // dQ in q's memory
  std::int64_t entries = 1;  // which share the bias
};

Partition gradients_of(const Gradients& c, std::string_view target) {
  Graph g({.io = bf16});
  const auto tensor = [&](const char* name, std::int64_t heads, std::int64_t rows,
                          std::int64_t width) {
    return g.tensor({.name = name, .dim = {c.entries, heads, rows, width}});
  };
  const Tensor q = tensor("q", c.heads, c.queries, c.d), k = tensor("k", c.key_heads, c.keys, c.d),
               v = tensor("v", c.key_heads, c.keys, c.dv),
               o = tensor("o", c.heads, c.queries, c.dv),
               d_o = tensor("do", c.heads, c.queries, c.dv),
               stats = tensor("stats", c.heads, c.queries, 1).type(f32);
  SdpaInputs more;
  if (c.bias) more.bias = g.tensor({.name = "bias", .dim = {1, c.heads, c.queries, c.keys}});
  if (c.blocks)
    more.block_mask = tensor("blocks", c.heads, (c.queries + 127) / 128, (c.keys + 1023) / 1024)
                          .type(DataType::u8);
  if (c.lengths) {
    more.seq_len_q = g.tensor({.name = "lq", .dim = {1, 1, 1, 1}, .data_type = DataType::i32});
    more.seq_len_kv = g.tensor({.name = "lk", .dim = {1, 1, 1, 1}, .data_type = DataType::i32});
  }
  if (c.attributes.dropout_probability > 0) {
    more.seed = g.tensor({.name = "seed", .dim = {1}, .data_type = DataType::i64});
    more.offset = g.tensor({.name = "offset", .dim = {1}, .data_type = DataType::i64});
  }
  const auto r = sdpa_backward(q, k, v, o, d_o, stats, c.attributes, more);
  g.output(r.dq, "dq", {.alias = c.in_place ? q : Tensor{}});
  g.output(r.dk, "dk"), g.output(r.dv, "dv");
  if (c.bias) g.output(r.dbias, "dbias");
  REQUIRE(g.check().empty());
  const Lowered lowered = lower(g);
  return partition(*lowered.graph, true, PlanContext{device_model(target), {}}, lowered.regions,
                   aliases_of(g, *lowered.graph));
}
AttentionBackwardConfig config_of(const Gradients& c, std::string_view target = "sm_90a") {
  for (const KernelSpec& spec : gradients_of(c, target).kernels)
    if (spec.as_attention_backward())
      return plan_attention_backward(spec, device_model(target)).value();
  FAIL("it is not one kernel");
  return {};
}
int blocks_of_round(const Gradients& c, std::string_view target = "sm_90a") {
  return config_of(c, target).blocks_of_round;
}

TEST_CASE("gradients of many heads over one walk tile by tile of queries") {
  const int sms = device_model("sm_90a").sms;
  CHECK(blocks_of_round({}) == sms);
  CHECK(blocks_of_round({.key_heads = 16}) == sms);
  CHECK(blocks_of_round({.d = 96, .dv = 72}) == sms);
  // A few heads over one, and one; narrow and wide ones; without a bound all walks are alike, and
  // so they are in windows; scores and weights with bodies; in one order; by warps.
  CHECK(blocks_of_round({.key_heads = 32}) == 0);
  CHECK(blocks_of_round({.key_heads = 64}) == 0);
  CHECK(blocks_of_round({.d = 64, .dv = 64}) == 0);
  CHECK(blocks_of_round({.d = 192}) == 0);
  for (const SdpaAttributes& a :
       {SdpaAttributes{}, SdpaAttributes{.causal_mask = true, .left_bound = 512},
        SdpaAttributes{.causal_mask = true, .softcap = 20},
        SdpaAttributes{.causal_mask = true, .dropout_probability = 0.1},
        SdpaAttributes{.causal_mask = true, .deterministic = true}})
    CHECK(blocks_of_round({.attributes = a}) == 0);
  CHECK(blocks_of_round({}, "sm_80") == 0);
}

// Of few keys and queries.
Gradients few(std::int64_t queries, std::int64_t keys, std::int64_t d = 64,
              SdpaAttributes attributes = {}) {
  return {.heads = 300,
          .key_heads = 300,
          .d = d,
          .dv = d,
          .attributes = attributes,
          .queries = queries,
          .keys = keys};
}

TEST_CASE("dQ is stored where one tile of keys has all of it") {
  const auto stored = [](const Gradients& c, std::string_view target = "sm_90a") {
    const Partition p = gradients_of(c, target);
    const bool converts = p.kernels.back().as_attention_backward() == nullptr;
    for (const KernelSpec& spec : p.kernels)
      if (const auto* a = spec.as_attention_backward()) {
        CHECK(converts != a->dq_factor.has_value());
        return a->dq_factor.has_value();
      }
    FAIL("it is not one kernel");
    return false;
  };
  CHECK(stored(few(200, 128)));
  CHECK(stored(few(200, 256)));
  CHECK_FALSE(stored(few(200, 257)));
  CHECK(stored(few(200, 256, 64, {.causal_mask = true})));
  CHECK(stored(few(200, 100, 128)));
  CHECK_FALSE(stored(few(200, 129, 72)));
  CHECK(stored(few(200, 77, 64, {.causal_mask = true})));
  CHECK(stored(few(200, 64, 64, {.softcap = 20})));
  CHECK(stored(few(90, 100, 64, {.causal_mask_bottom_right = true})));
  Gradients shared = few(200, 100);
  shared.key_heads = 150;
  CHECK(stored(shared));
  // Rows that meet no tile of keys begin as zeros.
  CHECK_FALSE(stored(few(200, 100, 64, {.left_bound = 30})));
  CHECK_FALSE(stored(few(200, 100, 64, {.causal_mask_bottom_right = true})));
  Gradients hidden = few(200, 100, 64, {.padding_mask = true});
  hidden.lengths = true;
  CHECK_FALSE(stored(hidden));
  hidden = few(200, 100);
  hidden.blocks = true;
  CHECK_FALSE(stored(hidden));
  Gradients in_place = few(200, 100);
  in_place.in_place = true;
  CHECK_FALSE(stored(in_place));
  // Tiles of wide heads are shorter; lines that TMA does not store; other GPUs add to sums.
  CHECK(stored(few(200, 77, 160)));
  CHECK_FALSE(stored(few(200, 100, 192)));
  CHECK_FALSE(stored(few(200, 100, 20)));
  CHECK_FALSE(stored(few(200, 100), "sm_80"));
}

TEST_CASE("gradients of up to 64 keys have one consumer, and several CTAs on an SM") {
  const auto is = [](const Gradients& c, int consumers, int blocks, int stages) {
    INFO(c.queries << " queries, " << c.keys << " keys, d " << c.d);
    const AttentionBackwardConfig e = config_of(c);
    CHECK(e.consumers == consumers);
    CHECK(e.least_blocks == blocks);
    CHECK(e.stages == stages);
  };
  is(few(49, 49, 32), 1, 3, 1);
  is(few(49, 64), 1, 2, 1);
  is(few(65, 64, 32), 1, 2, 2);  // walks over two tiles of queries
  is(few(49, 65), 2, 1, 2);
  is(few(49, 49, 96), 1, 2, 1);
  is(few(65, 49, 96), 2, 1, 2);  // whose two CTAs do not fit
  is(few(49, 49, 104), 2, 1, 2);
}

TEST_CASE("129 to 256 keys of narrow heads are one tile") {
  const auto is = [](const Gradients& c, int consumers, int tile_k, int last_queries) {
    INFO(c.queries << " queries, " << c.keys << " keys, d " << c.d);
    const AttentionBackwardConfig e = config_of(c);
    CHECK(e.consumers == consumers);
    CHECK(e.tile_k == tile_k);
    CHECK(e.tile_q == 64);
    CHECK(e.last_queries == last_queries);
  };
  is(few(128, 129), 3, 192, 0);
  is(few(144, 192, 32), 3, 192, 16);
  is(few(200, 192, 64, {.causal_mask = true}), 3, 192, 16);
  is(few(197, 193), 2, 256, 16);
  is(few(100, 256), 2, 256, 48);
  is(few(10, 256), 2, 256, 16);
  CHECK(config_of(few(200, 257)).tile_k == 128);
  CHECK(config_of(few(200, 129, 72)).tile_k == 128);
  // As many entries in turn as SMs leave to each; not with biases, whose boxes lie where K would.
  const auto turns = [](std::int64_t entries, std::int64_t heads, bool bias = false) {
    Gradients c = few(197, 197);
    c.entries = entries, c.heads = c.key_heads = heads, c.bias = bias;
    return config_of(c).windows;
  };
  CHECK(turns(64, 12) == 6);
  CHECK(turns(11, 12) == 1);
  CHECK(turns(22, 12) == 2);
  CHECK(turns(64, 12, true) == 1);
}

TEST_CASE("windows whose bias has a gradient are taken in turn") {
  const auto is = [](std::int64_t entries, Gradients c, int windows, unsigned grid) {
    INFO(entries << " x " << c.heads << " windows of " << c.queries << " and " << c.keys);
    c.entries = entries, c.bias = true;
    const AttentionBackwardConfig e = config_of(c);
    CHECK(e.windows == windows);
    CHECK(e.grid == grid);
  };
  const auto of_heads = [](std::int64_t heads, Gradients c) {
    c.heads = c.key_heads = heads;
    return c;
  };
  // As many as make rounds of three CTAs an SM, or of two, and more of them where heads are few.
  is(1024, of_heads(6, few(49, 49, 32)), 16, 6 * 64);
  is(66, of_heads(6, few(49, 49, 32)), 1, 6 * 66);
  is(67, of_heads(6, few(49, 49, 32)), 2, 6 * 34);
  is(512, of_heads(12, few(49, 49, 64)), 24, 12 * 22);
  is(8192, of_heads(6, few(64, 64, 32)), 63, 6 * 131);
  is(3, of_heads(500, few(49, 49, 32)), 1, 3 * 500);
  // Several tiles; bounds; too little shared memory.
  is(1024, of_heads(6, few(65, 49, 32)), 1, 6 * 1024);
  is(1024, of_heads(6, few(49, 65, 32)), 1, 6 * 1024);
  is(1024, of_heads(6, few(49, 49, 32, {.causal_mask = true})), 1, 6 * 1024);
  is(1024, of_heads(6, few(49, 49, 96)), 1, 6 * 1024);
  Gradients plain = of_heads(6, few(49, 49, 32));
  plain.entries = 1024;
  CHECK(config_of(plain).windows == 1);
}

TEST_CASE("kernels of gradients of few keys compile without spills", "[nvrtc]") {
  if (!can_compile()) return;
  Gradients bias = few(49, 49, 32);
  bias.bias = true;
  std::vector<NamedKernel> kernels;
  for (const Gradients& c :
       {few(200, 128, 64, {.causal_mask = true}), few(200, 100, 128, {.causal_mask = true}),
        few(4096, 77, 40), few(49, 49, 32), bias, few(64, 64, 32, {.causal_mask = true}),
        few(64, 64, 64, {.causal_mask = true}), few(200, 77, 160),
        few(24, 24, 96, {.causal_mask = true}), few(197, 197), few(160, 160), few(192, 192, 48),
        few(144, 144, 32)})
    for (const KernelSpec& spec : gradients_of(c, "sm_90a").kernels) {
      if (!spec.as_attention_backward()) continue;
      const EmittedKernel kernel =
          emit_kernel(schedule_kernel(spec, {device_model("sm_90a"), Tuning{}}));
      kernels.push_back({std::to_string(c.queries) + " queries, " + std::to_string(c.keys) +
                             " keys, d " + std::to_string(c.d),
                         kernel.source, kernel.entry});
    }
  expect_no_complaint(kernels, "sm_90a", {{"serialized", "setmaxnreg ignored", "spill"}});
}

}  // namespace
}  // namespace sinter::test
