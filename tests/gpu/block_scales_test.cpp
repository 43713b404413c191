// Matmuls of 8-bit operands with scales of blocks, in every configuration that planning may choose.
#include "gpu/configurations.hpp"
#include "sinter/operations.hpp"
#include "support/catch.hpp"

using namespace sinter;
using namespace sinter::test;

namespace {

// 8-bit operands with a scale for every `block` of k; of the right one also for every `columns`.
struct Scaled {
  std::int64_t batch, m, n, k;
  bool left = true, right = true;
  std::int64_t block = 128, columns = 1;
  DataType a = f8e4m3, b = f8e4m3;
  bool by_scale_first = false;
  int products = 1;  // of the same left operand
};

Shared<Graph> graph_of(const Scaled& p, const std::string& name) {
  auto g = Shared<Graph>::make(GraphOptions{.name = name, .io = bf16});
  const std::int64_t blocks = p.k / p.block;
  const auto input = [&](const std::string& name, Dims dim, DataType type, Dims stride = {}) {
    return g->tensor({.name = name, .dim = dim, .stride = stride, .data_type = type});
  };
  auto a = input("a", {p.batch, p.m, p.k}, p.a);
  if (p.left)
    a = block_scale_dequantize(a, input("of_a", {p.batch, p.m, blocks}, f32),
                               {.block_size = p.block});
  const auto bias = input("bias", {1, 1, p.n}, bf16);
  for (int i = 0; i < p.products; ++i) {
    const std::string b_name = "b" + std::to_string(i), of_b = "of_b" + std::to_string(i);
    Tensor b;
    if (p.right && p.columns == 1) {
      b = block_scale_dequantize(input(b_name, {1, p.k, p.n}, p.b, {p.k * p.n, 1, p.k}),
                                 input(of_b, {1, blocks, p.n}, f32),
                                 {.block_size = p.block, .axis = 1});
    } else if (p.right) {
      const std::int64_t across = p.n / p.columns;
      const auto values = input(b_name, {blocks, p.block, across, p.columns}, p.b,
                                {p.block, 1, p.k * p.columns, p.k}),
                 scale = input(of_b, {blocks, 1, across, 1}, f32);
      b = reshape(p.by_scale_first ? scale * values : values * scale, {1, p.k, p.n});
    } else {
      b = input(b_name, {1, p.k, p.n}, p.b, {p.k * p.n, 1, p.k});
    }
    g->output(relu(matmul(a, b) + bias), "y" + std::to_string(i));
  }
  return g;
}

std::string text(const Scaled& p) {
  return std::to_string(p.batch) + "x" + std::to_string(p.m) + "x" + std::to_string(p.n) + "x" +
         std::to_string(p.k) + " in blocks of " + std::to_string(p.block) + "x" +
         std::to_string(p.columns);
}

std::vector<GraphSource> sources(const std::vector<Scaled>& problems) {
  std::vector<GraphSource> all;
  for (const Scaled& p : problems)
    all.push_back({text(p), all.size(), [p] { return graph_of(p, text(p)); }, {}});
  return all;
}

}  // namespace

TEST_CASE("matmuls with scales of blocks in every configuration", "[contraction]") {
  run_configurations(sources({{.batch = 1, .m = 200, .n = 264, .k = 640},
                              {.batch = 2, .m = 72, .n = 384, .k = 512, .columns = 128}}),
                     {});
}

TEST_CASE("matmuls with scales of blocks of every kind", "[contraction]") {
  run_configurations(
      sources({{.batch = 1, .m = 20, .n = 136, .k = 256, .right = false, .b = f8e5m2},
               {.batch = 1, .m = 136, .n = 24, .k = 384, .left = false},
               {.batch = 1, .m = 70, .n = 72, .k = 128 * 9, .columns = 24, .by_scale_first = true},
               {.batch = 3, .m = 136, .n = 72, .k = 768, .block = 256}}),
      {.one_of_a_kind = true});
}

// Blocks that no stage of the ring holds whole, and others that one engine takes and one does not.
TEST_CASE("matmuls with scales of other blocks", "[contraction]") {
  run_as_chosen(sources({{.batch = 1, .m = 70, .n = 72, .k = 256, .block = 32},
                         {.batch = 1, .m = 70, .n = 72, .k = 300, .block = 100},
                         {.batch = 1, .m = 70, .n = 72, .k = 128},
                         {.batch = 1, .m = 70, .n = 72, .k = 256, .products = 3},
                         {.batch = 1, .m = 70, .n = 72, .k = 256, .block = 64, .products = 2},
                         {.batch = 1, .m = 70, .n = 72, .k = 256, .a = i8, .b = i8},
                         {.batch = 1, .m = 1, .n = 72, .k = 256},
                         {.batch = 5, .m = 1, .n = 72, .k = 256},
                         {.batch = 1, .m = 48, .n = 64, .k = 16384},
                         {.batch = 1, .m = 70, .n = 72, .k = 256, .right = false, .b = bf16}}));
}

TEST_CASE("matmuls with scales of blocks for the sanitizer", "[sanitize]") {
  run_configurations(sources({{.batch = 1, .m = 72, .n = 136, .k = 256}}), {.one_of_a_kind = true});
}
