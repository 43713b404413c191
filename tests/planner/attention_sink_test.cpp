// The gradient of attention's sink: parts of it are stored beside Delta, and a kernel adds them up.
#include <algorithm>
#include <string>

#include "planned.hpp"
#include "planner/rewrite/pass.hpp"
#include "sinter/sinter.hpp"
#include "target/device_model.hpp"

namespace sinter::test {
namespace {

Partition partitioned(std::string_view wanted, std::int64_t queries = 300, std::int64_t keys = 300,
                      std::int64_t entries = 2) {
  Graph g({.io = DataType::bf16});
  const auto input = [&](const char* name, std::int64_t rows) {
    return g.tensor({.name = name, .dim = {entries, 4, rows, 64}});
  };
  const Tensor q = input("q", queries), k = input("k", keys), v = input("v", keys),
               o = input("o", queries), d_o = input("do", queries),
               stats = g.tensor(
                   {.name = "stats", .dim = {entries, 4, queries, 1}, .data_type = DataType::f32});
  SdpaInputs more;
  more.sink_token = g.tensor({.name = "sink", .dim = {1, 4, 1, 1}, .data_type = DataType::f32});
  const SdpaGradients d = sdpa_backward(q, k, v, o, d_o, stats, {.attn_scale = 0.125}, more);
  for (const auto& [which, t] :
       {std::pair{'q', d.dq}, {'k', d.dk}, {'v', d.dv}, {'s', d.dsink_token}})
    if (wanted.find(which) != wanted.npos) g.output(t, std::string("d") + which);
  for (const auto& problem : g.check()) FAIL(problem.message());
  const Lowered l = rewritten(lower(g), device_model("sm_90a"));
  return partition(*l.graph, true, "sm_90a", l.regions);
}
std::vector<Family> planned(std::string_view wanted, std::int64_t queries = 300,
                            std::int64_t keys = 300, std::int64_t entries = 2) {
  return families(partitioned(wanted, queries, keys, entries));
}

constexpr Family rows = Family::rowwise, each = Family::pointwise,
                 fused = Family::attention_backward;

}  // namespace

TEST_CASE("the gradient of a sink takes one kernel more than those of Q, K and V") {
  CHECK(planned("qkv") == std::vector{rows, fused, each});
  CHECK(planned("qkvs") == std::vector{rows, fused, each, rows});
  const Partition values = partitioned("vs");
  CHECK(families(values) == std::vector{fused, rows, rows});
  CHECK(values.kernels.front().attention_backward().delta < 0);
  CHECK(planned("s") == std::vector{rows, rows});
}

TEST_CASE("the sink of one key or one row is no score") {
  for (const std::int64_t queries : {1, 300})
    for (const std::int64_t keys : {1, 300}) {
      const auto made = planned("qkvs", queries, keys, 1);
      INFO(queries << " queries, " << keys << " keys");
      CHECK(std::count(made.begin(), made.end(), fused) == 1);
    }
}

TEST_CASE("the gradient of a sink needs the sink") {
  Graph g({.io = DataType::bf16});
  const Tensor x = g.tensor("x", {1, 2, 8, 16}),
               stats = g.tensor({.name = "stats", .dim = {1, 2, 8, 1}, .data_type = DataType::f32});
  const SdpaGradients d = sdpa_backward(x, x, x, x, x, stats);
  g.output(d.dsink_token, "dsink");
  const auto problems = g.check();
  REQUIRE_FALSE(problems.empty());
  CHECK(problems.front().message().find("connect a sink token") != std::string::npos);
}

}  // namespace sinter::test
