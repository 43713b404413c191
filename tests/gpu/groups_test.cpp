// Grouped matmuls: groups of rows of very different sizes and empty ones, which end anywhere in a
// tile; rows that a table names, read or written.
#include <algorithm>

#include "gpu/configurations.hpp"
#include "sinter/operations.hpp"
#include "support/catch.hpp"
#include "support/environment.hpp"
#include "support/random.hpp"

using namespace sinter;
using namespace sinter::test;

namespace {

struct Groups {
  std::int64_t experts, tokens, n, k;
  MoeMode mode = MoeMode::none;
  std::int64_t rows = 0;   // of the result; 0: the tokens
  bool by_columns = true;  // of the weights, k is contiguous
  DataType io = bf16, result = bf16;
  bool side_inputs = false, two_products = false;
  bool halves = false;              // of one product's columns: as two products
  bool scaled_rows = false;         // 8-bit operands have a scale for every row and every column
  std::int64_t scaled_columns = 0;  // 8-bit operands have scales of 128 of k, for so many columns
  Dims stride = {};                 // of the tokens, where they are not packed
};

Shared<Graph> graph_of(const Groups& p, const std::string& name) {
  const bool whole = p.result == i32;
  auto g = Shared<Graph>::make(
      GraphOptions{.name = name,
                   .io = p.scaled_columns > 0 || p.scaled_rows ? p.result : p.io,
                   .intermediate = whole ? i32 : f32,
                   .compute = whole ? i32 : f32});
  const std::int64_t rows = p.rows ? p.rows : p.tokens;
  auto tokens = g->tensor(
      {.name = "tokens", .dim = {1, p.tokens, p.k}, .stride = p.stride, .data_type = p.io});
  const std::int64_t blocks = p.k / 128, across = p.scaled_columns > 0 ? p.n / p.scaled_columns : 0;
  const auto scale = [&](const std::string& name, Dims dim) {
    return g->tensor({.name = name, .dim = dim, .data_type = f32});
  };
  if (p.scaled_rows) tokens = tokens * scale("of_tokens", {1, p.tokens, 1});
  if (across > 0)
    tokens = block_scale_dequantize(tokens, scale("of_tokens", {1, p.tokens, blocks}),
                                    {.block_size = 128});
  const auto offsets = g->tensor({.name = "offsets", .dim = {p.experts + 1}, .data_type = i32});
  Tensor index;
  if (p.mode != MoeMode::none)
    index = g->tensor({.name = "index", .dim = {rows}, .data_type = i32});
  const auto product = [&](const char* name) {
    const Dims by_columns{p.n * p.k, 1, p.k}, by_rows{p.n * p.k, p.n, 1};
    Tensor weights;
    if (p.scaled_columns > 1)
      weights = reshape(g->tensor({.name = name,
                                   .dim = {p.experts, blocks, 128, across, p.scaled_columns},
                                   .stride = {p.n * p.k, 128, 1, p.k * p.scaled_columns, p.k},
                                   .data_type = p.io}) *
                            scale(std::string("of_") + name, {p.experts, blocks, 1, across, 1}),
                        {p.experts, p.k, p.n});
    else
      weights = g->tensor({.name = name,
                           .dim = {p.experts, p.k, p.n},
                           .stride = p.by_columns ? by_columns : by_rows,
                           .data_type = p.io});
    if (p.scaled_columns == 1)
      weights = block_scale_dequantize(weights,
                                       scale(std::string("of_") + name, {p.experts, blocks, p.n}),
                                       {.block_size = 128, .axis = 1});
    if (p.scaled_rows) weights = weights * scale(std::string("of_") + name, {p.experts, 1, p.n});
    return moe_grouped_matmul(tokens, weights, offsets, index, {.mode = p.mode});
  };
  auto y = product("weights");
  if (p.two_products) y = relu(y) * product("more_weights");
  if (p.halves)
    y = relu(slice(y, {.start = {0, 0, 0}, .limit = {1, rows, p.n / 2}})) *
        slice(y, {.start = {0, 0, p.n / 2}, .limit = {1, rows, p.n}});
  if (p.side_inputs) {
    y = y + g->tensor({.name = "bias", .dim = {1, 1, p.n}});
    y = relu(y) * g->tensor({.name = "scale", .dim = {1, rows, 1}, .data_type = f32});
    y = y + g->tensor({.name = "residual", .dim = {1, rows, p.n}, .data_type = p.result});
  }
  g->output(y, "y", {.data_type = p.result});
  return g;
}

std::string text(const Groups& p) {
  return std::to_string(p.experts) + " groups of " + std::to_string(p.tokens) + "x" +
         std::to_string(p.n) + "x" + std::to_string(p.k) + " " + std::string(name(p.io)) + " " +
         std::string(name(p.mode)) + (p.two_products ? " pair" : "") +
         (p.rows ? ", " + std::to_string(p.rows) + " rows" : "") +
         (p.stride.empty() ? "" : ", strides " + to_string(p.stride));
}

// Any number of rows, none among them; k of a part of a stage and of several; odd columns; tokens
// that lie in rows, in columns or apart.
Groups random_groups(std::uint64_t seed) {
  Random random(seed);
  Groups p{.experts = random.between(1, 9),
           .tokens = random.pick<std::int64_t>({0, 1, 7, 16, 33, 64, 100, 257}),
           .n = random.pick<std::int64_t>({0, 1, 5, 8, 24, 40, 72, 129, 136}),
           .k = random.pick<std::int64_t>({0, 1, 8, 16, 40, 64, 77, 96, 128, 200, 272})};
  p.mode = random.pick({MoeMode::none, MoeMode::gather, MoeMode::scatter});
  if (p.mode == MoeMode::gather && p.tokens > 0)
    p.rows = random.pick<std::int64_t>({1, 5, 64, 200, 3 * p.tokens});
  p.io = random.pick({bf16, bf16, f16, f8e4m3, f8e4m3, f8e5m2, f32, i8});
  const bool eight_bits = p.io == f8e4m3 || p.io == f8e5m2;
  p.result = p.io == i8 ? i32 : eight_bits ? random.pick({f32, bf16, p.io}) : p.io;
  p.by_columns = random.chance(0.7);
  if (p.tokens > 1 && random.chance(0.5)) {
    const auto apart = random.pick<std::int64_t>({0, 1, 8, 16});
    const bool rows = random.chance(0.6);
    const std::int64_t line = std::max<std::int64_t>((rows ? p.k : p.tokens) + apart, 1);
    p.stride = {line * (rows ? p.tokens : p.k), rows ? line : 1, rows ? 1 : line};
  }
  p.side_inputs = p.io != i8 && random.chance(0.25);
  p.two_products = p.io != i8 && random.chance(0.25);
  return p;
}

std::vector<GraphSource> sources(const std::vector<Groups>& problems) {
  std::vector<GraphSource> all;
  for (const Groups& p : problems)
    all.push_back({text(p), all.size(), [p] { return graph_of(p, text(p)); }, {}});
  return all;
}

}  // namespace

TEST_CASE("groups of rows in every configuration", "[contraction]") {
  run_configurations(sources({{.experts = 7, .tokens = 600, .n = 328, .k = 200},
                              {.experts = 5,
                               .tokens = 72,
                               .n = 264,
                               .k = 136,
                               .mode = MoeMode::gather,
                               .rows = 401,
                               .result = f32}}),
                     {.fill = Fill::ternary});
}

TEST_CASE("groups of rows of every kind", "[contraction]") {
  for (const Fill fill : {Fill::ternary, Fill::uniform})
    run_configurations(
        sources({{.experts = 9,
                  .tokens = 300,
                  .n = 136,
                  .k = 72,
                  .mode = MoeMode::scatter,
                  .side_inputs = true},
                 {.experts = 3, .tokens = 200, .n = 136, .k = 144, .io = f8e4m3, .result = f32},
                 {.experts = 4,
                  .tokens = 130,
                  .n = 72,
                  .k = 272,
                  .mode = MoeMode::gather,
                  .rows = 260,
                  .io = i8,
                  .result = i32},
                 {.experts = 6,
                  .tokens = 40,
                  .n = 136,
                  .k = 200,
                  .mode = MoeMode::gather,
                  .rows = 48,
                  .by_columns = false,
                  .io = f16,
                  .side_inputs = true},
                 {.experts = 6, .tokens = 260, .n = 136, .k = 200, .two_products = true},
                 {.experts = 2, .tokens = 150, .n = 272, .k = 72, .halves = true},
                 {.experts = 4,
                  .tokens = 90,
                  .n = 136,
                  .k = 384,
                  .mode = MoeMode::gather,
                  .rows = 150,
                  .io = f8e4m3,
                  .result = bf16,
                  .two_products = true,
                  .scaled_columns = 1},
                 {.experts = 3,
                  .tokens = 160,
                  .n = 192,
                  .k = 256,
                  .mode = MoeMode::scatter,
                  .io = f8e4m3,
                  .result = bf16,
                  .scaled_columns = 64},
                 {.experts = 3,
                  .tokens = 70,
                  .n = 72,
                  .k = 208,
                  .mode = MoeMode::gather,
                  .rows = 120,
                  .io = f8e4m3,
                  .result = bf16,
                  .scaled_rows = true},
                 {.experts = 3,
                  .tokens = 70,
                  .n = 72,
                  .k = 208,
                  .io = f8e5m2,
                  .result = bf16,
                  .two_products = true,
                  .scaled_rows = true},
                 {.experts = 3,
                  .tokens = 70,
                  .n = 72,
                  .k = 96,
                  .mode = MoeMode::scatter,
                  .io = f8e4m3,
                  .result = bf16,
                  .side_inputs = true,
                  .scaled_rows = true},
                 {.experts = 3,
                  .tokens = 100,
                  .n = 128,
                  .k = 256,
                  .io = f8e4m3,
                  .result = bf16,
                  .two_products = true,
                  .scaled_columns = 64},
                 {.experts = 6,
                  .tokens = 100,
                  .n = 136,
                  .k = 136,
                  .mode = MoeMode::gather,
                  .rows = 290,
                  .side_inputs = true,
                  .two_products = true}}),
        {.one_of_a_kind = true, .fill = fill});
}

TEST_CASE("groups of rows for the sanitizer", "[sanitize]") {
  run_configurations(sources({{.experts = 3,
                               .tokens = 140,
                               .n = 72,
                               .k = 136,
                               .mode = MoeMode::scatter,
                               .side_inputs = true},
                              {.experts = 4,
                               .tokens = 60,
                               .n = 72,
                               .k = 136,
                               .mode = MoeMode::gather,
                               .rows = 100,
                               .two_products = true}}),
                     {.one_of_a_kind = true, .fill = Fill::ternary});
}

// Rows and types that TMA does not load, results along the tokens, and
// more groups than rows.
TEST_CASE("groups of rows on every engine", "[contraction]") {
  run_as_chosen(sources(
      {{.experts = 3, .tokens = 100, .n = 40, .k = 77},
       {.experts = 300, .tokens = 50, .n = 40, .k = 64},
       {.experts = 1, .tokens = 16, .n = 512, .k = 8192, .mode = MoeMode::gather, .rows = 16},
       {.experts = 1, .tokens = 33, .n = 129, .k = 64},
       {.experts = 12, .tokens = 2000, .n = 264, .k = 1032},
       {.experts = 4, .tokens = 100, .n = 72, .k = 68, .mode = MoeMode::gather, .rows = 50},
       // Groups begin at rows that boxes along the rows cannot begin at.
       {.experts = 6, .tokens = 100, .n = 72, .k = 1},
       {.experts = 5, .tokens = 104, .n = 72, .k = 64, .stride = {6656, 1, 104}},
       // One row, which may be any of those that lie apart by no multiple of 16 bytes.
       {.experts = 7, .tokens = 14, .n = 5, .k = 97, .mode = MoeMode::gather, .rows = 1},
       {.experts = 3,
        .tokens = 30,
        .n = 72,
        .k = 64,
        .mode = MoeMode::gather,
        .rows = 1,
        .stride = {1950, 65, 1}},
       {.experts = 4, .tokens = 100, .n = 72, .k = 64, .io = f32, .result = f32},
       {.experts = 4,
        .tokens = 100,
        .n = 72,
        .k = 64,
        .mode = MoeMode::gather,
        .io = f32,
        .result = f32}}));
}

TEST_CASE("random groups of rows", "[random]") {
  std::vector<Groups> problems;
  const int count = from_environment("SINTER_GPU_GRAPHS", 1000) / 4,
            first = from_environment("SINTER_GPU_FIRST", 50000);
  for (int i = 0; i < count; ++i)
    problems.push_back(random_groups(static_cast<std::uint64_t>(first) + i));
  run_as_chosen(sources(problems));
}
