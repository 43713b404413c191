// Attention of packed sequences on sm_90a, forward and backward: lengths around the edges of tiles,
// empty sequences, tokens of none, NaN in others' tokens, and offsets that are none.
#include <algorithm>
#include <limits>

#include "compile/make_plan.hpp"
#include "emulator/emulator.hpp"
#include "sinter/operations.hpp"
#include "support/catch.hpp"

namespace sinter::test {
namespace {

struct Packed {
  std::vector<std::int32_t> offsets_q, offsets_kv{};  // of queries alone: keys have the same
  std::int64_t tokens_q, tokens_kv, d = 64, dv = 64;
  SdpaAttributes a = {};
  int poisoned = -1;  // a sequence whose keys and values are NaN and infinities
  bool defined = true, backward = true;
  std::int64_t heads = 2;  // of Q; K has one
  // CTAs share the queries of a tile of keys; a kernel more adds up their dK and dV, alike in dims.
  bool parts = false;
};

Shared<Graph> graph_of(const Packed& c) {
  auto g = Shared<Graph>::make(GraphOptions{.name = "packed", .io = bf16, .intermediate = f32});
  const auto tensor = [&](const char* name, std::int64_t heads, std::int64_t rows, std::int64_t w) {
    return g->tensor(
        {.name = name, .dim = {1, heads, rows, w}, .stride = {heads * rows * w, w, heads * w, 1}});
  };
  const auto offsets = [&](const char* name, const std::vector<std::int32_t>& values) {
    return g->tensor({.name = name,
                      .dim = {static_cast<std::int64_t>(values.size()), 1, 1, 1},
                      .data_type = i32});
  };
  const Tensor q = tensor("q", c.heads, c.tokens_q, c.d), k = tensor("k", 1, c.tokens_kv, c.d),
               v = tensor("v", 1, c.tokens_kv, c.dv);
  SdpaInputs in;
  in.cu_seq_len_q = in.cu_seq_len_kv = offsets("offsets_q", c.offsets_q);
  if (!c.offsets_kv.empty()) in.cu_seq_len_kv = offsets("offsets_kv", c.offsets_kv);
  SdpaAttributes a = c.a;
  a.attn_scale = 0.125, a.generate_stats = true;
  const auto r = sdpa(q, k, v, a, in);
  g->output(r.o, "o");
  g->output(r.stats, "stats", {.data_type = f32});
  if (!c.backward) return g;
  const auto gradients =
      sdpa_backward(q, k, v, r.o, tensor("d_o", c.heads, c.tokens_q, c.dv), r.stats, a, in);
  g->output(gradients.dq, "dq");
  g->output(gradients.dk, "dk");
  g->output(gradients.dv, "dv");
  return g;
}

void put_offsets(GraphCase& c, const char* name, const std::vector<std::int32_t>& values) {
  if (const auto t = c.lowered().find(name))
    std::copy(values.begin(), values.end(), static_cast<std::int32_t*>(c.memory().at(*t)));
}

// Tokens [from, to), where tokens lie before heads.
void poison(GraphCase& c, const char* name, std::int64_t from, std::int64_t to) {
  const TensorId t = *c.lowered().find(name);
  const Dims& dim = c.lowered()[t].dim;
  auto* const data = static_cast<std::uint16_t*>(c.memory().at(t));
  const std::uint16_t bad[] = {0x7fc0, 0x7f80, 0xff80};  // of bf16: NaN, infinities
  for (std::int64_t i = from * dim[1] * dim[3]; i < to * dim[1] * dim[3]; ++i) data[i] = bad[i % 3];
}

// What is wrong with the results, clusters run from either end.
std::string run(const Packed& p, const Edit& edit = {}) {
  const auto& keys = p.offsets_kv.empty() ? p.offsets_q : p.offsets_kv;
  const auto g = graph_of(p);
  GraphCase c(*g, Fill::normal, 7);
  const auto* const first =
      static_cast<const std::int32_t*>(c.memory().at(*c.lowered().find("offsets_q")));
  const std::vector<std::int32_t> drawn(first, first + p.offsets_q.size());
  if (p.defined) {
    for (const char* name : {"q", "d_o"}) {
      if (!c.lowered().find(name)) continue;
      poison(c, name, 0, p.offsets_q.front());
      poison(c, name, p.offsets_q.back(), p.tokens_q);
    }
    for (const char* name : {"k", "v"}) {
      poison(c, name, 0, keys.front());
      poison(c, name, keys.back(), p.tokens_kv);
      if (p.poisoned >= 0) {
        const auto i = static_cast<std::size_t>(p.poisoned);
        poison(c, name, keys[i], keys[i + 1]);
      }
    }
  }
  const auto plan = make_plan(*g, {.architecture = "sm_90a"}, {}, nullptr);
  REQUIRE(plan);
  // Forward, Delta with zeros, backward, dQ's conversion, and the sums of parts. Zeros with
  // counters behind them, or of other widths, are a kernel of their own.
  const bool zeros = p.d != p.dv || p.a.deterministic;
  REQUIRE(plan->kernels() == (p.backward ? 4 + zeros + p.parts : 1));
  for (const bool last_first : {false, true}) {
    put_offsets(c, "offsets_q", p.offsets_q);
    put_offsets(c, "offsets_kv", p.offsets_kv);
    c.clear_outputs();
    const Status ran = emulate(*plan, c, edit, last_first);
    if (!ran) return ran.error().message();
    if (p.defined) {
      const Comparison compared = c.judge();
      if (!compared.ok()) return compared.first_wrong;
    } else {
      put_offsets(c, "offsets_q", drawn);  // the only input that was changed
      if (std::string stray = c.stray_write(); !stray.empty()) return stray;
    }
  }
  return {};
}
void check(Packed p) {
  CHECK(run(p) == "");
  p.backward = false;
  CHECK(run(p) == "");
}

TEST_CASE("packed attention: lengths around the edges of tiles") {
  const std::vector<std::int32_t> edges{0, 1, 64, 64, 128, 193, 320, 449, 450},
      others{0, 130, 131, 195, 195, 323, 330, 400, 470};
  const SdpaAttributes causal{.causal_mask = true},
      corner{.causal_mask_bottom_right = true, .left_bound = 50};
  check({.offsets_q = edges, .tokens_q = 450, .tokens_kv = 450, .a = causal});
  check({.offsets_q = edges, .offsets_kv = others, .tokens_q = 450, .tokens_kv = 470});
  check({.offsets_q = edges,
         .offsets_kv = others,
         .tokens_q = 450,
         .tokens_kv = 470,
         .d = 128,
         .dv = 128,
         .a = corner});
  check({.offsets_q = edges, .tokens_q = 450, .tokens_kv = 450, .d = 192, .dv = 128, .a = causal});
}

TEST_CASE("packed attention: tokens of no sequence, and NaN in another sequence") {
  const std::vector<std::int32_t> q{3, 70, 200, 230}, kv{5, 90, 150, 300};
  for (const std::int64_t d : {64, 128, 192}) {
    INFO("head dimension " << d);
    check({.offsets_q = q,
           .offsets_kv = kv,
           .tokens_q = 240,
           .tokens_kv = 310,
           .d = d,
           .dv = d,
           .poisoned = 1});
  }
}

TEST_CASE("packed attention: thread blocks share the queries of a tile of keys") {
  const std::vector<std::int32_t> edges{3, 67, 67, 195, 250}, others{0, 1, 80, 208, 260};
  for (const std::int64_t d : {64, 128, 192})
    for (const bool in_order : {false, true}) {
      INFO("head dimension " << d << (in_order ? ", one order" : ""));
      CHECK(run({.offsets_q = edges,
                 .offsets_kv = others,
                 .tokens_q = 260,
                 .tokens_kv = 270,
                 .d = d,
                 .dv = d,
                 .a = {.causal_mask_bottom_right = true,
                       .left_bound = 100,
                       .deterministic = in_order},
                 .poisoned = 2,
                 .heads = 8,
                 .parts = true}) == "");
    }
}

TEST_CASE("packed attention stays within its tensors, whatever the offsets are") {
  constexpr std::int32_t kMost = std::numeric_limits<std::int32_t>::max(), kLeast = -kMost - 1;
  const std::vector<std::int32_t> all[] = {{0, 500, 200, 900, 100},
                                           {kMost, kLeast, kMost, 7, kMost},
                                           {kLeast, kLeast, kLeast, kLeast, kLeast},
                                           {150, 100, 50, 10, 0}};
  for (const auto& offsets : all)
    for (const std::int64_t d : {64, 192})
      check({.offsets_q = offsets,
             .tokens_q = 150,
             .tokens_kv = 150,
             .d = d,
             .a = {.causal_mask = true},
             .defined = false,
             .heads = d == 64 ? 8 : 2,
             .parts = d == 64});
}

TEST_CASE("packed attention: the emulator finds what is left out") {
  const Packed each{.offsets_q = {0, 30, 230, 290}, .tokens_q = 290, .tokens_kv = 290};
  Packed forward = each, wide = each, nan = each, wild = each;
  forward.backward = false;
  wide.d = wide.dv = 192;
  nan.poisoned = 1;
  wild.offsets_q = {0, 300, 300, 300};
  wild.defined = false;
  const std::string folder = "sinter/device/family/attention_";
  const struct {
    Packed p;
    std::string file, text, instead;
  } all[] = {
      {forward, "forward_store.cuh", "partial && row + 16 > row_end", "false"},
      {forward, "forward_rows.cuh", "return band.first_column + n", "return n"},
      {forward, "forward_producer.cuh", "first_key + walk.before()", "walk.before()"},
      {each, "backward_keys.cuh", "lines < 64", "false"},
      {wide, "backward_wide.cuh", "lines < S::tile_k", "false"},
      {nan, "backward_producer.cuh", "if (rows >= 64) return", "return"},
      {each, "sequences.cuh", "middle <= number", "middle < number"},
      {wild, "sequences.cuh", "x < tokens ? static_cast<int>(x) : tokens", "static_cast<int>(x)"},
  };
  for (const auto& [p, file, text, instead] : all) {
    INFO(file << ": " << text);
    const std::string path = folder + file;
    CHECK(run(p, {path, text, instead}) != "");
  }
}

}  // namespace
}  // namespace sinter::test
