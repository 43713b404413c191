// What indices are compared with: attention that is written out with keys hidden by a large number,
// where that is a band; integers in memory.
#include "planned.hpp"
#include "sinter/sinter.hpp"
#include "support/catch.hpp"

namespace sinter::test {
namespace {

using NumberMask = Tensor (*)(Graph&, Tensor x, Tensor row, Tensor column);

Shared<Graph> hidden_by(const NumberMask& mask, std::int64_t rows) {
  auto g = Shared<Graph>::make(GraphOptions{.name = "masked", .io = bf16, .intermediate = f32});
  const auto tensor = [&](const char* name, std::int64_t count) {
    return g->tensor({.name = name, .dim = {1, 2, count, 32}});
  };
  const Tensor q = tensor("q", rows), k = tensor("k", 90), v = tensor("v", 90);
  const Tensor x = matmul(q, transpose(k, {0, 1, 3, 2})) * 0.125;
  g->output(matmul(softmax(mask(*g, x, gen_index(x, 2), gen_index(x, 3))).y, v), "o");
  return g;
}
Tensor hide(Graph& g, const Tensor& seen, const Tensor& x, double number) {
  return select(seen, x, g.scalar(number, f32));
}
Tensor causal_number(Graph& g, Tensor x, Tensor row, Tensor column) {
  return hide(g, column <= row, x, -1e9);
}

}  // namespace

TEST_CASE("masks by indices with a large number are a band, too") {
  struct Case {
    const char* name;
    NumberMask mask;
    std::optional<double> hidden;
    std::int64_t rows = 80;
  };
  const Case cases[] = {
      {"causal", causal_number, -1e9F},
      {"few rows", causal_number, {}, 40},
      {"window",
       [](Graph& g, Tensor x, Tensor row, Tensor column) {
         return hide(g, logical_and(column <= row, column > row - 16.0), x, -1e4);
       },
       -1e4},
      {"scores may be as large",
       [](Graph& g, Tensor x, Tensor row, Tensor column) {
         return hide(g, column <= row, x, -500);
       },
       {}},
      {"rows that see nothing",
       [](Graph& g, Tensor x, Tensor row, Tensor column) { return hide(g, column < row, x, -1e9); },
       {}},
      {"a tensor may be as large",
       [](Graph& g, Tensor x, Tensor row, Tensor column) {
         const auto mask = g.tensor({.name = "mask", .dim = {1, 1, 1, 90}, .data_type = f32});
         return hide(g, column <= row, x + mask, -1e9);
       },
       {}},
  };
  for (const Case& c : cases) {
    INFO(c.name);
    auto g = hidden_by(c.mask, c.rows);
    const auto p = for_sm_90a(*g);
    REQUIRE(families(p) == std::vector{Family::attention});
    const AttentionSpec& a = p.kernels[0].attention();
    CHECK(a.band.hidden == c.hidden);
    CHECK(a.band.right.has_value() == c.hidden.has_value());
    CHECK(a.score.statements.empty() == c.hidden.has_value());
    check_values(*g);
  }
}

// The index of a cross-entropy in the type of its targets, and that of the largest value.
TEST_CASE("indices that are integers are compared and chosen in f32") {
  for (const DataType type : {i32, i64})
    for (const std::int64_t columns : {264, (1 << 24) + 8}) {
      const auto g = Shared<Graph>::make(GraphOptions{.io = bf16});
      const Tensor x = g->tensor({.name = "x", .dim = {2, columns}}),
                   target = g->tensor({.name = "target", .dim = {2, 1}, .data_type = type}),
                   index = gen_index(x, 1).type(type), hit = equal(index, target),
                   largest = reduction(x, ReductionMode::max, {2, 1}),
                   place = select(equal(x, largest), index, g->scalar(1e9, f32));
      g->output(reduction(select(hit, x, g->scalar(0.0, f32)), ReductionMode::add, {2, 1}), "logit",
                {.data_type = f32});
      g->output(reduction(place, ReductionMode::min, {2, 1}), "place", {.data_type = i32});
      bool wide = false;
      for (const KernelSpec& k : for_sm_90a(*g).kernels)
        for (const Statement& s : k.body.statements)
          wide |= s.kind == StatementKind::pointwise && s.arithmetic == DataType::f64;
      // f32 does not have every index from 2^24 on.
      CHECK(wide == (columns > 1 << 24));
      if (columns < 1 << 24) check_values(*g);
    }
}

}  // namespace sinter::test
