// Two products in one kernel (codegen/device/family/contraction_chained.cuh): the text that a
// generator is to write compiles for sm_90a without a complaint, gives exact results in the
// emulator, and wrong ones where a wait is left out.
#include <fmt/format.h>

#include <cmath>

#include "emulator/emulator.hpp"
#include "emulator/hand_written.hpp"
#include "runtime/compiler.hpp"
#include "support/can_compile.hpp"

namespace sinter::test {
namespace {

// y[m, n] = sum over p of relu(sum over k of a[m, k] b[p, k] + bias[p]) c[n, p]
struct Chained {
  int m = 64, n = 128, p = 128, k = 128;
  bool half = false;            // f16 in place of bf16
  bool a_k = true, b_k = true;  // k is fastest
  bool c_p = false;             // p is
  int consumers = 1;
};

int up(int x) { return (x + 63) / 64 * 64; }

// Bytes of ChainedShape::shared_bytes.
std::uint32_t shared_bytes(const Chained& c) {
  const int stages = c.consumers > 1 || c.p > 128 || c.n > 128 ? 2 : 4;
  return static_cast<std::uint32_t>(stages * (64 * c.consumers + up(c.p)) * 128 +
                                    2 * up(c.n) * 128 + c.consumers * 4 * 4096 + 16 * stages + 32 +
                                    1023);
}

std::string text_of(const Chained& c) {
  std::vector<Change> changes;
  const auto both = [](int x, int y, int z) { return fmt::format("Dims<{}, {}, {}>", x, y, z); };
  changes.push_back({"using Extent = sinter::Dims<64, 128, 128>;\n  using Accumulator",
                     "using Extent = sinter::" + both(c.m, c.n, c.p) + ";\n  using Accumulator"});
  changes.push_back({"using Extent = sinter::Dims<64, 128, 128>;\n  static",
                     "using Extent = sinter::" + both(c.m, c.p, c.k) + ";\n  static"});
  changes.push_back(
      {"Stride = sinter::Dims<128, 1, 0>", fmt::format("Stride = sinter::Dims<{}, 1, 0>", c.n)});
  changes.push_back({"SINTER_WGMMA(128, f32)\n", fmt::format("SINTER_WGMMA({}, f32)\n", up(c.n))});
  if (up(c.p) != up(c.n))
    changes.push_back(
        {"#include \"sinter/ops/pointwise.hpp\"\n",
         fmt::format("#include \"sinter/ops/pointwise.hpp\"\nSINTER_WGMMA({}, f32)\n", up(c.p))});
  changes.push_back({"threads = 256", fmt::format("threads = {}", 128 * (1 + c.consumers))});
  changes.push_back({"tile_m = 64", fmt::format("tile_m = {}", 64 * c.consumers)});
  if (c.consumers > 1 || c.p > 128 || c.n > 128) changes.push_back({"stages = 4", "stages = 2"});
  changes.push_back({"shared_bytes = 0", fmt::format("shared_bytes = {}", shared_bytes(c))});
  if (c.half) changes.push_back({"sinter::bf16", "sinter::f16"});
  // The text has k fastest of A and B, and n of C.
  const auto turn = [&](const char* map, const char* was, const char* is) {
    changes.push_back({fmt::format("args.{}, to, barrier, blocks, {})", map, was),
                       fmt::format("args.{}, to, barrier, blocks, {})", map, is)});
  };
  if (!c.a_k) turn("map_a", "k, row", "row, k");
  if (!c.b_k) turn("map_b", "k, row", "row, k");
  if (c.c_p) turn("map_c", "row, k", "k, row");
  std::string text = changed(device_text("chained"), changes);
  const auto fastest = [&](const char* of, bool k_fastest) {
    const std::size_t at = text.find("k_fastest = ", text.find(of)), end = text.find(';', at);
    text.replace(at, end - at, k_fastest ? "k_fastest = true" : "k_fastest = false");
  };
  fastest("struct OperandA", c.a_k);
  fastest("struct OperandB", c.b_k);
  fastest("struct OperandC", c.c_p);
  return text;
}

// Empty, or what is wrong.
std::string run(const Chained& c, const Edit& edit = {}) {
  const Numbers a = small_integers(c.m * c.k, 1, c.half), b = small_integers(c.p * c.k, 2, c.half),
                cc = small_integers(c.n * c.p, 3, c.half), bias = small_integers(c.p, 4, c.half);
  std::vector<std::uint16_t> y(static_cast<std::size_t>(c.m * c.n), 0x7fff);
  // a[m, k] and the like: rows and k as they lie.
  const auto map = [&](const Numbers& of, int rows, int k, bool k_fastest, int box_rows) {
    return k_fastest ? box_map(of.bits.data(), {k, rows}, {1, k}, {64, box_rows})
                     : box_map(of.bits.data(), {rows, k}, {1, rows}, {64, 64});
  };
  ArgumentImage arguments;
  arguments.add(map(a, c.m, c.k, c.a_k, 64 * c.consumers));
  arguments.add(map(b, c.p, c.k, c.b_k, up(c.p)));
  arguments.add(map(cc, c.n, c.p, c.c_p, up(c.n)));
  arguments.add(bias.bits.data());
  arguments.add(y.data());
  PlanKernel kernel;
  kernel.source = text_of(c);
  kernel.entry = "sinter_chained";
  kernel.grid = 4;  // each of the four ways to run a cluster
  kernel.block = static_cast<std::uint32_t>(128 * (1 + c.consumers));
  kernel.shared_bytes = shared_bytes(c);
  if (auto ran = emulate_kernel(kernel, arguments.bytes(), edit); !ran)
    return ran.error().message();
  const auto at = [](const Numbers& of, int row, int k, int rows, int depth, bool k_fastest) {
    return of.values[static_cast<std::size_t>(k_fastest ? row * depth + k : k * rows + row)];
  };
  const int digits = c.half ? 11 : 8;
  for (int m = 0; m < c.m; ++m) {
    std::vector<double> middle;
    for (int p = 0; p < c.p; ++p) {
      double sum = bias.values[static_cast<std::size_t>(p)];
      for (int k = 0; k < c.k; ++k)
        sum += at(a, m, k, c.m, c.k, c.a_k) * at(b, p, k, c.p, c.k, c.b_k);
      middle.push_back(rounded(std::fmax(sum, 0), digits));
    }
    for (int n = 0; n < c.n; ++n) {
      double sum = 0;
      for (int p = 0; p < c.p; ++p)
        sum += middle[static_cast<std::size_t>(p)] * at(cc, n, p, c.n, c.p, c.c_p);
      const std::uint16_t want = encoded(rounded(sum, digits), c.half),
                          got = y[static_cast<std::size_t>(m * c.n + n)];
      if (got != want)
        return fmt::format("y[{}, {}] has bits {:04x}, not {:04x} ({})", m, n, got, want, sum);
    }
  }
  return "";
}

std::string compiler_log(const Chained& c) {
  std::string log;
  const auto code = compile_uncached({text_of(c), "sinter_chained", "sm_90a"}, &log);
  return code ? log : code.error().message();
}

const Chained kCases[] = {
    {},
    {.half = true},
    {.m = 200, .n = 72, .p = 96, .k = 264, .consumers = 2},
    {.m = 130, .n = 128, .p = 192, .k = 64},
    {.m = 64, .n = 256, .p = 64, .k = 200, .c_p = true},
    {.m = 136, .n = 64, .p = 128, .k = 128, .a_k = false, .b_k = false},
};

TEST_CASE("chained products: exact results") {
  for (const Chained& c : kCases) {
    INFO(c.m << " x " << c.n << " x " << c.p << " x " << c.k);
    CHECK(run(c) == "");
  }
}

TEST_CASE("chained products compile for sm_90a without a complaint", "[nvrtc]") {
  if (!test::can_compile()) return;
  for (const Chained& c : kCases) {
    INFO(c.m << " x " << c.n << " x " << c.p << " x " << c.k);
    const std::string log = compiler_log(c);
    CAPTURE(log);
    CHECK(log.find("serialized") == std::string::npos);
    CHECK(log.find("setmaxnreg ignored") == std::string::npos);
    CHECK(log.find("spill") == std::string::npos);
    CHECK(log.find("error") == std::string::npos);
  }
}

TEST_CASE("chained products: the emulator finds waits that are missing") {
  constexpr const char *kChained = "sinter/device/family/contraction_chained.cuh",
                       *kLoader = "sinter/device/engine/loader/loader.cuh";
  const Chained c{.m = 330, .n = 64, .p = 192, .k = 200};
  REQUIRE(run(c) == "");
  const Edit edits[] = {
      {kChained, "pipe_.wait(state_);", ""},      {kChained, "pipe_c_.wait(state_c_);", ""},
      {kLoader, "pipeline.acquire(state);", ""},  {kChained, "pipe_c.acquire(state_c);", ""},
      {kChained, "wgmma::wait<1>();", ""},        {kChained, "wgmma::wait<0>(sums);", ""},
      {kChained, "wgmma::wait<0>(sums, a);", ""}, {kChained, "pipe_c_.release(state_c_);", ""},
  };
  for (const Edit& e : edits) {
    INFO("without " << e.text);
    CHECK(run(c, e) != "");
  }
}

}  // namespace
}  // namespace sinter::test
