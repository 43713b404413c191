// Which kernels a graph becomes. Each case names the fusion or the cut that it expects.
#include <algorithm>

#include "plan/access.hpp"
#include "planner/match/fusion_state.hpp"
#include "planner/memory/storage.hpp"
#include "planner/partitioned.hpp"
#include "planner/planned.hpp"
#include "sinter/operations.hpp"
#include "support/catch.hpp"
#include "support/norm_gradients.hpp"
#include "support/scheduled.hpp"

using namespace sinter;
using namespace sinter::test;

TEST_CASE("matmul, bias and activation are one contraction without workspace") {
  Graph g{{.io = bf16}};
  auto x = g.tensor({.name = "x", .dim = {64, 32}}), w = g.tensor({.name = "w", .dim = {32, 48}}),
       b = g.tensor({.name = "b", .dim = {1, 48}});
  g.output(gelu_tanh(matmul(x, w) + b), "y");
  const auto p = plan(g);
  CHECK(p.families() == std::vector{Family::contraction});
  CHECK(p.partition.workspace_bytes == 0);
  CHECK(plan(g, false).partition.kernels.size() == 3);
}

TEST_CASE("an intermediate that the caller sees is stored by the fused kernel") {
  Graph g;
  auto x = g.tensor({.name = "x", .dim = {64, 32}}), w = g.tensor({.name = "w", .dim = {32, 48}});
  auto h = matmul(x, w);
  g.output(h, "h");
  g.output(relu(h), "y");
  const auto p = plan(g);
  REQUIRE(p.partition.kernels.size() == 1);
  int written = 0;
  for (const auto& port : p.partition.kernels[0].ports) written += port.written;
  CHECK(written == 2);
}

TEST_CASE("softmax is one rowwise kernel of three phases") {
  Graph g;
  auto x = g.tensor({.name = "x", .dim = {8, 100}});
  g.output(softmax(x), "y");
  const auto p = plan(g);
  REQUIRE(p.families() == std::vector{Family::rowwise});
  CHECK(p.partition.kernels[0].rowwise().phases == 3);
}

// The divergence of two softmaxes, written with a node of its own and with primitives.
TEST_CASE("equal values and reductions of a row are computed once") {
  Graph g{{.io = bf16, .intermediate = f32}};
  const auto a = g.tensor({.name = "a", .dim = {8, 100}}),
             b = g.tensor({.name = "b", .dim = {8, 100}});
  const auto log_softmax = [](const auto& x) {
    const auto centred = x - reduction(x, ReductionMode::max, {8, 1});
    return centred - log(reduction(exp(centred), ReductionMode::add, {8, 1}));
  };
  g.output(reduction(softmax(a) * (log_softmax(a) - log_softmax(b)), ReductionMode::add, {8, 1}),
           "y");
  const auto p = plan(g);
  REQUIRE(p.families() == std::vector{Family::rowwise});
  const KernelSpec& k = p.partition.kernels[0];
  CHECK(k.rowwise().reductions.size() == 5);  // of a and of b two each, and the last
  CHECK(std::ranges::count_if(k.body.statements, [](const Statement& s) {
          return s.kind == StatementKind::pointwise && s.mode == PointwiseMode::exp;
        }) == 2);
}

TEST_CASE("residual add and layernorm with both results are one kernel") {
  Graph g{{.io = bf16}};
  auto x = g.tensor({.name = "x", .dim = {8, 64}}), r = g.tensor({.name = "r", .dim = {8, 64}}),
       s = g.tensor({.name = "s", .dim = {1, 64}}), b = g.tensor({.name = "b", .dim = {1, 64}});
  auto sum = x + r;
  g.output(sum, "sum");
  g.output(layernorm(sum, s, b, 1e-5), "y");
  CHECK(plan(g).families() == std::vector{Family::rowwise});
}

TEST_CASE("causal attention of wide heads is two contractions and a softmax without a mask") {
  Graph g{{.io = bf16}};
  auto q = g.tensor({.name = "q", .dim = {2, 4, 64, 264}}),
       k = g.tensor({.name = "k", .dim = {2, 2, 64, 264}}),
       v = g.tensor({.name = "v", .dim = {2, 2, 64, 264}});
  g.output(sdpa(q, k, v, {.attn_scale = 0.5, .causal_mask = true}), "o");
  const auto p = plan(g);
  CHECK(p.families() == std::vector{Family::contraction, Family::rowwise, Family::contraction});
  const std::int64_t scores = 2 * 4 * 64 * 64;
  CHECK(p.partition.workspace_bytes <= scores * (4 + 2) + 512);
}

TEST_CASE("transposes, slices and splits of stored tensors cost no kernel") {
  Graph g;
  auto x = g.tensor({.name = "x", .dim = {6, 8, 10}});
  auto t =
      transpose(slice(x, {.start = {0, 2, 0}, .limit = {6, 8, 10}, .step = {1, 2, 1}}), {2, 0, 1});
  g.output(relu(reshape(t, {5, 2, 6, 3})), "y");
  CHECK(plan(g).families() == std::vector{Family::pointwise});
}

TEST_CASE("a reshape that no strides can express is copied once") {
  Graph g;
  auto x = g.tensor({.name = "x", .dim = {6, 8}});
  g.output(relu(reshape(transpose(x, {1, 0}), {48})), "y");
  const auto p = plan(g);
  REQUIRE(p.partition.kernels.size() == 2);
  const auto& ports = p.partition.kernels[0].ports;
  CHECK(
      std::any_of(ports.begin(), ports.end(), [](const auto& q) { return !q.access.via.empty(); }));
}

TEST_CASE("parts of a concatenation are written where they belong") {
  Graph g;
  auto x = g.tensor({.name = "x", .dim = {4, 8}}), y = g.tensor({.name = "y", .dim = {4, 5}});
  g.output(concatenate({relu(x), exp(y)}, 1), "z");
  const auto p = plan(g);
  CHECK(p.families() == std::vector{Family::pointwise, Family::pointwise});
  CHECK(p.partition.workspace_bytes == 0);
}

TEST_CASE("nodes that would wait for each other stay apart, with the reason") {
  Graph g;
  auto x = g.tensor({.name = "x", .dim = {16, 16}}), w = g.tensor({.name = "w", .dim = {16, 16}});
  auto a = relu(x);
  g.output(a + matmul(a, w), "y");  // relu feeds the matmul from memory and the sum after it
  const auto p = plan(g);
  CHECK(p.families() == std::vector{Family::pointwise, Family::contraction});
  CHECK_FALSE(p.partition.cuts.empty());
}

TEST_CASE("an elementwise chain before a matmul runs as its prologue when it reads no more") {
  Graph g{{.io = bf16}};
  auto x = g.tensor({.name = "x", .dim = {64, 32}, .data_type = f8e4m3}),
       s = g.tensor({.name = "s", .dim = {64, 1}, .data_type = f32}),
       w = g.tensor({.name = "w", .dim = {32, 48}});
  g.output(matmul(x * s, w), "y");
  CHECK(plan(g).families() == std::vector{Family::contraction});
}

TEST_CASE("a prologue that would read more than the operand is refused with the reason") {
  Graph g{{.io = f32, .intermediate = bf16}};
  auto x = g.tensor({.name = "x", .dim = {2048, 96}}),
       z = g.tensor({.name = "z", .dim = {2048, 96}}), w = g.tensor({.name = "w", .dim = {96, 48}});
  g.output(matmul(x * z, w), "y");
  const auto p = plan(g);
  CHECK(p.families() == std::vector{Family::pointwise, Family::contraction});
  CHECK(p.has_cut("read more"));
}

TEST_CASE("one tensor on both operands of a matmul is made before it") {
  Graph g;
  auto x = g.tensor({.name = "x", .dim = {16, 16}});
  auto a = relu(x);
  g.output(matmul(a, a), "y");
  CHECK(plan(g).families() == std::vector{Family::pointwise, Family::contraction});
}

TEST_CASE("a constant image of a padded convolution lies in memory, so that its padding is zero") {
  Graph g;
  auto w = g.tensor({.name = "w", .dim = {1, 1, 3}});
  auto x = g.scalar(-1.0);
  detail::GraphEditor(g).edit(x.id()).dim = {1, 1, 1};
  g.output(conv_fprop(x, w, {.pre_padding = {1}, .post_padding = {1}}), "y");
  const auto p = plan(g);
  REQUIRE(p.families() == std::vector{Family::pointwise, Family::contraction});
  const auto& ports = p.partition.kernels[1].ports;
  CHECK(std::any_of(ports.begin(), ports.end(),
                    [](const auto& q) { return !q.access.windows.empty(); }));
}

TEST_CASE("tensors that do not live at the same time share workspace") {
  Graph g;
  auto x = g.tensor({.name = "x", .dim = {64, 64}}), w = g.tensor({.name = "w", .dim = {64, 64}});
  Tensor h = x;
  for (int i = 0; i < 10; ++i) h = matmul(h, w);
  g.output(h, "y");
  const auto p = plan(g);
  CHECK(p.partition.kernels.size() == 10);
  CHECK(p.partition.workspace_bytes == 2 * 64 * 64 * 4);
}

TEST_CASE("a chain of 500 nodes is planned and split within the limits") {
  Graph g;
  auto x = g.tensor({.name = "x", .dim = {64}});
  Tensor h = x;
  for (int i = 0; i < 500; ++i) h = i % 2 ? h * 0.5 : h + 1.0;
  g.output(h, "y");
  const auto p = plan(g);
  CHECK(p.partition.kernels.size() <= 8);
  CHECK(p.has_cut("already has"));
}

TEST_CASE("kernels that would wait for each other are found, whatever the numbers of their nodes") {
  Graph g;
  const auto x = g.tensor({.name = "x", .dim = {64}});
  const auto v = exp(x);      // node 0
  const auto u = relu(x);     // 1
  g.output(u + x, "w");       // 2
  g.output(sqrt(v), "z");     // 3
  g.output(sqrt(u), "last");  // 4
  const Storage storage(g);
  const PlanContext context{device_model(), {}};
  FusionState state(g, storage, false, context);
  CHECK_FALSE(state.makes_cycle({1}, 3));
  state.take({0, 2});  // which needs node 1
  CHECK(state.makes_cycle({1}, 3));
  CHECK(state.makes_cycle({3}, 1));
  CHECK_FALSE(state.makes_cycle({1}, 4));
  CHECK_FALSE(state.makes_cycle({3}, 4));
}

// But not of an input whose memory an output takes: that is read no later than it must be.
TEST_CASE("what takes no longer to read anew than it would as stored belongs to no kernel") {
  Graph g{{.io = bf16}};
  const auto x = g.tensor({.name = "x", .dim = {64, 32}}),
             wide = g.tensor({.name = "wide", .dim = {64, 32}, .data_type = f32});
  const Tensor narrow = x * swish(1.0 * x);                         // nodes 0, 1, 2
  for (const Tensor& t : {x + x, x + wide, wide * wide, narrow}) {  // 3, 4, 5
    g.output(reduction(t, ReductionMode::add, {64, 1}), "");
    g.output(sqrt(t), "");
  }
  const Storage storage(g);
  const PlanContext context{device_model(), {}};
  const FusionState state(g, storage, true, context);
  CHECK(state.recomputed(3));        // of bf16, in f32
  CHECK_FALSE(state.recomputed(4));  // more is read than it holds
  CHECK(state.recomputed(5));        // both operands are one tensor, read once
  CHECK_FALSE(state.recomputed(2));  // of what is computed itself
  const FusionState overwritten(g, storage, true, context, {}, {0});
  CHECK_FALSE(overwritten.recomputed(3));
}

TEST_CASE("so may a chain of elementwise nodes, where that is a cut with less traffic") {
  Graph g{{.io = bf16}};
  const auto x = g.tensor({.name = "x", .dim = {64, 32}}),
             y = g.tensor({.name = "y", .dim = {64, 32}}),
             mean = g.tensor({.name = "mean", .dim = {64, 1}, .data_type = f32});
  const Tensor small = (x - mean) * 2.0,      // nodes 0 and 1
      large = (x - y) * (y + mean),           // 2, 3, 4
      seen = x * y;                           // 5, which the caller sees
  const Tensor behind = (seen + mean) * 2.0;  // 6, 7
  g.output(seen, "seen");
  for (const Tensor& t : {small, large, behind}) {
    g.output(reduction(t, ReductionMode::add, {64, 1}), "");
    g.output(reduction(t, ReductionMode::add, {1, 32}), "");
  }
  const Storage storage(g);
  const PlanContext context{device_model(), {}};
  FusionState state(g, storage, true, context), overwritten(g, storage, true, context, {}, {0});
  CHECK(state.recompute_chains());
  for (NodeId n : {0, 1}) CHECK(state.recomputed(n));
  for (NodeId n : {2, 3, 4}) CHECK_FALSE(state.recomputed(n));  // x, y and mean are more
  for (NodeId n : {5, 6, 7}) CHECK_FALSE(state.recomputed(n));
  CHECK_FALSE(overwritten.recompute_chains());
}

TEST_CASE("a function of few elements is computed by the kernel whose packs share each of them") {
  const auto kernels = [](const Dims& gate, bool summed) {
    Graph g{{.io = bf16}};
    const auto x = g.tensor({.name = "x", .dim = {2, 6, 8, 8}}),
               y = x * sigmoid(g.tensor({.name = "gate", .dim = gate}) + 1.0);
    g.output(summed ? reduction(y, ReductionMode::add, {2, 1, 8, 8}) : y, "y");
    check_values(g);
    return partition(*lower(g).graph, true, "sm_90a").kernels.size();
  };
  CHECK(kernels({2, 6, 1, 1}, false) == 1);
  CHECK(kernels({1, 1, 1, 8}, false) == 2);  // another one for each element of a pack
  CHECK(kernels({2, 6, 8, 1}, true) == 2);   // no elementwise kernel
}

TEST_CASE("gradients of a norm over channels, and of its scale, both read x") {
  Graph g{{.io = bf16}};
  const Dims image{2, 24, 8, 8}, rows{2, 1, 8, 8};
  const auto dy = g.tensor({.name = "dy", .dim = image}), x = g.tensor({.name = "x", .dim = image}),
             scale = g.tensor({.name = "scale", .dim = {1, 24, 1, 1}}),
             mean = g.tensor({.name = "mean", .dim = rows, .data_type = f32}),
             inv = g.tensor({.name = "inv", .dim = rows, .data_type = f32});
  const NormGradients d = layernorm_backward(dy, x, scale, mean, inv);
  g.output(d.dx, "dx");
  g.output(d.dscale, "dscale");
  CHECK(plan(g).partition.workspace_bytes == 0);
}

TEST_CASE("results without elements need no kernel, sums over nothing do") {
  Graph g;
  auto x = g.tensor({.name = "x", .dim = {0, 8}});
  g.output(relu(x), "y");
  g.output(reduction(x, ReductionMode::add, {1, 8}), "s");
  CHECK(plan(g).families() == std::vector{Family::rowwise});
}

TEST_CASE("reshape strides follow NumPy's view rule") {
  CHECK(reshape_strides({6, 8}, {8, 1}, {48}) == Dims{1});
  CHECK(reshape_strides({6, 8}, {16, 1}, {48}) == std::nullopt);
  CHECK(reshape_strides({6, 8}, {16, 2}, {48}) == Dims{2});
  CHECK(reshape_strides({6, 8}, {1, 6}, {48}) == std::nullopt);
  CHECK(reshape_strides({6, 8}, {1, 6}, {2, 3, 4, 2}) == Dims({3, 1, 12, 6}));
  CHECK(reshape_strides({4, 1, 6}, {6, 99, 1}, {24}) == Dims{1});
  CHECK(reshape_strides({4, 6}, {0, 0}, {24}) == Dims{0});
  CHECK(reshape_strides({12}, {5}, {3, 1, 4})->operator[](0) == 20);
}

TEST_CASE("large reductions to few results are cut in parts that a second kernel combines") {
  Graph g{{.io = bf16}};
  auto x = g.tensor({.name = "x", .dim = {4096, 8191}});
  g.output(reduction(x, ReductionMode::norm2, {1, 1}), "length");
  g.output(reduction(x, ReductionMode::add, {1, 8191}), "columns");
  const auto p = plan(g);
  REQUIRE(p.partition.kernels.size() == 4);
  for (int i : {0, 2}) {
    const KernelSpec& cut = p.partition.kernels[static_cast<std::size_t>(i)];
    const KernelSpec& whole = p.partition.kernels[static_cast<std::size_t>(i + 1)];
    std::int64_t parts = 1;
    for (int d = 0; d < cut.rowwise().outer_rank; ++d) parts *= cut.extent[d];
    CHECK(parts == count(whole.extent));
    CHECK(p.partition.temporaries.size() == 2);
  }
}

TEST_CASE("several phases over few large rows become a kernel a phase") {
  Graph g{{.io = bf16}};
  auto x = g.tensor({.name = "x", .dim = {1 << 21, 8}});
  g.output(softmax(x, {.axis = 0}), "y");
  const auto p = plan(g);
  REQUIRE(p.partition.kernels.size() == 5);  // two reductions of two kernels, and the quotient
  CHECK(family_of(p.partition.kernels.back()) == Family::pointwise);
}

// Whole columns would be read again, by fewer threads than keep memory busy.
TEST_CASE(
    "phases over columns that no block holds are cut in parts, those that one holds are not") {
  for (const auto& [rows, columns, kernels] :
       {std::tuple{8192, 8192, 3}, {512, 32768, 1}, {8192, 262144, 1}}) {
    Graph g{{.io = bf16, .intermediate = f32}};
    const auto x = g.tensor({.name = "x", .dim = {rows, columns}});
    g.output(x / reduction(x, ReductionMode::amax, {1, columns}), "y", {.data_type = f8e4m3});
    CAPTURE(rows, columns);
    CHECK(partition(*lower(g).graph, true, "sm_90a").kernels.size() ==
          static_cast<std::size_t>(kernels));
  }
}

// Of [8192, 64] and its transpose: as many channels as there are rows or columns.
void check_statistics(const Dims& dim, const Dims& channels, const std::string& architecture) {
  Graph g{{.io = bf16, .intermediate = f32}};
  const auto x = g.tensor({.name = "x", .dim = dim});
  const auto mean = reduction(x, ReductionMode::avg, channels);
  const auto centred = x - mean;
  const auto variance = reduction(centred * centred, ReductionMode::avg, channels);
  g.output(mean, "mean", {.data_type = f32});
  g.output(variance, "variance", {.data_type = f32});
  g.output(centred * rsqrt(variance + 1e-5), "y");
  const auto kernels = partition(*lower(g).graph, true, architecture).kernels;
  REQUIRE(kernels.size() == 3);
  const KernelSpec &parts = kernels[0], &whole = kernels[1];
  CHECK(parts.rowwise().phases == 3);
  CHECK(schedule_rowwise(parts, device_model(architecture)).resident);
  // Each part has an average of its own; together they have as many elements as there are.
  REQUIRE(parts.rowwise().reductions.size() == 2);
  const std::int64_t length = count(parts.extent, parts.rowwise().outer_rank, parts.extent.size());
  CHECK(parts.rowwise().reductions[0].length == length);
  CHECK(count(whole.extent) * length == count(dim));
  CHECK(whole.rowwise().phases == 3);
  CHECK(family_of(kernels[2]) == Family::pointwise);
}

TEST_CASE("averages and squared distances from them take one pass over few large rows") {
  for (const std::string architecture : {"", "sm_90a"}) {
    check_statistics({1 << 18, 64}, {1, 64}, architecture);
    check_statistics({8, 1 << 21}, {8, 1}, architecture);
    check_statistics({7 * 7 * 4096, 24}, {1, 24}, architecture);
    check_statistics({256, 64, 56 * 56}, {1, 64, 1}, architecture);
  }
}

// Packs of eight columns give 64 of them four blocks, each of which would read its rows three
// times.
TEST_CASE("few columns that their blocks cannot hold are cut in parts, whatever is read of them") {
  for (const auto& [rows, columns] : {std::pair{112 * 112, 16}, {3 * 56 * 56, 64}}) {
    CAPTURE(rows, columns);
    check_statistics({rows, columns}, {1, columns}, "sm_90a");
    Graph g{{.io = bf16}};
    const auto x = g.tensor({.name = "x", .dim = {rows * 8, columns}});
    g.output(softmax(x, {.axis = 0}), "y");
    CHECK(partition(*lower(g).graph, true, "sm_90a").kernels.size() == 5);
  }
}

TEST_CASE("what is no squared distance from the average of the same values has a pass of its own") {
  const auto passes = [](auto&& second) {
    Graph g{{.io = bf16, .intermediate = f32}};
    const auto x = g.tensor({.name = "x", .dim = {1 << 18, 64}});
    const auto mean = reduction(x, ReductionMode::avg, {1, 64});
    const auto apart = second(x, mean);
    g.output(reduction(apart * apart, ReductionMode::add, {1, 64}), "y");
    return partition(*lower(g).graph, true, "").kernels.size();
  };
  CHECK(passes([](Tensor x, Tensor mean) { return x - mean; }) == 2);
  CHECK(passes([](Tensor x, Tensor mean) { return x + mean; }) == 4);
  CHECK(passes([](Tensor x, Tensor mean) { return abs(x) - mean; }) == 4);
  CHECK(passes([](Tensor x, Tensor mean) { return mean - x; }) == 4);
}

TEST_CASE("few long rows that clusters hold stay one kernel on sm_90a") {
  Graph g{{.io = bf16}};
  auto x = g.tensor({.name = "x", .dim = {8, 1 << 18}});
  g.output(softmax(x), "y");
  CHECK(plan(g).partition.kernels.size() == 5);
  CHECK(partition(*lower(g).graph, true, "sm_90a").kernels.size() == 1);
}

TEST_CASE("an index takes its operand's dims alone, not its values") {
  Graph g{{.io = bf16}};
  auto scores = g.tensor({.name = "scores", .dim = {2, 3, 64, 64}});
  const Tensor x = scores * 0.125;
  const Tensor seen = gen_index(x, 2) >= gen_index(x, 3);
  g.output(softmax(pointwise({.mode = PointwiseMode::binary_select}, x, g.scalar(-1e9), seen)),
           "y");
  const auto p = plan(g);
  CHECK(p.families() == std::vector{Family::rowwise});
  CHECK(p.partition.workspace_bytes == 0);
  // What nothing but an index reads is not computed.
  Graph only{{.io = bf16}};
  auto a = only.tensor({.name = "a", .dim = {8, 64}});
  only.output(gen_index(exp(a), 1), "y");
  const auto kernels = plan(only).partition.kernels;
  REQUIRE(kernels.size() == 1);
  CHECK(kernels[0].ports.size() == 1);
}

TEST_CASE("small inputs that are broadcast are prepared where they are read, if that is cheap") {
  const auto kernels = [](const auto& prepare, Dims small) {
    Graph g{{.io = bf16}};
    auto x = g.tensor({.name = "x", .dim = {4, 32, 64}}),
         s = g.tensor({.name = "s", .dim = std::move(small)});
    g.output(x * prepare(s), "y");
    return plan(g).partition.kernels.size();
  };
  CHECK(kernels([](Tensor s) { return s + 1.0; }, {4, 1, 64}) == 1);
  CHECK(kernels([](Tensor s) { return (s + 1.0) * 2.0; }, {1, 1, 64}) == 1);
  CHECK(kernels([](Tensor s) { return sigmoid(s); }, {4, 1, 64}) == 2);
  CHECK(kernels([](Tensor s) { return s + 1.0; }, {4, 32, 1}) == 1);
}

TEST_CASE("pixels that are shuffled into a larger image are written in pairs") {
  Graph g{{.io = bf16}};
  auto x = g.tensor({.name = "x", .dim = {2, 12, 8, 16}});
  const Tensor parts = transpose(reshape(x, {2, 3, 2, 2, 8, 16}), {0, 1, 4, 2, 5, 3});
  g.output(reshape(parts, {2, 3, 16, 32}), "y");
  const auto p = plan(g);
  REQUIRE(p.partition.kernels.size() == 1);
  const KernelSpec& k = p.partition.kernels[0];
  const auto written = std::find_if(k.ports.begin(), k.ports.end(),
                                    [](const KernelPort& port) { return port.written; });
  CHECK(written->together == 2);
  CHECK(scheduled(k).packing()->width == 4);
}

TEST_CASE("threads have several short rows in flight, where rows do not stay") {
  const auto rows = [](const Dims& dim, bool normalised) {
    Graph g{{.io = bf16}};
    auto x = g.tensor({.name = "x", .dim = dim});
    g.output(normalised ? softmax(x) : reduction(x, ReductionMode::add, {dim[0], 1}), "y");
    return schedule_rowwise(plan(g).partition.kernels[0], device_model("sm_90a")).rows_at_once;
  };
  CHECK(rows({1 << 20, 32}, false) == 2);
  CHECK(rows({1 << 20, 131}, false) == 4);
  CHECK(rows({1 << 20, 128}, true) == 1);
  CHECK(rows({1 << 20, 4096}, false) == 1);
  CHECK(rows({64, 32}, false) == 1);
}

TEST_CASE("rows that few threads cannot hold are held by more") {
  Graph g{{.io = bf16}};
  auto x = g.tensor({.name = "x", .dim = {16384, 4096}}),
       w = g.tensor({.name = "w", .dim = {4096}});
  const Tensor y = rmsnorm(x, w, Tensor{}, g.scalar(1e-5)).y;
  const Tensor scale = reduction(y, ReductionMode::amax, {16384, 1}) * (1 / 448.0);
  g.output(scale, "scale", {.data_type = f32});
  g.output(y / scale, "y", {.data_type = f8e4m3});
  const auto p = plan(g);
  REQUIRE(p.partition.kernels.size() == 1);
  CHECK(schedule_rowwise(p.partition.kernels[0], device_model("sm_90a")).resident);
}

TEST_CASE(
    "a bias that narrows a product's sums is the end of its kernel, not the norm's beginning") {
  Graph g{{.io = bf16}};
  auto x = g.tensor({.name = "x", .dim = {256, 128}}),
       w = g.tensor({.name = "w", .dim = {128, 64}}), b = g.tensor({.name = "b", .dim = {1, 64}}),
       r = g.tensor({.name = "r", .dim = {256, 64}}), s = g.tensor({.name = "s", .dim = {1, 64}}),
       c = g.tensor({.name = "c", .dim = {1, 64}});
  const Tensor product = (matmul(x, w) + b).type(bf16);
  g.output(layernorm((product + r).type(bf16), s, c, 1e-5), "y");
  const auto p = plan(g);
  CHECK(p.families() == std::vector{Family::contraction, Family::rowwise});
  CHECK(p.partition.workspace_bytes == 256 * 64 * 2);  // bf16
}
