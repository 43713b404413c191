// Attention forward where its tiles end: queries and keys around multiples of 64, head dimensions
// around those of the swizzle, bounds, lengths, and graphs that write it out. Shapes are as small
// as the edges allow, for the emulator.
#include <fmt/format.h>

#include <limits>

#include "gpu/gpu_support.hpp"
#include "reference/element.hpp"
#include "sinter/operations.hpp"
#include "support/catch.hpp"

using namespace sinter;
using namespace sinter::test;

namespace {

struct Case {
  std::int64_t sq, skv, d = 64, dv = 64;
  SdpaAttributes a = {};
  DataType io = bf16;
  std::int64_t b = 1, h = 1, hk = 1;
  bool bias = false, sink = false, by_hand = false;
  bool v_in_k = false;         // v is the first dv columns of k
  std::int64_t packed = 0;     // sequences
  std::string gradients = {};  // those of "qkv" that are wanted
  DataType of_gradients = DataType::none;
  bool rounds = false;  // by hand: weights of 16 bits
};

std::string text(const Case& c) {
  return fmt::format("{}x{} d {} {} b {} h {} {} {}{}{}{}{}{}{}{}{}{}{}{}", c.sq, c.skv, c.d, c.dv,
                     c.b, c.h, c.hk, name(c.io), c.a.causal_mask ? " causal" : "",
                     c.a.causal_mask_bottom_right ? " bottom right" : "",
                     c.a.left_bound ? fmt::format(" left {}", *c.a.left_bound) : "",
                     c.a.padding_mask ? " padding" : "", c.bias ? " bias" : "",
                     c.sink ? " sink" : "", c.by_hand ? " by hand" : "", c.rounds ? " rounded" : "",
                     c.v_in_k ? " v in k" : "",
                     c.packed > 0 ? fmt::format(" {} sequences", c.packed) : "",
                     c.gradients.empty() ? "" : fmt::format(" gradients {}", c.gradients));
}

// The last rows of a written-out causal mask see the first keys, the first ones nothing where there
// are more queries than keys.
Tensor written_out(Graph& g, const Case& c, Tensor q, Tensor k, Tensor v) {
  Tensor s = matmul(q, transpose(k, {0, 1, 3, 2})) * c.a.attn_scale;
  if (c.bias) s = s + g.tensor({.name = "bias", .dim = {1, 1, c.sq, c.skv}});
  const Tensor row = gen_index(s, 2) + static_cast<double>(c.skv - c.sq), column = gen_index(s, 3);
  const auto hidden = g.scalar(-std::numeric_limits<double>::infinity(), f32);
  if (c.a.causal_mask_bottom_right) s = select(column <= row, s, hidden);
  if (c.a.left_bound) s = select(column > row - static_cast<double>(*c.a.left_bound), s, hidden);
  const auto p = softmax(s, {.stats = true});
  g.output(p.stats, "stats", {.data_type = f32});
  if (c.rounds) detail::GraphEditor(g).edit(p.y.id()).data_type = c.io;
  return matmul(p.y, v);
}

Shared<Graph> graph_of(const Case& c) {
  auto g = Shared<Graph>::make(GraphOptions{.name = text(c), .io = c.io, .intermediate = f32});
  const Tensor q = g->tensor({.name = "q", .dim = {c.b, c.h, c.sq, c.d}}),
               k = g->tensor({.name = "k", .dim = {c.b, c.hk, c.skv, c.d}}),
               v = c.v_in_k ? slice(k, {.start = {0, 0, 0, 0}, .limit = {c.b, c.hk, c.skv, c.dv}})
                            : g->tensor({.name = "v", .dim = {c.b, c.hk, c.skv, c.dv}});
  if (c.by_hand) {
    g->output(written_out(*g, c, q, k, v), "o");
    return g;
  }
  SdpaInputs in;
  if (c.bias) in.bias = g->tensor({.name = "bias", .dim = {1, 1, c.sq, c.skv}});
  if (c.sink) in.sink_token = g->tensor({.name = "sink", .dim = {1, c.h, 1, 1}});
  if (c.a.padding_mask) {
    const auto length = [&](const char* name) {
      return g->tensor({.name = name, .dim = {c.b, 1, 1, 1}, .data_type = i32});
    };
    in.seq_len_q = length("length_q"), in.seq_len_kv = length("length_kv");
  }
  if (c.packed > 0) {
    const auto offsets = [&](const char* name) {
      return g->tensor({.name = name, .dim = {c.packed + 1, 1, 1, 1}, .data_type = i32});
    };
    in.cu_seq_len_q = offsets("offsets_q"), in.cu_seq_len_kv = offsets("offsets_kv");
  }
  const auto r = sdpa(q, k, v, c.a, in);
  g->output(r.o, "o");
  if (r.stats) g->output(r.stats, "stats", {.data_type = f32});
  if (!c.gradients.empty()) {
    const Tensor d_o = g->tensor({.name = "d_o", .dim = {c.b, c.h, c.sq, c.dv}});
    const auto gradients = sdpa_backward(q, k, v, r.o, d_o, r.stats, c.a, in);
    if (c.gradients.find('q') != c.gradients.npos) g->output(gradients.dq, "dq");
    if (c.gradients.find('k') != c.gradients.npos)
      g->output(gradients.dk, "dk", {.data_type = c.of_gradients});
    if (c.gradients.find('v') != c.gradients.npos)
      g->output(gradients.dv, "dv", {.data_type = c.of_gradients});
  }
  return g;
}

void check(const std::vector<Case>& cases, Fill fill = Fill::normal) {
  std::vector<GraphSource> all;
  for (const Case& c : cases) all.push_back({text(c), all.size(), [c] { return graph_of(c); }, {}});
  Failures failures;
  const Totals t = run_graphs(all, {.fill = fill, .samples = 0, .repeatable = true}, failures);
  CHECK(t.graphs == static_cast<std::int64_t>(all.size()));
  INFO(failures.text());
  CHECK(failures.all().empty());
}

constexpr double kScale = 0.125;

}  // namespace

TEST_CASE("attention at the edges of its tiles", "[attention]") {
  const SdpaAttributes full{.attn_scale = kScale, .generate_stats = true},
      causal{.attn_scale = kScale, .causal_mask = true},
      corner{.attn_scale = kScale, .causal_mask_bottom_right = true, .generate_stats = true},
      window{.attn_scale = kScale, .left_bound = 40, .right_bound = 5};
  check({{.sq = 1, .skv = 1, .a = full},
         {.sq = 1, .skv = 129, .a = corner},
         {.sq = 63, .skv = 65, .a = causal},
         {.sq = 64, .skv = 64, .a = corner},
         {.sq = 65, .skv = 63, .a = corner},  // two rows see nothing
         {.sq = 127, .skv = 200, .a = window},
         {.sq = 129, .skv = 128, .a = full, .h = 2},
         {.sq = 200, .skv = 127, .a = corner},
         {.sq = 200, .skv = 1, .a = corner},
         {.sq = 128, .skv = 129, .a = causal, .b = 2, .h = 2},
         {.sq = 200, .skv = 200, .a = window, .h = 4, .hk = 2},
         {.sq = 70, .skv = 70, .a = full, .bias = true},
         {.sq = 70, .skv = 133, .a = causal, .sink = true}});
}

TEST_CASE("attention of every kind of head dimension", "[attention]") {
  const SdpaAttributes a{.attn_scale = kScale, .causal_mask_bottom_right = true};
  const auto of = [&](std::int64_t sq, std::int64_t skv, std::int64_t d, std::int64_t dv,
                      DataType io = bf16) {
    return Case{.sq = sq, .skv = skv, .d = d, .dv = dv, .a = a, .io = io};
  };
  check({of(130, 140, 32, 32), of(70, 140, 40, 40, f16), of(70, 70, 72, 96),
         of(70, 140, 128, 128, f16), of(70, 70, 136, 104), of(70, 70, 192, 128),
         of(65, 65, 256, 256), of(65, 33, 248, 8), of(65, 33, 36, 20)});  // which are copied first
}

TEST_CASE("attention of wide heads", "[attention]") {
  const SdpaAttributes full{.attn_scale = 0.05, .generate_stats = true},
      causal{.attn_scale = 0.05, .causal_mask = true},
      corner{.attn_scale = 0.05, .causal_mask_bottom_right = true, .generate_stats = true},
      window{.attn_scale = 0.05, .left_bound = 40, .right_bound = 5},
      padding{.attn_scale = 0.05, .padding_mask = true, .generate_stats = true};
  const auto latent = [](Case c) {
    c.d = 576, c.dv = 512, c.v_in_k = true;
    return c;
  };
  // None to four tiles of keys, for one consumer or the other last; several tiles of rows a CTA.
  check({latent({.sq = 1, .skv = 63, .a = full, .h = 16}),
         latent({.sq = 1, .skv = 128, .a = full, .h = 64}),
         latent({.sq = 65, .skv = 129, .a = causal}),
         latent({.sq = 130, .skv = 193, .a = corner}),
         latent({.sq = 129, .skv = 64, .a = corner}),  // the first tile of rows sees nothing
         latent({.sq = 70, .skv = 250, .a = window, .io = f16}),
         latent({.sq = 3, .skv = 150, .a = padding, .b = 4, .h = 8}),
         latent({.sq = 66, .skv = 130, .a = padding, .b = 4}),
         {.sq = 66, .skv = 200, .d = 512, .dv = 448, .a = corner, .v_in_k = true},
         {.sq = 64, .skv = 300, .d = 328, .dv = 256, .a = causal, .v_in_k = true},
         {.sq = 65, .skv = 100, .d = 264, .dv = 264, .a = full},
         {.sq = 130, .skv = 97, .d = 576, .dv = 512, .a = corner, .h = 2},
         {.sq = 100, .skv = 100, .d = 512, .dv = 512, .a = window},
         {.sq = 70, .skv = 150, .d = 384, .dv = 320, .a = padding, .b = 4},
         {.sq = 65, .skv = 130, .d = 8, .dv = 512, .a = causal, .sink = true},
         {.sq = 33, .skv = 33, .d = 300, .dv = 276, .a = causal},  // which are copied first
         {.sq = 65, .skv = 130, .d = 320, .dv = 320, .a = window, .by_hand = true}});
}

TEST_CASE("attention with lengths", "[attention]") {
  const SdpaAttributes a{.attn_scale = kScale, .padding_mask = true, .generate_stats = true};
  SdpaAttributes corner = a;
  corner.causal_mask_bottom_right = true;
  check({{.sq = 130, .skv = 150, .a = a, .b = 4},
         {.sq = 70, .skv = 150, .a = corner, .b = 4, .h = 2}});
}

TEST_CASE("attention of packed sequences", "[attention]") {
  const SdpaAttributes full{.attn_scale = kScale, .generate_stats = true},
      causal{.attn_scale = kScale, .causal_mask = true, .generate_stats = true},
      corner{.attn_scale = kScale, .causal_mask_bottom_right = true, .left_bound = 40};
  check({{.sq = 300, .skv = 300, .a = causal, .h = 2, .packed = 5},
         {.sq = 130, .skv = 260, .a = corner, .h = 2, .hk = 1, .packed = 3},
         {.sq = 1, .skv = 1, .a = full, .packed = 1},
         {.sq = 400, .skv = 400, .d = 32, .dv = 32, .a = causal, .h = 16, .packed = 9},  // 2 tiles
                                                                                         // a CTA
         {.sq = 40, .skv = 1, .a = full, .packed = 60},  // most of them empty
         {.sq = 200, .skv = 150, .d = 128, .dv = 128, .a = full, .packed = 4},
         {.sq = 130, .skv = 130, .d = 96, .dv = 72, .a = causal, .io = f16, .packed = 4},
         {.sq = 140, .skv = 140, .d = 256, .dv = 256, .a = causal, .packed = 2},
         {.sq = 150, .skv = 150, .d = 36, .dv = 20, .a = full, .sink = true, .packed = 3}});
}

TEST_CASE("attention written out", "[attention]") {
  const SdpaAttributes full{.attn_scale = kScale},
      corner{.attn_scale = kScale, .causal_mask_bottom_right = true},
      window{.attn_scale = kScale, .causal_mask_bottom_right = true, .left_bound = 30};
  check({{.sq = 65, .skv = 130, .a = full, .by_hand = true},
         {.sq = 130, .skv = 65, .a = corner, .by_hand = true},  // rows of nothing else are NaN
         {.sq = 129, .skv = 129, .a = window, .h = 4, .hk = 2, .by_hand = true},
         {.sq = 40, .skv = 70, .a = full, .bias = true, .by_hand = true},
         // Weights of 16 bits: one and two tiles of keys, and as many rows as two consumers have.
         {.sq = 64, .skv = 128, .a = full, .by_hand = true, .rounds = true},
         {.sq = 130, .skv = 129, .d = 128, .dv = 72, .a = corner, .by_hand = true, .rounds = true},
         {.sq = 130, .skv = 65, .a = corner, .io = f16, .by_hand = true, .rounds = true},
         {.sq = 257, .skv = 300, .a = window, .h = 4, .hk = 2, .by_hand = true, .rounds = true},
         {.sq = 40, .skv = 1, .a = full, .bias = true, .by_hand = true, .rounds = true}});
}

// On a GPU, dQ too has the same bits in each run.
TEST_CASE("some of attention's gradients, and dQ in one order", "[attention]") {
  const SdpaAttributes causal{.attn_scale = kScale, .causal_mask = true, .generate_stats = true};
  SdpaAttributes ordered = causal, window = causal;
  ordered.deterministic = window.deterministic = true;
  window.left_bound = 100;
  std::vector<Case> all;
  for (const std::int64_t d : {64, 128, 136})
    for (const char* wanted : {"q", "qk", "qv", "kv", "v"}) {
      Case c{.sq = 70, .skv = 129, .d = d, .dv = d, .a = causal};
      c.gradients = wanted;
      if (d == 64) c.of_gradients = f32;
      all.push_back(c);
    }
  for (const std::int64_t d : {32, 128, 192})
    for (const SdpaAttributes& a : {ordered, window}) {
      Case c{.sq = 300, .skv = 300, .d = d, .dv = d, .a = a, .h = 2, .hk = 1};
      c.gradients = "qkv";
      all.push_back(c);
    }
  check(all);
}

// Rows that see nothing but such a mask have it as Stats, too, and a weight of 1 for each key: the
// logarithm of their number is lost in it. So gradients are those of rows whose scores and Stats
// are zeros, bit for bit; where a row sees something else, what is masked counts for nothing. What
// the reference allows for sums with such numbers says nothing.
TEST_CASE("gradients of rows that are masked by large numbers", "[attention]") {
  struct Masked {
    double hidden;
    std::int64_t d;
    DataType io, of_bias;
    SdpaAttributes a = {};
    std::int64_t hk = 2;
  };
  const SdpaAttributes full{.attn_scale = kScale, .deterministic = true};
  SdpaAttributes causal = full, capped = full;
  causal.causal_mask = true;
  capped.softcap = 5;
  const Masked cases[] = {{-3.3e38, 64, bf16, f32, full},
                          {-1e9, 128, bf16, f32, full, 1},
                          {-3.3895313892515355e38, 96, bf16, bf16, causal},
                          {-2e10, 64, f16, f32, capped, 1},
                          {-65504, 128, f16, f16, full},
                          {-3.3e38, 192, bf16, f32, full, 1},
                          {-1e9, 256, f16, f32, causal},
                          {-3.3e38, 64, f32, f32, capped, 1},
                          {-1e9, 32, f32, f32, causal}};
  constexpr std::int64_t h = 2, sq = 150, skv = 120;
  for (const Masked& m : cases) {
    INFO("hidden " << m.hidden << " d " << m.d << " " << name(m.io));
    std::vector<std::vector<double>> results;
    for (const double hidden : {m.hidden, 0.0}) {
      auto g = Shared<Graph>::make(GraphOptions{.name = "masked", .io = m.io, .intermediate = f32});
      const auto tensor = [&](const char* name, std::int64_t heads, std::int64_t rows,
                              std::int64_t width, DataType type) {
        return g->tensor({.name = name, .dim = {1, heads, rows, width}, .data_type = type});
      };
      SdpaInputs in;
      in.bias = tensor("bias", h, sq, skv, m.of_bias);
      const auto r =
          sdpa_backward(tensor("q", h, sq, m.d, m.io), tensor("k", m.hk, skv, m.d, m.io),
                        tensor("v", m.hk, skv, m.d, m.io), tensor("o", h, sq, m.d, m.io),
                        tensor("d_o", h, sq, m.d, m.io), tensor("stats", h, sq, 1, f32), m.a, in);
      g->output(r.dq, "dq"), g->output(r.dk, "dk"), g->output(r.dv, "dv");
      g->output(r.dbias, "dbias");
      GraphCase c(*g, Fill::normal, 5);
      const auto memory = c.memory();
      const auto put = [&](const char* tensor, std::int64_t width, const auto& value) {
        const TensorId t = *c.lowered().find(tensor);
        for (std::int64_t i = 0; i < h * sq * width; ++i)
          if (const auto x = value(i / width % sq, i % width))
            store_element(c.lowered().type(t), memory.at(t), i, *x);
      };
      const auto blind = [](std::int64_t row) { return row % 3 == 0; };
      using Number = std::optional<double>;
      put("q", m.d, [&](auto row, auto) { return blind(row) ? Number(0) : Number(); });
      put("stats", 1, [&](auto row, auto) { return blind(row) ? Number(hidden) : Number(); });
      put("bias", skv, [&](auto row, auto column) {
        if (blind(row)) return Number(hidden);
        return column % 5 == 0 ? Number(hidden < 0 ? hidden : -1e4) : Number();
      });
      const std::string wrong = run_case(*g, c);
      REQUIRE(wrong.empty());
      if (hidden == 0) {
        const Comparison judged = c.judge();
        INFO(judged.first_wrong);
        CHECK((judged.ok() && judged.untrusted == 0));
      }
      std::vector<double> all;
      for (const char* result : {"dq", "dk", "dv", "dbias"}) {
        const TensorId t = *c.lowered().find(result);
        for (std::int64_t i = 0; i < count(c.lowered()[t].dim); ++i)
          all.push_back(load_element(c.lowered().type(t), memory.at(t), i));
      }
      results.push_back(all);
    }
    std::size_t wrong = 0;
    for (std::size_t i = 0; i < results[0].size(); ++i) wrong += !(results[0][i] == results[1][i]);
    CHECK(wrong == 0);
  }
}

// What is not finite at pairs that do not see each other counts for nothing: rows of Q and dO that
// see the first keys alone, and the last keys, which the last rows alone see. The results are the
// reference's, NaN for those alone that such a pair reaches.
TEST_CASE("gradients beside numbers that are not finite", "[attention]") {
  struct Unseen {
    std::int64_t d;
    DataType io = bf16;
    std::int64_t hk = 2;
    bool left = false, padding = false;
    double softcap = 0;
    std::string wanted = "qkv";
    DataType of_gradients = DataType::none;
    std::int64_t sq = 150, skv = 150;
  };
  const Unseen cases[] = {{.d = 64},
                          {.d = 128, .io = f16},
                          {.d = 96, .left = true},
                          {.d = 64, .hk = 1, .softcap = 5},
                          {.d = 192, .hk = 1},
                          {.d = 256, .io = f16, .left = true},
                          {.d = 136, .of_gradients = f32},
                          {.d = 64, .padding = true},
                          {.d = 128, .wanted = "v"},
                          {.d = 64, .wanted = "k", .of_gradients = f32},
                          {.d = 128, .hk = 1, .sq = 1100, .skv = 70},  // parts of the queries
                          {.d = 32, .io = f32},
                          {.d = 64, .io = f32, .softcap = 5}};
  constexpr std::int64_t h = 2;
  const double infinity = std::numeric_limits<double>::infinity(),
               nan = std::numeric_limits<double>::quiet_NaN();
  for (const Unseen& u : cases)
    for (const char* where : {"q", "d_o", "k"}) {
      INFO(where << " d " << u.d << " " << name(u.io) << " " << u.wanted << " " << u.sq);
      auto g = Shared<Graph>::make(GraphOptions{.name = "unseen", .io = u.io, .intermediate = f32});
      const auto tensor = [&](const char* name, std::int64_t heads, std::int64_t rows,
                              std::int64_t width, DataType type) {
        return g->tensor({.name = name, .dim = {1, heads, rows, width}, .data_type = type});
      };
      SdpaAttributes a{.attn_scale = kScale, .causal_mask = true, .softcap = u.softcap};
      if (u.left) a.left_bound = 40;
      SdpaInputs in;
      a.padding_mask = u.padding;
      if (u.padding) {
        in.seq_len_q = g->tensor({.name = "length_q", .dim = {1, 1, 1, 1}, .data_type = i32});
        in.seq_len_kv = g->tensor({.name = "length_kv", .dim = {1, 1, 1, 1}, .data_type = i32});
      }
      const auto r =
          sdpa_backward(tensor("q", h, u.sq, u.d, u.io), tensor("k", u.hk, u.skv, u.d, u.io),
                        tensor("v", u.hk, u.skv, u.d, u.io), tensor("o", h, u.sq, u.d, u.io),
                        tensor("d_o", h, u.sq, u.d, u.io), tensor("stats", h, u.sq, 1, f32), a, in);
      if (u.wanted.find('q') != u.wanted.npos) g->output(r.dq, "dq");
      if (u.wanted.find('k') != u.wanted.npos) g->output(r.dk, "dk", {.data_type = u.of_gradients});
      if (u.wanted.find('v') != u.wanted.npos) g->output(r.dv, "dv", {.data_type = u.of_gradients});
      GraphCase c(*g, Fill::normal, 5);
      const auto t = c.lowered().find(where);
      if (!t) continue;  // dV alone reads no Q
      const std::int64_t rows = where[0] == 'k' ? u.skv : u.sq,
                         row = where[0] == 'k' ? rows - 3 : 2;
      const auto put = [&](std::int64_t row, std::int64_t element, double x) {
        store_element(c.lowered().type(*t), c.memory().at(*t), row * u.d + element, x);
      };
      put(row, 0, infinity), put(row, u.d - 1, nan);
      for (std::int64_t e = 0; e < u.d; ++e) put(row + 1, e, nan);
      if (u.hk == h || where[0] != 'k') put(rows + row, 3, nan);  // the other head's
      REQUIRE(run_case(*g, c) == "");
      const Comparison judged = c.judge();
      INFO(judged.first_wrong);
      CHECK(judged.ok());
    }
}

// An infinite factor of f32 is infinite, though its lower part, as products take it, is none.
TEST_CASE("gradients of f32 beside an infinite number that all keys see", "[attention]") {
  constexpr std::int64_t s = 40, d = 32;
  const double infinity = std::numeric_limits<double>::infinity();
  for (const bool alone : {true, false}) {
    INFO((alone ? "dV alone" : "all"));
    auto g = Shared<Graph>::make(GraphOptions{.name = "seen", .io = f32, .intermediate = f32});
    const auto tensor = [&](const char* name, std::int64_t width) {
      return g->tensor({.name = name, .dim = {1, 1, s, width}});
    };
    const auto r =
        sdpa_backward(tensor("q", d), tensor("k", d), tensor("v", d), tensor("o", d),
                      tensor("d_o", d), tensor("stats", 1), SdpaAttributes{.attn_scale = kScale});
    g->output(r.dv, "dv");
    if (!alone) g->output(r.dq, "dq"), g->output(r.dk, "dk");
    GraphCase c(*g, Fill::normal, 5);
    const TensorId d_o = *c.lowered().find("d_o"), dv = *c.lowered().find("dv");
    store_element(f32, c.memory().at(d_o), 2 * d, infinity);
    REQUIRE(run_case(*g, c) == "");
    CHECK(c.judge().ok());
    int finite = 0;
    for (std::int64_t n = 0; n < s; ++n)
      finite += load_element(f32, c.memory().at(dv), n * d) != infinity;
    CHECK(finite == 0);
  }
}
