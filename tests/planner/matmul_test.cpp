// What planning makes of matmuls: sums along one row, operands that are written first where the
// TMA can load them, and measured configurations.
#include <algorithm>
#include <fstream>

#include "compile/make_plan.hpp"
#include "plan/access.hpp"
#include "planner/explain/explain.hpp"
#include "planner/kernel_work.hpp"
#include "planner/planned.hpp"
#include "planner/traffic.hpp"
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

// x[..., m, k] times the product of an i8 matrix and its scales.
Shared<Graph> quantised_graph(Dims x_dim, Dims scale_dim, std::int64_t n) {
  auto g = Shared<Graph>::make(GraphOptions{.io = bf16});
  const std::int64_t k = x_dim.back();
  const auto x = g->tensor({.name = "x", .dim = x_dim}),
             w = g->tensor({.name = "w", .dim = {1, k, n}, .data_type = i8}),
             scale = g->tensor({.name = "scale", .dim = scale_dim, .data_type = f32});
  g->output(matmul(x, w * scale), "y");
  return g;
}

const std::vector kAlone{Family::contraction}, kOneFirst{Family::pointwise, Family::contraction},
    kBothFirst{Family::pointwise, Family::pointwise, Family::contraction};

DataType written_type(const KernelSpec& spec) {
  return std::find_if(spec.ports.begin(), spec.ports.end(),
                      [](const KernelPort& p) { return p.written; })
      ->type;
}

}  // namespace

TEST_CASE("a product with one row is a sum along each row of the weights") {
  for (const auto& [m, n] : {std::pair<std::int64_t, std::int64_t>{1, 40}, {40, 1}}) {
    const auto g = matmul_graph(m, n, 96);
    const auto p = partition(*lower(*g).graph, true);
    CHECK(families(p) == std::vector{Family::rowwise});
    CHECK(p.kernels[0].rowwise().outer_rank == 1);
    check_values(*g);
  }
}

TEST_CASE("operands with odd rows are copied for the accelerator where that is faster") {
  const auto g = matmul_graph(300, 704, 1111);
  const auto p = for_sm_90a(*g);
  REQUIRE(families(p) == kBothFirst);
  CHECK(p.workspace.size() == 2);
  CHECK(plan_wgmma(p.kernels[2], device_model("sm_90a"), {}));
  CHECK(families(partition(*lower(*g).graph, true)) == kAlone);
  // Also where threads could shift the lines of the other one.
  CHECK(families(for_sm_90a(*matmul_graph(300, 5000, 1111))) == kBothFirst);
  CHECK(families(for_sm_90a(*matmul_graph(8, 8, 75))) == kAlone);
  // Rows of multiples of 8 bytes, of which the portable engine copies more than it multiplies.
  CHECK(families(for_sm_90a(*matmul_graph(2000, 2048, 500))) == kBothFirst);
  CHECK(families(for_sm_90a(*matmul_graph(64, 2000, 500))) == kAlone);
  check_values(*matmul_graph(65, 40, 1111));
}

TEST_CASE("a computed operand is written first where the faster engine makes up for it") {
  const auto wide = quantised_graph({1, 1024, 2048}, {1, 1, 2048}, 2048);
  const auto p = for_sm_90a(*wide);
  REQUIRE(families(p) == kOneFirst);
  CHECK(written_type(p.kernels[0]) == bf16);
  CHECK(plan_wgmma(p.kernels[1], device_model("sm_90a"), {}));
  CHECK(p.kernels[0].nodes.size() == 1);
  CHECK(p.kernels[1].nodes.size() == 1);
  CHECK(p.kernels[1].ports.size() == 4);
  CHECK(families(partition(*lower(*wide).graph, true)) == kAlone);
  // Few rows: then the weights are read once, and fewer bytes of them are better.
  const auto decode = for_sm_90a(*quantised_graph({1, 16, 4096}, {1, 1, 16384}, 16384));
  CHECK(family_of(decode.kernels[0]) == Family::contraction);

  const auto scale_a_row = quantised_graph({1, 65, 2222}, {1, 2222, 1}, 33);
  CHECK(families(for_sm_90a(*scale_a_row)) == kBothFirst);  // x has odd rows
  check_values(*scale_a_row);
}

TEST_CASE("an operand that all batches share is written once") {
  const auto g = quantised_graph({3, 65, 2224}, {1, 1, 40}, 40);
  const auto p = for_sm_90a(*g);
  REQUIRE(families(p) == kOneFirst);
  REQUIRE(p.temporaries.size() == 1);
  CHECK(p.temporaries.begin()->second == 2224 * 40 * 2);
  check_values(*g);
}

TEST_CASE("long sums with few results are cut in parts, which a second kernel adds up") {
  const std::vector kInParts{Family::contraction, Family::rowwise};
  const auto g = matmul_graph(24, 40, 16384);
  for (const char* architecture : {"sm_90a", ""}) {
    const auto p = partition(*lower(*g).graph, true, architecture);
    REQUIRE(families(p) == kInParts);
    CHECK(p.kernels[0].contraction().batch == 1);
    CHECK(p.kernels[1].scalars.empty());
    CHECK(p.kernels[1].ports.size() == 3);  // sums, bias, y
  }
  check_values(*g);
  CHECK(families(for_sm_90a(*matmul_graph(24, 40, 512))) == kAlone);
  CHECK(families(for_sm_90a(*matmul_graph(4096, 4096, 16384))) == kAlone);

  // Indices of several axes: image and position of a gradient of filters.
  auto w = Shared<Graph>::make(GraphOptions{.io = bf16});
  const auto dy = w->tensor({.name = "dy", .dim = {16, 8, 20, 20}, .stride = {3200, 1, 160, 8}}),
             x = w->tensor({.name = "x", .dim = {16, 3, 20, 20}});
  const ConvAttributes same{.pre_padding = Dims{1, 1}, .post_padding = Dims{1, 1}};
  w->output(conv_wgrad(dy, x, {8, 3, 3, 3}, same), "dw");
  CHECK(families(for_sm_90a(*w)) == kInParts);
  check_values(*w);
}

TEST_CASE("products of 8-bit integers are summed in 32 bits, as many as these hold") {
  for (const auto& [type, depth, fits] : {std::tuple{i8, std::int64_t{131056}, true},
                                          {i8, std::int64_t{131072}, false},
                                          {u8, std::int64_t{33024}, true},
                                          {u8, std::int64_t{33040}, false}}) {
    auto g = Shared<Graph>::make(GraphOptions{.io = type, .intermediate = i32, .compute = i32});
    const auto x = g->tensor({.name = "x", .dim = {4096, depth}}),
               w = g->tensor({.name = "w", .dim = {depth, 4096}, .stride = {1, depth}});
    g->output(matmul(x, w), "y", {.data_type = i32});
    const auto p = for_sm_90a(*g);
    CHECK(p.kernels.size() == (fits ? 1 : 2));  // else in parts that fit
    const auto plan = plan_wgmma(p.kernels[0], device_model("sm_90a"), {});
    REQUIRE(plan);
    CHECK(plan->engine.integers);
  }
}

TEST_CASE("few rows stream the weights: they start apart, and the narrowest leave room") {
  const auto engine = [](std::int64_t m, std::int64_t n, std::int64_t k) {
    const auto plan =
        plan_wgmma(for_sm_90a(*matmul_graph(m, n, k)).kernels[0], device_model("sm_90a"), {});
    REQUIRE(plan);
    return plan->engine;
  };
  const WgmmaConfig eight = engine(8, 8192, 8192);
  CHECK(eight.least_blocks == 2);
  CHECK(2 * (eight.shared_bytes + 1024) <= 228 << 10);
  CHECK(128 * (eight.producer_registers + eight.consumer_registers) <= 65536 / 2);
  CHECK(engine(8, 4096, 4096).least_blocks == 1);  // misses the stages
  CHECK(engine(64, 8192, 8192).rotate > 0);
  const WgmmaConfig split = engine(64, 2048, 7168);
  CHECK(split.tile.split > 1);
  CHECK(split.rotate == 0);
  // Tiles as wide as one round of them needs; no more rows are brought than there are.
  const WgmmaConfig fitted = engine(16, 5120, 5120);
  CHECK(fitted.tile.n == 40);
  CHECK(fitted.loaded_rows == 16);
  CHECK(engine(4096, 4096, 4096).rotate == 0);
}

TEST_CASE("totals of the result are part of the kernel and finished by small ones") {
  for (const bool convolution : {false, true}) {
    auto g = Shared<Graph>::make(GraphOptions{.io = bf16});
    const auto total = [&](const Tensor& t, ReductionMode mode, Dims dim, const char* name) {
      g->output(reduction(t, mode, dim), name, {.data_type = f32});
    };
    if (convolution) {
      const auto x = g->tensor({.name = "x", .dim = {2, 16, 7, 9}, .stride = {1008, 1, 144, 16}}),
                 w = g->tensor({.name = "w", .dim = {40, 16, 3, 3}});
      const auto y = conv_fprop(x, w, {.pre_padding = Dims{1, 1}, .post_padding = Dims{1, 1}});
      g->output(y, "y");
      total(y, ReductionMode::add, {1, 40, 1, 1}, "sum");
      total(y * y, ReductionMode::avg, {1, 40, 1, 1}, "squares");
    } else {
      const auto x = g->tensor({.name = "x", .dim = {2, 40, 24}}),
                 w = g->tensor({.name = "w", .dim = {1, 24, 72}});
      const auto y = relu(matmul(x, w));
      g->output(y, "y");
      total(y, ReductionMode::add, {1, 1, 72}, "bias_gradient");
      total(y, ReductionMode::norm2, {2, 1, 72}, "norm_of_columns");
      total(y, ReductionMode::max, {2, 40, 1}, "largest_of_rows");
      total(y, ReductionMode::amax, {1, 1, 1}, "amax");
    }
    const auto p = for_sm_90a(*g);
    CHECK(family_of(p.kernels[0]) == Family::contraction);
    CHECK(p.kernels[0].cross_row_reductions.size() == (convolution ? 2 : 4));
    for (std::size_t i = 1; i < p.kernels.size(); ++i) {
      CHECK(family_of(p.kernels[i]) == Family::rowwise);
      CHECK(compulsory_bytes(*lower(*g).graph, p.kernels[i]) < 10000);
    }
    check_values(*g);
  }
}

TEST_CASE("the largest of each image's points is part of the kernel of a 1 x 1 convolution") {
  for (const bool last : {true, false}) {
    auto g = Shared<Graph>::make(GraphOptions{.io = bf16});
    const Dims strides = last ? Dims{16 * 300, 1, 16 * 300, 16} : Dims{};
    const auto x = g->tensor({.name = "x", .dim = {3, 16, 1, 300}, .stride = strides}),
               w = g->tensor({.name = "w", .dim = {40, 16, 1, 1}});
    const auto y = relu(conv_fprop(x, w, ConvAttributes{}));
    g->output(reduction(y, ReductionMode::max, {3, 40, 1, 1}), "points", {.data_type = f32});
    const auto p = for_sm_90a(*g);
    CHECK(p.kernels[0].cross_row_reductions.size() == 1);
    CHECK(p.kernels.size() == 2);
    check_values(*g);
  }
}

TEST_CASE("totals of a matmul whose operands are written first") {
  for (const bool quantised : {false, true}) {
    auto g = Shared<Graph>::make(GraphOptions{.io = bf16});
    const auto x = g->tensor({.name = "x", .dim = {65, 1111}});
    Tensor w = g->tensor({.name = "w", .dim = {1111, 40}, .data_type = quantised ? i8 : bf16});
    if (quantised) w = w * g->tensor({.name = "scale", .dim = {1, 40}, .data_type = f32});
    const auto y = relu(matmul(x, w));
    g->output(reduction(y, ReductionMode::max, {65, 1}), "largest", {.data_type = f32});
    g->output(reduction(y, ReductionMode::add, {1, 40}), "sum", {.data_type = f32});
    g->output(y, "y");
    const auto p = for_sm_90a(*g);
    CHECK(family_of(p.kernels[0]) == Family::pointwise);
    std::size_t totals = 0;
    for (const auto& k : p.kernels) totals += k.cross_row_reductions.size();
    CHECK(totals == 2);
    check_values(*g);
  }
}

TEST_CASE("totals that would keep a product from a faster kernel are kernels of their own") {
  auto g = Shared<Graph>::make(GraphOptions{.io = bf16});
  const auto x = g->tensor({.name = "x", .dim = {64, 65536}}),
             w = g->tensor({.name = "w", .dim = {65536, 96}, .stride = {1, 65536}});
  const auto y = matmul(x, w);
  g->output(reduction(y, ReductionMode::amax, {1, 1}), "amax", {.data_type = f32});
  g->output(y, "y");
  const auto p = for_sm_90a(*g);
  CHECK(p.kernels.size() >= 3);  // parts, their sums, amax
  CHECK(p.kernels[0].cross_row_reductions.empty());
  CHECK(p.kernels[0].contraction().batch == 1);
}

TEST_CASE("f32 operands stay as they are where they are not multiplied in 16 bits") {
  for (const DataType other : {f64, f32, bf16}) {
    auto g = Shared<Graph>::make(GraphOptions{.io = f16});
    const auto x = g->tensor({.name = "x", .dim = {64, 32}}),
               w = g->tensor({.name = "w", .dim = {32, 48}, .data_type = other});
    const auto e = exp(x);
    g->output(matmul(e, w), "y");
    g->output(matmul(e, g->tensor({.name = "v", .dim = {32, 24}, .data_type = other})), "z");
    const auto p = for_sm_90a(*g);
    CHECK(written_type(p.kernels[0]) == f32);
  }
}

TEST_CASE("totals of no results are planned without work") {
  auto g = Shared<Graph>::make(GraphOptions{.io = bf16});
  const auto x = g->tensor({.name = "x", .dim = {0, 4, 8}}),
             w = g->tensor({.name = "w", .dim = {1, 8, 16}});
  g->output(reduction(matmul(x, w), ReductionMode::add, {0, 1, 16}), "y");
  REQUIRE(g->check().empty());
  CHECK(for_sm_90a(*g).kernels.empty());
}

TEST_CASE("a reduction joins no matmul where a rowwise kernel needs its operand again") {
  auto g = Shared<Graph>::make(GraphOptions{.io = bf16});
  const auto x = g->tensor({.name = "x", .dim = {64, 64}}),
             w = g->tensor({.name = "w", .dim = {64, 96}});
  const auto y = matmul(x, w);
  g->output(y / reduction(abs(y), ReductionMode::max, {64, 1}), "y");
  const auto p = for_sm_90a(*g);
  CHECK(families(p) == std::vector{Family::contraction, Family::rowwise});
  CHECK(p.kernels[0].cross_row_reductions.empty());
}

TEST_CASE("a gated pair of matmuls that share their left operand is one kernel on sm_90a") {
  const auto graph = [](std::int64_t rows, std::int64_t columns, bool stored) {
    auto g = Shared<Graph>::make(GraphOptions{.io = bf16});
    const auto x = g->tensor({.name = "x", .dim = {2, rows, 24}}),
               gate = g->tensor({.name = "gate", .dim = {1, 24, columns}}),
               up = g->tensor({.name = "up", .dim = {1, 24, columns}}),
               bias = g->tensor({.name = "bias", .dim = {1, 1, columns}});
    const auto h = matmul(x, up) + bias;
    if (stored) g->output(h, "h");
    g->output(swish(matmul(x, gate)) * h, "y");
    return g;
  };
  for (const bool stored : {false, true}) {
    const auto g = graph(72, 40, stored);
    const auto p = for_sm_90a(*g);
    REQUIRE(families(p) == kAlone);
    CHECK(p.kernels[0].contraction().paired());
    CHECK(operations(p.kernels[0]) == 4.0 * 2 * 72 * 40 * 24);
    check_values(*g);
  }
  CHECK(partition(*lower(*graph(72, 40, false)).graph, true).kernels.size() == 2);
  REQUIRE(families(for_sm_90a(*graph(8, 40, false))) == kAlone);
  check_values(*graph(8, 40, false));
  // Odd columns do not come by the accelerator.
  CHECK(for_sm_90a(*graph(72, 39, false)).kernels.size() >= 2);
}

// Its quotients are worth less than the pair, and ready only when it is.
TEST_CASE("what follows a gated pair row by row is one kernel") {
  const auto g = Shared<Graph>::make(GraphOptions{.io = bf16});
  const auto x = g->tensor({.name = "x", .dim = {4096, 1024}}),
             gate = g->tensor({.name = "gate", .dim = {1024, 4096}, .stride = {1, 1024}}),
             up = g->tensor({.name = "up", .dim = {1024, 4096}, .stride = {1, 1024}});
  const auto y = swish(matmul(x, gate)) * matmul(x, up);
  const auto largest = reduction(y, ReductionMode::amax, {4096, 1});
  g->output(largest, "largest", {.data_type = f32});
  g->output(y / (largest / 448.0), "quantised", {.data_type = f8e4m3});
  const Partition p = for_sm_90a(*g);
  CHECK(families(p) == std::vector{Family::contraction, Family::rowwise});
  CHECK(p.kernels[0].contraction().paired());
}

// x + gelu(norm(x) w1 + b1) w2 + b2, with every tensor between them in f32.
TEST_CASE("a product does not take what ends the kernel before it as its prologue") {
  for (const bool layer : {true, false}) {
    const auto g = Shared<Graph>::make(GraphOptions{.io = bf16});
    const std::int64_t rows = 8192, width = 1024, inner = 4096;
    const auto weights = [&](const char* name, std::int64_t from, std::int64_t to) {
      return g->tensor({.name = name, .dim = {from, to}, .stride = {1, from}});
    };
    const auto row = [&](const char* name, std::int64_t n) {
      return g->tensor({.name = name, .dim = {1, n}});
    };
    const auto x = g->tensor({.name = "x", .dim = {rows, width}}), scale = row("scale", width);
    const Tensor normed = layer ? layernorm(x, scale, row("shift", width), 1e-5).y
                                : rmsnorm(x, scale, Tensor{}, 1e-5).y;
    const auto up = gelu(matmul(normed, weights("w1", width, inner)) + row("b1", inner));
    g->output(x + (matmul(up, weights("w2", inner, width)) + row("b2", width)), "y");
    CHECK(families(for_sm_90a(*g)) ==
          std::vector{Family::rowwise, Family::contraction, Family::contraction});
  }
}

TEST_CASE("a gated pair reads a norm that is virtual") {
  const auto g = Shared<Graph>::make(GraphOptions{.io = bf16});
  const auto x = g->tensor({.name = "x", .dim = {4096, 1024}}),
             scale = g->tensor({.name = "scale", .dim = {1, 1024}}),
             gate = g->tensor({.name = "gate", .dim = {1024, 4096}, .stride = {1, 1024}}),
             up = g->tensor({.name = "up", .dim = {1024, 4096}, .stride = {1, 1024}});
  const Tensor normed = rmsnorm(x, scale, Tensor{}, 1e-5).y;
  g->output(swish(matmul(normed, gate)) * matmul(normed, up), "y");
  const Partition p = for_sm_90a(*g);
  REQUIRE(families(p) == std::vector{Family::rowwise, Family::contraction});
  CHECK(p.kernels[1].contraction().paired());
  CHECK(written_type(p.kernels[0]) == bf16);
}

TEST_CASE("on CUDA cores few rows are summed one by one") {
  for (const std::int64_t batch : {8, 16}) {
    auto g = Shared<Graph>::make(GraphOptions{.io = f32});
    g->output(matmul(g->tensor({.name = "a", .dim = {batch, 1, 64}}),
                     g->tensor({.name = "b", .dim = {1, 64, 96}})),
              "y");
    const auto p = for_sm_90a(*g);
    REQUIRE(p.kernels.size() == 1);
    CHECK(family_of(p.kernels[0]) == (batch == 8 ? Family::rowwise : Family::contraction));
    check_values(*g);
  }
}

TEST_CASE("both operands can be written first") {
  auto g = Shared<Graph>::make(GraphOptions{.io = bf16});
  const auto dy = g->tensor({.name = "dy", .dim = {2, 65, 1111}}),
             h = g->tensor({.name = "h", .dim = {2, 65, 1111}}),
             w = g->tensor({.name = "w", .dim = {2, 1111, 33}, .data_type = f8e4m3}),
             scale = g->tensor({.name = "scale", .dim = {2, 1, 33}, .data_type = f32}),
             mask = g->tensor({.name = "mask", .dim = {1, 1111, 33}, .data_type = boolean});
  g->output(matmul(gelu_tanh_backward(dy, h), w * scale * mask), "dx");
  const auto p = for_sm_90a(*g);
  REQUIRE(families(p) == kBothFirst);
  CHECK(plan_wgmma(p.kernels[2], device_model("sm_90a"), {}));
  check_values(*g);

  const auto plan = make_plan(*g, {.architecture = "sm_90a"}, {}, nullptr);
  REQUIRE(plan);
  const std::string text = explain_text(plan->data());
  CHECK(text.find("it is written to memory first, where sm_90a's fastest engine reads it") !=
        std::string::npos);
}

TEST_CASE("operands of different types are converted to one that holds both") {
  struct Case {
    DataType x, w, written;
    std::vector<Family> families;
  };
  for (const auto& c : {Case{bf16, i8, bf16, kOneFirst}, Case{f16, f8e5m2, f16, kOneFirst},
                        Case{f16, bf16, f32, kBothFirst}, Case{bf16, bf16, bf16, kAlone},
                        Case{f8e4m3, f8e5m2, f8e5m2, kAlone}}) {
    auto g = Shared<Graph>::make(GraphOptions{.io = bf16});
    const auto x = g->tensor({.name = "x", .dim = {65, 2224}, .data_type = c.x}),
               w = g->tensor(
                   {.name = "w", .dim = {2224, 40}, .stride = {1, 2224}, .data_type = c.w});
    g->output(matmul(x, w), "y");
    const auto p = for_sm_90a(*g);
    INFO(sinter::name(c.x) << " times " << sinter::name(c.w));
    REQUIRE(families(p) == c.families);
    if (p.kernels.size() > 1) CHECK(written_type(p.kernels[0]) == c.written);
    CHECK(plan_wgmma(p.kernels.back(), device_model("sm_90a"), {}));
    check_values(*g);
  }
}

TEST_CASE("operands that lie apart, or across what the engine multiplies, are copied") {
  for (const bool tf32_across : {false, true}) {
    auto g = Shared<Graph>::make(
        GraphOptions{.io = tf32_across ? f32 : bf16, .compute = tf32_across ? tf32 : f32});
    // Every second element of a row; tf32 along n.
    const auto x = g->tensor({.name = "x",
                              .dim = {65, 2224},
                              .stride = tf32_across ? Dims{2224, 1} : Dims{4448, 2}}),
               w = g->tensor({.name = "w",
                              .dim = {2224, 40},
                              .stride = tf32_across ? Dims{40, 1} : Dims{1, 2224}});
    g->output(matmul(x, w), "y");
    const auto p = for_sm_90a(*g);
    REQUIRE(families(p) == kOneFirst);
    CHECK(plan_wgmma(p.kernels[1], device_model("sm_90a"), {}));
    check_values(*g);
  }
}

TEST_CASE("threads read tf32 that lies across k; of large products it is copied") {
  for (const bool large : {false, true}) {
    auto g = Shared<Graph>::make(GraphOptions{.io = f32, .compute = tf32});
    const auto x = g->tensor({.name = "x", .dim = {large ? 7000 : 197, 1152}}),
               w = g->tensor({.name = "w", .dim = {1152, 5120}});
    g->output(matmul(x, w), "y");
    const auto p = for_sm_90a(*g);
    CHECK(families(p) == (large ? kOneFirst : kAlone));
    const auto plan = plan_wgmma(p.kernels.back(), device_model("sm_90a"), {});
    REQUIRE(plan);
    CHECK(plan->engine.a.k_fastest == large);  // columns that are contiguous are on the left
  }
}

TEST_CASE(
    "threads shift lines that begin at no multiples of 16 bytes; of large products they are "
    "copied") {
  for (const bool large : {false, true}) {
    auto g = Shared<Graph>::make(GraphOptions{.io = bf16});
    const std::int64_t batches = large ? 1 : 192, m = large ? 2000 : 128, n = large ? 1999 : 77,
                       k = large ? 2000 : 32;
    const auto x = g->tensor({.name = "x", .dim = {batches, m, k}}),
               w = g->tensor({.name = "w", .dim = {batches, k, n}});
    g->output(matmul(x, w), "y");
    const auto p = for_sm_90a(*g);
    CHECK(families(p) == (large ? kOneFirst : kAlone));
    const auto plan = plan_wgmma(p.kernels.back(), device_model("sm_90a"), {});
    REQUIRE(plan);
    using Source = BoxedOperand::Source;
    CHECK(plan->engine.b.source == (large ? Source::boxes : Source::shifted));
    CHECK(plan->engine.a.source == Source::boxes);
  }
}

TEST_CASE("three consumers have four stages where an operand lies across k") {
  auto g = Shared<Graph>::make(GraphOptions{.io = f16});
  const auto x = g->tensor({.name = "x", .dim = {7000, 6000}, .stride = {1, 7000}}),
             w = g->tensor({.name = "w", .dim = {6000, 1000}});
  g->output(swish(matmul(x, w)), "y");
  const auto plan = plan_wgmma(for_sm_90a(*g).kernels.front(), device_model("sm_90a"), {});
  REQUIRE(plan);
  CHECK((plan->engine.tile.consumers < 3 || plan->engine.tile.stages >= 4));
}

TEST_CASE("a virtual operand in memory is stored in the type that it is multiplied in") {
  for (const bool also_added : {false, true}) {
    auto g = Shared<Graph>::make(GraphOptions{.io = bf16});
    const auto x = g->tensor({.name = "x", .dim = {65, 64}}),
               scale = g->tensor({.name = "scale", .dim = {1, 64}}),
               w = g->tensor({.name = "w", .dim = {64, 64}, .stride = {1, 64}});
    const auto y = rmsnorm(x, scale, Tensor{}, 1e-5).y;
    // Whoever else reads the result gets it as it is.
    g->output(also_added ? matmul(y, w) + y : matmul(y, w), "z");
    const auto p = for_sm_90a(*g);
    REQUIRE(p.kernels.size() == 2);
    CHECK(written_type(p.kernels[0]) == (also_added ? f32 : bf16));
    CHECK(plan_wgmma(p.kernels[1], device_model("sm_90a"), {}).has_value() == !also_added);
    check_values(*g);
  }
}
