// Attention forward whose CTAs have equal shares of all keys: lengths unlike each other, shares
// that begin and end within tiles of rows, whichever CTA comes last.
#include <algorithm>
#include <limits>

#include "compile/make_plan.hpp"
#include "emulator/emulator.hpp"
#include "sinter/operations.hpp"
#include "support/catch.hpp"

namespace sinter::test {
namespace {

struct Batch {
  std::vector<std::int32_t> keys;
  std::int64_t heads = 4, queries = 1, d = 64, most_keys = 700;
  SdpaAttributes a = {};
};

Shared<Graph> graph_of(const Batch& b) {
  auto g = Shared<Graph>::make(GraphOptions{.name = "shares", .io = bf16, .intermediate = f32});
  const auto entries = static_cast<std::int64_t>(b.keys.size());
  const auto tensor = [&](const char* name, std::int64_t heads, std::int64_t rows) {
    return g->tensor({.name = name, .dim = {entries, heads, rows, b.d}});
  };
  const auto lengths = [&](const char* name) {
    return g->tensor({.name = name, .dim = {entries, 1, 1, 1}, .data_type = i32});
  };
  SdpaInputs in;
  in.seq_len_q = lengths("lengths_q"), in.seq_len_kv = lengths("lengths_kv");
  SdpaAttributes a = b.a;
  a.attn_scale = 0.125, a.padding_mask = true, a.generate_stats = true;
  const auto r = sdpa(tensor("q", b.heads, b.queries), tensor("k", 2, b.most_keys),
                      tensor("v", 2, b.most_keys), a, in);
  g->output(r.o, "o");
  g->output(r.stats, "stats", {.data_type = f32});
  return g;
}

// What is behind the lengths is NaN.
void poison(GraphCase& c, const Batch& b, const char* name) {
  auto* const data = static_cast<std::uint16_t*>(c.memory().at(*c.lowered().find(name)));
  for (std::size_t i = 0; i < b.keys.size(); ++i)
    for (std::size_t head = 0; head < 2; ++head) {
      std::uint16_t* const rows =
          data + (i * 2 + head) * static_cast<std::size_t>(b.most_keys * b.d);
      std::fill(rows + b.keys[i] * b.d, rows + b.most_keys * b.d, std::uint16_t{0x7fc0});
    }
}

// What is wrong with the results, clusters run from either end. `share`: tiles of keys of a CTA,
// where it is not what the GPU's number of SMs makes it.
std::string run(const Batch& b, int share = 0, Edit edit = {}) {
  const auto g = graph_of(b);
  GraphCase c(*g, Fill::normal, 7);
  poison(c, b, "k"), poison(c, b, "v");
  std::copy(b.keys.begin(), b.keys.end(),
            static_cast<std::int32_t*>(c.memory().at(*c.lowered().find("lengths_kv"))));
  std::fill_n(static_cast<std::int32_t*>(c.memory().at(*c.lowered().find("lengths_q"))),
              b.keys.size(), static_cast<std::int32_t>(b.queries));
  const auto plan = make_plan(*g, {.architecture = "sm_90a"}, {}, nullptr);
  REQUIRE(plan);
  REQUIRE(plan->kernels() == 2);  // zeros for the counters, attention
  const std::string each = "return " + std::to_string(share);
  if (share > 0)
    edit = {"sinter/device/family/attention_forward_shares.cuh",
            "return (all + ctas() - 1) / ctas()", each};
  for (const bool last_first : {false, true}) {
    c.clear_outputs();
    if (const Status ran = emulate(*plan, c, edit, last_first); !ran) return ran.error().message();
    if (const Comparison compared = c.judge(); !compared.ok()) return compared.first_wrong;
  }
  return {};
}

TEST_CASE("shares of keys: lengths unlike each other") {
  const std::vector<std::int32_t> unlike{1, 700, 0, 128, 129, 300};
  CHECK(run({.keys = unlike}) == "");
  for (const int share : {2, 3, 7}) {
    INFO("shares of " << share);
    CHECK(run({.keys = unlike}, share) == "");
  }
  const SdpaAttributes causal{.causal_mask_bottom_right = true},
      window{.causal_mask_bottom_right = true, .left_bound = 400};
  CHECK(run({.keys = {650, 3, 257}, .heads = 8, .queries = 5, .a = causal}, 2) == "");
  CHECK(run({.keys = {700, 90}, .queries = 20, .d = 192, .a = window}, 2) == "");
}

// Several warpgroups, whose rows see other tiles of keys.
TEST_CASE("shares of keys: chunks of queries") {
  const SdpaAttributes causal{.causal_mask_bottom_right = true};
  CHECK(run({.keys = {650, 90}, .heads = 8, .queries = 150, .most_keys = 2900, .a = causal}) == "");
  const Batch wide{
      .keys = {400, 1}, .heads = 8, .queries = 100, .d = 128, .most_keys = 2900, .a = causal};
  for (const int share : {1, 3}) CHECK(run(wide, share) == "");
}

TEST_CASE("shares of keys: the emulator finds what is left out") {
  const std::string family = "sinter/device/family/attention_forward_",
                    shares = family + "shares.cuh", parts = family + "parts.cuh";
  const Edit all[] = {
      {shares, "const bool last = *before == of.count - 1;", "const bool last = *before == 0;"},
      {shares, "own.begin += from", "own.begin += 0"},
      {parts, "all = {{0, 0, 0, 0}, now, 0};", "all = {{0, 0, 0, 0}, all.largest, 0};"},
  };
  for (const Edit& one : all) {
    INFO(one.text);
    CHECK(run({.keys = {1, 700, 0, 128, 129, 300}}, 0, one) != "");
  }
  // Of several warpgroups.
  const Edit added{shares, "out.at[i] = math::fma(sum.x, weight[0], out.at[i]);", ""};
  CHECK(run({.keys = {650, 90}, .heads = 8, .queries = 150, .most_keys = 2900}, 0, added) != "");
}

}  // namespace
}  // namespace sinter::test
