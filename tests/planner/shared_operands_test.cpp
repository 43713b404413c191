// What all rows or columns of a kernel share: weights as long as rows, tables, few columns.
#include "planner/planned.hpp"
#include "schedule/contraction/wgmma.hpp"
#include "schedule/scheduled_kernel.hpp"
#include "sinter/operations.hpp"
#include "support/catch.hpp"
#include "support/scheduled.hpp"

using namespace sinter;
using namespace sinter::test;

TEST_CASE("blocks walk over rows whose weights are longer than what is read of them") {
  const auto walk = [](std::int64_t rows, std::int64_t columns, DataType weights,
                       std::string_view architecture = "sm_90a") {
    Graph g{{.io = bf16, .intermediate = f32}};
    const auto number = [&](const char* name) {
      return g.tensor({.name = name, .dim = {1, columns}, .data_type = weights});
    };
    const auto x = g.tensor({.name = "x", .dim = {rows, columns}});
    g.output(layernorm(x, number("scale"), number("bias"), 1e-5).y, "y");
    const auto found = for_sm_90a(g).kernels;
    REQUIRE(found.size() == 1);
    const RowwiseConfig s = *scheduled(found[0], architecture).rowwise();
    CHECK((s.persistent_ctas > 0) == (s.pipeline_stages > 0));
    if (s.persistent_ctas > 0) {
      CHECK((s.resident && s.prefetch && s.ahead));
      CHECK(s.grid == static_cast<std::uint32_t>(s.persistent_ctas * s.blocks_per_row));
      CHECK(rows > s.persistent_ctas);
      CHECK(s.shared_bytes <= 160u << 10);
    }
    return std::pair{s.persistent_ctas, s.blocks_per_row};
  };
  CHECK(walk(256, 49 * 768, f32) == std::pair{66, 2});
  CHECK(walk(512, 49 * 768, bf16) == std::pair{66, 2});
  CHECK(walk(64, 128 * 784, f32) == std::pair{14, 8});
  CHECK(walk(16384, 4096, f32).first == 0);        // an SM keeps them
  CHECK(walk(14, 128 * 784, f32).first == 0);      // a row each
  CHECK(walk(256, 49 * 768 + 1, f32).first == 0);  // rows start anywhere
  CHECK(walk(256, 49 * 768, f32, "").first == 0);  // no clusters
}

TEST_CASE("threads hold more of costly rows of which only what is reduced leaves") {
  for (const bool stores : {false, true}) {
    Graph g{{.io = bf16, .intermediate = f32}};
    const auto x = g.tensor({.name = "x", .dim = {8192, 32000}});
    const auto r = softmax(x, {.stats = true});
    g.output(r.stats, "stats");
    if (stores) g.output(r.y, "y");
    const auto found = for_sm_90a(g).kernels;
    REQUIRE(found.size() == 1);
    CHECK(scheduled(found[0], "sm_90a").rowwise()->blocks_per_row == (stores ? 4 : 2));
  }
}

TEST_CASE("a thread has several places where all that is read is shared") {
  const auto unroll = [](bool own) {
    Graph g{{.io = bf16, .intermediate = f32}};
    const auto a = g.tensor({.name = "a", .dim = {300, 1, 500}}),
               b = g.tensor({.name = "b", .dim = {own ? 300 : 1, 400, 500}});
    g.output(a + b, "y");
    return scheduled(for_sm_90a(g).kernels[0], "sm_90a").pointwise()->unroll;
  };
  CHECK(unroll(false) == 4);
  CHECK(unroll(true) == 2);
}

TEST_CASE("few columns whose lines are no sector of memory are written along k first") {
  const auto count = [](Dims a, Dims b, Dims stride) {
    Graph g{{.io = bf16}};
    const auto x = g.tensor({.name = "x", .dim = a}),
               w = g.tensor({.name = "w", .dim = b, .stride = stride});
    g.output(matmul(x, w), "y");
    const auto found = for_sm_90a(g).kernels;
    const auto plan = plan_wgmma(found.back(), device_model("sm_90a"), {});
    REQUIRE(plan);
    if (found.size() > 1) CHECK((plan->engine.a.k_fastest && plan->engine.b.k_fastest));
    return found.size();
  };
  CHECK(count({300000, 512}, {512, 8}, {8, 1}) == 2);
  CHECK(count({300000, 512}, {512, 16}, {16, 1}) == 1);
  CHECK(count({300000, 512}, {512, 8}, {1, 512}) == 1);
  CHECK(count({4096, 512}, {512, 8}, {8, 1}) == 1);  // a copy costs more
}

TEST_CASE("a side of up to 1,024 that leaves much of a tile's rows empty may be its columns") {
  const auto turned = [](std::int64_t m) {
    Graph g{{.io = bf16}};
    const auto x = g.tensor({.name = "x", .dim = {m, 16384}}),
               w = g.tensor({.name = "w", .dim = {16384, 1000}, .stride = {1, 16384}});
    g.output(matmul(x, w), "y");
    const auto plan = plan_wgmma(for_sm_90a(g).kernels[0], device_model("sm_90a"), {});
    REQUIRE(plan);
    return !plan->engine.n_fastest;
  };
  CHECK(turned(777));
  CHECK_FALSE(turned(1152));
}
