// Attention of packed sequences: what kernels of sm_90a take, and that the others are its
// expansion.
#include <set>

#include "compile/extent_classes.hpp"
#include "planned.hpp"
#include "runtime/compiler.hpp"
#include "schedule/attention/forward.hpp"
#include "sinter/plan_cache.hpp"
#include "sinter/sinter.hpp"
#include "support/can_compile.hpp"

namespace sinter::test {
namespace {

struct Packed {
  std::int64_t d = 32, dv = 32, sequences = 3, tokens = 70, key_tokens = 90;
  SdpaAttributes attributes = {};
  bool backward = false, computed = false;  // offsets that the graph computes where they are read
  bool plain = false;                       // one sequence, without offsets
};

const GraphOptions kOptions{.name = "packed", .io = bf16, .intermediate = f32};

void add_to(Graph& graph, const Packed& c) {
  Graph* const g = &graph;
  const auto tensor = [&](const char* name, std::int64_t heads, std::int64_t rows, std::int64_t w) {
    return g->tensor({.name = name, .dim = {1, heads, rows, w}});
  };
  const auto offsets = [&](const char* name) {
    const Tensor t = g->tensor({.name = name, .dim = {c.sequences + 1, 1, 1, 1}, .data_type = i32});
    if (!c.computed) return t;
    const Tensor made = abs(t);
    detail::GraphEditor(*g).edit(made.id()).data_type = i32;
    return made;
  };
  const Tensor q = tensor("q", 4, c.tokens, c.d), k = tensor("k", 2, c.key_tokens, c.d),
               v = tensor("v", 2, c.key_tokens, c.dv);
  SdpaInputs in;
  if (!c.plain) in.cu_seq_len_q = offsets("offsets_q"), in.cu_seq_len_kv = offsets("offsets_kv");
  SdpaAttributes a = c.attributes;
  if (a.dropout_probability > 0) {
    in.seed = g->tensor({.name = "seed", .dim = {1}, .data_type = i64});
    in.offset = g->tensor({.name = "offset", .dim = {1}, .data_type = i64});
  }
  if (!c.backward) {
    g->output(sdpa(q, k, v, a, in).o, "o");
    return;
  }
  a.generate_stats = true;
  const auto r = sdpa(q, k, v, a, in);
  const auto gradients =
      sdpa_backward(q, k, v, r.o, tensor("d_o", 4, c.tokens, c.dv), r.stats, a, in);
  g->output(gradients.dq, "dq");
  g->output(gradients.dk, "dk");
  g->output(gradients.dv, "dv");
}
Shared<Graph> graph_of(const Packed& c) {
  auto g = Shared<Graph>::make(kOptions);
  add_to(*g, c);
  return g;
}

std::vector<Family> families_of(const Packed& c) {
  const auto g = graph_of(c);
  REQUIRE(g->check().empty());
  return families(for_sm_90a(*g));
}

}  // namespace

TEST_CASE("packed sequences are a band of the same kernels") {
  const std::vector<Family> forward{Family::attention},
      backward{Family::attention, Family::rowwise, Family::attention_backward, Family::pointwise};
  for (const std::int64_t d : {32, 64, 128, 192, 256}) {
    CHECK(families_of({.d = d, .dv = d}) == forward);
    CHECK(families_of({.d = d, .dv = d, .backward = true}) == backward);
  }
  const SdpaAttributes all[] = {{.causal_mask = true},
                                {.causal_mask_bottom_right = true, .left_bound = 9},
                                {.left_bound = 3, .right_bound = 2},
                                {.softcap = 5}};
  for (const SdpaAttributes& a : all)
    for (const bool both : {false, true}) {
      const Packed c{.attributes = a, .backward = both};
      CHECK(families_of(c) == (both ? backward : forward));
      check_values(*graph_of(c));
    }
}

TEST_CASE("packed sequences that kernels do not take run as their expansion") {
  const auto has = [](const Packed& c, Family f) {
    const auto all = families_of(c);
    return std::count(all.begin(), all.end(), f) > 0;
  };
  CHECK_FALSE(has({.d = 264, .dv = 264}, Family::attention));
  CHECK_FALSE(
      has({.attributes = {.alibi_mask = true}, .backward = true}, Family::attention_backward));
  for (const Packed& c : {Packed{.d = 264, .dv = 264}, Packed{.attributes = {.alibi_mask = true}},
                          Packed{.attributes = {.alibi_mask = true}, .backward = true},
                          Packed{.computed = true}, Packed{.backward = true, .computed = true}})
    check_values(*graph_of(c));
}

TEST_CASE("CTAs share the queries that a tile of packed keys meets where tiles leave SMs idle") {
  const auto parts = [](std::int64_t tokens) {
    const Partition p = for_sm_90a(*graph_of({.d = 128,
                                              .dv = 128,
                                              .sequences = 2,
                                              .tokens = tokens,
                                              .key_tokens = tokens,
                                              .backward = true}));
    for (const KernelSpec& k : p.kernels)
      if (k.as_attention_backward()) return k.attention_backward().parts;
    FAIL("it is not one kernel");
    return 0;
  };
  CHECK(parts(70) == 1);
  CHECK(parts(2048) > 1);
  CHECK(parts(32768) == 1);
  check_values(*graph_of({.tokens = 300, .key_tokens = 300, .backward = true}));
}

TEST_CASE("attention and its gradients have one text for the tokens of a class", "[nvrtc]") {
  if (!can_compile()) return;
  const SdpaAttributes dropout{.dropout_probability = 0.1};
  for (const Packed& c : {Packed{.backward = true}, Packed{.attributes = dropout, .backward = true},
                          Packed{.attributes = dropout, .backward = true, .plain = true}}) {
    const auto build = [&](Graph& g, GraphBuilder::Extents e) {
      Packed of_extents = c;
      of_extents.tokens = e[0], of_extents.key_tokens = e[1];
      add_to(g, of_extents);
    };
    const GraphBuilder builder(build);
    ExtentClasses classes(builder, {dyn("tokens", 1, 4096, {512}), dyn("keys", 1, 4096, {512})},
                          kOptions, {.architecture = "sm_90a"});
    std::set<std::string> texts;
    for (const std::vector<std::int64_t>& extents :
         {std::vector<std::int64_t>{600, 701}, std::vector<std::int64_t>{1000, 900}}) {
      auto g = Shared<Graph>::make(kOptions);
      build(*g, extents);
      const auto plan = classes.plan(*g, extents);
      REQUIRE(plan);
      for (const PlanKernel& k : plan->data().kernels) {
        if (k.entry.find("attention") == k.entry.npos || !texts.insert(k.source).second) continue;
        const auto compiled = compile_uncached({k.source, k.entry, "sm_90a", false});
        INFO(k.entry);
        CHECK((compiled ? "" : compiled.error().message()) == "");
      }
    }
    // Forward, packed sequences are scheduled by their number of tokens.
    CHECK(texts.size() == (c.plain ? 2 : 3));
  }
}

TEST_CASE("tiles of packed sequences are as many as lengths may ask for") {
  const PackedSequences none{}, three{.count = 3};
  CHECK(tiles_of(129, 64, none) == 3);
  CHECK(tiles_of(128, 64, none) == 2);
  // Five of them, the first and the last one without keys: 1, 1, 126, 0 and 0 tokens are 4 tiles.
  CHECK(tiles_of(128, 64, three) == 7);
  CHECK(length_of(128, none) == 128);
  CHECK(length_of(128, three) == 43);
}

}  // namespace sinter::test
