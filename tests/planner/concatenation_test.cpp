// Concatenations: parts are computed where they belong, and read where they lie.
#include <algorithm>

#include "planner/memory/storage.hpp"
#include "planner/moved.hpp"
#include "sinter/compile.hpp"
#include "sinter/operations.hpp"
#include "support/scheduled.hpp"

using namespace sinter;
using namespace sinter::test;

TEST_CASE("parts of a concatenation are computed where they belong") {
  for (bool computed : {false, true}) {
    Graph g{{.io = bf16}};
    const std::int64_t width = computed ? 16 : 17;  // or starts where no pack does
    auto a = g.tensor({.name = "a", .dim = {8, 32}}),
         b = g.tensor({.name = "b", .dim = {8, width}}),
         r = g.tensor({.name = "r", .dim = {8, 32 + width}});
    g.output(relu(concatenate({a, computed ? -b : b}, 1) + r), "y");
    CHECK(kernels(g).size() == 2);
    CHECK(moved_bytes(g) == 2 * 3 * 8 * (32 + width));
  }
}

TEST_CASE("a concatenation of what lies in memory is part of the kernel that reads it") {
  Graph g{{.io = bf16}};
  auto a = g.tensor({.name = "a", .dim = {8, 32}}), b = g.tensor({.name = "b", .dim = {8, 16}}),
       r = g.tensor({.name = "r", .dim = {8, 48}}), w = g.tensor({.name = "w", .dim = {1, 48}});
  const Tensor sum = concatenate({a, b}, 1) + r;
  SECTION("pointwise") {
    g.output(relu(sum), "y");
    CHECK(moved_bytes(g) == 2 * 3 * 8 * 48);
  }
  SECTION("rowwise") { g.output(rmsnorm(sum, w, Tensor{}, 1e-5).y, "y"); }
  SECTION("by itself") { g.output(concatenate({a, b}, 1), "y"); }
  SECTION("stored once, too") {
    const Tensor both = concatenate({b, a}, -1);
    g.output(both, "y");
    g.output(relu(both), "z");
  }
  SECTION("a value of each row") {
    auto p = g.tensor({.name = "p", .dim = {8, 16}}), q = g.tensor({.name = "q", .dim = {8, 16}});
    const Tensor rows = concatenate({p, q}, 0);
    g.output(rows / reduction(rows, ReductionMode::add, {16, 1}), "y");
  }
  CHECK(kernels(g).size() == 1);
}

TEST_CASE("reading the parts of a concatenation is estimated as reading its result") {
  Graph joined{{.io = bf16}}, one{{.io = bf16}};
  const auto part = [&] { return joined.tensor({.dim = {4096, 2048}}); };
  joined.output(concatenate({part(), part(), part(), part()}, 1), "y");
  one.output(-one.tensor({.dim = {4096, 4 * 2048}}), "y");
  const auto microseconds = [](Graph& g) {
    return scheduled(kernels(g).front(), "sm_90a").microseconds;
  };
  CHECK(microseconds(joined) == microseconds(one));
}

TEST_CASE("what a concatenation joins is read as it is, or copied part by part") {
  Graph g{{.io = bf16}};
  const auto tensor = [&](const char* name, DataType type, Dims dim) {
    return g.tensor({.name = name, .dim = dim, .data_type = type});
  };
  auto a = tensor("a", bf16, {8, 32});
  std::size_t expected = 1;
  SECTION("empty") { g.output(concatenate({a, tensor("b", bf16, {8, 0}), a}, 1), "y"); }
  SECTION("of other types") {
    g.output(concatenate({a, tensor("b", f32, {8, 16}), tensor("c", i32, {8, 32})}, 1), "y");
  }
  SECTION("a constant") {
    expected = 2;
    auto one = g.scalar(1.0, bf16, "one");
    g.output(concatenate({tensor("b", bf16, {15}), one}, 0), "y");
  }
  SECTION("64-bit integers") {
    expected = 2;
    g.output(concatenate({tensor("b", i64, {8, 16}), tensor("c", i64, {8, 32})}, 1), "y",
             {.data_type = i64});
  }
  SECTION("in another order") {
    expected = 2;
    g.output(concatenate({a, transpose(tensor("b", bf16, {16, 8}), {1, 0})}, 1), "y");
  }
  SECTION("more than eight") {
    expected = 9;
    g.output(concatenate({a, a, a, a, a, a, a, a, a}, 0), "y");
  }
  SECTION("concatenations") {
    const Tensor b = concatenate({a, tensor("b", bf16, {8, 16})}, 1);
    g.output(concatenate({b, b, tensor("c", bf16, {4, 48})}, 0), "y");
  }
  CHECK(kernels(g).size() == expected);
}

TEST_CASE("nested concatenations do not multiply what reads them") {
  Graph g;
  Tensor n = g.tensor({.name = "x", .dim = {1, 4}});
  for (int i = 0; i < 14; ++i) n = -concatenate({n, n}, 0);
  g.output(n, "y");
  CHECK(rewritten(lower(g), device_model()).graph->nodes().size() < 1000);
}

TEST_CASE("a part of a concatenation that others read lies in it, unless they need it packed") {
  enum class Reader { product, reshape, of_f32 };
  for (const Reader reader : {Reader::product, Reader::reshape, Reader::of_f32}) {
    Graph g{{.io = bf16, .intermediate = reader == Reader::of_f32 ? f32 : bf16}};
    const Tensor x = g.tensor({.name = "x", .dim = {2, 8, 64}}),
                 w = g.tensor({.name = "w", .dim = {1, 64, 64}}), a = relu(matmul(x, w)),
                 b = relu(matmul(reader == Reader::reshape ? reshape(a, {1, 16, 64}) : a, w)),
                 shaped = reshape(b, {2, 8, 64});
    const Tensor both = concatenate({a, reader == Reader::reshape ? shaped : b}, 1);
    g.output(matmul(both, w), "y");
    CHECK((kernels(g).size() == 3) == (reader == Reader::product));
  }
}

TEST_CASE("an image whose halves are read apart keeps its channels last") {
  Graph g{{.io = f16, .intermediate = f16}};
  const auto image = [&](const char* name, Dims dim) {
    return g.tensor({.name = name,
                     .dim = dim,
                     .stride = {dim[1] * dim[2] * dim[3], 1, dim[1] * dim[3], dim[1]}});
  };
  const Tensor y = relu(conv_fprop(image("x", {2, 128, 6, 6}), image("v", {128, 128, 1, 1}))),
               a = slice(y, {{0, 0, 0, 0}, {2, 64, 6, 6}, {}}),
               b = slice(y, {{0, 64, 0, 0}, {2, 128, 6, 6}, {}});
  const ConvAttributes padded{.pre_padding = {1, 1}, .post_padding = {1, 1}};
  const Tensor c = conv_fprop(b, image("w", {64, 64, 3, 3}), padded);
  g.output(conv_fprop(concatenate({a, b, c}, 1), image("u", {16, 192, 1, 1})), "y");
  CHECK(kernels(g).size() == 5);
}

TEST_CASE("a norm's rolled rows are stored in 16 bits where they are copied into windows") {
  Graph g{{.io = bf16}};
  const Dims dim{2, 6, 6, 16};
  const Tensor y = layernorm(g.tensor({.name = "x", .dim = dim}),
                             g.tensor({.name = "w", .dim = {1, 1, 1, 16}}),
                             g.tensor({.name = "b", .dim = {1, 1, 1, 16}}), 1e-5)
                       .y,
               rolled = concatenate(
                   {slice(y, {{0, 1, 0, 0}, dim, {}}), slice(y, {{0, 0, 0, 0}, {2, 1, 6, 16}, {}})},
                   1);
  g.output(reshape(transpose(reshape(rolled, {2, 2, 3, 2, 3, 16}), {0, 1, 3, 2, 4, 5}), {8, 9, 16}),
           "y");
  CHECK(kernels(g).size() == 2);
  CHECK(moved_bytes(g) == 2 * (4 * count(dim) + 2 * 16));
}
