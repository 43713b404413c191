// Matmuls in every configuration that planning may choose, on sizes around the edges of their
// tiles: lengths of k that end in, before and after a stage and wrap the ring, odd counts of tiles,
// every layout of the operands, and results along either index.
#include "gpu/configurations.hpp"
#include "sinter/operations.hpp"
#include "support/catch.hpp"

using namespace sinter;
using namespace sinter::test;

namespace {

struct Problem {
  std::int64_t batch, m, n, k;
  bool a_by_rows = true, b_by_columns = true, c_by_rows = true;  // where memory is contiguous
  DataType io = bf16, result = bf16;
  bool side_inputs = false, totals = false, two_products = false;
  bool bias = false;       // and relu: what TMA or rows of 16 bits take
  DataType compute = f32;  // but where the result is i32
};

Shared<Graph> graph_of(const Problem& p, const std::string& name) {
  const bool whole = p.result == i32;
  auto g = Shared<Graph>::make(GraphOptions{.name = name,
                                            .io = p.io,
                                            .intermediate = whole ? i32 : f32,
                                            .compute = whole ? i32 : p.compute});
  const Dims by_rows{p.m * p.k, p.k, 1}, by_columns{p.m * p.k, 1, p.m};
  const auto a = g->tensor(
      {.name = "a", .dim = {p.batch, p.m, p.k}, .stride = p.a_by_rows ? by_rows : by_columns});
  const auto right = [&](const char* name) {
    return g->tensor(
        {.name = name,
         .dim = {p.batch, p.k, p.n},
         .stride = p.b_by_columns ? Dims{p.n * p.k, 1, p.k} : Dims{p.n * p.k, p.n, 1}});
  };
  auto c = matmul(a, right("b"));
  if (p.two_products) c = relu(c) * matmul(a, right("b2"));
  if (p.bias) c = relu(c + g->tensor({.name = "bias", .dim = {1, 1, p.n}}));
  if (p.side_inputs) {
    c = c + g->tensor({.name = "bias", .dim = {1, 1, p.n}});
    c = relu(c) * g->tensor({.name = "scale", .dim = {1, p.m, 1}, .data_type = f32});
    c = c + g->tensor({.name = "residual", .dim = {p.batch, p.m, p.n}, .data_type = p.result});
  }
  if (p.totals) {
    const auto total = [&](ReductionMode mode, Dims dim, const char* name) {
      g->output(reduction(c, mode, dim), name, {.data_type = f32});
    };
    total(ReductionMode::add, {1, 1, p.n}, "of_columns");
    total(ReductionMode::max, {p.batch, p.m, 1}, "of_rows");
    total(ReductionMode::amax, {1, 1, 1}, "of_all");
  }
  g->output(c, "c",
            {.stride = p.c_by_rows ? Dims{p.m * p.n, p.n, 1} : Dims{p.m * p.n, 1, p.m},
             .data_type = p.result});
  return g;
}

std::string text(const Problem& p) {
  return std::to_string(p.batch) + "x" + std::to_string(p.m) + "x" + std::to_string(p.n) + "x" +
         std::to_string(p.k) + " " + std::string(name(p.io));
}

void run_all(const std::vector<Problem>& problems, const Configurations& which = {}) {
  std::vector<GraphSource> all;
  for (const Problem& p : problems)
    all.push_back({text(p), all.size(), [p] { return graph_of(p, text(p)); }, {}});
  run_configurations(all, which);
}

TEST_CASE("matmuls in every configuration", "[contraction]") {
  run_all({{.batch = 1, .m = 328, .n = 584, .k = 200, .side_inputs = true}});
}

TEST_CASE("matmuls in every configuration, other layouts", "[contraction]") {
  run_all(
      {{.batch = 3, .m = 136, .n = 264, .k = 520, .a_by_rows = false, .b_by_columns = false},
       {.batch = 1, .m = 520, .n = 72, .k = 1032, .b_by_columns = false, .io = f16, .result = f32},
       {.batch = 2, .m = 40, .n = 600, .k = 648, .c_by_rows = false, .side_inputs = true}});
}

// A tile then brings no more rows than there are.
TEST_CASE("matmuls of few rows in every configuration", "[contraction]") {
  run_all({{.batch = 1, .m = 9, .n = 1048, .k = 520, .side_inputs = true},
           {.batch = 1, .m = 48, .n = 840, .k = 1160, .result = f32, .totals = true},
           {.batch = 1, .m = 24, .n = 616, .k = 400, .io = i8, .result = i32}});
}

TEST_CASE("matmuls of few rows of every kind", "[contraction]") {
  run_all({{.batch = 3, .m = 40, .n = 136, .k = 72, .side_inputs = true},
           {.batch = 1, .m = 16, .n = 200, .k = 272, .io = f8e4m3, .result = f32},
           {.batch = 1, .m = 20, .n = 136, .k = 100, .io = f32, .result = f32, .compute = tf32},
           {.batch = 1, .m = 40, .n = 136, .k = 200, .side_inputs = true, .two_products = true},
           {.batch = 1, .m = 48, .n = 136, .k = 136, .a_by_rows = false}},
          {.one_of_a_kind = true});
}

TEST_CASE("matmuls in every configuration, other types", "[contraction]") {
  run_all({{.batch = 2, .m = 200, .n = 392, .k = 400, .io = f8e4m3, .result = bf16},
           {.batch = 1, .m = 136, .n = 264, .k = 144, .io = f8e5m2, .result = f32},
           {.batch = 1, .m = 200, .n = 264, .k = 1040, .io = i8, .result = i32},
           {.batch = 2, .m = 136, .n = 72, .k = 528, .io = u8, .result = bf16}});
}

TEST_CASE("matmuls in every configuration, with totals", "[contraction]") {
  run_all({{.batch = 2, .m = 328, .n = 264, .k = 200, .totals = true},
           {.batch = 1, .m = 200, .n = 328, .k = 264, .c_by_rows = false, .totals = true},
           {.batch = 1, .m = 72, .n = 1000, .k = 136, .side_inputs = true, .totals = true}});
}

TEST_CASE("pairs of matmuls in every configuration", "[contraction]") {
  run_all({{.batch = 1, .m = 328, .n = 584, .k = 200, .side_inputs = true, .two_products = true},
           {.batch = 2,
            .m = 136,
            .n = 264,
            .k = 520,
            .a_by_rows = false,
            .b_by_columns = false,
            .io = f16,
            .result = f32,
            .side_inputs = true,
            .totals = true,
            .two_products = true}});
}

// Parts of 64 columns read what belongs to columns ahead, narrower ones at a tile's end, too.
TEST_CASE("matmuls with a bias in every configuration", "[contraction]") {
  run_all({{.batch = 1, .m = 328, .n = 584, .k = 72, .bias = true},
           {.batch = 1, .m = 333, .n = 584, .k = 72, .result = f16, .bias = true}});
}
// Rows of results that end within a piece of 16 bytes.
TEST_CASE("matmuls with odd rows in every configuration", "[contraction]") {
  run_all({{.batch = 1, .m = 200, .n = 21, .k = 72, .bias = true},
           {.batch = 2, .m = 75, .n = 51, .k = 72, .io = f16, .result = f16},
           {.batch = 1, .m = 140, .n = 237, .k = 72, .bias = true},
           {.batch = 1, .m = 140, .n = 188, .k = 72, .bias = true}});
}
TEST_CASE("matmuls with odd rows", "[sanitize]") {
  for (const char* tile : {"64x64", "128x32"})
    run_all({{.batch = 2, .m = 75, .n = 51, .k = 72, .io = f16, .result = f16},
             {.batch = 1, .m = 150, .n = 21, .k = 72, .bias = true}},
            {.tile = tile});
  run_all({{.batch = 1, .m = 140, .n = 237, .k = 72, .bias = true}}, {.tile = "128x256"});
}
TEST_CASE("two parts of rows and a narrow part of columns", "[sanitize]") {
  for (const char* tile : {"256x96", "256x160", "128x96"})
    run_all({{.batch = 1, .m = 300, .n = 200, .k = 72, .bias = true}}, {.tile = tile});
}
TEST_CASE("matmuls of every kind for the sanitizer", "[sanitize]") {
  run_all({{.batch = 1, .m = 72, .n = 136, .k = 200, .totals = true, .two_products = true},
           {.batch = 1, .m = 72, .n = 136, .k = 200, .totals = true},
           {.batch = 1, .m = 136, .n = 200, .k = 392, .side_inputs = true},
           {.batch = 1, .m = 136, .n = 136, .k = 272, .io = f8e4m3},
           {.batch = 1, .m = 24, .n = 40, .k = 72},
           {.batch = 1, .m = 72, .n = 136, .k = 100, .a_by_rows = false, .io = f32, .result = f32}},
          {.one_of_a_kind = true});
}

// Several tiles a block, a ring that is used many times, and long sums.
TEST_CASE("matmuls of many tiles", "[contraction]") {
  std::vector<GraphSource> all;
  for (const Problem& p :
       {Problem{.batch = 1, .m = 2104, .n = 3080, .k = 72},
        Problem{.batch = 1, .m = 2056, .n = 2056, .k = 2056},
        Problem{.batch = 70, .m = 264, .n = 264, .k = 136, .side_inputs = true},
        Problem{.batch = 1, .m = 8, .n = 4104, .k = 2056},
        Problem{.batch = 1, .m = 1, .n = 4104, .k = 2056},
        Problem{.batch = 1, .m = 4099, .n = 1, .k = 1111},
        Problem{.batch = 1, .m = 264, .n = 264, .k = 16392},
        // Tiles of an odd number of parts whose stores are still on their way:
        Problem{.batch = 1, .m = 100360, .n = 64, .k = 64},
        Problem{.batch = 1, .m = 60040, .n = 192, .k = 64},
        // In parts of k:
        Problem{.batch = 1, .m = 72, .n = 136, .k = 33024, .side_inputs = true},
        Problem{.batch = 2, .m = 40, .n = 33, .k = 8192, .b_by_columns = false},
        Problem{.batch = 1, .m = 40, .n = 72, .k = 139264, .io = i8, .result = i32}})
    all.push_back({text(p), all.size(), [p] { return graph_of(p, text(p)); }, {}});
  run_as_chosen(all);
}

}  // namespace

namespace {

// gelu'(h) dy times w scale: both operands are computed.
Shared<Graph> computed_graph(const Problem& p, DataType stored, bool scale_a_row) {
  auto g = Shared<Graph>::make(GraphOptions{.name = text(p), .io = p.io});
  const auto dy = g->tensor({.name = "dy", .dim = {p.batch, p.m, p.k}}),
             h = g->tensor({.name = "h", .dim = {p.batch, p.m, p.k}}),
             w = g->tensor(
                 {.name = "w",
                  .dim = {1, p.k, p.n},
                  .stride = p.b_by_columns ? Dims{p.n * p.k, 1, p.k} : Dims{p.n * p.k, p.n, 1},
                  .data_type = stored}),
             scale = g->tensor({.name = "scale",
                                .dim = scale_a_row ? Dims{1, p.k, 1} : Dims{1, 1, p.n},
                                .data_type = f32});
  g->output(matmul(gelu_tanh_backward(dy, h), w * scale), "c");
  return g;
}

}  // namespace

// Enough results for the large tiles of CUDA cores, whose last ones are cut in both directions.
TEST_CASE("matmuls in f32", "[contraction]") {
  std::vector<GraphSource> all;
  for (const bool a_by_rows : {true, false})
    for (const bool b_by_columns : {true, false})
      for (Problem p : {Problem{.batch = 1, .m = 1473, .n = 1410, .k = 70},
                        Problem{.batch = 67, .m = 200, .n = 250, .k = 530, .side_inputs = true},
                        Problem{.batch = 2, .m = 1300, .n = 900, .k = 1, .c_by_rows = false}}) {
        p.io = p.result = f32;
        p.a_by_rows = a_by_rows;
        p.b_by_columns = b_by_columns;
        all.push_back({text(p), all.size(), [p] { return graph_of(p, text(p)); }, {}});
      }
  run_as_chosen(all);
}

// Rows, columns and k that end within a thread's, a chunk of 16 bytes and a stage, and a ring that
// is used more than once.
TEST_CASE("matmuls in f32 in every configuration", "[contraction]") {
  std::vector<Problem> all;
  for (const bool a_by_rows : {true, false})
    for (const bool b_by_columns : {true, false})
      all.push_back({.batch = 1,
                     .m = 136,
                     .n = 148,
                     .k = 92,
                     .a_by_rows = a_by_rows,
                     .b_by_columns = b_by_columns,
                     .io = f32,
                     .result = f32});
  all.push_back({.batch = 2,
                 .m = 131,
                 .n = 67,
                 .k = 85,
                 .c_by_rows = false,
                 .io = f32,
                 .result = f32,
                 .side_inputs = true});
  all.push_back({.batch = 1, .m = 72, .n = 136, .k = 64, .io = f32, .result = f32, .totals = true});
  run_all(all, {.every = true});
}

TEST_CASE("matmuls whose operands are computed", "[contraction]") {
  std::vector<GraphSource> all;
  for (const Problem& p : {Problem{.batch = 3, .m = 129, .n = 65, .k = 1111},
                           Problem{.batch = 1, .m = 264, .n = 264, .k = 2224, .io = f16},
                           Problem{.batch = 2, .m = 65, .n = 136, .k = 2222, .b_by_columns = false},
                           Problem{.batch = 1, .m = 16, .n = 4104, .k = 1111}})
    for (const DataType stored : {i8, f8e4m3, f32})
      for (const bool scale_a_row : {false, true})
        all.push_back(
            {text(p), all.size(), [=] { return computed_graph(p, stored, scale_a_row); }, {}});
  run_as_chosen(all);
}

// All products are large: their sums reach the limit up to which f32 holds every integer about as
// early as sums can. Images make k three indices, which the engine of sm_90a does not take.
TEST_CASE("sums of the largest integers", "[contraction]") {
  std::vector<GraphSource> all;
  for (const DataType type : {i8, u8})
    for (const std::int64_t k : {258, 1025, 33000})
      for (const bool image : {false, true}) {
        if (image && k > 2000) continue;
        const auto make = [=] {
          auto g =
              Shared<Graph>::make(GraphOptions{.io = type, .intermediate = type, .compute = i32});
          const auto largest = [&](const char* name, Dims dim) {
            const auto x = g->tensor({.name = name, .dim = dim});
            return x + (type == i8 ? 123.0 : 247.0);  // 119 to 127, 247 to 255
          };
          if (image)
            g->output(conv_fprop(largest("x", {1, k, 6, 5}), largest("w", {24, k, 3, 3})), "y",
                      {.data_type = i32});
          else
            g->output(matmul(largest("a", {70, k}), largest("b", {k, 40})), "y",
                      {.data_type = i32});
          return g;
        };
        all.push_back({std::string(image ? "image " : "matmul ") + std::string(name(type)) + " " +
                           std::to_string(k),
                       all.size(),
                       make,
                       {}});
      }
  run_as_chosen(all);
}

// What a causal mask hides is infinite or NaN from the 41st key on: the first 40 queries do not see
// it, though their probabilities of zero are multiplied with it.
TEST_CASE("masked probabilities meet infinite values", "[contraction]") {
  std::vector<GraphSource> all;
  for (const DataType io : {bf16, f16, f32})
    for (const std::int64_t d : {64, 40, 33})
      for (const std::int64_t heads : {1, 3}) {
        const auto make = [=] {
          auto g = Shared<Graph>::make(
              GraphOptions{.io = io, .compute = io == f32 && d == 64 ? tf32 : f32});
          const auto head = [&](const char* name, std::int64_t rows, std::int64_t heads) {
            return g->tensor({.name = name, .dim = {2, heads, rows, d}});
          };
          const auto v = head("v", 200, heads);
          const auto values = v / (gen_index(v, 2) < 40.0);
          g->output(values, "values");
          g->output(sdpa(head("q", 168, 3), head("k", 200, heads), values, {.causal_mask = true}).o,
                    "o");
          return g;
        };
        all.push_back(
            {std::string(name(io)) + " " + std::to_string(d) + " " + std::to_string(heads),
             all.size(),
             make,
             {}});
      }
  run_as_chosen(all);
}

// With SINTER_REARRANGE=on tensor cores multiply parts of them: all products of a large factor's
// are infinite, an infinite one's only with what is not zero of the other.
TEST_CASE("infinite, huge and tiny factors of f32", "[contraction][rearranged]") {
  std::vector<GraphSource> all;
  for (const std::string which : {"infinite", "huge", "tiny"}) {
    const auto make = [=] {
      auto g = Shared<Graph>::make(GraphOptions{.io = f32});
      const auto a = abs(g->tensor({.name = "a", .dim = {72, 64}})),
                 b = abs(g->tensor({.name = "b", .dim = {64, 80}}));
      const auto elsewhere = [](const Tensor& x, int dim) {  // 0 at the sixth place, else 1
        return abs(gen_index(x, dim) - 5.0) > 0.5;
      };
      const auto left = which == "huge" ? 3e38 - a * 1e37 : a / elsewhere(a, 1);
      const auto right = which == "tiny" ? (b + 1.0) * (elsewhere(b, 0) + 1e-44) : b + 3.0;
      g->output(left, "left");
      g->output(right, "right");
      g->output(matmul(left, right), "y");
      return g;
    };
    all.push_back({which, all.size(), make, {}});
  }
  run_as_chosen(all);
}

// Quantised operands, scaled before they are multiplied.
TEST_CASE("matmuls of scaled 8-bit operands", "[contraction]") {
  std::vector<GraphSource> all;
  for (const DataType type : {f8e4m3, f8e5m2, i8})
    for (const Dims& of_a : {Dims{2, 72, 1}, Dims{1, 1, 1}, Dims{2, 1, 144}})
      for (const bool pair : {false, true}) {
        const auto make = [=] {
          auto g = Shared<Graph>::make(GraphOptions{.io = bf16});
          const auto input = [&](const char* name, Dims dim, DataType t) {
            return g->tensor({.name = name, .dim = dim, .data_type = t});
          };
          const auto right = [&](const char* name, const char* scale) {
            return g->tensor({.name = name,
                              .dim = {1, 144, 136},
                              .stride = {144 * 136, 1, 144},
                              .data_type = type}) *
                   input(scale, {1, 1, 136}, f32);
          };
          const auto a = input("a", {2, 72, 144}, type) * input("of_a", of_a, f32) / 3.0;
          auto y = matmul(a, right("b", "of_b"));
          if (pair) y = relu(y) * matmul(a, right("c", "of_c"));
          g->output(y, "y");
          return g;
        };
        all.push_back({std::string(name(type)) + " " + to_string(of_a) + (pair ? " pair" : ""),
                       all.size(),
                       make,
                       {}});
      }
  run_as_chosen(all);
}

namespace {

// Batches that share one of their operands, of which one index may number all rows.
struct Batches {
  std::int64_t batch, m, n, k;
  Dims a_stride{}, c_stride{};  // empty: packed
  std::vector<Dims> side_inputs{}, totals{};
  DataType io = bf16, result = bf16;
  bool two_products = false, share_left = false, numbered = false, dropped = false;
  Dims scale{};  // of the left operand, where there is one
};

Shared<Graph> graph_of(const Batches& p, const std::string& name) {
  const DataType between = p.result == i32 ? i32 : f32;
  auto g = Shared<Graph>::make(
      GraphOptions{.name = name, .io = p.io, .intermediate = between, .compute = between});
  auto x = g->tensor({.name = "a",
                      .dim = p.share_left ? Dims{1, p.m, p.k} : Dims{p.batch, p.m, p.k},
                      .stride = p.a_stride});
  if (!p.scale.empty()) x = x * g->tensor({.name = "scale", .dim = p.scale});
  const std::int64_t right_batches = p.share_left ? p.batch : 1;
  const auto right = [&](const char* name) {
    return g->tensor(
        {.name = name, .dim = {right_batches, p.k, p.n}, .stride = {p.n * p.k, 1, p.k}});
  };
  auto c = matmul(x, right("b"));
  if (p.two_products) c = swish(c) * matmul(x, right("b2"));
  for (const Dims& dim : p.side_inputs)
    c = c + g->tensor({.name = "side" + std::to_string(&dim - p.side_inputs.data()), .dim = dim});
  if (p.dropped) {
    const auto number = [&](const char* name) {
      return g->tensor({.name = name, .dim = {1, 1, 1}, .data_type = i64});
    };
    c = c * rng(number("seed"), number("offset"), {p.batch, p.m, p.n});
  }
  if (p.numbered) c = c * (gen_index(c, 0) + 1.0) + gen_index(c, 1);
  for (const Dims& dim : p.totals)
    g->output(reduction(c, ReductionMode::add, dim),
              "total" + std::to_string(&dim - p.totals.data()), {.data_type = f32});
  g->output(c, "c", {.stride = p.c_stride, .data_type = p.result});
  return g;
}

std::string text(const Batches& p) {
  return std::to_string(p.batch) + " of " + std::to_string(p.m) + "x" + std::to_string(p.n) + "x" +
         std::to_string(p.k) + " " + std::string(name(p.io));
}

}  // namespace

TEST_CASE("products of many short batches with one matrix", "[contraction]") {
  constexpr std::int64_t b = 10, m = 5, n = 72, k = 80;
  const Dims by_rows{k, b * k, 1}, results_by_rows{n, b * n, 1};  // rows of one number together
  std::vector<Batches> problems;
  for (const DataType io : {bf16, f32, i8}) {
    const DataType result = io == i8 ? i32 : io;
    problems.push_back({.batch = 16, .m = 1, .n = n, .k = k, .io = io, .result = result});
    problems.push_back({.batch = b, .m = m, .n = n, .k = k, .io = io, .result = result});
    problems.push_back({b, m, n, k, by_rows, results_by_rows, {}, {}, io, result});
    problems.push_back({b, m, n, k, by_rows, {}, {}, {}, io, result});
    problems.push_back({b, m, n, k, {m * k + 16, k, 1}, {}, {}, {}, io, result});
  }
  // Side inputs of every form, alone and together.
  std::vector<Dims> forms;
  for (const std::int64_t of_batch : {std::int64_t{1}, b})
    for (const std::int64_t of_row : {std::int64_t{1}, m})
      for (const std::int64_t of_column : {std::int64_t{1}, n})
        forms.push_back({of_batch, of_row, of_column});
  for (const Dims& form : forms)
    problems.push_back({.batch = b, .m = m, .n = n, .k = k, .side_inputs = {form}});
  problems.push_back({.batch = b, .m = m, .n = n, .k = k, .side_inputs = forms});
  problems.push_back({.batch = b,
                      .m = 1,
                      .n = n,
                      .k = k,
                      .side_inputs = {{b, 1, n}, {1, 1, n}, {b, 1, 1}},
                      .numbered = true});
  problems.push_back({.batch = b, .m = m, .n = n, .k = k, .numbered = true});
  problems.push_back({.batch = b, .m = m, .n = n, .k = k, .dropped = true});
  problems.push_back({.batch = b,
                      .m = m,
                      .n = n,
                      .k = k,
                      .a_stride = by_rows,
                      .c_stride = results_by_rows,
                      .dropped = true});
  for (const Dims& scale : {Dims{b, m, 1}, Dims{b, 1, 1}, Dims{1, m, 1}, Dims{1, 1, k}})
    problems.push_back({.batch = b, .m = m, .n = n, .k = k, .scale = scale});
  // In parts of k.
  problems.push_back({.batch = b, .m = 4, .n = 40, .k = 16384, .side_inputs = {{b, 4, 40}}});
  // Totals of all rows, of those of a batch, and both at once.
  for (const std::vector<Dims>& totals : std::vector<std::vector<Dims>>{
           {{1, 1, n}}, {{b, 1, n}}, {{b, m, 1}}, {{1, 1, 1}, {1, 1, n}, {b, 1, n}}})
    problems.push_back({.batch = b, .m = m, .n = n, .k = k, .totals = totals});
  for (const std::int64_t rows : {std::int64_t{1}, m}) {
    problems.push_back({.batch = b, .m = rows, .n = n, .k = k, .two_products = true});
    problems.push_back({.batch = b,
                        .m = rows,
                        .n = n,
                        .k = k,
                        .side_inputs = {{1, 1, n}, {b, rows, n}},
                        .totals = {{1, 1, n}},
                        .two_products = true});
  }
  // Batches of columns.
  const Dims columns_together{n, b * n, 1};
  problems.push_back({.batch = b, .m = m, .n = n, .k = k, .share_left = true});
  problems.push_back(
      {.batch = b, .m = m, .n = n, .k = k, .c_stride = columns_together, .share_left = true});
  problems.push_back({.batch = b, .m = 64, .n = 1, .k = k, .share_left = true});
  problems.push_back({.batch = b,
                      .m = m,
                      .n = n,
                      .k = k,
                      .c_stride = columns_together,
                      .side_inputs = {{1, m, 1}},
                      .two_products = true,
                      .share_left = true});
  std::vector<GraphSource> all;
  for (const Batches& p : problems)
    all.push_back({text(p), all.size(), [p] { return graph_of(p, text(p)); }, {}});
  run_as_chosen(all);
}
