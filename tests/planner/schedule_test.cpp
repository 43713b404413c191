// How the kernels of whole graphs are laid out.
#include "lower/lower.hpp"
#include "planner/moved.hpp"
#include "planner/planner.hpp"
#include "schedule/scheduled_kernel.hpp"
#include "sinter/compile.hpp"
#include "sinter/operations.hpp"
#include "support/catch.hpp"
#include "support/norm_gradients.hpp"
#include "support/scheduled.hpp"

using namespace sinter;
using sinter::test::kernels;

// Beyond, neighbours would write halves of sectors of memory in turn.
TEST_CASE("threads write at most 16 bytes of a tensor at once") {
  struct Case {
    Dims dim;
    int axis;
    DataType in, out;
    bool stats;
    int width;
  };
  const Case cases[] = {{{16384, 4096}, -1, bf16, bf16, false, 8},
                        {{16384, 4096}, -1, bf16, f32, false, 4},
                        {{16384, 4096}, -1, bf16, bf16, true, 8},  // one a row: by one thread
                        {{4096, 12289}, -1, bf16, bf16, false, 8},
                        {{4096, 12289}, -1, bf16, f32, false, 4},
                        {{16384, 4096}, -1, f8e4m3, bf16, false, 8},
                        {{16384, 4096}, -1, f32, bf16, false, 8},  // what is read may be wider
                        {{64, 512, 1024}, 1, bf16, bf16, false, 8},
                        {{64, 512, 1024}, 1, bf16, f32, false, 4},
                        {{64, 512, 1024}, 1, bf16, bf16, true, 8}};
  for (const std::string architecture : {"", "sm_90a"})
    for (const auto& [dim, axis, in, out, stats, width] : cases) {
      Graph g{{.io = bf16, .intermediate = f32}};
      const auto r = softmax(g.tensor({.name = "x", .dim = dim, .data_type = in}),
                             {.axis = axis, .stats = stats});
      g.output(r.y, "y", {.data_type = out});
      if (stats) g.output(r.stats, "stats", {.data_type = f32});
      CAPTURE(dim[0], axis, name(in), name(out), stats, architecture);
      const auto found = kernels(g, architecture);
      REQUIRE(found.size() == 1);
      CHECK(scheduled(found[0], architecture).packing()->width == width);
    }
}

TEST_CASE("resampling is estimated with what it reads") {
  Graph g{{.io = bf16}};
  const auto x = g.tensor({.name = "x", .dim = {32, 64, 224, 224}});
  g.output(resample(x, {.mode = ResampleMode::maxpool, .window = {2, 2}, .stride = {2, 2}}).y, "y");
  const auto found = kernels(g, "sm_90a");
  REQUIRE(found.size() == 1);
  const double bytes = 2.0 * 32 * 64 * (224 * 224 + 112 * 112);
  CHECK(scheduled(found[0], "sm_90a").microseconds >
        bytes / device_model("sm_90a").memory_bandwidth);
}

TEST_CASE("gradients of long rows write at most 16 bytes of a tensor at once") {
  for (const auto& [columns, out, width] :
       {std::tuple{4096, bf16, 8}, {4096, f32, 4}, {1152, f32, 8}}) {
    Graph g{{.io = bf16, .intermediate = f32}};
    const auto d = test::norm_gradients(g, OpKind::rmsnorm_backward, 8192, columns);
    g.output(d.dx, "dx", {.data_type = out});
    g.output(d.dscale, "dscale", {.data_type = f32});
    const auto found = kernels(g, "sm_90a");
    REQUIRE(found.size() == 2);
    CHECK(scheduled(found[0], "sm_90a").packing()->width == width);
  }
}

// What three phases need of an element is computed once.
TEST_CASE("threads of a softmax hold no more values than registers do") {
  for (DataType in : {f8e4m3, bf16, f32}) {
    Graph g{{.io = bf16, .intermediate = f32}};
    const auto x = g.tensor({.name = "x", .dim = {16384, 4096}, .data_type = in});
    g.output(softmax(x).y, "y");
    const auto found = kernels(g, "sm_90a");
    REQUIRE(found.size() == 1);
    const RowwiseConfig s = schedule_rowwise(found[0], device_model("sm_90a"));
    CAPTURE(name(in));
    CHECK(s.threads_per_row == 128);
    CHECK(!s.recompute);
  }
}

// A softmax computes its exponentials for the sum and for the results.
TEST_CASE("costly values stay in registers for a later phase, cheap ones do not") {
  for (const auto& [columns, kept] : {std::pair{768, 1}, {100, 1}, {262144, 0}}) {
    Graph g{{.io = bf16, .intermediate = f32}};
    g.output(softmax(g.tensor({.name = "x", .dim = {16384, columns}})).y, "y");
    const auto found = kernels(g, "sm_90a");
    REQUIRE(found.size() == 1);
    CAPTURE(columns);
    const std::string text = emitted(found[0], "sm_90a").source;
    CHECK(scheduled(found[0], "sm_90a").rowwise()->kept.size() == static_cast<std::size_t>(kept));
    CHECK((text.find("= fragment.kept.") != std::string::npos) == (kept > 0));
  }
  Graph g{{.io = bf16, .intermediate = f32}};
  const auto x = g.tensor({.name = "x", .dim = {16384, 768}});
  g.output(layernorm(x, g.tensor({.name = "s", .dim = {1, 768}}),
                     g.tensor({.name = "b", .dim = {1, 768}}), 1e-5)
               .y,
           "y");
  const auto found = kernels(g, "sm_90a");
  REQUIRE(found.size() == 1);
  CHECK(scheduled(found[0], "sm_90a").rowwise()->kept.empty());
}

TEST_CASE("what many rows share is not asked for early") {
  Graph g{{.io = bf16}};
  const auto x = g.tensor({.name = "x", .dim = {64, 64, 28, 28}}),
             s = g.tensor({.name = "s", .dim = {1, 64, 1, 1}}),
             b = g.tensor({.name = "b", .dim = {1, 64, 1, 1}});
  g.output(groupnorm(x, s, b, 1e-5, {.groups = 32}).y, "y");
  const auto found = kernels(g, "sm_90a");
  REQUIRE(found.size() == 1);
  const ScheduledKernel k = scheduled(found[0], "sm_90a");
  REQUIRE(k.rowwise()->early > 0);
  std::vector<std::string> early;
  for (std::size_t i = 0; i < found[0].ports.size(); ++i)
    if (k.packing()->ports[i].early) early.push_back(found[0].ports[i].name);
  CHECK(early.size() == 1);
  const std::string text = emitted(found[0], "sm_90a").source;
  std::size_t asked = 0;
  for (std::size_t at = 0; (at = text.find("sinter::prefetch<", at)) != std::string::npos; ++at)
    ++asked;
  CHECK(asked == 1);
}

TEST_CASE("short rows that lie together have few threads each, which store neighbours at once") {
  for (const auto& [columns, along] : {std::pair{3, 1}, {8, 1}, {16, 2}, {64, 8}}) {
    Graph g{{.io = bf16, .intermediate = f32}};
    const auto x = g.tensor({.name = "x", .dim = {1 << 18, columns, 16}});
    g.output(reduction(x, ReductionMode::add, {1 << 18, 1, 16}), "y", {.data_type = f32});
    const auto found = kernels(g, "sm_90a");
    REQUIRE(found.size() == 1);
    CAPTURE(columns);
    CHECK(scheduled(found[0], "sm_90a").rowwise()->threads_per_row == along);
    CHECK(emitted(found[0], "sm_90a").source.find("sinter::store_rows<") != std::string::npos);
  }
}

TEST_CASE("parts of keys are joined by few threads a row, unless SMs are idle then") {
  struct Parts {
    std::int64_t b, h, keys;
    int count, along;
  };
  for (const auto& [b, h, keys, count, along] :
       {Parts{16, 64, 65536, 8, 1}, {4, 64, 16384, 16, 2}, {1, 64, 16384, 66, 16}}) {
    Graph g{{.io = bf16, .intermediate = f32}};
    const auto q = g.tensor({.name = "q", .dim = {b, h, 1, 128}}),
               k = g.tensor({.name = "k", .dim = {b, 1, keys, 128}}),
               v = g.tensor({.name = "v", .dim = {b, 1, keys, 128}});
    g.output(sdpa(q, k, v, {.attn_scale = 0.1}).o, "o");
    const auto found = kernels(g, "sm_90a");
    REQUIRE(found.size() == 2);
    CAPTURE(b, h);
    CHECK(found[1].extent.back() == count);
    const ScheduledKernel join = scheduled(found[1], "sm_90a");
    CHECK(join.rowwise()->threads_per_row == along);
    CHECK(join.rowwise()->prefetch);
  }
}

TEST_CASE("short narrow rows of costly elements share a warp") {
  for (const auto& [columns, threads] : {std::pair{100, 8}, {128, 16}, {512, 32}}) {
    Graph g{{.io = bf16, .intermediate = f32}};
    g.output(softmax(g.tensor({.name = "x", .dim = {100000, columns}})).y, "y");
    const auto found = kernels(g, "sm_90a");
    REQUIRE(found.size() == 1);
    CAPTURE(columns);
    CHECK(scheduled(found[0], "sm_90a").rowwise()->threads_per_row == threads);
  }
}

// Each computes the row's scale, or keeps the row's exponentials.
TEST_CASE("short rows that lie together have few threads along them") {
  const auto along = [](Graph& g) {
    const auto found = kernels(g);
    REQUIRE(found.size() == 1);
    return schedule_rowwise(found[0], device_model("sm_90a")).threads_per_row;
  };
  for (const auto& [block, threads] : {std::pair{16, 2}, {32, 4}}) {
    Graph g{{.io = bf16, .intermediate = f32}};
    const auto q = block_scale_quantize(g.tensor({.name = "x", .dim = {16384, 4096}}),
                                        {.block_size = block, .axis = 0}, f8e4m3, f8e8m0);
    g.output(q.y, "y");
    g.output(q.scale, "scale");
    CAPTURE(block);
    CHECK(along(g) == threads);
  }
  for (const auto& [columns, threads] : {std::pair{8, 2}, {12, 4}, {64, 8}}) {
    Graph g{{.io = bf16, .intermediate = f32}};
    g.output(softmax(g.tensor({.name = "x", .dim = {1000, columns, 8192}}), {.axis = 1}).y, "y");
    CAPTURE(columns);
    CHECK(along(g) == threads);
  }
}

// Packs that are as wide need no ends that reach out of their row.
TEST_CASE("rows that start where memory is aligned are not cut") {
  for (const auto& [columns, misaligned] : {std::pair{24576, false}, {24577, true}}) {
    Graph g{{.io = bf16, .intermediate = f32}};
    const auto r = softmax(g.tensor({.name = "x", .dim = {4096, columns}}), {.axis = -1});
    g.output(r.y, "y", {.data_type = f64});
    const auto found = kernels(g, "sm_90a");
    CAPTURE(columns);
    REQUIRE(found.size() == 1);
    const RowwiseConfig s = schedule_rowwise(found[0], device_model("sm_90a"));
    CHECK(s.packing.width == 2);
    CHECK((s.aligned_by >= 0) == misaligned);
  }
}

// They leave SMs to the kernel after, and wait for memory but once.
TEST_CASE("partial results of columns are finished by few large blocks") {
  struct Case {
    std::int64_t rows, columns;
    unsigned blocks;
  };
  for (const auto& [rows, columns, blocks] :
       {Case{4096, 5120, 40}, {64, 4096, 32}, {4096, 128, 1}}) {
    Graph g{{.io = bf16, .intermediate = f32}};
    const auto d = test::norm_gradients(g, OpKind::layernorm_backward, rows, columns);
    g.output(d.dx, "dx");
    g.output(d.dscale, "dscale");
    g.output(d.dbias, "dbias");
    const auto found = kernels(g, "sm_90a");
    CAPTURE(rows, columns);
    REQUIRE(found.size() == 2);
    CHECK(found[1].rowwise().combines_partials);
    const RowwiseConfig s = schedule_rowwise(found[1], device_model("sm_90a"));
    CHECK(s.threads == 512);
    CHECK(s.resident);
    CHECK(s.grid == blocks);
  }
}

namespace {

// relu(x * scale + residual), the scale being one a channel.
void scale(Graph& g, const Dims& dim, bool transposed = false) {
  const Dims across{dim[1] * dim[2] * dim[3], 1, dim[3] * dim[1], dim[1]};
  const auto x = g.tensor({.name = "x", .dim = dim}),
             r = transposed ? g.tensor({.name = "r", .dim = dim, .stride = across})
                            : g.tensor({.name = "r", .dim = dim}),
             s = g.tensor({.name = "s", .dim = {1, dim[1], 1, 1}, .data_type = f32});
  g.output(relu(x * s + r), "y");
}

}  // namespace

TEST_CASE("short odd rows that follow each other are one row") {
  struct Case {
    Dims dim;
    bool joined;
  };
  for (const auto& [dim, joined] : {Case{{256, 2048, 7, 7}, true},
                                    {{128, 333, 13, 13}, true},
                                    {{64, 512, 8, 7}, false},      // whole packs
                                    {{16, 64, 31, 31}, false}}) {  // cut where memory is aligned
    Graph g{{.io = bf16, .intermediate = f32}};
    scale(g, dim);
    const auto found = kernels(g, "sm_90a");
    CAPTURE(dim[1], dim[3]);
    REQUIRE(found.size() == 1);
    CHECK((found[0].extent.size() == 1) == joined);
    if (joined) CHECK(scheduled(found[0], "sm_90a").packing()->width == 8);
  }
  Graph g{{.io = bf16, .intermediate = f32}};
  scale(g, {256, 2048, 7, 7}, true);
  const auto apart = kernels(g, "sm_90a");
  REQUIRE(apart.size() == 1);
  CHECK(apart[0].extent.size() > 1);  // the residual's channels lie last
}

TEST_CASE("sums that end a norm's gradients are one kernel") {
  const auto count_of_kernels = [](const Dims& dim) {
    Graph g{{.io = bf16}};
    const Dims of_image{dim[0], dim[1], 1, 1}, of_channel{1, dim[1], 1, 1};
    const auto x = g.tensor({.name = "x", .dim = dim}), dy = g.tensor({.name = "dy", .dim = dim}),
               s = g.tensor({.name = "s", .dim = of_channel, .data_type = f32}),
               mean = g.tensor({.name = "mean", .dim = of_image, .data_type = f32}),
               inv = g.tensor({.name = "inv", .dim = of_image, .data_type = f32});
    const auto r = instancenorm_backward(dy, x, s, mean, inv);
    g.output(r.dx, "dx");
    g.output(r.dscale, "dscale");
    g.output(r.dbias, "dbias");
    return kernels(g, "sm_90a").size();
  };
  CHECK(count_of_kernels({8, 128, 64, 64}) == 2);
}

TEST_CASE("small reductions of the same domain are one kernel") {
  const auto count_of_kernels = [](std::int64_t rows) {
    Graph g{{.io = f32}};
    const auto a = g.tensor({.name = "a", .dim = {rows, 64}}),
               b = g.tensor({.name = "b", .dim = {rows, 64}});
    g.output(reduction(a, ReductionMode::add, {1, 64}), "first");
    g.output(reduction(b * 2.0, ReductionMode::add, {1, 64}), "other");
    return kernels(g, "sm_90a").size();
  };
  CHECK(count_of_kernels(256) == 1);
  CHECK(count_of_kernels(1 << 15) > 1);  // memory takes longer than a launch
}

TEST_CASE("rows that lie together keep costly values in as few threads as hold them") {
  for (const auto& [images, columns, along] : {std::tuple{16, 33, 4},
                                               {16, 64, 8},
                                               {16, 100, 16},
                                               {16, 150, 16},
                                               {16, 300, 32},
                                               {1, 150, 0}}) {
    Graph g{{.io = bf16, .intermediate = f32}};
    const auto x = g.tensor({.name = "x", .dim = {images, columns, 4096}});
    g.output(softmax(x, {.axis = 1}), "y");
    const auto found = kernels(g);
    REQUIRE(found.size() == 1);
    const ScheduledKernel k = scheduled(found[0], "sm_90a");
    const RowwiseConfig& s = *k.rowwise();
    CAPTURE(columns);
    CHECK((along > 0) == (s.packing.width == 4));
    if (along == 0) continue;  // rows enough for every SM have packs of four
    CHECK(s.threads_per_row == along);
    CHECK(s.rows_per_block * s.packing.width * 2 >= 128);  // bytes: whole lines
    CHECK_FALSE(s.kept.empty());
  }
}

// Of two softmaxes, in registers of 256 threads of each block.
TEST_CASE("a cluster's blocks keep the costly values of several tensors") {
  for (const auto& [columns, blocks] : {std::pair{32000, 8}, {16384, 4}, {4096, 1}}) {
    Graph g{{.io = bf16, .intermediate = f32}};
    const auto x = g.tensor({.name = "x", .dim = {4096, columns}}),
               y = g.tensor({.name = "y", .dim = {4096, columns}});
    g.output(softmax(x).y - softmax(y).y, "z");
    const auto found = kernels(g);
    REQUIRE(found.size() == 1);
    const ScheduledKernel k = scheduled(found[0], "sm_90a");
    CAPTURE(columns);
    CHECK(k.rowwise()->blocks_per_row == blocks);
    CHECK(k.rowwise()->kept.size() == (blocks > 1 ? 2u : 0u));
  }
}

TEST_CASE("statistics of few rows in many parts are combined by many blocks") {
  for (const auto& [images, channels, blocks] :
       {std::tuple{64, 64, 8u}, {64, 256, 8u}, {32, 512, 16u}}) {
    Graph g{{.io = bf16, .intermediate = f32}};
    const std::int64_t side = channels == 512 ? 28 : 56;
    const Dims dim{images, channels, side, side},
        last{channels * side * side, 1, side * channels, channels};
    const auto x = g.tensor({.name = "x", .dim = dim, .stride = last});
    const auto number = [&](const char* name) {
      return g.tensor({.name = name, .dim = {1, channels, 1, 1}, .data_type = f32});
    };
    g.output(batchnorm(x, number("s"), number("b"), 1e-5).y, "y", {.stride = last});
    const auto found = kernels(g);
    CAPTURE(channels);
    REQUIRE(found.size() == 3);
    CHECK(scheduled(found[1], "sm_90a").rowwise()->grid == blocks);
  }
}

// Each store of wider packs would reach all lines that the threads of a warp write.
TEST_CASE("short results that begin anywhere are written as they are aligned") {
  Graph g{{.io = bf16, .intermediate = f32}};
  const auto a = g.tensor({.name = "a", .dim = {4096, 96}}),
             b = g.tensor({.name = "b", .dim = {4096, 32}}),
             c = g.tensor({.name = "c", .dim = {4096, 5}});
  const auto width = [](const KernelSpec& k) { return scheduled(k, "sm_90a").packing()->width; };
  g.output(concatenate({relu(a), relu(b), relu(c)}, 1), "y");
  for (const KernelSpec& k : kernels(g)) CHECK(width(k) == 1);
  Graph even{{.io = bf16, .intermediate = f32}};
  const auto d = even.tensor({.name = "d", .dim = {4096, 96}}),
             e = even.tensor({.name = "e", .dim = {4096, 32}});
  even.output(concatenate({relu(d), relu(e)}, 1), "y");
  for (const KernelSpec& k : kernels(even)) CHECK(width(k) == 8);
}
