// Data movement between computations: which kernels are left when it has been moved out of the way.
#include <algorithm>

#include "lower/lower.hpp"
#include "plan/access.hpp"
#include "planner/memory/storage.hpp"
#include "planner/moved.hpp"
#include "planner/planner.hpp"
#include "planner/rewrite/pass.hpp"
#include "planner/rewrite/views.hpp"
#include "sinter/compile.hpp"
#include "sinter/operations.hpp"
#include "support/catch.hpp"
#include "support/random_graph.hpp"
#include "support/scheduled.hpp"

using namespace sinter;
using namespace sinter::test;

namespace {

Tensor half(Tensor x, std::int64_t first) {
  SliceAttributes a{Dims::filled(x.dim().size(), 0), x.dim(), {}};
  const int last = x.dim().size() - 1;
  a.start[last] = first * x.dim()[last] / 2;
  a.limit[last] = (first + 1) * x.dim()[last] / 2;
  return slice(x, a);
}

}  // namespace

TEST_CASE("a gated unit over both halves of one tensor is one kernel that reads it once") {
  Graph g{{.io = bf16}};  // intermediate results are f32
  auto x = g.tensor({.name = "x", .dim = {32, 128}}), b = g.tensor({.name = "b", .dim = {1, 128}});
  const Tensor biased = x + b;
  g.output(swish(half(biased, 0)) * half(biased, 1), "y");
  CHECK(kernels(g).size() == 1);
  CHECK(moved_bytes(g) == 2 * (32 * 128 + 128 + 32 * 64));
}

TEST_CASE("rotary embedding is one kernel, however it is written") {
  for (bool halves : {true, false}) {
    Graph g{{.io = bf16}};
    auto x = g.tensor({.name = "x", .dim = {2, 3, 8, 32}});
    const std::int64_t width = halves ? 16 : 32;
    auto c = g.tensor({.name = "c", .dim = {1, 1, 8, width}}),
         s = g.tensor({.name = "s", .dim = {1, 1, 8, width}});
    const Tensor a = half(x, 0), b = half(x, 1);
    const Tensor y = halves ? concatenate({a * c - b * s, b * c + a * s}, -1)
                            : x * c + concatenate({-b, a}, -1) * s;
    g.output(transpose(y, {0, 2, 1, 3}), "y");
    CHECK(kernels(g).size() == 1);
  }
}

TEST_CASE("rotary embedding behind a projection is one kernel besides it") {
  enum class Norm { none, of_heads, of_tokens };  // before its rows are turned to heads, or behind
  const auto count_kernels = [](Norm norm, bool biased) {
    Graph g{{.io = bf16}};
    auto x = g.tensor({.name = "x", .dim = {2, 8, 48}}),
         w = g.tensor({.name = "w", .dim = {1, 48, 96}}),
         c = g.tensor({.name = "c", .dim = {1, 1, 8, 32}}),
         s = g.tensor({.name = "s", .dim = {1, 1, 8, 32}});
    const auto normed = [&](Tensor t) {
      return rmsnorm(t, g.tensor({.name = "scale", .dim = {1, 1, 1, 32}}), Tensor{}, 1e-5).y;
    };
    auto projected = matmul(x, w);
    if (biased) projected = projected + g.tensor({.name = "bias", .dim = {1, 1, 96}});
    auto tokens = reshape(projected, {2, 8, 3, 32});
    if (norm == Norm::of_tokens) tokens = normed(tokens);
    auto heads = transpose(tokens, {0, 2, 1, 3});
    if (norm == Norm::of_heads) heads = normed(heads);
    g.output(heads * c + concatenate({-half(heads, 1), half(heads, 0)}, -1) * s, "y");
    return kernels(g).size();
  };
  for (const Norm norm : {Norm::none, Norm::of_heads, Norm::of_tokens})
    for (const bool biased : {false, true}) CHECK(count_kernels(norm, biased) == 2);
}

TEST_CASE("heads that are joined, a residual and a norm are one kernel") {
  Graph g{{.io = bf16}};
  auto o = g.tensor({.name = "o", .dim = {2, 4, 6, 16}}),
       r = g.tensor({.name = "r", .dim = {2, 6, 64}}),
       w = g.tensor({.name = "w", .dim = {1, 1, 64}});
  const Tensor h = reshape(transpose(o, {0, 2, 1, 3}), {2, 6, 64}) + r;
  g.output(h, "h");
  g.output(rmsnorm(h, w, Tensor{}, 1e-5).y, "y");
  const auto k = kernels(g);
  REQUIRE(k.size() == 1);
  CHECK(family_of(k[0]) == Family::rowwise);
}

TEST_CASE("what follows a groupnorm is in its kernel") {
  Graph g{{.io = bf16}};
  auto x = g.tensor({.name = "x", .dim = {2, 12, 4, 8}}),
       r = g.tensor({.name = "r", .dim = {2, 12, 4, 8}}),
       s = g.tensor({.name = "s", .dim = {1, 12, 1, 1}}),
       b = g.tensor({.name = "b", .dim = {1, 12, 1, 1}});
  g.output(swish(groupnorm(x, s, b, 1e-5, {.groups = 3}).y) + r, "y");
  CHECK(kernels(g).size() == 1);
}

// On sm_90a clusters hold images of which each channel is a row.
TEST_CASE("groups of few channels, which lie last, are normalised for each channel apart") {
  struct Case {
    Dims dim;
    std::int64_t groups;
    std::size_t kernels, with_clusters;
  };
  const Case cases[] = {{{8, 320, 64, 64}, 32, 3, 3},    // 20 bytes a pixel, and few clusters
                        {{64, 320, 32, 32}, 32, 3, 1},   //
                        {{1, 128, 512, 512}, 32, 3, 3},  // 8, and more pixels than a cluster holds
                        {{64, 2048, 16, 16}, 32, 1, 1},  // 128
                        {{2, 320, 32, 32}, 32, 1, 1}};   // few pixels
  for (const std::string architecture : {"", "sm_90a"})
    for (const auto& [dim, groups, kernels_of_all, kernels_of_clusters] : cases) {
      const std::size_t count_of_kernels =
          architecture.empty() ? kernels_of_all : kernels_of_clusters;
      const std::int64_t channels = dim[1], pixels = dim[2] * dim[3];
      Graph g{{.io = f16, .intermediate = f32}};
      const Dims last{channels * pixels, 1, dim[3] * channels, channels};
      const auto x = g.tensor({.name = "x", .dim = dim, .stride = last});
      const auto scale = g.tensor({.name = "scale", .dim = {1, channels, 1, 1}});
      const auto n = groupnorm(x, scale, scale, 1e-5,
                               {.forward_phase = ForwardPhase::training, .groups = groups});
      g.output(n.mean, "mean", {.data_type = f32});
      g.output(n.inv_variance, "inv_variance", {.data_type = f32});
      g.output(swish(n.y), "y", {.stride = last});
      const auto found = kernels(g, architecture);
      CAPTURE(dim[0], channels, pixels, architecture);
      REQUIRE(found.size() == count_of_kernels);
      const bool grouped = kernels_of_clusters < kernels_of_all && !architecture.empty();
      if (grouped) {
        const RowwiseConfig held = schedule_rowwise(found[0], device_model(architecture));
        CHECK(found[0].rowwise().group == channels / groups);
        CHECK((held.rows_fastest && held.resident && held.packing.width == 8));
        CHECK(held.rows_per_block * held.packing.width % found[0].rowwise().group == 0);
      }
      if (count_of_kernels == 1) continue;
      const KernelSpec &parts = found[0], &whole = found[1], &rest = found[2];
      const RowwiseConfig first = schedule_rowwise(parts, device_model(architecture));
      CHECK(first.rows_fastest);
      CHECK(first.resident);
      CHECK(first.packing.width == 8);
      CHECK(count(whole.extent, 0, whole.rowwise().outer_rank) == dim[0] * groups);
      CHECK(family_of(rest) == Family::pointwise);
      CHECK(rest.extent[rest.extent.size() - 1] == channels);
      CHECK(scheduled(rest, architecture).packing()->width == 8);
    }
}

TEST_CASE("a norm of groups leaves an image's channels last for the convolution behind it") {
  Graph g{{.io = bf16}};
  const Dims dim{8, 320, 32, 32}, last{320 * 1024, 1, 32 * 320, 320};
  const auto x = g.tensor({.name = "x", .dim = dim, .stride = last}),
             w = g.tensor({.name = "w", .dim = {64, 320, 3, 3}, .stride = {2880, 1, 960, 320}}),
             s = g.tensor({.name = "s", .dim = {1, 320, 1, 1}});
  const ConvAttributes padded{.pre_padding = {1, 1}, .post_padding = {1, 1}};
  g.output(conv_fprop(swish(groupnorm(x, s, s, 1e-5, {.groups = 32}).y), w, padded), "y",
           {.stride = {64 * 1024, 1, 32 * 64, 64}});
  const auto found = kernels(g, "sm_90a");
  REQUIRE(found.size() == 2);
  const int channels = found[0].rowwise().outer_rank - 1;
  CHECK(step(found[0].ports.back().access, channels) == 1);
  CHECK(found[0].extent[channels] == 320);
}

TEST_CASE("an image that is rolled along two axes is copied once") {
  Graph g{{.io = bf16}};
  const Dims dim{2, 7, 5, 16};
  auto x = g.tensor({.name = "x", .dim = dim});
  const auto rolled = [&](Tensor t, int axis, std::int64_t by) {
    SliceAttributes first{{0, 0, 0, 0}, dim, {}}, last = first;
    first.start[axis] = last.limit[axis] = by;
    return concatenate({slice(t, first), slice(t, last)}, axis);
  };
  g.output(rolled(rolled(x, 1, 3), 2, 2), "y");
  const auto k = kernels(g);
  REQUIRE(k.size() == 1);
  CHECK(std::count_if(k[0].ports.begin(), k[0].ports.end(),
                      [](const auto& p) { return p.access.windows.size() == 2; }) == 4);
  CHECK(moved_bytes(g) == 2 * 2 * count(dim));
}

TEST_CASE("a norm and the windows of its result are one kernel") {
  const Dims dim{2, 4, 6, 16}, split{2, 2, 2, 3, 2, 16}, windows{12, 4, 16};
  for (const auto phase : {ForwardPhase::inference, ForwardPhase::training}) {
    Graph g{{.io = bf16}};
    auto x = g.tensor({.name = "x", .dim = dim}), r = g.tensor({.name = "r", .dim = dim}),
         w = g.tensor({.name = "w", .dim = {1, 1, 1, 16}}),
         b = g.tensor({.name = "b", .dim = {1, 1, 1, 16}});
    const Tensor sum = x + r;
    const auto norm = layernorm(sum, w, b, 1e-5, {.forward_phase = phase});
    g.output(sum, "sum");
    if (norm.mean) g.output(norm.mean, "mean", {.data_type = f32});
    g.output(reshape(transpose(reshape(norm.y, split), {0, 1, 3, 2, 4, 5}), windows), "y");
    const auto k = kernels(g);
    REQUIRE(k.size() == 1);
    CHECK(family_of(k[0]) == Family::rowwise);
  }
  Graph p{{.io = bf16}};  // a product reads the windows
  const Tensor y = layernorm(p.tensor({.name = "x", .dim = {2, 24, 16}}),
                             p.tensor({.name = "w", .dim = {1, 1, 16}}),
                             p.tensor({.name = "b", .dim = {1, 1, 16}}), 1e-5)
                       .y;
  p.output(matmul(reshape(transpose(reshape(y, split), {0, 1, 3, 2, 4, 5}), windows),
                  p.tensor({.name = "m", .dim = {1, 16, 8}})),
           "product");
  CHECK(kernels(p).size() == 2);
  // Another kernel computes with the norm's result as it is.
  Graph g{{.io = bf16}};
  auto x = g.tensor({.name = "x", .dim = dim}), w = g.tensor({.name = "w", .dim = {1, 1, 1, 16}}),
       m = g.tensor({.name = "m", .dim = {1, 1, 16, 8}});
  const Tensor n = rmsnorm(x, w, Tensor{}, 1e-5).y;
  g.output(matmul(n, m), "product");
  g.output(reshape(transpose(reshape(n, split), {0, 1, 3, 2, 4, 5}), windows), "y");
  CHECK(kernels(g).size() == 3);
}

TEST_CASE("an image of windows, a residual and a norm are one kernel") {
  const Dims dim{2, 4, 6, 16};
  Graph g{{.io = bf16}};
  auto x = g.tensor({.name = "x", .dim = {12, 4, 16}}), r = g.tensor({.name = "r", .dim = dim}),
       w = g.tensor({.name = "w", .dim = {1, 1, 1, 16}});
  const Tensor split = reshape(x, {2, 2, 3, 2, 2, 16});
  const Tensor sum = reshape(transpose(split, {0, 1, 3, 2, 4, 5}), dim) + r;
  const auto norm = rmsnorm(sum, w, Tensor{}, 1e-5, {.forward_phase = ForwardPhase::training});
  g.output(sum, "sum");
  g.output(norm.y, "y");
  g.output(norm.inv_variance, "inv", {.data_type = f32});
  CHECK(kernels(g).size() == 1);
}

TEST_CASE("the amax of a norm's result is reduced with its rows") {
  Graph g{{.io = bf16}};
  auto x = g.tensor({.name = "x", .dim = {64, 256}}), w = g.tensor({.name = "w", .dim = {1, 256}});
  const Tensor y = rmsnorm(x, w, Tensor{}, 1e-5).y;
  g.output(reduction(y, ReductionMode::amax, {1, 1}), "amax");
  g.output(y * 0.5, "q", {.data_type = f8e4m3});
  const auto k = kernels(g);
  REQUIRE(k.size() == 2);
  CHECK(moved_bytes(g) < 3 * 64 * 256 + 2 * 256 + 3 * 64 * 4);
}

TEST_CASE("a result that is stored as it is and turned is computed once") {
  Graph g{{.io = bf16}};
  auto x = g.tensor({.name = "x", .dim = {64, 96}});
  const Tensor y = x * 2.0;
  g.output(y, "y");
  g.output(transpose(y, {1, 0}), "turned");
  CHECK(kernels(g).size() == 1);
}

TEST_CASE("gradients of every image's own scale are summed in the pass that computes DX") {
  Graph g{{.io = bf16}};
  const auto x = g.tensor({.name = "x", .dim = {4, 64, 128}}),
             dy = g.tensor({.name = "dy", .dim = {4, 64, 128}}),
             scale = g.tensor({.name = "scale", .dim = {4, 1, 128}}),
             mean = g.tensor({.name = "mean", .dim = {4, 64, 1}, .data_type = f32}),
             inv = g.tensor({.name = "inv", .dim = {4, 64, 1}, .data_type = f32});
  const auto d = adaptive_layernorm_backward(dy, x, scale, mean, inv);
  g.output(d.dx, "dx");
  g.output(d.dscale, "dscale");
  g.output(d.dbias, "dbias");
  const auto k = kernels(g);
  REQUIRE(k.size() == 2);  // and one that finishes
  CHECK(k[0].cross_row_reductions.size() == 2);
  CHECK(k[0].rowwise().num_partials % 4 == 0);
}

TEST_CASE("only what a slice shows of a result is computed") {
  Graph g{{.io = bf16}};
  auto x = g.tensor({.name = "x", .dim = {4, 64, 128}}),
       w = g.tensor({.name = "w", .dim = {128, 96}}),
       scale = g.tensor({.name = "scale", .dim = {1, 1, 128}}),
       bias = g.tensor({.name = "bias", .dim = {1, 1, 96}});
  const Tensor y = matmul(rmsnorm(x, scale, Tensor{}, 1e-5).y, w) + bias;
  // The last of the rows, and some columns.
  g.output(slice(y, {{0, 63, 16}, {4, 64, 48}, {}}), "y");
  CHECK(kernels(g).size() == 2);
  CHECK(moved_bytes(g) == 2 * (4 * 128 + 128 + 4 * 128) + 2 * (4 * 128 + 128 * 32 + 32 + 4 * 32));
}

TEST_CASE("a result that is mostly shown, or read by others, is computed once") {
  for (const bool read : {false, true}) {
    Graph g{{.io = bf16}};
    auto x = g.tensor({.name = "x", .dim = {64, 128}}),
         w = g.tensor({.name = "w", .dim = {128, 96}});
    const Tensor y = matmul(x, w);
    if (read) g.output(reduction(y, ReductionMode::add, {1, 96}), "sums");
    g.output(slice(y, {{0, 0}, {read ? 4 : 40, 96}, {}}), "y");
    CHECK(operations(kernels(g)[0]) == 2.0 * 64 * 96 * 128);
  }
}

TEST_CASE("a slice that rounds is a slice and a conversion") {
  Graph g{{.io = f32, .intermediate = bf16}};
  auto x = g.tensor({.name = "x", .dim = {8, 32}});
  g.output(half(x, 1) + half(x, 0), "y");
  CHECK(kernels(g).size() == 1);
}

TEST_CASE("operands follow a view where they broadcast as a whole") {
  const View split{OpKind::reshape, ReshapeAttributes{{2, 3, 4, 5}}, {2, 12, 5}, {2, 3, 4, 5}};
  CHECK(operand_view(split, {12, 1})->to == Dims({1, 3, 4, 1}));
  CHECK(operand_view(split, {1, 1, 1})->to == Dims({1, 1, 1, 1}));
  CHECK_FALSE(operand_view(split, {5})->view);
  const View join = inverse(split);
  CHECK(operand_view(join, {2, 3, 4, 1})->to == Dims({2, 12, 1}));
  CHECK_FALSE(operand_view(join, {2, 3, 1, 1}));  // a group's value for each of its channels
  const View turn{OpKind::transpose, TransposeAttributes{{1, 0}}, {4, 6}, {6, 4}};
  CHECK(operand_view(turn, {6})->dim == Dims({1, 6}));
  CHECK(operand_view(turn, {6})->view->to == Dims({6, 1}));
  const View part{OpKind::slice, SliceAttributes{{1, 0}, {3, 6}, {}}, {4, 6}, {2, 6}};
  CHECK_FALSE(operand_view(part, {1, 6})->view);
  CHECK(operand_view(part, {4, 1})->view->to == Dims({2, 1}));
}

TEST_CASE("random graphs stay valid when data movement is moved", "[fuzz]") {
  int joined = 0;
  for (int seed = 0; seed < 500; ++seed) {
    INFO("seed " << seed);
    test::RandomGraphOptions o;
    o.seed = static_cast<std::uint64_t>(seed);
    o.max_nodes = seed % 5 == 0 ? 40 : 12;
    const auto graph = test::random_graph(o);
    REQUIRE(graph->check().empty());
    const Lowered moved = rewritten(lower(*graph), device_model());
    CHECK(moved.graph->diagnostics().empty());
    CHECK(moved.origin.size() == moved.graph->nodes().size());
    const Storage storage(*moved.graph);
    for (NodeId n = 0; n < static_cast<NodeId>(moved.graph->nodes().size()); ++n)
      joined += storage.parts(n).size() > 1 ? 1 : 0;
  }
  CHECK(joined > 10);
}

TEST_CASE("a gated unit over both halves of one product is a pair of products") {
  for (bool biased : {false, true}) {
    Graph g{{.io = bf16}};
    auto x = g.tensor({.name = "x", .dim = {64, 32}}),
         w = g.tensor({.name = "w", .dim = {32, 128}}),
         b = g.tensor({.name = "b", .dim = {1, 128}});
    const Tensor c = biased ? matmul(x, w) + b : matmul(x, w);
    g.output(swish(half(c, 0)) * half(c, 1), "y");
    const auto k = kernels(g);
    REQUIRE(k.size() == 1);
    CHECK(k[0].contraction().paired());
  }
  // Groups of rows, each with a weight that holds both.
  {
    Graph g{{.io = bf16}};
    const auto tokens = g.tensor({.name = "tokens", .dim = {1, 70, 64}}),
               w = g.tensor({.name = "w", .dim = {4, 64, 192}}),
               ends = g.tensor({.name = "ends", .dim = {5}, .data_type = i32});
    const Tensor c = moe_grouped_matmul(tokens, w, ends);
    g.output(swish(half(c, 0)) * half(c, 1), "y");
    const auto k = kernels(g);
    REQUIRE(k.size() == 1);
    CHECK(k[0].contraction().paired());
  }
  // Heads that never meet stay parts of one product.
  Graph g{{.io = bf16}};
  auto x = g.tensor({.name = "x", .dim = {64, 32}}), w = g.tensor({.name = "w", .dim = {32, 128}});
  const Tensor c = matmul(x, w);
  g.output(relu(half(c, 0)), "k");
  g.output(relu(half(c, 1)), "v");
  const auto k = kernels(g);
  CHECK(std::count_if(k.begin(), k.end(),
                      [](const auto& s) { return family_of(s) == Family::contraction; }) == 1);
}

TEST_CASE("gradients of a groupnorm sum up each channel once") {
  Graph g{{.io = bf16}};
  auto x = g.tensor({.name = "x", .dim = {4, 32, 16, 16}}),
       dy = g.tensor({.name = "dy", .dim = {4, 32, 16, 16}}),
       s = g.tensor({.name = "s", .dim = {1, 32, 1, 1}}),
       mean = g.tensor({.name = "mean", .dim = {4, 8, 1, 1}, .data_type = f32}),
       inv = g.tensor({.name = "inv", .dim = {4, 8, 1, 1}, .data_type = f32});
  const auto r = groupnorm_backward(dy, x, s, mean, inv, 8);
  g.output(r.dx, "dx");
  g.output(r.dscale, "dscale");
  g.output(r.dbias, "dbias");
  const auto bytes = 2 * count(Dims{4, 32, 16, 16});
  CHECK(moved_bytes(g) < 6 * bytes);  // both read twice, the result written
}

TEST_CASE(
    "a norm and its gradients in one graph hand on statistics, not what each computes of them") {
  Graph g{{.io = bf16}};
  const Dims dim{4, 32, 16, 16};
  auto x = g.tensor({.name = "x", .dim = dim}), dy = g.tensor({.name = "dy", .dim = dim}),
       s = g.tensor({.name = "s", .dim = {1, 32, 1, 1}});
  const auto n = groupnorm(x, s, s, 1e-5, {.forward_phase = ForwardPhase::training, .groups = 8});
  const auto r = groupnorm_backward(dy, x, s, n.mean, n.inv_variance, 8);
  g.output(n.y, "y");
  g.output(r.dx, "dx");
  g.output(r.dscale, "dscale");
  const auto bytes = 2 * count(dim);
  CHECK(moved_bytes(g) < 8 * bytes);  // x three times, dy twice, two results
}

TEST_CASE("a norm that is quantised by blocks reads its rows once") {
  for (const bool centred : {false, true}) {
    Graph g{{.io = bf16}};
    const auto x = g.tensor({.name = "x", .dim = {64, 512}}),
               w = g.tensor({.name = "w", .dim = {1, 512}});
    const Tensor y = centred ? layernorm(x, w, Tensor{}, 1e-5).y : rmsnorm(x, w, Tensor{}, 1e-5).y;
    const auto q = block_scale_quantize(y, {.block_size = 128}, f8e4m3, f32);
    g.output(q.y, "q");
    g.output(q.scale, "scale");
    CHECK(kernels(g).size() == 1);
    CHECK(moved_bytes(g) < (2 + 1) * 64 * 512 + 4096);
  }
  // Who reads whole rows besides has them in memory.
  Graph g{{.io = bf16}};
  const Tensor y = rmsnorm(g.tensor({.name = "x", .dim = {64, 512}}),
                           g.tensor({.name = "w", .dim = {1, 512}}), Tensor{}, 1e-5)
                       .y;
  const auto q = block_scale_quantize(y, {.block_size = 128}, f8e4m3, f32);
  g.output(q.y, "q");
  g.output(q.scale, "scale");
  g.output(y, "y");
  CHECK(moved_bytes(g) < (2 + 2 + 2 + 1) * 64 * 512 + 4096);
}

TEST_CASE("what takes no longer to read anew than it would as stored is computed by each kernel") {
  Graph g{{.io = bf16}};
  const Dims dim{2, 40, 9, 9}, last{81 * 40, 1, 9 * 40, 40};
  const auto x = g.tensor({.name = "x", .dim = dim, .stride = last}),
             dy = g.tensor({.name = "dy", .dim = dim, .stride = last}),
             s = g.tensor({.name = "s", .dim = {1, 40, 1, 1}}),
             mean = g.tensor({.name = "mean", .dim = {2, 4, 1, 1}, .data_type = f32}),
             inv = g.tensor({.name = "inv", .dim = {2, 4, 1, 1}, .data_type = f32});
  const auto r = groupnorm_backward(swish_backward(dy, x), x, s, mean, inv, 4);
  g.output(r.dx, "dx", {.stride = last});
  g.output(r.dscale, "dscale");
  // dy and x twice, dx; sums of channels.
  CHECK(moved_bytes(g) < 5 * 2 * count(dim) + 16384);
}

TEST_CASE("a norm and the rotary embedding of its result are one kernel") {
  Graph g{{.io = bf16}};
  auto x = g.tensor({.name = "x", .dim = {2, 8, 3, 32}}),
       w = g.tensor({.name = "w", .dim = {1, 1, 1, 32}}),
       c = g.tensor({.name = "c", .dim = {1, 8, 1, 16}}),
       s = g.tensor({.name = "s", .dim = {1, 8, 1, 16}});
  const Tensor y = rmsnorm(x, w, Tensor{}, 1e-5).y, a = half(y, 0), b = half(y, 1);
  g.output(transpose(concatenate({a * c - b * s, b * c + a * s}, -1), {0, 2, 1, 3}), "y");
  const auto k = kernels(g);
  REQUIRE(k.size() == 1);
  CHECK(family_of(k[0]) == Family::rowwise);
}

TEST_CASE("interleaved pairs are read and written together") {
  Graph g{{.io = bf16}};
  auto x = g.tensor({.name = "x", .dim = {4, 6, 32}}),
       c = g.tensor({.name = "c", .dim = {4, 1, 16, 1}}),
       s = g.tensor({.name = "s", .dim = {4, 1, 16, 1}});
  const Tensor pairs = reshape(x, {4, 6, 16, 2});
  const Tensor a = half(pairs, 0), b = half(pairs, 1);
  g.output(reshape(concatenate({a * c - b * s, b * c + a * s}, -1), {4, 6, 32}), "y");
  const auto k = kernels(g);
  REQUIRE(k.size() == 1);
  CHECK(k[0].ports.size() == 4);
  CHECK(std::count_if(k[0].ports.begin(), k[0].ports.end(),
                      [](const auto& p) { return p.together == 2; }) == 2);
  CHECK(moved_bytes(g) == 2 * (2 * 4 * 6 * 32 + 2 * 4 * 16));
}

TEST_CASE("two slices of the same part are not both halves") {
  Graph g{{.io = bf16}};
  auto x = g.tensor({.name = "x", .dim = {8, 32}});
  const Tensor squares = reduction(x * x, ReductionMode::add, {8, 1});
  const auto middle = [&] { return slice(x, {{0, 8}, {8, 24}, {}}); };
  g.output(middle() * middle() * squares, "y");
  const auto k = kernels(g);
  CHECK(std::any_of(k.begin(), k.end(), [](const KernelSpec& s) {
    return s.as_rowwise() &&
           std::any_of(s.rowwise().reductions.begin(), s.rowwise().reductions.end(),
                       [](const auto& r) { return r.length == 32; });
  }));
}

TEST_CASE("halves of an empty product stay slices") {
  Graph g{{.io = bf16}};
  auto x = g.tensor({.name = "x", .dim = {0, 4}}), w = g.tensor({.name = "w", .dim = {4, 8}}),
       b = g.tensor({.name = "b", .dim = {8}}), c = g.tensor({.name = "c", .dim = {1, 8}});
  const Tensor y = matmul(x, w) + b + c;
  g.output(reduction(half(y, 0) * half(y, 1), ReductionMode::add, {1, 4}), "z");
  CHECK(Plan::make(g, {}));
  for (const auto& p : Plan::make(g, {})->tensors()) CHECK_FALSE(p.name.empty());
  const Lowered moved = rewritten(lower(g), device_model());
  CHECK(std::count_if(moved.graph->nodes().begin(), moved.graph->nodes().end(),
                      [](const auto& n) { return n.op == OpKind::matmul; }) == 1);
}
