// The emulator tells right kernels from wrong ones: each of these graphs passes, and fails where
// the device library leaves out one wait or barrier, or one care for the ends of rows.
#include "emulator/emulator.hpp"

#include <algorithm>
#include <span>
#include <string_view>

#include "compile/make_plan.hpp"
#include "sinter/operations.hpp"
#include "support/catch.hpp"
#include "support/norm_gradients.hpp"

namespace sinter::test {
namespace {

void row_softmax(Graph& g) { g.output(softmax(g.tensor({.name = "x", .dim = {6, 2048}})), "y"); }
void cluster_softmax(Graph& g) {
  g.output(softmax(g.tensor({.name = "x", .dim = {600, 16384}})), "y");
}
void transposed(Graph& g) {
  g.output(transpose(g.tensor({.name = "x", .dim = {256, 512}}), {1, 0}), "y");
}
void gradients(Graph& g, std::int64_t rows, std::int64_t columns) {
  const auto d = norm_gradients(g, OpKind::rmsnorm_backward, rows, columns);
  g.output(d.dx, "dx");
  g.output(d.dscale, "dscale");
}
// One row a block in so many steps that rows are in flight in a ring.
void gradients(Graph& g) { gradients(g, 1330, 4104); }
void odd_gradients(Graph& g) { gradients(g, 1330, 4105); }
void gradients_side_by_side(Graph& g) { gradients(g, 300, 1024); }
// With several results: one row a block, or rows side by side, which meet in the ring's memory.
void gradients_of_scale_and_bias(Graph& g, std::int64_t rows, std::int64_t columns) {
  const auto d = norm_gradients(g, OpKind::layernorm_backward, rows, columns);
  g.output(d.dx, "dx");
  g.output(d.dscale, "dscale");
  g.output(d.dbias, "dbias");
}
void long_rows(Graph& g) { gradients_of_scale_and_bias(g, 1330, 5640); }
void rows_that_meet(Graph& g) { gradients_of_scale_and_bias(g, 3970, 2560); }
void small_matrices(Graph& g) {
  g.output(transpose(g.tensor({.name = "x", .dim = {700, 33, 35}}), {0, 2, 1}), "y");
}
void column_sums(Graph& g) {
  const auto x = g.tensor({.name = "x", .dim = {512, 1024}});
  g.output(reduction(x, ReductionMode::add, {1, 1024}), "y", {.data_type = f32});
}
void product(Graph& g) {
  const auto a = g.tensor({.name = "a", .dim = {1, 136, 1032}});
  const auto b = g.tensor({.name = "b", .dim = {1, 1032, 200}});
  g.output(matmul(a, b), "c");
}
void product_in_f32(Graph& g) {
  const auto a = g.tensor({.name = "a", .dim = {1, 40, 224}, .data_type = f32});
  const auto b = g.tensor({.name = "b", .dim = {1, 224, 72}, .data_type = f32});
  g.output(matmul(a, b), "c");
}
void deep_product(Graph& g) {
  const auto a = g.tensor({.name = "a", .dim = {1, 128, 2048}});
  const auto b = g.tensor({.name = "b", .dim = {1, 2048, 64}, .stride = {131072, 1, 2048}});
  g.output(matmul(a, b), "c");
}
// Its k is divided among five blocks of a cluster, of which the last has no epilogue tile to
// finish.
const Tuning kInParts{{{"bf16 x bf16, batch 1, m 128, n 64, k 2048, 2 bytes a result",
                        "64x16 by 1 together, cluster 1x1, split 5, stages 16, group 8"}}};

void gathered_groups(Graph& g) {
  const auto tokens = g.tensor({.name = "tokens", .dim = {1, 100, 1032}}),
             weights = g.tensor({.name = "weights", .dim = {3, 1032, 72}}),
             offsets = g.tensor({.name = "offsets", .dim = {4}, .data_type = i32});
  const auto index = g.tensor({.name = "index", .dim = {100}, .data_type = i32});
  g.output(moe_grouped_matmul(tokens, weights, offsets, index, {.mode = MoeMode::gather}), "y");
}

// Of which a thread block has more rows of pixels than stages.
void few_channels(Graph& g) {
  const auto channels_last = [](const char* name, const Dims& d) {
    return TensorOptions{
        .name = name, .dim = d, .stride = {d[1] * d[2] * d[3], 1, d[1] * d[3], d[1]}};
  };
  const auto x = g.tensor(channels_last("x", {1, 3, 1700, 16})),
             w = g.tensor(channels_last("w", {16, 3, 3, 3}));
  g.output(conv_fprop(x, w, {.pre_padding = {1, 1}, .post_padding = {1, 1}}), "y",
           {.stride = channels_last("", {1, 16, 1700, 16}).stride});
}

// Convolutions on warpgroups with the filter as the left operand, of pixels some of which are
// infinite. What they meet besides the taps: zeros beside those of a copied filter (results are
// blocks of 4 x 4 pixels, which leave in pieces), or, past a group's 56 channels, those of the
// next. Pixels are finite above `limit`.
Tensor infinite_image(Graph& g, const Dims& d, double limit) {
  const auto finite =
      g.tensor({.name = "finite", .dim = d, .stride = {d[1] * d[2] * d[3], 1, d[1] * d[3], d[1]}});
  return div(finite, greater(finite, limit));
}
void output_of_image(Graph& g, const Tensor& t, const Dims& d) {
  g.output(t, "result", {.stride = {d[1] * d[2] * d[3], 1, d[1] * d[3], d[1]}});
}
// Infinite in few blocks, since to take one again takes the emulator long.
void infinite_blocks(Graph& g) {
  const Dims dx{4, 3, 96, 96};
  const auto w = g.tensor({.name = "w", .dim = {64, 3, 7, 7}, .stride = {147, 1, 21, 3}});
  output_of_image(g,
                  conv_dgrad(infinite_image(g, {4, 64, 48, 48}, -1.57), w, dx,
                             {.pre_padding = {3, 3}, .post_padding = {3, 3}, .stride = {2, 2}}),
                  dx);
}
const Tuning kOfBlocks{
    {{"bf16 x bf16, batch 1, m 2304, n 48, k 1600, 2 bytes a result, window of "
      "64 channels, 24 pixels by [5] taps 2, -1 apart, 24 pixels by [5] taps 2, "
      "-1 apart",
      "256x64 by 2 alternating, cluster 1x1, split 1, stages 14, group 8, "
      "swap_ab, window 2"}}};
void infinite_groups(Graph& g) {
  const Dims y{2, 224, 9, 9};
  const auto w = g.tensor({.name = "w", .dim = {224, 56, 3, 3}, .stride = {504, 1, 168, 56}});
  output_of_image(g,
                  conv_fprop(infinite_image(g, y, -1.48), w,
                             {.pre_padding = {1, 1}, .post_padding = {1, 1}, .groups = 4}),
                  y);
}
const Tuning kOfGroups{
    {{"bf16 x bf16, batch 4, m 162, n 56, k 576, 2 bytes a result, window of 56 "
      "channels, 9 pixels by [3] taps 1, 1 apart, 9 pixels by [3] taps 1, 1 "
      "apart",
      "128x64 by 1 together, cluster 1x1, split 1, stages 16, group 8, swap_ab, "
      "window 2"}}};

// An image's groups are held by two blocks.
void cluster_groups(Graph& g) {
  const auto x = g.tensor({.name = "x", .dim = {2, 64, 5, 8}, .stride = {2560, 1, 512, 64}}),
             scale = g.tensor({.name = "scale", .dim = {1, 64, 1, 1}});
  g.output(groupnorm(x, scale, scale, 1e-5, {.groups = 4}).y, "y", {.stride = {2560, 1, 512, 64}});
}

constexpr const char *kAsyncCopy = "sinter/device/core/async_copy.cuh",
                     *kClippedPack = "sinter/device/core/clipped_pack.cuh",
                     *kRowwise = "sinter/device/family/rowwise.cuh",
                     *kRowThreads = "sinter/device/family/row_threads.cuh",
                     *kTiled = "sinter/device/family/tiled.cuh",
                     *kTiledFlat = "sinter/device/family/tiled_flat.cuh",
                     *kMma = "sinter/device/family/contraction_mma.cuh",
                     *kFma = "sinter/device/family/contraction_fma.cuh",
                     *kLoader = "sinter/device/engine/loader/loader.cuh",
                     *kContractionTiles = "sinter/device/family/contraction_tiles.cuh",
                     *kMultiply = "sinter/device/family/contraction_multiply.cuh",
                     *kWgmma = "sinter/device/family/contraction_wgmma.cuh",
                     *kImageRows = "sinter/device/family/contraction_image_rows.cuh",
                     *kStoreSwapped = "sinter/device/family/contraction_store_swapped.cuh";

struct Mutant {
  const char* what;
  void (*make)(Graph&);
  std::string_view architecture;
  Edit edit;
  Tuning tuning{};
};
const Mutant kMutants[] = {
    {"totals without their barrier",
     row_softmax,
     "",
     {kRowThreads, "      meet();\n      (collect", "      (collect"}},
    {"sums that threads share read before they are made",
     column_sums,
     "",
     {kRowThreads, "shared[sum] = whole<R, count>(shared, sum);\n      __syncthreads();",
      "shared[sum] = whole<R, count>(shared, sum);"}},
    {"totals of rows side by side without their barriers",
     gradients_side_by_side,
     "",
     {kRowThreads, "hardware::meet<lanes>(row + 1);", ";"}},
    {"column sums without a barrier",
     gradients_side_by_side,
     "",
     {kRowThreads, "        __syncthreads();\n        if (row == 0)", "        if (row == 0)"}},
    {"a ring's row taken before it came",
     gradients,
     "",
     {kRowwise, "wait_for_groups_but<Config::in_flight>();", ""}},
    {"numbers of another row", long_rows, "", {kRowwise, "(steps % 32)", "((steps + 1) % 32)"}},
    {"sums written over rows that are still read",
     rows_that_meet,
     "sm_90a",
     {kRowThreads, "__syncthreads();  // nobody reads what was here before", ""}},
    {"ends of columns passed by",
     small_matrices,
     "",
     {kTiledFlat, "(spot.row + e < S::rows ? from : next)", "from"}},
    {"a tensor's last elements left behind",
     odd_gradients,
     "",
     {kAsyncCopy, "hardware::load(from + e)", "Element{}"}},
    {"elements beside a row counted",
     odd_gradients,
     "",
     {kClippedPack, "c.at[last] + e >= 0", "true"}},
    {"a tile read before it came", transposed, "", {kTiled, "wait_for_copies();", ""}},
    {"a tile read before all threads wrote it",
     transposed,
     "",
     {kTiled, "wait_for_copies();\n    __syncthreads();", "wait_for_copies();"}},
    {"a stage multiplied before it came",
     product,
     "",
     {kMma, "wait<stages - 2>", "wait<stages - 1>"}},
    {"a stage of f32 multiplied before it came",
     product_in_f32,
     "",
     {kFma, "wait<stages - 3>", "wait<stages - 2>"}},
    {"a stage of f32 filled while it is multiplied",
     product_in_f32,
     "",
     {kFma, "      __syncthreads();\n      if (ahead", "      if (ahead"}},
    {"totals of a cluster read before they came",
     cluster_softmax,
     "sm_90a",
     {kRowThreads, "hopper::wait_for_cluster(arrived(turn), turn / 2 % 2);\n      (receive",
      "(receive"}},
    {"totals of groups read before other blocks sent theirs",
     cluster_groups,
     "sm_90a",
     {kRowThreads, "hopper::wait_for_cluster(arrived(turn), turn / 2 % 2);\n      if (own",
      "if (own"}},
    {"a box multiplied before it came",
     product,
     "sm_90a",
     {kMultiply, "    pipeline.wait(state);", ""}},
    {"a stage filled while it is multiplied",
     product,
     "sm_90a",
     {kLoader, "pipeline.acquire(state);", ""}},
    {"a stage given back while it is multiplied",
     product,
     "sm_90a",
     {kMultiply,
      "wgmma::wait<Consumer<Config, A, B>::groups>();\n    if (step > first_step) consumer",
      "if (step > first_step) consumer"}},
    {"sums read while they are multiplied",
     product,
     "sm_90a",
     {kMultiply, "done_waiting();\n  wgmma::wait<0>();", "done_waiting();"}},
    {"a stage handed over before its rows came",
     gathered_groups,
     "sm_90a",
     {kLoader, "warp_matrix::wait<most>();", ""}},
    {"the last stages handed over before their rows came",
     gathered_groups,
     "sm_90a",
     {kLoader, "warp_matrix::wait<0>();", ""}},
    {"rows of pixels replaced while they are read",
     few_channels,
     "sm_90a",
     {kImageRows, "__syncwarp();  // and all have read the stage before", ""}},
    {"parts of a sum read before all blocks wrote them",
     deep_product,
     "sm_90a",
     {kWgmma, "hardware::cluster_barrier();\n      finish_parts", "finish_parts"},
     kInParts},
    {"a block that ends while others reach for it",
     deep_product,
     "sm_90a",
     {kWgmma, "if constexpr (S::cluster > 1) hardware::cluster_barrier();\n}", "}"},
     kInParts},
};

const Mutant kNotTakenAgain[] = {
    {"results that are NaN by zeros beside a copied filter's taps",
     infinite_blocks,
     "sm_90a",
     {kStoreSwapped, "recompute_tile<Config, Body, true>(args, tile, batch, first_row);", ""},
     kOfBlocks},
    {"results that are NaN by the next group's pixels",
     infinite_groups,
     "sm_90a",
     {kStoreSwapped, "recompute_tile<Config, Body, true>(args, tile, batch, first_row);", ""},
     kOfGroups}};

bool right(GraphCase& c, const Status& ran) { return ran && c.judge(2000).ok(); }

// Mutants of one plan, which runs once as it is.
void check_found(std::span<const Mutant> mutants) {
  const Mutant& first = mutants.front();
  INFO(first.what);
  Graph graph({.io = bf16, .intermediate = f32});
  first.make(graph);
  GraphCase c(graph, Fill::normal, 1);
  const auto plan =
      make_plan(graph, {.architecture = std::string(first.architecture)}, first.tuning, nullptr);
  REQUIRE(plan);
  c.clear_outputs();
  const auto ran = emulate(*plan, c);
  INFO((ran ? "" : ran.error().message()));
  CHECK(right(c, ran));
  for (const Mutant& m : mutants) {
    INFO(m.what);
    c.clear_outputs();
    const auto wrong = emulate(*plan, c, m.edit);
    CHECK_FALSE(right(c, wrong));
    // It fails by its numbers or by what its threads do, not because it does not compile.
    if (!wrong) CHECK(wrong.error().rule == Rule::device_error);
  }
}
void check_all_found(std::span<const Mutant> mutants) {
  while (!mutants.empty()) {
    const Mutant& first = mutants.front();
    const auto end = std::ranges::find_if(mutants, [&](const Mutant& m) {
      return m.make != first.make || m.architecture != first.architecture;
    });
    const auto count = static_cast<std::size_t>(end - mutants.begin());
    check_found(mutants.first(count));
    mutants = mutants.subspan(count);
  }
}

TEST_CASE("the emulator finds waits and barriers that are missing") { check_all_found(kMutants); }

TEST_CASE("the emulator finds sums that are NaN and not taken again") {
  check_all_found(kNotTakenAgain);
}

std::int64_t columns_of_tile(const PlanKernel& k) {
  const auto found = std::find_if(k.config.begin(), k.config.end(),
                                  [](const auto& entry) { return entry.first == "tile_n"; });
  return found == k.config.end() ? 0 : found->second;
}

// Clusters share out the tiles of a strided data gradient, whose phases have unlike numbers of
// taps, by how many clusters there are: few of them have several rounds of tiles here. The tiles
// end within a line of the filter's columns.
TEST_CASE("tiles of phases of unlike depths are taken once each, whatever the grid") {
  const auto channels_last = [](const char* name, const Dims& d) {
    return TensorOptions{
        .name = name, .dim = d, .stride = {d[1] * d[2] * d[3], 1, d[1] * d[3], d[1]}};
  };
  const Tuning tuning{
      {{"bf16 x bf16 transposed, batch 4, m 392, n 96, k 144, 2 bytes a result, "
        "window of 64 channels, 14 pixels by [1, 2] taps 1, -1 apart, 14 pixels by "
        "[1, 2] taps 1, -1 apart",
        "64x96 by 2 alternating, cluster 1x1, split 1, stages 8, group 8"}}};
  Graph graph({.io = bf16, .intermediate = f32});
  const auto dy = graph.tensor(channels_last("dy", {2, 64, 14, 14})),
             w = graph.tensor(channels_last("w", {64, 96, 3, 3}));
  const TensorOptions dx = channels_last("", {2, 96, 28, 28});
  graph.output(
      conv_dgrad(dy, w, dx.dim, {.pre_padding = {1, 1}, .post_padding = {1, 1}, .stride = {2, 2}}),
      "dx", {.stride = dx.stride});
  GraphCase c(graph, Fill::normal, 1);
  const auto plan = make_plan(graph, {.architecture = "sm_90a"}, tuning, nullptr);
  REQUIRE(plan);
  const auto run = [&](std::uint32_t grid, const Edit& edit) {
    PlanData data = plan->data();
    REQUIRE(data.kernels.size() == 1);
    REQUIRE(data.kernels[0].grid == 28);  // one round
    REQUIRE(columns_of_tile(data.kernels[0]) == 96);
    data.kernels[0].grid = grid;
    c.clear_outputs();
    return right(c, emulate(Plan(Shared<const PlanData>::make(std::move(data))), c, edit));
  };
  for (const std::uint32_t grid : {28, 20, 3, 1}) CHECK(run(grid, {}));
  CHECK_FALSE(run(20, {kContractionTiles, "2 * (left + grid()) - 1", "2 * (left + grid())"}));
}

TEST_CASE("tiles of a product that end within a line of columns") {
  const Tuning tuning{{{"bf16 x bf16 transposed, batch 1, m 520, n 160, k 72, 2 bytes a result",
                        "256x160 by 2 together, cluster 1x1, split 1, stages 4, group 8"}}};
  Graph graph({.io = bf16, .intermediate = f32});
  const auto a = graph.tensor({.name = "a", .dim = {1, 520, 72}}),
             b = graph.tensor({.name = "b", .dim = {1, 72, 160}});
  graph.output(matmul(a, b), "c");
  GraphCase c(graph, Fill::normal, 1);
  const auto plan = make_plan(graph, {.architecture = "sm_90a"}, tuning, nullptr);
  REQUIRE(plan);
  REQUIRE(columns_of_tile(plan->data().kernels[0]) == 160);
  c.clear_outputs();
  CHECK(right(c, emulate(*plan, c)));
}

// Whether c = a b, 2000 x 96, is right in such tiles by so many blocks.
bool right_in_tiles(int depth, const std::string& tile, std::uint32_t grid, const Edit& edit = {}) {
  Graph graph({.io = bf16, .intermediate = f32});
  const auto a = graph.tensor({.name = "a", .dim = {1, 2000, depth}}),
             b = graph.tensor(
                 {.name = "b", .dim = {1, depth, 96}, .stride = {depth * 96, 1, depth}});
  graph.output(matmul(a, b), "c");
  GraphCase c(graph, Fill::normal, 1);
  const Tuning tuning{
      {{fmt::format("bf16 x bf16, batch 1, m 2000, n 96, k {}, 2 bytes a result", depth),
        tile + (depth == 24 ? ", group 1" : ", group 8")}}};
  const auto plan = make_plan(graph, {.architecture = "sm_90a"}, tuning, nullptr);
  REQUIRE(plan);
  PlanData data = plan->data();
  REQUIRE(data.kernels.size() == 1);
  REQUIRE(tile.find(fmt::format("x{} by", columns_of_tile(data.kernels[0]))) != tile.npos);
  data.kernels[0].grid = grid;
  c.clear_outputs();
  return right(c, emulate(Plan(Shared<const PlanData>::make(std::move(data))), c, edit));
}

// The ring of a block that has more tiles than stages keeps the columns that all of them have.
TEST_CASE("columns that all tiles of a block have are loaded once a stage") {
  const std::string alone = "64x96 by 2 alternating, cluster 1x1, split 1, stages 9",
                    three = "192x96 by 3 together, cluster 1x1, split 1, stages 4",
                    pairs = "64x96 by 1 together, cluster 2x1, split 1, stages 10",
                    beside = "64x64 by 1 together, cluster 1x2, split 1, stages 13",
                    twice = "64x64 by 1 together, cluster 1x1, split 1, stages 13";
  for (const std::uint32_t grid : {32, 3, 1}) CHECK(right_in_tiles(24, alone, grid));
  for (const std::string& tile : {three, twice}) CHECK(right_in_tiles(24, tile, 1));
  for (const std::string& tile : {pairs, beside})
    for (const std::uint32_t grid : {4, 2}) CHECK(right_in_tiles(24, tile, grid));
  // Several steps of k, as many as the ring is a multiple of, or not.
  for (const int depth : {136, 192, 200, 72}) CHECK(right_in_tiles(depth, alone, 2));
  for (const int depth : {128, 144}) CHECK(right_in_tiles(depth, three, 2));
  constexpr const char* kProducer = "sinter/device/family/contraction_producer.cuh";
  const auto wrong = [](int depth, const std::string& tile, const Edit& edit) {
    return !right_in_tiles(depth, tile, 1, edit);
  };
  CHECK(wrong(24, alone, {kProducer, "unused = Config::stages", "unused = Config::stages - 1"}));
  CHECK(wrong(24, twice, {kContractionTiles, "tiles_n == 1 &&", "tiles_n <= 2 &&"}));
  CHECK(wrong(200, alone, {kContractionTiles, "Config::stages % (all > 0 ? all : 1) == 0", "all"}));
}

}  // namespace
}  // namespace sinter::test
