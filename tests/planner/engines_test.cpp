// Which engine runs a contraction, and that what was measured changes tiles but no kernels.
#include <fmt/format.h>

#include <algorithm>

#include "compile/make_plan.hpp"
#include "planner/explain/explain.hpp"
#include "planner/images.hpp"
#include "planner/planned.hpp"
#include "schedule/contraction/simt.hpp"
#include "sinter/compile.hpp"
#include "sinter/operations.hpp"
#include "support/scheduled.hpp"

using namespace sinter;
using namespace sinter::test;

namespace {

Shared<Graph> convolution(std::int64_t images, std::int64_t channels, std::int64_t size,
                          std::int64_t filters, std::int64_t stride) {
  auto g = Shared<Graph>::make(GraphOptions{.io = bf16});
  const std::int64_t line = size * channels, image = size * line, to = (size + stride - 1) / stride;
  const auto x = g->tensor({.name = "x",
                            .dim = {images, channels, size, size},
                            .stride = {image, 1, line, channels}}),
             w = g->tensor({.name = "w",
                            .dim = {filters, channels, 1, 1},
                            .stride = {channels, 1, channels, channels}});
  g->output(conv_fprop(x, w, {.stride = {stride, stride}}), "y",
            {.stride = {to * to * filters, 1, to * filters, filters}});
  return g;
}

Shared<Graph> product(std::int64_t m, std::int64_t n, std::int64_t k, DataType io = bf16) {
  auto g = Shared<Graph>::make(GraphOptions{.io = io});
  const auto x = g->tensor({.name = "x", .dim = {m, k}}),
             w = g->tensor({.name = "w", .dim = {k, n}, .stride = {1, k}});
  g->output(relu(matmul(x, w)), "y");
  return g;
}

std::int64_t config(const PlanKernel& k, std::string_view key) {
  for (const auto& [name, value] : k.config)
    if (name == key) return value;
  FAIL("no " << key << " in the config of " << k.entry);
  return 0;
}

// All but the tile: what the kernels of a plan are.
std::vector<std::string> kernels_of(const PlanData& p) {
  std::vector<std::string> kernels;
  for (const auto& k : p.kernels) {
    std::string text{name(k.family)};
    for (const auto& n : k.nodes) text += " " + n;
    kernels.push_back(text + " " + std::to_string(k.bytes) + " " + std::to_string(k.flops));
  }
  for (const auto& c : p.cuts) kernels.push_back(c.node + ": " + c.reason);
  kernels.push_back(std::to_string(p.workspace_bytes));
  return kernels;
}

}  // namespace

// A strided 1 x 1 convolution is a matmul of pixels that lie in steps, or a convolution whose
// window is one pixel: the latter's tiles are full.
TEST_CASE("the cheaper of two plans for wgmma runs a strided convolution") {
  for (const auto& [images, channels, size, filters] :
       {std::tuple{256, 256, 56, 512}, {32, 256, 56, 512}, {32, 512, 28, 1024}}) {
    CAPTURE(images, channels, size, filters);
    const auto strided = for_sm_90a(*convolution(images, channels, size, filters, 2));
    REQUIRE(strided.kernels.size() == 1);
    const ScheduledKernel chosen = scheduled(strided.kernels[0], "sm_90a");
    REQUIRE(chosen.wgmma());
    CHECK(chosen.wgmma()->window);
    const auto other = plan_mma(strided.kernels[0], device_model("sm_90a"));
    REQUIRE(other);
    CHECK(chosen.microseconds < other->engine.microseconds);
    const auto whole = for_sm_90a(*convolution(images, channels, size, filters, 1));
    const ScheduledKernel matmul = scheduled(whole.kernels[0], "sm_90a");
    REQUIRE(matmul.wgmma());
    CHECK(!matmul.wgmma()->window);
  }
}

TEST_CASE("half the SMs take twice the time of a product on CUDA cores") {
  const auto g = product(4096, 4096, 1024, DataType::f32);
  REQUIRE(g->check().empty());
  const Lowered l = lower(*g);
  const KernelSpec spec = partition(*l.graph, true, "", l.regions).kernels.back();
  REQUIRE(spec.as_contraction());
  const DeviceModel whole = device_model("sm_90a");
  DeviceModel half = whole;
  half.sms /= 2;
  const double us = schedule_simt(spec, whole).microseconds;
  CHECK(schedule_simt(spec, half).microseconds > 1.9 * us);
  CHECK(schedule_simt(spec, half).microseconds < 2.1 * us);
}

TEST_CASE("tensor cores multiply large f32 factors as bf16 parts") {
  const auto large = for_sm_90a(*product(1024, 1024, 1000, f32));
  REQUIRE(families(large) ==
          std::vector{Family::pointwise, Family::pointwise, Family::contraction});
  const ScheduledKernel parts = scheduled(large.kernels[2], "sm_90a");
  REQUIRE(parts.wgmma());
  CHECK(parts.wgmma()->promote_accumulators);
  CHECK(large.kernels[2].extent.back() == 6 * 1000);
  // Few products, k that ends within 16 bytes of an operand along it, and other GPUs.
  CHECK(for_sm_90a(*product(64, 64, 64, f32)).kernels.size() == 1);
  CHECK(for_sm_90a(*product(1024, 1024, 1001, f32)).kernels[2].extent.back() == 6 * 1008);
  CHECK(for_target(*product(1024, 1024, 1000, f32), "sm_80").kernels.size() == 1);
}

// In graphs of 8-bit types, where no operand may be rounded to 16 bits.
TEST_CASE("what is computed from 8-bit numbers is multiplied on tensor cores") {
  const auto of = [](DataType type, bool scaled) {
    const auto g = Shared<Graph>::make(GraphOptions{.io = type});
    const auto a = g->tensor({.name = "a", .dim = {1024, 1024}}),
               s = g->tensor({.name = "s", .dim = {1, 1024}, .data_type = f32}),
               b = g->tensor({.name = "b", .dim = {1024, 1024}, .stride = {1, 1024}});
    g->output(matmul(scaled ? a * s : relu(a), b), "y", {.data_type = f32});
    return for_sm_90a(*g);
  };
  // A relu's values are 8-bit numbers: of floats, both are converted, of integers one is written.
  const auto floats = of(f8e4m3, false), integers = of(i8, false);
  REQUIRE(floats.kernels.size() == 3);
  const ScheduledKernel of_floats = scheduled(floats.kernels[2], "sm_90a");
  REQUIRE(of_floats.wgmma());
  CHECK(of_floats.wgmma()->operand_bytes == 2);
  REQUIRE(integers.kernels.size() == 2);
  const ScheduledKernel of_integers = scheduled(integers.kernels[1], "sm_90a");
  REQUIRE(of_integers.wgmma());
  CHECK(of_integers.wgmma()->integers);
  // Scales along k leave numbers of f32, in three parts that meet the 8-bit factor's one.
  for (const DataType type : {f8e4m3, i8}) {
    const auto p = of(type, true);
    REQUIRE(p.kernels.size() == 4);
    CHECK(p.kernels[3].extent.back() == 3 * 1024);
    const ScheduledKernel parts = scheduled(p.kernels[3], "sm_90a");
    REQUIRE(parts.wgmma());
    CHECK(parts.wgmma()->promote_accumulators);
  }
}

// Tiles have as many columns as there are, but not as many rows.
TEST_CASE("the short side of a product lies along the columns of tiles") {
  struct Case {
    std::int64_t m, n, k;
    bool columns;
  };
  for (const auto& [m, n, k, columns] : {Case{200, 4096, 4096, true},
                                         {144, 4096, 4096, true},
                                         {256, 4096, 4096, false},
                                         {320, 13824, 5120, true},
                                         {384, 13824, 5120, false}}) {
    CAPTURE(m);
    const auto p = for_sm_90a(*product(m, n, k));
    REQUIRE(p.kernels.size() == 1);
    const ScheduledKernel chosen = scheduled(p.kernels[0], "sm_90a");
    REQUIRE(chosen.wgmma());
    CHECK(chosen.wgmma()->n_fastest != columns);
  }
}

TEST_CASE("what was measured changes tiles, and no kernels") {
  struct Case {
    Shared<Graph> graph;
    bool split;  // its k
  };
  for (const Case& c : {Case{product(8, 104, 16384), true},
                        {product(64, 256, 100352), true},
                        {product(512, 512, 512), false},
                        {product(64, 8192, 8192), false}}) {
    CAPTURE((*c.graph).options().name, (*c.graph).tensors()[0].dim[0], c.split);
    std::vector<KernelChoice> choices;
    const auto usual = make_plan(*c.graph, {.architecture = "sm_90a"}, {}, &choices);
    REQUIRE(usual);
    REQUIRE(usual->data().kernels.size() == (c.split ? 2 : 1));
    REQUIRE(choices.size() == 1);
    const auto& tiles = choices[0].configurations;
    REQUIRE(tiles.size() > 4);
    // The slowest by estimate would be the first to change what planning compares.
    for (std::size_t i : {std::size_t{0}, std::size_t{1}, tiles.size() / 2, tiles.size() - 1}) {
      CAPTURE(tiles[i]);
      const Tuning tuning{{{choices[0].problem, tiles[i]}}};
      std::vector<KernelChoice> again;
      const auto plan = make_plan(*c.graph, {.architecture = "sm_90a"}, tuning, &again);
      REQUIRE(plan);
      CHECK(kernels_of(plan->data()) == kernels_of(usual->data()));
      REQUIRE(again.size() == 1);
      CHECK(again[0].problem == choices[0].problem);
      const PlanKernel& k = plan->data().kernels[0];
      // Plan, source and explanation agree.
      CHECK(config(k, "tuned") == 1);
      CHECK(fmt::format("{}x{}", config(k, "tile_m"), config(k, "tile_n")) ==
            tiles[i].substr(0, tiles[i].find(' ')));
      CHECK(config(k, "stages") == std::stoi(tiles[i].substr(tiles[i].find("stages ") + 7)));
      for (const char* name : {"tile_m", "tile_n", "stages", "split"})
        CHECK(k.source.find(fmt::format("int {} = {};", name, config(k, name))) !=
              std::string::npos);
      const std::string text = explain_text(plan->data());
      CHECK(text.find("measured to be the fastest of ") != std::string::npos);
      CHECK((text.find("its sums are cut in ") != std::string::npos) == c.split);
    }
  }
}

TEST_CASE("an explanation says what a plan's config lacks") {
  for (const auto& g : {product(512, 512, 512), product(8, 104, 16384)})
    for (const std::string target : {"", "sm_90a", "sm_80", "sm_120a"}) {
      const auto plan = make_plan(*g, {.architecture = target}, {}, nullptr);
      REQUIRE(plan);
      CHECK(explain_text(plan->data()).find("unknown, as") == std::string::npos);
      PlanData without = plan->data();
      std::erase_if(without.kernels[0].config, [](const auto& c) { return c.first == "stages"; });
      CHECK(explain_text(without).find("unknown, as the plan's config has no 'stages'") !=
            std::string::npos);
    }
}

// Channels that end within a move of 16 bytes, with scale, bias and relu. On an H200, as they lie
// and copied: 58 18.5 and 17.7 us, 116 of smaller images 10.0 and 13.0.
TEST_CASE("results that leave in pairs cost the portable engine instructions") {
  const auto of = [](const Dims& x) {
    Images i;
    const Dims of_channel{1, x[1], 1, 1};
    const Tensor y = conv_fprop(i.input("x", x), i.input("w", {x[1], x[1], 1, 1}), padded(0));
    i.output(relu(y * i.input("scale", of_channel) + i.input("bias", of_channel)), "y", x);
    return engines(*i.g);
  };
  CHECK(of({128, 58, 28, 28}) == Engines{"pointwise", "pointwise", "wgmma"});
  CHECK(of({128, 116, 14, 14}) == Engines{"mma"});
}

TEST_CASE("f64 is multiplied on tensor cores, two blocks of an SM where operands are as stored") {
  const auto spec_of = [](DataType type, bool prologue) {
    Graph g{{.io = type, .intermediate = type, .compute = type}};
    const Tensor x = g.tensor({.name = "x", .dim = {256, 64}}),
                 w = g.tensor({.name = "w", .dim = {64, 256}});
    g.output(matmul(prologue ? relu(x) : x, w), "y");
    const Partition p = for_sm_90a(g);
    REQUIRE(p.kernels.size() == 1);
    return p.kernels[0];
  };
  const auto check = [](const KernelSpec& spec, bool tensor_cores, int blocks) {
    for (const char* const target : {"", "sm_90a"}) {
      const SimtConfig s = schedule_simt(spec, device_model(target));
      CHECK(s.tensor_cores == tensor_cores);
      CHECK(s.least_blocks == blocks);
      const ScheduledKernel k = scheduled(spec, target);
      if (spec.contraction().accumulate == f64) {
        REQUIRE(k.simt());
        CHECK(k.simt()->tensor_cores == tensor_cores);
      }
    }
  };
  KernelSpec plain = spec_of(f64, false);
  check(plain, true, 2);
  check(spec_of(f64, true), true, 1);
  check(spec_of(f32, false), false, 1);
  // Tensor cores would multiply the zero by infinities.
  for (const ZeroOf zero : {ZeroOf::a, ZeroOf::b}) {
    plain.contraction().zero_dominates = zero;
    check(plain, false, 1);
  }
}
