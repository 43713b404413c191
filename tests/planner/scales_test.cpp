// What planning makes of scaled 8-bit operands, of matmuls and of grouped ones.
#include "compile/make_plan.hpp"
#include "planner/planned.hpp"
#include "planner/rewrite/pass.hpp"
#include "sinter/operations.hpp"

using namespace sinter;
using namespace sinter::test;

TEST_CASE("scales of 8-bit operands multiply the sum") {
  for (const DataType type : {f8e4m3, i8})
    for (const DataType io : {bf16, f32}) {
      const auto g = Shared<Graph>::make(GraphOptions{.io = io});
      const auto input = [&](const char* name, Dims dim, DataType t) {
        return g->tensor({.name = name, .dim = dim, .data_type = t});
      };
      const auto a = input("a", {72, 48}, type) * input("of_rows", {72, 1}, f32) / 3.0;
      const auto b =
          g->tensor({.name = "b", .dim = {48, 40}, .stride = {1, 48}, .data_type = type});
      g->output(relu(matmul(a, input("of_columns", {1, 40}, f32) * b)), "y");
      const Partition p = for_sm_90a(*g);
      REQUIRE(families(p) == std::vector{Family::contraction});
      // Products of f32 are not summed with the bits that 8-bit floats get: they are of bf16.
      const bool as_bytes = io == bf16 || type == i8;
      for (const ProductOperand* o :
           {&p.kernels[0].contraction().a(), &p.kernels[0].contraction().b()}) {
        const auto& body = o->body.statements;
        REQUIRE(body.size() == (as_bytes ? 1 : 2));
        CHECK((as_bytes || body[1].type == bf16));
        CHECK(o->type == (as_bytes ? type : f32));
      }
      check_values(*g);
    }
  // One that changes along k stays with its operand.
  const auto g = Shared<Graph>::make(GraphOptions{.io = bf16});
  const auto a = g->tensor({.name = "a", .dim = {72, 48}, .data_type = i8}),
             s = g->tensor({.name = "s", .dim = {1, 48}, .data_type = f32});
  g->output(matmul(a * s, g->tensor({.name = "b", .dim = {48, 40}})), "y");
  CHECK(partition(*lower(*g).graph, true).kernels[0].contraction().a().body.statements.size() == 3);
  check_values(*g);
}

// As checkpoints of DeepSeek-V3's kind have them: of activations for 128 of k, of weights for 128
// of k and one or 128 columns.
TEST_CASE("scales of blocks of k multiply parts of the sum") {
  for (const std::int64_t columns : {1, 128})
    for (const std::int64_t block : {32, 128})
      for (const bool pair : {false, true}) {
        auto g = Shared<Graph>::make(GraphOptions{.io = bf16});
        const auto input = [&](const char* name, Dims dim, DataType type, Dims stride = {}) {
          return g->tensor({.name = name, .dim = dim, .stride = stride, .data_type = type});
        };
        const auto a =
            block_scale_dequantize(input("a", {1, 72, 512}, f8e4m3),
                                   input("of_a", {1, 72, 512 / block}, f32), {.block_size = block});
        const auto weights = [&](const char* name, const char* scale) {
          const std::int64_t n = 256, across = n / columns, blocks = 512 / block;
          const auto w = input(name, {1, blocks, block, across, columns}, f8e4m3,
                               {n * 512, block, 1, 512 * columns, 512});
          return reshape(w * input(scale, {1, blocks, 1, across, 1}, f32), {1, 512, n});
        };
        auto y = matmul(a, weights("b", "of_b"));
        if (pair) y = swish(y) * matmul(a, weights("c", "of_c"));
        g->output(y, "y");
        INFO(columns << " columns, " << block << " of k" << (pair ? ", pair" : ""));
        const auto kernels = for_sm_90a(*g).kernels;
        CHECK((kernels.size() == 1) == (block == 128));
        CHECK(for_target(*g, "sm_80").kernels.size() > 1);
        check_values(*g);
      }
}

// The planning of a whole graph shares out what scales an operand of several products.
// Weights alone are quantised: what is multiplied has 16 bits.
TEST_CASE("scales of blocks of k of one operand are applied where few rows read it") {
  for (const DataType type : {i8, f8e4m3, f4e2m1})
    for (const std::int64_t rows : {1, 3, 4096}) {
      auto g = Shared<Graph>::make(GraphOptions{.io = bf16});
      const std::int64_t k = 1024, n = 1024;
      const auto x = g->tensor({.name = "x", .dim = {1, rows, k}}),
                 w = g->tensor(
                     {.name = "w", .dim = {1, k, n}, .stride = {k * n, 1, k}, .data_type = type}),
                 s = g->tensor({.name = "s", .dim = {1, k / 32, n}});
      g->output(matmul(x, block_scale_dequantize(w, s, {.block_size = 32, .axis = 1})), "y");
      const Partition p = for_sm_90a(*g);
      const auto found = families(p);
      // Of many rows the product is written first, and read by the engine of warpgroups.
      CHECK((found.front() == Family::pointwise) == (rows == 4096));
      CHECK(std::count(found.begin(), found.end(), Family::pointwise) == (rows == 4096));
      if (rows == 1) CHECK(found == std::vector{Family::rowwise});
      if (rows < 4096) check_values(*g);
    }
}

TEST_CASE("products that share scaled 8-bit activations load the 8 bits each") {
  for (const std::int64_t block : {0, 32, 128})
    for (const int products : {2, 3})
      for (const DataType type : {f8e4m3, i8}) {
        auto g = Shared<Graph>::make(GraphOptions{.io = bf16});
        const auto input = [&](const std::string& name, Dims dim, DataType type, Dims stride = {}) {
          return g->tensor({.name = name, .dim = dim, .stride = stride, .data_type = type});
        };
        const auto scaled = [&](const std::string& name, Dims dim, Dims stride, Dims scales,
                                std::int64_t axis) {
          const auto x = input(name, dim, type, stride), scale = input("of_" + name, scales, f32);
          return block == 0 ? x * scale
                            : block_scale_dequantize(x, scale, {.block_size = block, .axis = axis});
        };
        const std::int64_t blocks = block == 0 ? 1 : 512 / block;
        const auto x = scaled("x", {1, 72, 512}, {}, {1, 72, blocks}, 2);
        for (int i = 0; i < products; ++i) {
          const auto w =
              scaled("w" + std::to_string(i), {1, 512, 96}, {512 * 96, 1, 512}, {1, blocks, 96}, 1);
          g->output(matmul(x, w), "y" + std::to_string(i));
        }
        const bool multiplied = block == 0 || (block == 128 && type == f8e4m3);
        INFO(products << " products, blocks of " << block << " of " << name(type));
        const auto plan = make_plan(*g, {.architecture = "sm_90a"}, {}, nullptr);
        REQUIRE(plan);
        // Else one kernel writes x and another one all weights.
        CHECK(plan->data().kernels.size() ==
              static_cast<std::size_t>(multiplied ? products : 2 + products));
      }
}

TEST_CASE("a gated pair of grouped matmuls is one kernel where its groups are the same") {
  for (const bool other_offsets : {false, true})
    for (const MoeMode mode : {MoeMode::none, MoeMode::gather, MoeMode::scatter}) {
      auto g = Shared<Graph>::make(GraphOptions{.io = bf16});
      const auto tokens = g->tensor({.name = "tokens", .dim = {1, 70, 64}});
      Tensor index;
      if (mode != MoeMode::none)
        index = g->tensor({.name = "index", .dim = {70}, .data_type = i32});
      const auto offsets = [&](const char* name) {
        return g->tensor({.name = name, .dim = {5}, .data_type = i32});
      };
      const auto product = [&](const char* name, const Tensor& ends) {
        const auto w = g->tensor({.name = name, .dim = {4, 64, 96}, .stride = {6144, 1, 64}});
        return moe_grouped_matmul(tokens, w, ends, index, {.mode = mode});
      };
      const auto ends = offsets("ends");
      const auto up = product("up", other_offsets ? offsets("other_ends") : ends);
      g->output(swish(product("gate", ends)) * up, "y");
      INFO(name(mode) << (other_offsets ? " other groups" : ""));
      const auto p = for_sm_90a(*g);
      REQUIRE(p.kernels.size() == (other_offsets ? 2 : 1));
      CHECK(p.kernels[0].contraction().paired() == !other_offsets);
      check_values(*g);
    }
}

// Rows have scales of their own, or all have one; a table may renumber them.
TEST_CASE("scales of the 8-bit operands of a grouped matmul multiply the sums") {
  for (const std::int64_t rows : {1, 70})
    for (const bool pair : {false, true})
      for (const MoeMode mode : {MoeMode::none, MoeMode::gather, MoeMode::scatter}) {
        auto g = Shared<Graph>::make(GraphOptions{.io = bf16});
        const auto input = [&](const std::string& name, Dims dim, DataType type, Dims stride = {}) {
          return g->tensor({.name = name, .dim = dim, .stride = stride, .data_type = type});
        };
        const auto tokens = input("x", {1, 70, 64}, f8e4m3) * input("of_x", {1, rows, 1}, f32),
                   ends = input("ends", {5}, i32);
        Tensor index;
        if (mode != MoeMode::none) index = input("index", {70}, i32);
        const auto product = [&](const std::string& name) {
          const auto w = input(name, {4, 64, 96}, f8e4m3, {6144, 1, 64});
          return moe_grouped_matmul(tokens, w * input("of_" + name, {4, 1, 96}, f32), ends, index,
                                    {.mode = mode});
        };
        auto y = product("w");
        if (pair) y = swish(y) * product("v");
        g->output(y, "y");
        INFO(name(mode) << ", " << rows << " scales of rows" << (pair ? ", pair" : ""));
        CHECK(for_sm_90a(*g).kernels.size() == 1);
        check_values(*g);
      }
}

TEST_CASE("rows of a grouped matmul that lie in blocks of a scale are scaled first") {
  auto g = Shared<Graph>::make(GraphOptions{.io = bf16});
  const auto input = [&](const char* name, Dims dim, DataType type, Dims stride = {}) {
    return g->tensor({.name = name, .dim = dim, .stride = stride, .data_type = type});
  };
  const auto x = reshape(
      input("x", {1, 5, 10, 2, 128}, f8e4m3) * input("of_x", {1, 5, 1, 2, 1}, f32), {1, 50, 256});
  const auto w =
      block_scale_dequantize(input("w", {3, 256, 128}, f8e4m3, {32768, 1, 256}),
                             input("of_w", {3, 2, 128}, f32), {.block_size = 128, .axis = 1});
  g->output(moe_grouped_matmul(x, w, input("ends", {4}, i32)), "y");
  CHECK(for_sm_90a(*g).kernels.size() == 3);
  check_values(*g);
}

// Its producer needs the registers that a second block of the SM would have.
TEST_CASE("a kernel whose threads copy rows has the SM alone") {
  for (const MoeMode mode : {MoeMode::none, MoeMode::gather}) {
    auto g = Shared<Graph>::make(GraphOptions{.io = bf16});
    const auto input = [&](const char* name, Dims dim, DataType type, Dims stride = {}) {
      return g->tensor({.name = name, .dim = dim, .stride = stride, .data_type = type});
    };
    Tensor index;
    if (mode != MoeMode::none) index = input("index", {16}, i32);
    g->output(moe_grouped_matmul(input("x", {1, 16, 8192}, bf16),
                                 input("w", {1, 8192, 512}, bf16, {4194304, 1, 8192}),
                                 input("ends", {2}, i32), index, {.mode = mode}),
              "y");
    const auto plan = make_plan(*g, {.architecture = "sm_90a"}, {}, nullptr);
    REQUIRE(plan);
    const std::string& source = plan->data().kernels[0].source;
    CHECK((source.find("Config::threads, 1)") != std::string::npos) == (mode == MoeMode::gather));
  }
}

// Segments have as many threads of a warp as their elements take, and come behind the row's sums.
TEST_CASE("a norm that is quantised in blocks is one kernel") {
  const auto norm = [](Graph& g, Dims dim, Dims stride = {}, int epsilon_rank = 1) {
    const auto x = g.tensor({.name = "x", .dim = dim, .stride = stride});
    Dims axis = Dims::filled(dim.size(), 1);
    axis.back() = dim.back();
    return rmsnorm(x, g.tensor({.name = "scale", .dim = axis}), Tensor{},
                   g.scalar(1e-5).of_rank(epsilon_rank))
        .y;
  };
  const auto quantise = [](Graph& g, Tensor x, std::int64_t block) {
    const Quantized q = block_scale_quantize(x, {.block_size = block}, f8e4m3, f8e8m0);
    g.output(q.y, "q");
    g.output(q.scale, "q_scale");
  };
  // The kernels of the rewritten graph, whose values are right.
  const auto kernels = [](Graph& g) {
    GraphCase c(g, Fill::normal, 7);
    c.clear_outputs();
    interpret_fused(g, {.architecture = "sm_90a"}, c.lowered(), c.memory());
    const Comparison r = c.judge();
    INFO(r.first_wrong);
    CHECK((r.ok() && r.compared > 0));
    const Lowered l = rewritten(lower(g), device_model("sm_90a"));
    return partition(*l.graph, true, "sm_90a", l.regions).kernels;
  };
  for (const std::int64_t block : {8, 32, 128, 24, 3}) {
    const auto g = Shared<Graph>::make(GraphOptions{.io = bf16});
    quantise(*g, norm(*g, {5, 3, 384}), block);
    const auto of = kernels(*g);
    const bool fits = block != 24 && block != 3;
    REQUIRE(of.size() == (fits ? 1 : 2));
    CHECK(of[0].rowwise().segment == (fits ? block : 0));
  }
  // An epsilon of as many dims as what is normalised.
  const auto ranked = Shared<Graph>::make(GraphOptions{.io = bf16});
  quantise(*ranked, norm(*ranked, {5, 3, 384}, {}, 3), 32);
  CHECK(kernels(*ranked).size() == 1);
  // Rows that lie next to each other have their segments far apart in memory.
  const auto across = Shared<Graph>::make(GraphOptions{.io = bf16});
  quantise(*across, norm(*across, {16, 96}, {1, 16}), 32);
  CHECK(kernels(*across).size() == 2);
  // What is reduced behind the segments is another kernel's.
  const auto again = Shared<Graph>::make(GraphOptions{.io = bf16});
  const auto parts = reshape(norm(*again, {10, 192}), {10, 6, 32});
  const auto share = parts / reduction(parts, ReductionMode::amax, {10, 6, 1});
  again->output(share * reduction(share, ReductionMode::add, {10, 1, 1}), "y");
  for (const KernelSpec& k : kernels(*again)) CHECK((!k.as_rowwise() || k.rowwise().segment == 0));
}
