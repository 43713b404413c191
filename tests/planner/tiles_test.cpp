// Tiles of matmuls: which are legal, how wide they are, and measured ones.
#include <algorithm>
#include <fstream>

#include "compile/make_plan.hpp"
#include "lower/lower.hpp"
#include "planner/explain/explain.hpp"
#include "planner/planned.hpp"
#include "planner/planner.hpp"
#include "schedule/contraction/wgmma.hpp"
#include "sinter/operations.hpp"
#include "support/temporary_directory.hpp"
#include "tuning/tuning_file.hpp"

using namespace sinter;
using namespace sinter::test;

namespace {

Shared<Graph> matmul_graph(std::int64_t m, std::int64_t n, std::int64_t k) {
  auto g = Shared<Graph>::make(GraphOptions{.io = bf16});
  const auto x = g->tensor({.name = "x", .dim = {m, k}}),
             w = g->tensor({.name = "w", .dim = {k, n}, .stride = {1, k}}),
             bias = g->tensor({.name = "bias", .dim = {1, n}});
  g->output(relu(matmul(x, w) + bias), "y");
  return g;
}

}  // namespace

TEST_CASE("tiles hold what the kernel can count, and blocks of a cluster own results") {
  const auto has = [](const TileProblem& p, auto what) {
    const std::vector<EstimatedTile> tiles = legal_tiles(p, device_model("sm_90a"));
    return std::any_of(tiles.begin(), tiles.end(),
                       [&](const EstimatedTile& t) { return what(t.tile); });
  };
  const auto rows = [](const Tile& t) { return t.m * t.cluster_m; };
  const auto columns = [](const Tile& t) { return t.n * t.cluster_n; };
  // The ends of large clusters lie past what 32 bits hold; others do not.
  for (const double most : {0x1p31 - 300, 0x1p31 - 1000}) {
    const TileProblem tall{.rows = most, .columns = 256, .depth = 64},
        wide{.rows = 256, .columns = most, .depth = 64};
    CHECK(has(tall, [&](const Tile& t) { return rows(t) == 256; }));
    CHECK(has(wide, [&](const Tile& t) { return columns(t) == 256; }));
    CHECK_FALSE(has(tall, [&](const Tile& t) { return most + rows(t) >= 0x1p31; }));
    CHECK_FALSE(has(wide, [&](const Tile& t) { return most + columns(t) >= 0x1p31; }));
  }
  const TileProblem few{.rows = 72, .columns = 40, .depth = 4096};
  CHECK(has(few, [](const Tile& t) { return t.cluster_m == 2; }));
  CHECK_FALSE(has(few, [](const Tile& t) { return t.cluster_m == 4; }));
  CHECK_FALSE(has(few, [](const Tile& t) { return t.cluster_n == 2 && t.n >= 40; }));
}

TEST_CASE("the width that one round of tiles needs is one that a tile can have") {
  // Of tiles of 64 rows by one warpgroup; it comes after the usual widths.
  const auto width = [](const TileProblem& p, int cluster_m) {
    int last = 0;
    for (const auto& [us, t] : legal_tiles(p, device_model("sm_90a")))
      if (t.m == 64 && t.consumers == 1 && t.cluster_m == cluster_m && t.cluster_n * t.split == 1)
        last = t.n;
    return last;
  };
  const TileProblem usual{.rows = 64, .columns = 132 * 40, .depth = 4096};
  CHECK(width(usual, 1) == 40);
  TileProblem p = usual;
  p.reduces = true;
  CHECK(width(p, 1) == 48);
  p = usual;
  p.products = 2;
  CHECK(width(p, 1) == 48);
  p = usual;
  p.integers = true;
  CHECK(width(p, 1) == 48);
  p = usual;
  p.columns = 132 * 136;
  CHECK(width(p, 1) == 144);
  p = usual;
  p.rows = 128;
  p.columns = 66 * 40;  // so many clusters of two
  CHECK(width(p, 2) == 48);
}

TEST_CASE("results leave through the ring of stages where no block has a second tile") {
  const PlanContext context{device_model("sm_90a"), {}};
  const auto product = [&](std::int64_t rows) {
    Graph g({.io = bf16});
    const auto x = g.tensor("x", {rows, 3584});
    const auto w = g.tensor({.name = "w", .dim = {3584, 18944}, .stride = {1, 3584}});
    g.output(matmul(x, w), "y");
    REQUIRE(g.check().empty());
    const Lowered lowered = lower(g);
    return partition(*lowered.graph, true, context, {}).kernels.at(0);
  };
  const ScheduledKernel few = schedule_kernel(product(256), context);
  REQUIRE(few.wgmma());
  CHECK(few.wgmma()->through_ring);
  const auto fewer = schedule_as(few, product(250), context);
  REQUIRE(fewer);
  CHECK(fewer->wgmma()->through_ring);
  CHECK_FALSE(schedule_as(few, product(512), context));
  CHECK_FALSE(schedule_as(few, product(65536), context));
}

TEST_CASE("an epilogue moves one pack at a time where products beside it take longer") {
  const PlanContext context{device_model("sm_90a"), {}};
  const auto packs = [&](std::int64_t k) {
    Graph g({.io = bf16});
    const auto x = g.tensor("x", {8192, k});
    const auto w = g.tensor({.name = "w", .dim = {k, 28672}, .stride = {1, k}});
    g.output(gelu_tanh(matmul(x, w)), "y");
    REQUIRE(g.check().empty());
    const Lowered lowered = lower(g);
    const ScheduledKernel kernel =
        schedule_kernel(partition(*lowered.graph, true, context, {}).kernels.at(0), context);
    REQUIRE(kernel.wgmma());
    CHECK(kernel.wgmma()->tile.alternate);
    return kernel.wgmma()->unroll;
  };
  CHECK(packs(4096) == 1);
  CHECK(packs(1024) == 2);
}

TEST_CASE("a measured configuration is taken where it is legal") {
  const auto g = matmul_graph(512, 512, 512);
  std::vector<KernelChoice> choices;
  const auto usual = make_plan(*g, {.architecture = "sm_90a"}, {}, &choices);
  REQUIRE(usual);
  REQUIRE(choices.size() == 1);
  const auto source = [&](const std::string& configuration) {
    const Tuning tuning{{{choices[0].problem, configuration}}};
    const auto plan = make_plan(*g, {.architecture = "sm_90a"}, tuning, nullptr);
    REQUIRE(plan);
    return plan->data().kernels[0].source;
  };
  const std::string first = usual->data().kernels[0].source;
  CHECK(source(choices[0].configurations[0]) == first);
  CHECK(source(choices[0].configurations[1]) != first);
  for (const char* bad :
       {"nonsense", "100x256 by 2 together, cluster 1x1, split 1, stages 4, group 8",
        "128x256 by 2 together, cluster 1x1, split 1, stages 40, group 8",
        "128x256 by 1 together, cluster 1x1, split 1, stages 4, group 8",
        "128x100 by 2 together, cluster 1x1, split 1, stages 4, group 8",
        "0x0 by 0 together, cluster 0x0, split 0, stages 0, group 0"})
    CHECK(source(bad) == first);
}

TEST_CASE("tuning files are written, added to and read, and errors name the field") {
  const TemporaryDirectory directory;
  const std::string path = directory / "tuning.json";
  REQUIRE(read_tuning(path));
  CHECK(read_tuning(path)->best.empty());
  REQUIRE(add_to_tuning(path, {{{"one \"problem\"", "this"}}}));
  REQUIRE(add_to_tuning(path, {{{"another", "that"}}}));
  const auto tuning = read_tuning(path);
  REQUIRE(tuning);
  CHECK(tuning->best ==
        std::map<std::string, std::string>{{"one \"problem\"", "this"}, {"another", "that"}});
  for (const auto& [text, seen] :
       {std::pair<const char*, const char*>{"{", "json"},
        {R"({"format": "sinter.tuning", "version": 2, "best": {}})", "version 2"},
        {R"({"format": "sinter.tuning", "version": 1})", "best"},
        {R"({"format": "sinter.tuning", "version": 1, "best": {"p": 3}})", "p"},
        {R"({"format": "sinter.tuning", "version": 1, "best": {}, "more": 1})", "more"}}) {
    std::ofstream(path) << text;
    const auto read = read_tuning(path);
    REQUIRE_FALSE(read);
    CHECK(read.error().message().find(seen) != std::string::npos);
  }
}

// TMA takes longer for them, so that tiles that bring fewer are faster.
TEST_CASE("lines at odd multiples of 16 bytes are counted") {
  const auto fastest = [](std::int64_t m, std::int64_t n, std::int64_t k) {
    const auto g = matmul_graph(m, n, k);
    const auto lowered = lower(*g);
    const auto kernels = partition(*lowered.graph, true, "sm_90a").kernels;
    REQUIRE(kernels.size() == 1);
    const auto plan = plan_wgmma(kernels[0], device_model("sm_90a"), {});
    REQUIRE(plan);
    return plan->engine.tile;
  };
  const auto lines = [](const Tile& t) {  // for 64 x 64 results and a stage
    return 64.0 * 64 * (1.0 * t.m / t.cluster_n + 1.0 * t.n / t.cluster_m) / (t.m * t.n);
  };
  CHECK(lines(fastest(4096, 4096, 80)) > 48);
  for (const std::int64_t k : {72, 136, 200}) {
    CAPTURE(k);
    CHECK(lines(fastest(4096, 4096, k)) <= 48);
  }
  CHECK(
      tile_microseconds({.rows = 4096, .columns = 4096, .depth = 72, .a_uneven = true}, {},
                        device_model("sm_90a")) >
      tile_microseconds({.rows = 4096, .columns = 4096, .depth = 72}, {}, device_model("sm_90a")));
}
