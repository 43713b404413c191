// Attention forward: what one kernel of sm_90a takes, of sdpa nodes and of graphs that write it
// out.
#include <limits>

#include "emit/emit.hpp"
#include "planned.hpp"
#include "schedule/attention/forward.hpp"
#include "schedule/attention/forward_parts.hpp"
#include "schedule/scheduled_kernel.hpp"
#include "sinter/sinter.hpp"
#include "support/catch.hpp"
#include "target/device_model.hpp"

namespace sinter::test {
namespace {

struct Shape {
  std::int64_t b = 1, h = 2, hk = 2, sq = 40, skv = 70, d = 64, dv = 64;
  std::int64_t hv = 0;  // 0: those of k
  DataType io = bf16;
  bool packed_heads = true;  // of q, k and v: each head's rows lie apart by odd strides if not
};

Shared<Graph> start(const Shape& s) {
  return Shared<Graph>::make(GraphOptions{.name = "attention", .io = s.io, .intermediate = f32});
}
struct Operands {
  Tensor q, k, v;
};
Operands operands(Graph& g, const Shape& s) {
  const std::int64_t hv = s.hv ? s.hv : s.hk;
  const auto tensor = [&](const char* name, Dims dim) {
    const std::int64_t row = dim[3] + 1;
    const Dims apart{dim[1] * dim[2] * row, dim[2] * row, row, 1};
    return g.tensor({.name = name, .dim = dim, .stride = s.packed_heads ? Dims{} : apart});
  };
  return {tensor("q", {s.b, s.h, s.sq, s.d}), tensor("k", {s.b, s.hk, s.skv, s.d}),
          tensor("v", {s.b, hv, s.skv, s.dv})};
}

// What sm_90a runs for one sdpa node with these attributes; `more` adds inputs and what follows.
template <class F>
Partition planned(const Shape& s, SdpaAttributes a, const F& inputs) {
  auto g = start(s);
  const auto [q, k, v] = operands(*g, s);
  const SdpaOutputs r = sdpa(q, k, v, a, inputs(*g));
  g->output(r.o, "o");
  if (r.stats) g->output(r.stats, "stats", {.data_type = f32});
  REQUIRE(g->check().empty());
  return for_sm_90a(*g);
}
std::size_t kernels_of(const Shape& s, SdpaAttributes a = {}) {
  return planned(s, a, [](Graph&) { return SdpaInputs{}; }).kernels.size();
}
bool is_one(const Partition& p) { return families(p) == std::vector{Family::attention}; }

}  // namespace

TEST_CASE("what is the same for all scores of a head is computed once") {
  const auto text_of = [](SdpaAttributes a, auto inputs) {
    const Partition p = planned({.b = 2, .sq = 256, .skv = 256}, a, inputs);
    REQUIRE(is_one(p));
    return emit_kernel(schedule_kernel(p.kernels[0], {device_model("sm_90a"), Tuning{}})).source;
  };
  const auto element = [](const std::string& text) {
    const std::size_t from = text.find("float element(const Args& args, const FirstCoord& c,");
    REQUIRE(from != std::string::npos);
    return text.substr(from, text.find("return", from) - from);
  };
  const auto none = [](Graph&) { return SdpaInputs{}; };
  const std::string slopes = text_of({.alibi_mask = true}, none);
  CHECK(slopes.find("op::Pow::apply") != std::string::npos);
  CHECK(element(slopes).find("op::Pow::apply") == std::string::npos);
  CHECK(element(text_of({.softcap = 30}, none)).find("Div") == std::string::npos);
  // A bias that only heads have is loaded once; one that keys have, at each.
  const auto bias = [](Dims dim) {
    return [dim](Graph& g) { return SdpaInputs{.bias = g.tensor({.name = "bias", .dim = dim})}; };
  };
  CHECK(element(text_of({}, bias({1, 2, 1, 1}))).find("sinter::load") == std::string::npos);
  CHECK(element(text_of({}, bias({1, 2, 1, 256}))).find("sinter::load") != std::string::npos);
}

TEST_CASE("sdpa with any of its options is one kernel") {
  const Shape s{.b = 2};
  const auto with = [&](SdpaAttributes a, auto inputs) { return is_one(planned(s, a, inputs)); };
  const auto none = [](Graph&) { return SdpaInputs{}; };
  CHECK(with({}, none));
  CHECK(with({.attn_scale = 0.125, .generate_stats = true}, none));
  CHECK(with({.causal_mask = true}, none));
  CHECK(with({.causal_mask_bottom_right = true}, none));
  CHECK(with({.left_bound = 8, .right_bound = 3}, none));
  CHECK(with({.alibi_mask = true}, none));
  CHECK(with({.softcap = 20}, none));
  CHECK(with({}, [&](Graph& g) {
    return SdpaInputs{.bias = g.tensor({.name = "bias", .dim = {1, s.h, s.sq, s.skv}})};
  }));
  CHECK(with({}, [&](Graph& g) {
    return SdpaInputs{.sink_token = g.tensor({.name = "sink", .dim = {1, s.h, 1, 1}})};
  }));
  CHECK(with({.padding_mask = true}, [&](Graph& g) {
    const auto length = [&](const char* name) {
      return g.tensor({.name = name, .dim = {s.b, 1, 1, 1}, .data_type = i32});
    };
    return SdpaInputs{.seq_len_q = length("sq"), .seq_len_kv = length("skv")};
  }));
  CHECK(with({.dropout_probability = 0.25}, [&](Graph& g) {
    const auto number = [&](const char* name) {
      return g.tensor({.name = name, .dim = {1}, .data_type = i64});
    };
    return SdpaInputs{.seed = number("seed"), .offset = number("offset")};
  }));
}

TEST_CASE("attention of every head dimension that registers hold is one kernel") {
  for (const std::int64_t d : {8, 32, 40, 72, 96, 128, 136, 192, 248, 256, 264, 320, 392, 512})
    CHECK(kernels_of({.sq = 130, .d = d, .dv = d}) == 1);
  CHECK(kernels_of({.d = 576, .dv = 512}) == 1);
  CHECK(kernels_of({.d = 16, .dv = 512}) == 1);
  CHECK(kernels_of({.d = 576, .dv = 8}) == 1);
  CHECK(kernels_of({.d = 192, .dv = 128}) == 1);
  CHECK(kernels_of({.h = 8, .hk = 2, .d = 128, .dv = 128}) == 1);
  CHECK(kernels_of({.io = f16}) == 1);
}

TEST_CASE("values that are the first columns of the keys are loaded with them") {
  // From column `first` of k on, or of another tensor of its shape.
  const auto shared = [](std::int64_t first, bool of_another = false) {
    auto g = start({});
    const Tensor q = g->tensor({.name = "q", .dim = {2, 16, 1, 576}}),
                 k = g->tensor({.name = "k", .dim = {2, 1, 128, 576}}),
                 other = of_another ? g->tensor({.name = "other", .dim = {2, 1, 128, 576}}) : k,
                 v = slice(other, {.start = {0, 0, 0, first}, .limit = {2, 1, 128, first + 512}});
    g->output(sdpa(q, k, v).o, "o");
    for (const auto& d : g->check()) FAIL(d.message());
    const auto p = for_sm_90a(*g);
    REQUIRE(families(p) == std::vector{Family::attention});
    const auto plan = plan_attention(p.kernels[0], device_model("sm_90a"));
    REQUIRE(plan);
    CHECK(plan->engine.wide);
    return plan->engine.values_in_keys;
  };
  CHECK(shared(0));
  CHECK_FALSE(shared(64));
  CHECK_FALSE(shared(0, true));
}

TEST_CASE("keys and values in pages are loaded where they lie") {
  const auto kernels = [](std::int64_t page, bool keys_read_again = false, bool computed = false) {
    auto g = start({});
    const auto i32_of = [&](const char* name, Dims dim) {
      return g->tensor({.name = name, .dim = dim, .data_type = DataType::i32});
    };
    const Tensor q = g->tensor({.name = "q", .dim = {2, 8, 1, 64}}),
                 k = g->tensor({.name = "k", .dim = {20, 2, page, 64}}),
                 v = g->tensor({.name = "v", .dim = {20, 2, page, 64}});
    SdpaInputs in;
    in.page_table_k = i32_of("table_k", {2, 1, 6, 1});
    in.page_table_v = keys_read_again ? in.page_table_k : i32_of("table_v", {2, 1, 6, 1});
    in.seq_len_q = i32_of("lq", {2, 1, 1, 1});
    in.seq_len_kv = i32_of("lk", {2, 1, 1, 1});
    g->output(sdpa(computed ? relu(q) : q, k, v, {.padding_mask = true}, in).o, "o");
    for (const auto& d : g->check()) FAIL(d.message());
    return families(for_sm_90a(*g));
  };
  const std::vector one{Family::attention};
  CHECK(kernels(16) == one);
  CHECK(kernels(16, true) == one);
  // Queries that are no 16-bit numbers in memory yet are written so by whoever computes them.
  CHECK(kernels(16, false, true) == std::vector{Family::pointwise, Family::attention});
  CHECK(kernels(8) == one);
  // Equal shares of keys, whose counters begin at zero.
  CHECK(kernels(256) == std::vector{Family::pointwise, Family::attention});
  // The swizzle repeats after eight rows.
  CHECK(kernels(12) == std::vector{Family::pointwise, Family::pointwise, Family::attention});
}

TEST_CASE("chunks of queries over caches of any lengths: CTAs have equal shares of keys") {
  const auto shares = [](const Shape& s) {
    const Partition p =
        planned(s, {.causal_mask_bottom_right = true, .padding_mask = true}, [&](Graph& g) {
          SdpaInputs in;
          in.seq_len_q = g.tensor({.name = "lq", .dim = {s.b, 1, 1, 1}, .data_type = i32});
          in.seq_len_kv = g.tensor({.name = "lk", .dim = {s.b, 1, 1, 1}, .data_type = i32});
          return in;
        });
    return families(p) == std::vector{Family::pointwise, Family::attention};
  };
  CHECK(shares({.b = 8, .h = 32, .hk = 8, .sq = 128, .skv = 32768, .d = 128, .dv = 128}));
  CHECK(shares({.b = 4, .h = 32, .hk = 8, .sq = 512, .skv = 16384, .d = 128, .dv = 128}));
  // CTAs have many tiles anyway.
  CHECK_FALSE(shares({.b = 4, .h = 32, .hk = 8, .sq = 2048, .skv = 16384, .d = 128, .dv = 128}));
  // Where no heads share keys, tiles of rows side by side read them together.
  CHECK_FALSE(shares({.b = 8, .h = 16, .hk = 16, .sq = 1024, .skv = 8192, .d = 128, .dv = 128}));
  CHECK_FALSE(shares({.b = 8, .h = 32, .hk = 8, .sq = 128, .skv = 512, .d = 128, .dv = 128}));
}

TEST_CASE("attention that one kernel does not hold is the expansion's kernels") {
  CHECK(kernels_of({.d = 584}) > 1);
  CHECK(kernels_of({.dv = 520}) > 1);
  CHECK(kernels_of({.skv = 4, .io = f32}) > 1);  // sums of few terms are exact
  CHECK(kernels_of({.io = f32}) == 1);
  CHECK(kernels_of({.h = 8, .hk = 2, .hv = 4}) > 1);
}

TEST_CASE("other GPUs run attention of up to 256 elements a head in one kernel, too") {
  const auto kernels = [](const Shape& s, std::int64_t page = 0) {
    auto g = start(s);
    const auto [q, k, v] = operands(*g, s);
    SdpaInputs in;
    const auto integers = [&](const char* name, Dims dim) {
      return g->tensor({.name = name, .dim = dim, .data_type = i32});
    };
    if (page > 0) {
      in.page_table_k = integers("table_k", {s.b, 1, 2, 1});
      in.page_table_v = integers("table_v", {s.b, 1, 2, 1});
      in.seq_len_q = integers("lq", {s.b, 1, 1, 1});
      in.seq_len_kv = integers("lk", {s.b, 1, 1, 1});
    }
    g->output(sdpa(q, k, v, {.padding_mask = page > 0}, in).o, "o");
    for (const auto& d : g->check()) FAIL(d.message());
    return families(for_target(*g, "sm_80"));
  };
  const std::vector one{Family::attention};
  for (const std::int64_t d : {8, 40, 64, 72, 128, 136, 256})
    CHECK(kernels({.sq = 130, .d = d, .dv = d}) == one);
  CHECK(kernels({.h = 8, .hk = 2, .d = 192, .dv = 128}) == one);
  CHECK(kernels({.io = f16}) == one);
  CHECK(kernels({.b = 4, .skv = 12}, 12) == one);  // pages of any size
  CHECK(kernels({.packed_heads = false}).size() == 3);
  for (const Family f : kernels({.d = 264})) CHECK(f != Family::attention);
  CHECK(kernels({.io = f32}) == one);
}

TEST_CASE("what TMA cannot load is copied first") {
  const auto p = planned({.packed_heads = false}, {}, [](Graph&) { return SdpaInputs{}; });
  // K and V, whose copies are small and alike, by one kernel.
  CHECK(families(p) == std::vector{Family::pointwise, Family::pointwise, Family::attention});
  CHECK(kernels_of({.d = 36, .dv = 36}) == 3);
}

TEST_CASE("pointwise nodes behind attention are its epilogue") {
  auto g = start({});
  const auto [q, k, v] = operands(*g, {});
  const auto gate = g->tensor({.name = "gate", .dim = {1, 2, 40, 64}});
  const Tensor o = sdpa(q, k, v, {.causal_mask = true}).o;
  g->output(o * sigmoid(gate) * 0.5, "y");
  const auto p = for_sm_90a(*g);
  CHECK(is_one(p));
  check_values(*g);
}

// ---- written out

namespace {

struct ByHand {
  Shape shape = {};
  int rank = 4;
  bool stats = false, dropout = false, scale_q = false, sees_scores = false;
  DataType of_p = DataType::none, of_weights = DataType::none;  // declared
  Tensor (*weight)(Tensor p) = nullptr;                         // what is multiplied
};
// `mask` makes of scores what the softmax takes.
template <class F>
Shared<Graph> by_hand(const ByHand& c, const F& mask) {
  const Shape& s = c.shape;
  auto g = start(s);
  const auto tensor = [&](const char* name, std::int64_t heads, std::int64_t rows,
                          std::int64_t width) {
    if (c.rank == 2) return g->tensor({.name = name, .dim = {rows, width}});
    if (c.rank == 3) return g->tensor({.name = name, .dim = {s.b * heads, rows, width}});
    return g->tensor({.name = name, .dim = {s.b, heads, rows, width}});
  };
  Tensor q = tensor("q", s.h, s.sq, s.d);
  const Tensor k = tensor("k", s.hk, s.skv, s.d), v = tensor("v", s.hk, s.skv, s.dv);
  Dims order;
  for (int i = 0; i < c.rank; ++i) order.push_back(i);
  std::swap(order[c.rank - 1], order[c.rank - 2]);
  if (c.scale_q) q = q * 0.125;
  Tensor scores = matmul(q, transpose(k, order));
  if (!c.scale_q) scores = scores * 0.125;
  scores = mask(*g, scores);
  const auto p = softmax(scores, {.stats = c.stats});
  if (c.stats) g->output(p.stats, "stats", {.data_type = f32});
  if (c.sees_scores) g->output(scores, "scores", {.data_type = f32});
  Tensor weights = p.y;
  if (c.of_p != DataType::none) detail::GraphEditor(*g).edit(weights.id()).data_type = c.of_p;
  if (c.weight) weights = c.weight(weights);
  if (c.dropout) {
    const auto seed = g->tensor({.name = "seed", .dim = {1}, .data_type = i64});
    weights = weights *
              rng(seed, g->scalar(3, i64), weights.dim(),
                  {.distribution = Distribution::bernoulli, .probability = 0.8}) *
              (1 / 0.8);
  }
  if (c.of_weights != DataType::none) {
    weights = identity(weights);
    detail::GraphEditor(*g).edit(weights.id()).data_type = c.of_weights;
  }
  g->output(matmul(weights, v), "o");
  return g;
}
Tensor unmasked(Graph&, Tensor x) { return x; }

Tensor masked(Graph& g, Tensor x, const Tensor& condition, double hidden) {
  return select(condition, x, g.scalar(hidden, f32));
}
constexpr double kInfinity = std::numeric_limits<double>::infinity();
Tensor row(const Tensor& x) { return gen_index(x, x.dim().size() - 2); }
Tensor column(const Tensor& x) { return gen_index(x, x.dim().size() - 1); }
Tensor causal(Graph& g, Tensor x) { return masked(g, x, column(x) <= row(x), -kInfinity); }

const AttentionSpec& only(const Partition& p) {
  REQUIRE(is_one(p));
  return p.kernels[0].attention();
}

}  // namespace

TEST_CASE("attention written out is one kernel") {
  for (const int rank : {2, 3, 4})
    for (const bool dropout : {false, true}) {
      INFO("rank " << rank << ", dropout " << dropout);
      auto g = by_hand({.rank = rank, .stats = true, .dropout = dropout}, unmasked);
      CHECK(is_one(for_sm_90a(*g)));
      check_values(*g);
    }
  auto shared = by_hand({.shape = {.b = 2, .h = 6, .hk = 2}}, causal);
  const auto grouped = for_sm_90a(*shared);
  CHECK(only(grouped).group * grouped.kernels[0].extent[AttentionSpec::member] == 3);
  check_values(*shared);
  auto shared3 = by_hand({.shape = {.b = 2, .h = 6, .hk = 2}, .rank = 3}, unmasked);
  CHECK(is_one(for_sm_90a(*shared3)));
  check_values(*shared3);
  auto scaled = by_hand({.scale_q = true}, unmasked);
  CHECK(families(for_sm_90a(*scaled)) == std::vector{Family::pointwise, Family::attention});
  check_values(*scaled);
}

TEST_CASE("weights of 16 bits are rounded behind the softmax's division") {
  const Shape shape{.b = 2, .h = 4, .hk = 2};
  const ByHand cases[] = {
      {.shape = shape, .stats = true, .of_weights = bf16},
      {.shape = shape, .of_p = bf16},
      {.shape = shape, .dropout = true, .of_weights = bf16},
      {.shape = shape, .dropout = true, .of_p = bf16},
      {.shape = {.sq = 130, .skv = 200, .d = 128, .dv = 96, .io = f16}, .of_weights = f16},
  };
  for (const ByHand& c : cases) {
    INFO("stats " << c.stats << ", dropout " << c.dropout << ", p of " << info(c.of_p).name);
    auto g = by_hand(c, causal);
    const auto p = for_sm_90a(*g);
    const AttentionSpec& a = only(p);
    CHECK(rounds_divided(a.weight));
    CHECK(unrounded(a.weight).statements.empty() == !c.dropout);
    check_values(*g);
    const auto kernel = schedule_kernel(p.kernels[0], {device_model("sm_90a"), Tuning{}});
    CHECK(emit_kernel(kernel).source.find("key_walks = 2;") != std::string::npos);
  }
  CHECK(!rounds_divided(only(for_sm_90a(*by_hand({.shape = shape}, causal))).weight));
  // Kernels of their own: other types than that of the values; heads whose consumers divide keys;
  // few rows, whose keys one CTA would loop over.
  for (const ByHand& c : {ByHand{.of_weights = f16}, ByHand{.of_weights = f8e4m3},
                          ByHand{.shape = {.d = 320, .dv = 320}, .of_weights = bf16},
                          ByHand{.shape = {.sq = 1, .skv = 8192}, .of_weights = bf16}})
    CHECK(for_sm_90a(*by_hand(c, unmasked)).kernels.size() > 1);
}

TEST_CASE("blocks of a cluster divide the keys of two walks of several consumers") {
  for (const std::int64_t d : {64, 128}) {
    INFO("heads of " << d);
    const Shape shape{.b = 1, .h = 8, .hk = 8, .sq = 128, .skv = 8192, .d = d, .dv = d};
    auto g = by_hand({.shape = shape, .of_weights = bf16}, unmasked);
    const auto p = for_sm_90a(*g);
    REQUIRE(is_one(p));
    const auto kernel = schedule_kernel(p.kernels[0], {device_model("sm_90a"), Tuning{}});
    const AttentionConfig& e = *kernel.attention();
    CHECK(e.key_blocks > 1);
    CHECK(e.consumers == 2);
    CHECK(e.alternating == 1);
    CHECK(e.part_rows == 64);
    // What a CTA starts with.
    CHECK(e.producer_registers + e.consumers * e.consumer_registers <=
          (e.consumers + 1) * (65536 / e.threads / 8 * 8));
  }
}

TEST_CASE("weights that are no multiple of the softmax are kernels of their own") {
  using Weight = Tensor (*)(Tensor);
  const Weight multiples[] = {[](Tensor p) { return -p / 3.0; },
                              [](Tensor p) { return p * 0.5 - p * 2.0; }};
  for (const Weight weight : multiples) {
    auto g = by_hand({.weight = weight}, unmasked);
    CHECK(is_one(for_sm_90a(*g)));
    check_values(*g);
  }
  const Weight others[] = {[](Tensor p) { return relu(p - 0.02); }, [](Tensor p) { return p * p; },
                           [](Tensor p) { return p + 1.0; }, [](Tensor p) { return exp(p); },
                           [](Tensor p) { return 1.0 / p; }};
  for (const Weight weight : others)
    CHECK(for_sm_90a(*by_hand({.weight = weight}, unmasked)).kernels.size() > 1);
}

TEST_CASE("attention written out whose scores somebody else reads is several kernels") {
  CHECK(for_sm_90a(*by_hand({.sees_scores = true}, unmasked)).kernels.size() > 1);
  // Over rows rather than keys.
  CHECK(for_sm_90a(*by_hand({.shape = {.sq = 64, .skv = 64}}, [](Graph&, Tensor x) {
          return softmax(x, {.axis = 2}).y;
        })).kernels.size() > 1);
}

TEST_CASE("masks by indices are a band") {
  using Mask = Tensor (*)(Graph&, Tensor);
  struct Case {
    const char* name;
    Mask mask;
    std::optional<std::int64_t> left, right;
    bool plain;  // nothing is left of the mask
  };
  const Case cases[] = {
      {"causal", causal, {}, 0, true},
      {"strictly causal",
       [](Graph& g, Tensor x) { return masked(g, x, column(x) < row(x), -kInfinity); },
       {},
       -1,
       true},
      {"bottom right",
       [](Graph& g, Tensor x) { return masked(g, x, row(x) + 30.0 >= column(x), -kInfinity); },
       {},
       30,
       true},
      {"window",
       [](Graph& g, Tensor x) {
         const Tensor seen = logical_and(column(x) <= row(x), column(x) > row(x) - 16.0);
         return masked(g, x, seen, -kInfinity);
       },
       16, 0, true},
      {"twice",
       [](Graph& g, Tensor x) {
         return masked(g, causal(g, x), row(x) - column(x) < 8.0, -kInfinity);
       },
       8, 0, true},
      {"hidden where above",
       [](Graph& g, Tensor x) { return select(column(x) > row(x), g.scalar(-kInfinity, f32), x); },
       {},
       0,
       true},
      {"added",
       [](Graph& g, Tensor x) {
         return x + select(column(x) <= row(x), g.scalar(0, f32), g.scalar(-kInfinity, f32));
       },
       {},
       0,
       true},
      {"with keys of a tensor",
       [](Graph& g, Tensor x) {
         const auto keep = g.tensor({.name = "keep", .dim = {1, 1, 1, 70}, .data_type = boolean});
         return masked(g, x, logical_and(column(x) <= row(x), keep), -kInfinity);
       },
       {},
       0,
       false},
      {"a large number",
       [](Graph& g, Tensor x) { return masked(g, x, column(x) <= row(x), -1e9); },
       {},
       {},
       false},
      {"a tensor",
       [](Graph& g, Tensor x) {
         return x + g.tensor({.name = "mask", .dim = {40, 70}, .data_type = f32});
       },
       {},
       {},
       false},
  };
  for (const Case& c : cases) {
    INFO(c.name);
    auto g = by_hand({}, c.mask);
    const auto p = for_sm_90a(*g);
    const AttentionSpec& a = only(p);
    CHECK(a.band.left == c.left);
    CHECK(a.band.right == c.right);
    CHECK(a.score.statements.empty() == c.plain);
    CHECK(a.written_out);
    check_values(*g);
  }
}

TEST_CASE("rows of -inf alone are NaN where the softmax is written out") {
  auto g = by_hand({.stats = true}, [](Graph& graph, Tensor x) {
    return masked(graph, x, column(x) < row(x), -kInfinity);
  });
  GraphCase c(*g, Fill::normal, 3);
  interpret(partition(c.lowered(), true, "sm_90a"), c.memory(), c.lowered());
  CHECK(c.judge().ok());
}

}  // namespace sinter::test
