// Attention forward: what every kind of schedule compiles to, and that nothing behind a length or
// above a bound is of any effect.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>

#include "compile/make_plan.hpp"
#include "emulator/emulator.hpp"
#include "sinter/operations.hpp"
#include "support/can_compile.hpp"
#include "support/catch.hpp"
#include "support/compiled_kernels.hpp"

namespace sinter::test {
namespace {

struct Schedule {
  std::int64_t sq, d, dv;
  bool score = false;  // a body rather than a scale
  DataType io = bf16;
  bool causal = false, by_hand = false;
  bool v_in_k = false;              // v is the first columns of k
  std::int64_t packed = 0;          // sequences
  bool rounds = false;              // by hand: weights of 16 bits
  DataType cache = DataType::none;  // K and V, of one head that all share
};

void add(Graph& g, const Schedule& s) {
  const auto tensor = [&](const char* name, std::int64_t rows, std::int64_t width) {
    return g.tensor({.name = name, .dim = {s.packed > 0 ? 1 : 2, 2, rows, width}});
  };
  if (s.cache != DataType::none) {
    const auto cache = [&](const char* name, std::int64_t width) {
      return g.tensor({.name = name, .dim = {2, 1, 300, width}, .data_type = s.cache});
    };
    g.output(
        sdpa(tensor("q", s.sq, s.d), cache("k", s.d), cache("v", s.dv), {.attn_scale = 0.125}).o,
        "o");
    return;
  }
  const Tensor q = tensor("q", s.sq, s.d), k = tensor("k", 300, s.d),
               v = s.v_in_k ? slice(k, {.start = {0, 0, 0, 0}, .limit = {2, 2, 300, s.dv}})
                            : tensor("v", 300, s.dv);
  if (s.by_hand) {
    const auto p = softmax(matmul(q, transpose(k, {0, 1, 3, 2})) * 0.125, {.stats = true});
    g.output(p.stats, "stats", {.data_type = f32});
    if (s.rounds) detail::GraphEditor(g).edit(p.y.id()).data_type = s.io;
    g.output(matmul(p.y, v), "o");
    return;
  }
  const SdpaAttributes a{
      .attn_scale = 0.125, .causal_mask = s.causal, .softcap = s.score ? 20.0 : 0.0};
  SdpaInputs in;
  if (s.io == f8e4m3) {
    in.descale_q = in.descale_v = in.scale_s =
        g.tensor({.name = "scale", .dim = {1, 1, 1, 1}, .data_type = f32});
    g.output(sdpa(q, k, v, a, in).o, "o", {.data_type = bf16});
    return;
  }
  if (s.packed > 0)
    in.cu_seq_len_q = in.cu_seq_len_kv =
        g.tensor({.name = "offsets", .dim = {s.packed + 1, 1, 1, 1}, .data_type = i32});
  g.output(sdpa(q, k, v, a, in).o, "o");
}

void check_compiled(std::span<const Schedule> all, const char* target) {
  if (!test::can_compile()) return;
  std::vector<NamedKernel> kernels;
  for (const Schedule& s : all) {
    const std::string name =
        fmt::format("{} queries, head dimensions {} and {}, {}, score {}, causal {}", s.sq, s.d,
                    s.dv, info(s.io).name, s.score, s.causal);
    INFO(name);
    Graph g({.name = "attention", .io = s.io, .intermediate = f32});
    add(g, s);
    const auto plan = make_plan(g, {.architecture = target}, {}, nullptr);
    REQUIRE(plan);
    const PlanKernel& k = plan->data().kernels[0];  // another one may combine parts of the keys
    REQUIRE(k.source.find("attention::run_") != std::string::npos);
    kernels.push_back({name, k.source, k.entry});
  }
  expect_no_complaint(kernels, target, {{"serialized", "setmaxnreg", "spill"}});
}

TEST_CASE("schedules of attention compile without a complaint") {
  const Schedule all[] = {
      {64, 64, 64},                      // one consumer
      {64, 256, 256},                    //
      {128, 64, 64},                     // two
      {300, 32, 32, false, bf16, true},  // three
      {300, 64, 64},
      {300, 64, 40, false, f16, true},
      {300, 72, 72},
      {300, 96, 96, false, bf16, true},
      {300, 128, 128, false, bf16, true},
      {300, 128, 128, true},
      {300, 192, 128, false, bf16, true},
      {300, 136, 136},
      {300, 200, 248},
      {300, 256, 256, false, bf16, true},
      {300, 256, 256, true, f16},
      {300, 64, 64, true, bf16, true},
      {300, 64, 64, false, bf16, false, true},
      {300, 128, 128, false, bf16, false, true},
      {300, 32, 32, false, f16, false, true, false, 0, true},  // two walks: four, three, two, one
      {192, 64, 64, false, bf16, false, true, false, 0, true},
      {300, 128, 128, false, bf16, false, true, false, 0, true},
      {4000, 256, 256, false, f16, false, true, false, 0, true},
      {60, 128, 128, false, bf16, false, true, false, 0, true},
      {300, 576, 512, false, bf16, false, false, true},  // two consumers share 64 rows
      {300, 576, 512, true, f16, true, false, true},
      {300, 576, 512, false, bf16, true},
      {300, 320, 256, true, bf16, true, false, true},
      {300, 320, 320, true, bf16, true},
      {300, 384, 400},
      {300, 512, 512, false, bf16, true, true},
      {300, 64, 512},
      {300, 64, 64, false, bf16, true, false, false, 9},  // packed: one, two, three and four
      {300, 128, 128, false, bf16, true, false, false, 2},
      {400, 64, 64, false, bf16, false, false, false, 1},
      {256, 64, 64, false, bf16, true, false, false, 1},
      {300, 256, 256, false, bf16, true, false, false, 2},
      {100, 96, 96, false, f8e4m3},  // values of f8: two and three consumers, tiles of 128, 96
      {300, 32, 32, false, f8e4m3, true},
      {300, 64, 64, false, f8e4m3, true},
      {300, 128, 128, false, f8e4m3},
      {300, 96, 96, false, f8e4m3, true},
      {300, 128, 128, false, f8e4m3, true},
      {300, 128, 128, true, f8e4m3, true},
  };
  check_compiled(all, "sm_90a");
}

TEST_CASE("schedules of attention over caches of f8 compile without a complaint") {
  const auto cached = [](std::int64_t sq, std::int64_t d, std::int64_t dv, DataType io,
                         DataType cache) {
    return Schedule{.sq = sq, .d = d, .dv = dv, .io = io, .cache = cache};
  };
  const Schedule all[] = {
      cached(1, 128, 128, bf16, f8e4m3),  // fragments become f16
      cached(4, 64, 64, f16, f8e5m2),     cached(8, 112, 128, bf16, f8e4m3),
      cached(32, 128, 128, bf16, f8e4m3), cached(1, 256, 256, bf16, f8e4m3),  // widened
  };
  check_compiled(all, "sm_90a");
  check_compiled(std::span(all).first(2), "sm_80");
}

TEST_CASE("schedules of attention by warps compile without a complaint") {
  const Schedule all[] = {
      {40, 64, 64},                     // a block of rows a warp
      {300, 64, 64},                    // two
      {300, 64, 64, true, bf16, true},  // a body of scores
      {300, 128, 128, false, f16, true},
      {300, 128, 128, true},
      {300, 192, 128, false, bf16, true},
      {300, 64, 64, false, bf16, false, true, false, 0, true},  // two walks
      {4000, 128, 128, false, f16, false, true, false, 0, true},
      {300, 256, 256, false, bf16, true},
      {300, 256, 256, true, f16},
  };
  check_compiled(all, "sm_80");
  check_compiled(std::span(all).last(2), "sm_89");
  check_compiled(std::span(all).subspan(3, 1), "sm_120a");
}

// Overwrites rows [from, to) of entry and head `at` of a tensor [entries, heads, rows, width].
void poison(GraphCase& c, const char* name, int at, std::int64_t from, std::int64_t to) {
  const TensorId t = *c.lowered().find(name);
  const Dims& dim = c.lowered()[t].dim;
  auto* const data = static_cast<std::uint16_t*>(c.memory().at(t));
  const std::uint16_t bad[] = {0x7fc0, 0x7f80, 0xff80};  // of bf16: NaN, infinities
  for (std::int64_t i = from * dim[3]; i < to * dim[3]; ++i)
    data[at * dim[2] * dim[3] + i] = bad[i % 3];
}

// `v_in_k`: v is the first columns of k.
void check_masked(const char* target, std::int64_t d, std::int64_t dv, bool v_in_k) {
  INFO(target << ", head dimensions " << d << " and " << dv);
  constexpr std::int64_t kQueries = 70, kKeys = 150;
  Graph g({.name = "attention", .io = bf16, .intermediate = f32});
  const auto tensor = [&](const char* name, std::int64_t rows, std::int64_t width) {
    return g.tensor({.name = name, .dim = {5, 1, rows, width}});
  };
  const auto length = [&](const char* name) {
    return g.tensor({.name = name, .dim = {5, 1, 1, 1}, .data_type = i32});
  };
  const auto q = tensor("q", kQueries, d), k = tensor("k", kKeys, d),
             v = v_in_k ? slice(k, {.start = {0, 0, 0, 0}, .limit = {5, 1, kKeys, dv}})
                        : tensor("v", kKeys, dv);
  const auto r =
      sdpa(q, k, v,
           {.attn_scale = 0.2, .causal_mask = true, .padding_mask = true, .generate_stats = true},
           {.seq_len_q = length("length_q"), .seq_len_kv = length("length_kv")});
  g.output(r.o, "o");
  g.output(r.stats, "stats", {.data_type = f32});
  GraphCase c(g, Fill::normal, 5);
  const std::int32_t queries[] = {70, 70, 33, 0, 1}, keys[] = {0, 1, 67, 150, 128};
  std::copy_n(queries, 5, static_cast<std::int32_t*>(c.memory().at(*c.lowered().find("length_q"))));
  std::copy_n(keys, 5, static_cast<std::int32_t*>(c.memory().at(*c.lowered().find("length_kv"))));
  for (int i = 0; i < 5; ++i) {
    poison(c, "k", i, keys[i], kKeys);
    if (!v_in_k) poison(c, "v", i, keys[i], kKeys);
    poison(c, "q", i, queries[i], kQueries);
  }
  // Above the diagonal of all rows but the last ones.
  if (!v_in_k) poison(c, "v", 2, 30, 31);
  const auto plan = make_plan(g, {.architecture = target}, {}, nullptr);
  REQUIRE(plan);
  REQUIRE(plan->kernels() == 1);
  c.clear_outputs();
  const Status ran = emulate(*plan, c);
  INFO((ran ? "" : ran.error().message()));
  REQUIRE(ran);
  const Comparison compared = c.judge();
  INFO(compared.first_wrong);
  CHECK(compared.ok());
}

TEST_CASE("attention does not read what is masked") {
  check_masked("sm_90a", 32, 32, false);
  check_masked("sm_90a", 320, 264, false);
  check_masked("sm_90a", 576, 512, true);
  check_masked("sm_80", 32, 32, false);
  check_masked("sm_80", 136, 72, false);
}

// By warps, forward and backward; the same with one place of the device library changed.
std::string run_by_warps(const Edit& edit) {
  Graph g({.name = "attention", .io = bf16, .intermediate = f32});
  const auto tensor = [&](const char* name, std::int64_t rows) {
    return g.tensor({.name = name, .dim = {1, 1, rows, 64}});
  };
  const Tensor q = tensor("q", 150), k = tensor("k", 200), v = tensor("v", 200);
  const SdpaAttributes a{.attn_scale = 0.125, .causal_mask = true, .generate_stats = true};
  const auto forward = sdpa(q, k, v, a);
  const auto backward = sdpa_backward(q, k, v, forward.o, tensor("do", 150), forward.stats, a);
  g.output(forward.o, "o");
  g.output(backward.dq, "dq"), g.output(backward.dk, "dk"), g.output(backward.dv, "dv");
  GraphCase c(g, Fill::normal, 3);
  const auto plan = make_plan(g, {.architecture = "sm_80"}, {}, nullptr);
  REQUIRE(plan);
  c.clear_outputs();
  const Status ran = edit.file.empty() ? emulate(*plan, c) : emulate(*plan, c, edit);
  return ran ? c.judge().first_wrong : ran.error().message();
}

TEST_CASE("attention by warps: the emulator finds what is left out") {
  constexpr const char *kForward = "sinter/device/family/attention_forward_mma.cuh",
                       *kBackward = "sinter/device/family/attention_backward_mma.cuh";
  CHECK(run_by_warps({}) == "");
  const Edit edits[] = {
      {kForward, "warp_matrix::wait<stages - 2>();", ""},
      {kForward, "          meet();\n", "          ;\n"},
      {kForward, "if (!S::walks_twice && softmax[b].outgrown)", "if (false)"},
      {kBackward, "warp_matrix::wait<0>();\n        __syncthreads();", "__syncthreads();"},
      {kBackward, "warp_matrix::wait<0>();\n        __syncthreads();", "warp_matrix::wait<0>();"},
      {kBackward, "if (i + 1 < count) put_row(stage ^ 1);", ""},
  };
  for (const Edit& e : edits) {
    INFO("without " << e.text);
    CHECK(run_by_warps(e) != "");
  }
}

// The same kernel by four warps that take tiles of keys in turns, as it is where there are many
// more.
Plan by_key_warps(const Plan& plan) {
  PlanData data = plan.data();
  PlanKernel& k = data.kernels[0];
  constexpr std::string_view kThreads = "threads = 32;";
  const auto at = k.source.find(kThreads);
  REQUIRE(at != std::string::npos);
  k.source.replace(at, kThreads.size(), "threads = 128, key_warps = 4;");
  k.block = 128;
  const auto constant = [&](std::string_view name) {
    const auto found = std::ranges::find(k.config, name, [](const auto& c) { return c.first; });
    REQUIRE(found != k.config.end());
    return static_cast<std::uint32_t>(found->second);
  };
  // Three more warps have their own stages of keys and values of 64 bytes.
  const std::uint32_t stages = constant("tile_k") * constant("stages") * 2 * 64;
  const auto text = [](std::uint32_t bytes) { return fmt::format("shared_bytes = {}", bytes); };
  const auto shared = k.source.find(text(k.shared_bytes));
  REQUIRE(shared != std::string::npos);
  k.source.replace(shared, text(k.shared_bytes).size(), text(k.shared_bytes + 3 * stages));
  k.shared_bytes += 3 * stages;
  return Plan(Shared<const PlanData>::make(std::move(data)));
}

// K and V of f8, whose fragments become f16: heads of queries that f16 does not hold and of
// infinite ones, keys and values that are NaN or infinite where nobody looks and where somebody
// does. A sink beside Stats keeps the keys in one part.
std::string run_f8_fragments(bool key_warps, const Edit& edit = {}) {
  constexpr std::int64_t kKeys = 300, kHeads = 6, kWidth = 64;
  Graph g({.name = "attention", .io = bf16, .intermediate = f32});
  const auto cache = [&](const char* name) {
    return g.tensor({.name = name, .dim = {2, 1, kKeys, kWidth}, .data_type = f8e5m2});
  };
  const Tensor q = g.tensor({.name = "q", .dim = {2, kHeads, 1, kWidth}});
  const auto length = [&](const char* name) {
    return g.tensor({.name = name, .dim = {2, 1, 1, 1}, .data_type = i32});
  };
  const auto r =
      sdpa(q, cache("k"), cache("v"),
           {.attn_scale = 0x1p-20, .padding_mask = true, .generate_stats = true},
           {.seq_len_q = length("length_q"),
            .seq_len_kv = length("length_kv"),
            .sink_token = g.tensor({.name = "sink", .dim = {1, kHeads, 1, 1}, .data_type = f32})});
  g.output(r.o, "o"), g.output(r.stats, "stats", {.data_type = f32});
  GraphCase c(g, Fill::normal, 3);
  const auto memory = [&](const char* name) { return c.memory().at(*c.lowered().find(name)); };
  auto* const queries = static_cast<std::uint16_t*>(memory("q"));
  constexpr unsigned kExponent = 0x80;  // of bf16
  for (std::int64_t e = 0; e < kWidth; ++e) {
    queries[1 * kWidth + e] = static_cast<std::uint16_t>(queries[1 * kWidth + e] + 20 * kExponent);
    queries[2 * kWidth + e] = static_cast<std::uint16_t>(queries[2 * kWidth + e] & 0x807f);  // tiny
    queries[3 * kWidth + e] = 0;
  }
  queries[4 * kWidth + 7] = 0x7f80;
  auto *const keys = static_cast<std::uint8_t*>(memory("k")), *const values =
                                                                  static_cast<std::uint8_t*>(
                                                                      memory("v"));
  const std::int32_t lengths[] = {200, 300};
  std::copy_n(lengths, 2, static_cast<std::int32_t*>(memory("length_kv")));
  std::fill_n(static_cast<std::int32_t*>(memory("length_q")), 2, 1);
  for (std::int64_t i = 200 * kWidth; i < kKeys * kWidth; ++i) keys[i] = 0x7f, values[i] = 0xfc;
  values[(kKeys + 70) * kWidth + 5] = 0x7c;  // seen by all heads of the second entry
  const auto made = make_plan(g, {.architecture = "sm_90a"}, {}, nullptr);
  REQUIRE(made);
  REQUIRE(made->kernels() == 1);
  const Plan plan = key_warps ? by_key_warps(*made) : *made;
  c.clear_outputs();
  const Status ran = edit.file.empty() ? emulate(plan, c) : emulate(plan, c, edit);
  return ran ? c.judge().first_wrong : ran.error().message();
}

TEST_CASE("attention over a cache of f8: the emulator finds what is left out") {
  constexpr const char *kForward = "sinter/device/family/attention_forward_mma.cuh",
                       *kFragments = "sinter/device/family/attention_f8_fragments.cuh",
                       *kJoin = "sinter/device/family/attention_join_warps.cuh";
  CHECK(run_f8_fragments(false) == "");
  CHECK(run_f8_fragments(true) == "");
  const Edit edits[] = {
      {kForward, "x *= worth_of_rows_[i / 2 % 2];", ""},
      {kForward, "put_in_order(out[0]);", ";"},
      {kFragments, "exponent > 15 ? 268 - exponent : 253", "127"},
      {kFragments, "0x3120", "0x3210"},
  };
  for (const Edit& e : edits) {
    INFO("without " << e.text);
    CHECK(run_f8_fragments(false, e) != "");
  }
  const Edit of_key_warps[] = {
      {kJoin, "own[r] = math::fast_exp2(math::fma(softmax.largest[r], factor, -shift));",
       "own[r] = 1;"},
      {kJoin, "others[r] = math::fast_exp2(math::fma(other, factor, -shift));", "others[r] = 1;"},
      {kForward, "          __syncthreads();  // Q has come\n", "          ;\n"},
      {kJoin, "  __syncthreads();\n  if (warp > 0) return;\n", "  if (warp > 0) return;\n"},
  };
  for (const Edit& e : of_key_warps) {
    INFO("without " << e.text);
    CHECK(run_f8_fragments(true, e) != "");
  }
}

// On warpgroups: the first 64 rows see one tile of 168 keys, the others two.
std::string run_passing_over(const Edit& edit, std::int64_t keys = 168, std::int64_t depth = 96) {
  Graph g({.name = "attention", .io = bf16, .intermediate = f32});
  const auto tensor = [&](const char* name, std::int64_t rows) {
    return g.tensor({.name = name, .dim = {1, 1, rows, depth}});
  };
  const auto r = sdpa(tensor("q", 128), tensor("k", keys), tensor("v", keys),
                      {.attn_scale = 0.1, .causal_mask_bottom_right = true});
  g.output(r.o, "o");
  GraphCase c(g, Fill::normal, 3);
  const auto plan = make_plan(g, {.architecture = "sm_90a"}, {}, nullptr);
  REQUIRE(plan);
  REQUIRE(plan->kernels() == 1);
  c.clear_outputs();
  const Status ran = edit.file.empty() ? emulate(*plan, c) : emulate(*plan, c, edit);
  return ran ? c.judge().first_wrong : ran.error().message();
}

TEST_CASE("attention passes over tiles of keys: the emulator finds what is left out") {
  constexpr const char* kForward = "sinter/device/family/attention_forward.cuh";
  CHECK(run_passing_over({}) == "");
  const Edit edits[] = {
      {kForward, "if (sees_less) pass_over(tiles.end - (nothing ? tiles.begin : end), nothing);",
       ""},
      {kForward, "if (i > 0 || !first) {", "if (false) {"},
      {kForward,
       "      pipe_k_.wait(state_k_);\n      release_k();\n      pipe_v_.wait(state_v_);\n"
       "      release_v();\n",
       ""},
      // And of the loop itself: what waits for products, and for the other consumer's turn.
      {kForward, "      wgmma::wait<1>();\n", ""},
      {kForward, "      wgmma::wait<0>(sums.multiplied(), weights);\n", ""},
      {kForward, "        release_v();\n        if constexpr (!sums_apart) scale_sums();\n",
       "        release_v();\n"},
  };
  for (const Edit& e : edits) {
    INFO("without " << e.text);
    CHECK(run_passing_over(e) != "");
  }
  // Where only the tile that comes first is cut, it alone is masked.
  CHECK(run_passing_over({}, 256, 128) == "");
  CHECK(run_passing_over({kForward, "score<first || !cut_once>", "score<!cut_once>"}, 256, 128) !=
        "");
}

// Of f32: parts of factors that are infinite, NaN of all bits (which a rounded part loses), and as
// large as f32 has.
std::string run_f32_factors(const Edit& edit = {}) {
  Graph g({.name = "attention", .io = f32, .intermediate = f32});
  const auto tensor = [&](const char* name, std::int64_t rows) {
    return g.tensor({.name = name, .dim = {4, 1, rows, 32}});
  };
  g.output(sdpa(tensor("q", 40), tensor("k", 70), tensor("v", 70), {.attn_scale = 0.25}).o, "o");
  GraphCase c(g, Fill::normal, 3);
  const auto set = [&](const char* name, int entry, int row, std::uint32_t bits) {
    const TensorId t = *c.lowered().find(name);
    const std::int64_t rows = c.lowered()[t].dim[2];
    static_cast<std::uint32_t*>(c.memory().at(t))[(entry * rows + row) * 32 + 5] = bits;
  };
  constexpr std::uint32_t kInfinity = 0x7f800000, kNegative = 0xff800000, kNaN = 0x7fffffff,
                          kLargest = 0x7f7fffff;
  set("q", 0, 3, kNaN), set("q", 0, 20, kNegative), set("q", 0, 30, kLargest);
  set("k", 1, 9, kInfinity), set("v", 2, 11, kInfinity), set("v", 3, 12, kNaN);
  const auto plan = make_plan(g, {.architecture = "sm_90a"}, {}, nullptr);
  REQUIRE(plan);
  REQUIRE(plan->kernels() == 1);
  c.clear_outputs();
  const Status ran = edit.file.empty() ? emulate(*plan, c) : emulate(*plan, c, edit);
  return ran ? c.judge().first_wrong : ran.error().message();
}

TEST_CASE("attention of f32 in parts of tf32: the emulator finds what is left out") {
  constexpr const char *kFactors = "sinter/device/family/attention_factors.cuh",
                       *kForward = "sinter/device/family/attention_forward_mma.cuh";
  CHECK(run_f32_factors() == "");
  const Edit edits[] = {
      {kFactors, "(words[i] + kHalf) & ~kIgnored", "words[i]"},
      {kForward, "if (again) score_again(s, keys);", ""},
  };
  for (const Edit& e : edits) {
    INFO("with " << e.text);
    CHECK(run_f32_factors(e) != "");
  }
}

// Of two walks, blocks of a cluster tell each other what the first one found.
TEST_CASE("keys of two walks divided in a cluster: the emulator finds what is left out") {
  Graph g({.name = "attention", .io = bf16, .intermediate = f32});
  const auto tensor = [&](const char* name, std::int64_t rows) {
    return g.tensor({.name = name, .dim = {1, 1, rows, 32}});
  };
  const Tensor p = softmax(matmul(tensor("q", 65), transpose(tensor("k", 400), {0, 1, 3, 2}))).y;
  detail::GraphEditor(g).edit(p.id()).data_type = bf16;
  g.output(matmul(p, tensor("v", 400)), "o");
  const auto plan = make_plan(g, {.architecture = "sm_90a"}, {}, nullptr);
  REQUIRE(plan);
  REQUIRE(plan->kernels() == 1);
  CHECK(plan->data().kernels[0].source.find("key_blocks") != std::string::npos);
  const auto run = [&](const Edit& edit) {
    GraphCase c(g, Fill::normal, 3);
    c.clear_outputs();
    const Status ran = edit.file.empty() ? emulate(*plan, c) : emulate(*plan, c, edit);
    return ran ? c.judge().first_wrong : ran.error().message();
  };
  CHECK(run({}) == "");
  // Each block divides by the sums of its own keys, or adds sums as if all had one largest score.
  constexpr const char* kCluster = "sinter/device/family/attention_forward_cluster.cuh";
  CHECK(run({kCluster, "softmax.total[r] = writes ? total : 0.0f;", ""}) != "");
  CHECK(run({kCluster, "of_block[b].x == largest\n", "true\n"}) != "");
  // A block joins the first rows instead of its own, or stores rows that others join.
  CHECK(run({"sinter/device/family/attention_forward_parts.cuh", "int b = joined.first;",
             "int b = 0;"}) != "");
  CHECK(run({kCluster, "warp % Config::key_blocks == rank", "true"}) != "");
}

}  // namespace
}  // namespace sinter::test
