// Sums down the columns of a rowwise kernel: how many CTAs loop over the rows, and what joins them.
#include <algorithm>

#include "plan/access.hpp"
#include "planner/moved.hpp"
#include "planner/partitioned.hpp"
#include "sinter/operations.hpp"
#include "support/norm_gradients.hpp"
#include "support/scheduled.hpp"

using namespace sinter;
using namespace sinter::test;

TEST_CASE("a norm's gradients are one pass over the rows and a kernel that finishes the columns") {
  Graph g{{.io = bf16}};
  const auto d = test::norm_gradients(g, OpKind::layernorm_backward, 1200, 512);
  g.output(d.dx, "dx");
  g.output(d.dscale, "dscale");
  g.output(d.dbias, "dbias");
  const auto p = plan(g);
  REQUIRE(p.families() == std::vector{Family::rowwise, Family::rowwise});
  const KernelSpec &walk = p.partition.kernels[0], &finish = p.partition.kernels[1];
  CHECK(walk.cross_row_reductions.size() == 2);
  // 300 steps of four rows: six times the root of that.
  CHECK(walk.rowwise().num_partials == 103);
  CHECK(finish.extent == Dims{512, 103});
  CHECK(p.partition.workspace_bytes == 2 * 103 * 512 * 4);
}

TEST_CASE("as many blocks sum up columns as pay") {
  const auto walk = [](std::int64_t rows, std::int64_t columns) {
    Graph g{{.io = bf16}};
    const auto d = test::norm_gradients(g, OpKind::rmsnorm_backward, rows, columns);
    g.output(d.dx, "dx");
    g.output(d.dscale, "dscale");
    return plan(g).partition.kernels[0];
  };
  const auto slots = [&](std::int64_t rows, std::int64_t columns) {
    return walk(rows, columns).rowwise().num_partials;
  };
  CHECK(slots(50, 2048) == 50);     // few steps: a block each
  CHECK(slots(100, 2048) == 64);    // the least
  CHECK(slots(256, 2048) == 96);    // six times the root
  CHECK(slots(1024, 2048) == 132);  // one an SM
  CHECK(slots(2048, 2048) == 264);
  CHECK(slots(8192, 2048) == 264);   // no more than two,
  CHECK(slots(16384, 2048) == 264);  // but each then takes two rows side by side
  CHECK(walk(8192, 2048).rowwise().rows_per_cta == 1);
  CHECK(walk(16384, 2048).rowwise().rows_per_cta == 2);
  CHECK(slots(32768, 4096) == 264);  // until threads run out
  CHECK(slots(32768, 8192) == 132);
  CHECK(slots(131072, 128) == 132);  // large blocks take short rows
  CHECK(slots(8192, 5120) == 264);
  CHECK(slots(300, 1001) == 72);  // rows of eight kinds: as many slots for each
  CHECK(slots(65536, 127) == 128);
  CHECK(slots(32768, 777) == 264);
  CHECK(slots(4096, 18432) == 132);
  CHECK(slots(4096, 24584) == 0);  // a kernel of their own sums up so many columns
}

TEST_CASE("gradients of long rows belong to clusters, where there are any") {
  const auto walk = [](std::int64_t columns, std::string_view architecture, DataType type = bf16,
                       std::int64_t rows = 4096) {
    Graph g{{.io = type, .intermediate = type == f64 ? f64 : f32}};
    const auto d = test::norm_gradients(g, OpKind::layernorm_backward, rows, columns);
    g.output(d.dx, "dx");
    g.output(d.dscale, "dscale");
    g.output(d.dbias, "dbias");
    const KernelSpec spec = partition(*lower(g).graph, true, architecture).kernels[0];
    const RowwiseConfig s = schedule_rowwise(spec, device_model(architecture));
    CHECK(s.grid == spec.rowwise().num_partials * s.blocks_per_row);
    CHECK(s.threads == s.threads_per_row * s.rows_per_block);
    CHECK(s.threads <= 1024);
    CHECK((s.threads < 32 || s.threads % 32 == 0));
    CHECK(s.pipeline_stages * s.stage_bytes <= (architecture == "sm_90a" ? 192 << 10 : 80 << 10));
    return s;
  };
  for (std::int64_t columns : {257, 640, 1152, 1280, 2052, 2304, 2560, 2730, 4100})
    for (DataType type : {bf16, f32, f64, f8e4m3}) walk(columns, "sm_90a", type);
  CHECK(walk(5120, "sm_90a").rows_per_block == 2);  // side by side
  CHECK(walk(5120, "sm_90a", f64).rows_per_block == 1);
  CHECK(walk(12288, "sm_90a").blocks_per_row == 1);
  CHECK(walk(18432, "sm_90a").blocks_per_row == 2);
  CHECK(walk(18432, "").blocks_per_row == 1);
  CHECK(walk(32768, "sm_90a").blocks_per_row == 4);
  CHECK(walk(32768, "sm_90a").grid == 4 * 30);  // as many clusters as run at once
  CHECK(walk(65536, "sm_90a").blocks_per_row == 8);

  // Long walks: few threads with some places each, and as many rows as fit.
  const auto divided = [&](std::int64_t rows, std::int64_t columns) {
    const RowwiseConfig s = walk(columns, "sm_90a", bf16, rows);
    return std::vector<int>{s.threads_per_row, s.rows_per_block, s.by_lanes, s.in_flight};
  };
  CHECK(divided(32768, 1152) == std::vector<int>{64, 8, true, 0});
  CHECK(divided(16384, 2560) == std::vector<int>{160, 4, false, 1});
  CHECK(divided(16384, 3072) == std::vector<int>{192, 3, false, 1});
  CHECK(divided(5460, 6144) == std::vector<int>{256, 2, false, 0});  // 384 leave one row
  CHECK(divided(8192, 7168) == std::vector<int>{448, 1, true, 1});
  CHECK(divided(8192, 12288) == std::vector<int>{512, 1, true, 0});  // a row is enough in flight
  for (std::int64_t rows : {1500, 4096, 30000})
    for (std::int64_t columns : {264, 600, 1152, 2305, 3000, 5124, 7001, 12288})
      for (DataType type : {bf16, f32, f64, f8e4m3})
        for (std::string_view architecture : {"sm_90a", "sm_80"})
          walk(columns, architecture, type, rows);
  for (std::int64_t rows : {12000, 38658, 40954, 99371, 236929})
    for (std::int64_t columns : {288, 320, 333, 357, 777, 839, 1073, 1967})
      for (DataType type : {bf16, f32, f8e4m3}) walk(columns, "sm_90a", type, rows);
}

TEST_CASE("sums of what is expensive to compute are held by more threads") {
  const auto threads = [](const auto& make, GraphOptions options = {.io = bf16}) {
    Graph g{options};
    g.output(make(g.tensor({.name = "x", .dim = {64, 256, 4096}})), "y");
    return schedule_rowwise(plan(g).partition.kernels[0], device_model("sm_90a")).threads;
  };
  const auto normalised = [](const Tensor& x) { return softmax(x, {.axis = 1}); };
  CHECK(threads(normalised) == 512);
  // More would need more shared memory than every GPU has.
  CHECK(threads(normalised, {.io = f8e4m3, .intermediate = f64, .compute = f64}) <= 512);
  CHECK(threads([](const Tensor& x) {
          return x - reduction(x, ReductionMode::max, {64, 1, 4096});
        }) == 256);
}

TEST_CASE("a node that needs a column's total does not join its kernel") {
  Graph g;
  auto x = g.tensor({.name = "x", .dim = {64, 32}});
  auto rows = reduction(x, ReductionMode::add, {64, 1});
  auto columns = reduction(x, ReductionMode::max, {1, 32});
  g.output(x * rows + columns, "y");
  const auto p = plan(g);
  CHECK(p.partition.kernels.size() >= 2);
  CHECK(p.has_cut("column's total"));
  for (const auto& k : p.partition.kernels)
    for (const auto& c : k.cross_row_reductions)
      for (const auto& port : k.ports) CHECK((port.written || port.tensor != c.result.tensor));
}

TEST_CASE("gradients of norms over no columns are planned, and nothing writes past them") {
  Graph g{{.io = bf16}};
  auto dy = g.tensor({.name = "dy", .dim = {5, 0}}), x = g.tensor({.name = "x", .dim = {5, 0}}),
       w = g.tensor({.name = "w", .dim = {1, 0}});
  auto inv = g.tensor({.name = "inv", .dim = {5, 1}, .data_type = f32});
  const auto r = rmsnorm_backward(dy, x, w, inv);
  g.output(r.dx, "dx");
  g.output(r.dscale, "dscale");
  for (const auto& k : plan(g).partition.kernels)
    CHECK(count(k.extent, 0, k.rowwise().outer_rank) > 0);
}

// Halves of rows swap their places in the gradient of a rotary embedding.
TEST_CASE("gradients of a norm behind a rotary embedding read the embedding's once") {
  Graph g{{.io = bf16}};
  const Dims dim{2, 3, 40, 32};
  auto dy = g.tensor({.name = "dy", .dim = dim}), x = g.tensor({.name = "x", .dim = dim}),
       w = g.tensor({.name = "w", .dim = {1, 1, 1, 32}}),
       inv = g.tensor({.name = "inv", .dim = {2, 3, 40, 1}, .data_type = f32}),
       c = g.tensor({.name = "c", .dim = {1, 1, 40, 32}}),
       s = g.tensor({.name = "s", .dim = {1, 1, 40, 32}});
  const Tensor by_sine = dy * s, first = slice(by_sine, {{0, 0, 0, 0}, {2, 3, 40, 16}, {}}),
               second = slice(by_sine, {{0, 0, 0, 16}, {2, 3, 40, 32}, {}});
  const auto r = rmsnorm_backward(dy * c + concatenate({second, -first}, -1), x, w, inv);
  g.output(r.dx, "dx");
  g.output(r.dscale, "dscale");
  // The second kernel adds up what blocks have of the columns.
  CHECK(kernels(g).size() == 2);
}
