// Masks of attention that are looked at for whole tiles: blocks, and conditions on indices that are
// no interval of columns.
#include <limits>

#include "plan/condition_range.hpp"
#include "planned.hpp"
#include "schedule/attention/backward.hpp"
#include "schedule/attention/forward.hpp"
#include "sinter/sinter.hpp"
#include "support/catch.hpp"
#include "target/device_model.hpp"

namespace sinter::test {
namespace {

constexpr double kHides = std::numeric_limits<double>::infinity();

using IndexCondition = Tensor (*)(const Tensor& row, const Tensor& column);

Tensor in_prefix(const Tensor& row, const Tensor& column) {
  return logical_or(column < 200.0, column <= row);
}
Tensor first_keys(const Tensor& row, const Tensor& column) {
  const Tensor past = column <= row;
  return logical_and(logical_or(row - column < 150.0, column < 4.0), past);
}
Tensor dilated(const Tensor& row, const Tensor& column) {
  const Tensor apart = row - column;
  return logical_and(equal(mod(apart, 3.0), 0.0), logical_and(apart >= 0.0, apart < 180.0));
}
// Its quotient differs from pair to pair, and has branches.
Tensor divided(const Tensor& row, const Tensor& column) {
  const Tensor apart = row - column;
  return logical_and(equal(mod(floor(apart / 3.0), 2.0), 0.0),
                     logical_and(apart >= 0.0, apart < 180.0));
}
Tensor fourth_of_chunk(const Tensor& row, const Tensor& column) {
  return logical_and(equal(floor(row / 100.0), floor(column / 100.0)),
                     equal(mod(column, 4.0), 0.0));
}
Tensor last_keys(const Tensor& row, const Tensor& column) {
  return logical_or(equal(row, column), column >= 8000.0);
}
Tensor other_blocks(const Tensor& row, const Tensor& column) {
  return equal(mod(floor(row / 128.0), 2.0), mod(floor(column / 128.0), 2.0));
}
Tensor first_rows_unseen(const Tensor& row, const Tensor& column) {
  return logical_not(logical_or(row<100.0, column> 300.0));
}
constexpr IndexCondition kConditions[] = {in_prefix,       first_keys,   dilated,          divided,
                                          fourth_of_chunk, other_blocks, first_rows_unseen};
// Of these no block is seen whole.
bool has_gaps(const IndexCondition& condition) {
  return condition == dilated || condition == divided || condition == fourth_of_chunk;
}

struct MaskedShape {
  std::int64_t b = 1, h = 2, sq = 400, skv = 420, d = 64;
  DataType io = bf16;
};
struct MaskedOperands {
  Tensor q, k, v;
};
MaskedOperands masked_operands(Graph& g, const MaskedShape& s) {
  const auto tensor = [&](const char* name, std::int64_t rows) {
    return g.tensor({.name = name, .dim = {s.b, s.h, rows, s.d}});
  };
  return {tensor("q", s.sq), tensor("k", s.skv), tensor("v", s.skv)};
}

Shared<Graph> masked_by(const IndexCondition& condition, const MaskedShape& s) {
  auto g = Shared<Graph>::make(GraphOptions{.name = "masked", .io = s.io, .intermediate = f32});
  const auto [q, k, v] = masked_operands(*g, s);
  const Tensor x = matmul(q, transpose(k, {0, 1, 3, 2})) * 0.125;
  const Tensor seen = condition(gen_index(x, 2), gen_index(x, 3));
  g->output(matmul(softmax(select(seen, x, g->scalar(-kHides, f32))).y, v), "o");
  return g;
}
Shared<Graph> masked_by_blocks(const MaskedShape& s) {
  auto g = Shared<Graph>::make(GraphOptions{.name = "blocks", .io = s.io, .intermediate = f32});
  const auto [q, k, v] = masked_operands(*g, s);
  SdpaInputs more;
  more.block_mask = g->tensor({.name = "blocks",
                               .dim = {s.b, s.h, (s.sq + 127) / 128, (s.skv + 1023) / 1024},
                               .data_type = u8});
  g->output(sdpa(q, k, v, {.attn_scale = 0.125}, more).o, "o");
  return g;
}

}  // namespace

TEST_CASE("masks by indices that are no interval are no part of the score") {
  for (const IndexCondition& condition : kConditions) {
    auto g = masked_by(condition, {});
    const auto p = for_sm_90a(*g);
    REQUIRE(families(p) == std::vector{Family::attention});
    const KernelSpec& spec = p.kernels[0];
    const AttentionSpec& a = spec.attention();
    CHECK(a.score.statements.empty());
    CHECK_FALSE(a.mask.statements.empty());
    check_values(*g);
  }
  for (const MaskedShape& s : {MaskedShape{.sq = 60}, MaskedShape{.skv = 100},
                               MaskedShape{.d = 288}, MaskedShape{.io = f32}}) {
    auto g = masked_by(in_prefix, s);
    for (const KernelSpec& spec : for_sm_90a(*g).kernels)
      if (const AttentionSpec* const a = spec.as_attention()) CHECK(a->mask.statements.empty());
  }
}

TEST_CASE("masks of blocks lie in tiles of two consumers, which a counter hands out") {
  auto g = masked_by_blocks({.d = 256});
  const auto p = for_sm_90a(*g);
  CHECK(families(p) == std::vector{Family::attention, Family::rowwise});  // parts of the keys
  CHECK(p.kernels[0].attention().score.statements.empty());
  const auto plan = plan_attention(p.kernels[0], device_model("sm_90a"));
  REQUIRE(plan);
  CHECK(plan->engine.tile_q == kMaskBlock);
  CHECK(kMaskBlock % plan->engine.tile_k == 0);
  check_values(*g);
  auto many = masked_by_blocks({.b = 16, .h = 32, .sq = 256, .skv = 256, .d = 32});
  CHECK(families(for_sm_90a(*many)) == std::vector{Family::pointwise, Family::attention});
}

TEST_CASE("gradients hide the pairs of a mask apart from scores, the longest tiles first") {
  const auto planned = [](const IndexCondition& condition, const MaskedShape& s,
                          const SdpaAttributes& attributes = {.attn_scale = 0.125},
                          bool dbias = false) {
    auto g = Shared<Graph>::make(GraphOptions{.name = "masked", .io = s.io, .intermediate = f32});
    const auto [q, k, v] = masked_operands(*g, s);
    const auto rows = [&](const char* name, std::int64_t columns, DataType type) {
      return g->tensor({.name = name, .dim = {s.b, s.h, s.sq, columns}, .data_type = type});
    };
    SdpaInputs more;
    more.bias =
        select(condition(gen_index(*g, {1, 1, s.sq, 1}, 2), gen_index(*g, {1, 1, 1, s.skv}, 3)),
               g->scalar(0, f32), g->scalar(-kHides, f32));
    const auto gradients = sdpa_backward(q, k, v, rows("o", s.d, s.io), rows("do", s.d, s.io),
                                         rows("stats", 1, f32), attributes, more);
    g->output(gradients.dq, "dq"), g->output(gradients.dk, "dk"), g->output(gradients.dv, "dv");
    if (dbias) g->output(gradients.dbias, "dbias");
    const Partition p = for_sm_90a(*g);
    for (const KernelSpec& spec : p.kernels)
      if (spec.as_attention_backward()) return spec;
    FAIL("no kernel of gradients");
    return KernelSpec{};
  };
  for (const IndexCondition& condition : kConditions) {
    const AttentionBackwardSpec a = planned(condition, {}).attention_backward();
    // What divides differences of pairs, with branches, is read from memory.
    CHECK(a.masks_pairs == (condition != divided));
    CHECK(a.plain() == (condition != divided));
  }
  CHECK_FALSE(planned(in_prefix, {.d = 160}).attention_backward().masks_pairs);
  CHECK_FALSE(planned(in_prefix, {.skv = 200}).attention_backward().masks_pairs);
  CHECK_FALSE(
      planned(in_prefix, {}, {.attn_scale = 0.125, .softcap = 4}).attention_backward().masks_pairs);
  // The first keys are seen by all queries, others by 150 of 8192.
  const auto together = [&](const IndexCondition& condition, const MaskedShape& s) {
    return plan_attention_backward(planned(condition, s), device_model("sm_90a"))->heads_together;
  };
  const MaskedShape large{.h = 64, .sq = 8192, .skv = 8192};
  CHECK(together(first_keys, large) == 64);
  CHECK(together(other_blocks, large) == 8);
  const auto last_first = [&](const IndexCondition& condition, const SdpaAttributes& attributes) {
    return plan_attention_backward(planned(condition, large, attributes), device_model("sm_90a"))
        ->last_keys_first;
  };
  CHECK_FALSE(last_first(first_keys, {}));
  CHECK(last_first(last_keys, {}));
  // Each tile of keys waits for those before it.
  CHECK_FALSE(last_first(last_keys, {.deterministic = true}));
  // Few heads, whose longest tile of keys takes longer than a share of all.
  CHECK(planned(first_keys, {.h = 2, .sq = 8192, .skv = 8192}).attention_backward().parts > 1);
}

TEST_CASE("a large negative number that is added to scores of a softcap hides them") {
  const auto band = [](bool capped, double number) {
    auto g = Shared<Graph>::make(GraphOptions{.name = "masked", .io = bf16, .intermediate = f32});
    const auto [q, k, v] = masked_operands(*g, {});
    Tensor x = matmul(q, transpose(k, {0, 1, 3, 2})) * 0.125;
    if (capped) x = tanh(x / 30.0) * 30.0;
    const Tensor seen = gen_index(x, 3) <= gen_index(x, 2);
    x = x + select(seen, g->scalar(0, f32), g->scalar(number, f32));
    g->output(matmul(softmax(x).y, v), "o");
    const auto p = for_sm_90a(*g);
    REQUIRE(families(p) == std::vector{Family::attention});
    return p.kernels[0].attention().band;
  };
  CHECK(band(true, -1e9).right == 0);
  CHECK_FALSE(band(true, -1e9).hidden);
  CHECK_FALSE(band(true, -500).bounded());
  CHECK_FALSE(band(false, -1e9).bounded());
}

TEST_CASE("intervals of a mask hold what its pairs say") {
  constexpr std::int64_t rows = 400, keys = 420;
  for (const IndexCondition& condition : kConditions) {
    auto g = masked_by(condition, {.sq = rows, .skv = keys});
    const auto p = for_sm_90a(*g);
    const KernelSpec& spec = p.kernels[0];
    using A = AttentionSpec;
    const auto seen = [&](double m, double m_last, double n, double n_last) {
      return seen_pairs(spec, spec.attention().mask, A::query, {m, m_last}, A::n, {n, n_last});
    };
    int hidden = 0, whole = 0;
    for (double m = 0; m < rows; m += 64)
      for (double n = 0; n < keys; n += 64) {
        const double m_last = std::min<double>(m + 64, rows) - 1,
                     n_last = std::min<double>(n + 64, keys) - 1;
        bool some = false, all = true;
        for (double i = m; i <= m_last; ++i)
          for (double j = n; j <= n_last; ++j) {
            const SeenPairs one = seen(i, i, j, j);
            REQUIRE(one.some == one.all);
            some |= one.some, all &= one.all;
          }
        const SeenPairs block = seen(m, m_last, n, n_last);
        CHECK((block.some || !some));
        CHECK((all || !block.all));
        hidden += !block.some, whole += block.all;
      }
    CHECK(hidden > 0);
    if (!has_gaps(condition)) CHECK(whole > 0);
    CHECK(keys_of_a_row(spec) < keys);
  }
}

}  // namespace sinter::test
