// Tensors that lie across what a kernel's threads read side by side, and layouts that avoid it.
#include <algorithm>

#include "plan/access.hpp"
#include "planner/moved.hpp"
#include "planner/planned.hpp"
#include "schedule/scheduled_kernel.hpp"
#include "sinter/operations.hpp"
#include "support/catch.hpp"
#include "support/scheduled.hpp"

using namespace sinter;
using namespace sinter::test;

namespace {

Tensor norm(Graph& g, const Tensor& x) {
  const auto number = [&](const char* name) {
    return g.tensor({.name = name, .dim = {1, 1, x.dim().back()}});
  };
  return layernorm(x, number("scale"), number("bias"), 1e-5).y;
}

std::vector<Family> families_of(const std::vector<KernelSpec>& kernels) {
  std::vector<Family> families;
  for (const KernelSpec& k : kernels) families.push_back(family_of(k));
  return families;
}

// Tokens of images whose channels lie first, side by side with their pixels.
struct Image {
  std::int64_t images = 2, channels = 136, pixels = 984;
  Dims first() const { return {images, channels, pixels}; }
  Dims tokens() const { return {images, pixels, channels}; }
};

}  // namespace

TEST_CASE("what lies across the rows of a norm is transposed by a kernel of its own") {
  for (const std::int64_t images : {1, 2}) {
    const Image image{.images = images};
    const bool many = images == 2;  // of fewer elements a kernel is not worth it
    CAPTURE(images);
    Graph reads{{.io = bf16}};
    const auto x = reads.tensor({.name = "x", .dim = image.first()});
    reads.output(norm(reads, transpose(x, {0, 2, 1})), "y");
    auto k = kernels(reads);
    REQUIRE(k.size() == (many ? 2u : 1u));
    if (many) CHECK(families_of(k) == std::vector{Family::pointwise, Family::rowwise});

    Graph writes{{.io = bf16}};
    const auto t = writes.tensor({.name = "t", .dim = image.tokens()});
    writes.output(transpose(norm(writes, t), {0, 2, 1}), "y");
    k = kernels(writes);
    REQUIRE(k.size() == (many ? 2u : 1u));
    if (many) CHECK(families_of(k) == std::vector{Family::rowwise, Family::pointwise});
    for (Graph* g : {&reads, &writes}) check_values(*g);
  }
}

TEST_CASE("what lies along rows that are together is transposed, too, and nothing else is") {
  const Image image;
  for (const bool transposed : {false, true}) {
    Graph g{{.io = bf16}};
    const auto x = g.tensor({.name = "x", .dim = image.first()}),
               mask = transposed
                          ? transpose(g.tensor({.name = "m", .dim = image.tokens()}), {0, 2, 1})
                          : g.tensor({.name = "m", .dim = image.first()});
    g.output(softmax(x + mask, {.axis = 1}), "y");
    const auto k = kernels(g);
    CHECK(k.size() == (transposed ? 2u : 1u));
    for (const KernelSpec& spec : k)
      if (spec.as_rowwise())
        for (const KernelPort& p : spec.ports)
          CHECK(p.access.stride[spec.rowwise().outer_rank - 1] == 1);
    check_values(g);
  }
}

TEST_CASE("patches of an image are tokens, whose channels a convolution stores last") {
  for (const bool last : {true, false}) {
    CAPTURE(last);
    Graph g{{.io = bf16}};
    const auto image = [&](const char* name, std::int64_t n, std::int64_t h) {
      const Dims dim{n, 3, h, h}, stride{3 * h * h, 1, 3 * h, 3};
      return last ? g.tensor({.name = name, .dim = dim, .stride = stride})
                  : g.tensor({.name = name, .dim = dim});
    };
    ConvAttributes patches;
    patches.stride = {16, 16};
    const auto sums = conv_fprop(image("x", 64, 224), image("w", 768, 16), patches),
               b = g.tensor({.name = "b", .dim = {1, 768, 1, 1}});
    const Tensor tokens = transpose(reshape(sums + b, {64, 768, 196}), {0, 2, 1});
    g.output(norm(g, tokens + g.tensor({.name = "p", .dim = {1, 196, 768}})), "y");
    const auto k = kernels(g);
    // What lies channels first is copied patch by patch.
    REQUIRE(families_of(k) ==
            (last ? std::vector{Family::contraction, Family::rowwise}
                  : std::vector{Family::pointwise, Family::contraction, Family::rowwise}));
    CHECK(scheduled(k[k.size() - 2], "sm_90a").wgmma());
    for (const KernelPort& p : k.back().ports)
      if (count(k.back().extent) == elements_reached(k.back().extent, p.access))
        CHECK(p.access.stride.back() == 1);
  }
}

// The residual is read as it lies, over the product's dims, though the norm is over the windows'.
TEST_CASE("a residual that windows are joined to is added behind a product") {
  Graph g{{.io = bf16}};
  const auto x = g.tensor({.name = "x", .dim = {2, 24, 16}}),
             o = g.tensor({.name = "o", .dim = {12, 4, 16}}),
             w = g.tensor({.name = "w", .dim = {1, 1, 16}}),
             m = g.tensor({.name = "m", .dim = {1, 16, 16}}),
             b = g.tensor({.name = "b", .dim = {1, 1, 16}});
  const Tensor image = transpose(reshape(o, {2, 2, 3, 2, 2, 16}), {0, 1, 3, 2, 4, 5});
  const Tensor sum = x + reshape(image, {2, 24, 16});
  g.output(sum + (matmul(rmsnorm(sum, w, Tensor{}, 1e-5).y, m) + b), "y");
  const auto k = kernels(g);
  REQUIRE(k.size() == 2);
  CHECK(family_of(k[0]) == Family::rowwise);
  CHECK(family_of(k[1]) == Family::contraction);
}

TEST_CASE("patches that are copied are those of the image") {
  Graph g{{.io = bf16}};
  const auto x = g.tensor({.name = "x", .dim = {40, 3, 64, 64}}),
             w = g.tensor({.name = "w", .dim = {512, 3, 16, 16}});
  ConvAttributes patches;
  patches.stride = {16, 16};
  g.output(conv_fprop(x, w, patches), "y");
  REQUIRE(families_of(kernels(g)) == std::vector{Family::pointwise, Family::contraction});
  check_values(g);
}

// Lines of 21 pixels begin nowhere that TMA may, nor do patches of 441; what is written does. What
// is added to tokens is added behind the sums.
TEST_CASE("patches of any size are copied as lines that TMA loads, and so are their filters") {
  Graph g{{.io = bf16}};
  const auto x = g.tensor({.name = "x", .dim = {100, 1, 42, 21}}),
             w = g.tensor({.name = "w", .dim = {64, 1, 21, 21}});
  ConvAttributes patches;
  patches.stride = {21, 21};
  const Tensor tokens = transpose(reshape(conv_fprop(x, w, patches), {100, 64, 2}), {0, 2, 1});
  g.output(tokens + g.tensor({.name = "p", .dim = {1, 2, 64}}), "y");
  const auto k = kernels(g);
  REQUIRE(families_of(k) == std::vector{Family::pointwise, Family::pointwise, Family::contraction});
  CHECK(scheduled(k[2], "sm_90a").wgmma());
  CHECK(k[2].contraction().k() == 1);
  check_values(g);
}

// Each vector is read for all of the others, by threads side by side along it.
TEST_CASE("distances of vectors are summed along what lies together, not as they are stored") {
  for (const std::int64_t n : {12, 200}) {
    Graph g{{.io = f32}};
    const auto x = g.tensor({.name = "x", .dim = {n, 1, 16}}),
               y = g.tensor({.name = "y", .dim = {1, n + 4, 16}});
    g.output(reduction(abs(x - y), ReductionMode::add, {n, n + 4, 1}), "distance");
    const auto k = kernels(g);
    REQUIRE(k.size() == 1);
    CHECK_FALSE(rows_lie_together(k[0]));
    check_values(g);
  }
}

TEST_CASE(
    "rows of a matrix that are an image's pixels take what is added to these behind the sums") {
  const Dims image{2, 40, 5, 6}, last{1200, 1, 240, 40};
  Graph g{{.io = bf16}};
  const auto x = g.tensor({.name = "x", .dim = {60, 64}}),
             w = g.tensor({.name = "w", .dim = {64, 40}}),
             r = g.tensor({.name = "r", .dim = image, .stride = last});
  const Tensor pixels = reshape(matmul(x, w), {2, 5, 6, 40});
  g.output(transpose(pixels, {0, 3, 1, 2}) + r, "y", {.stride = last});
  CHECK(kernels(g).size() == 1);
  check_values(g);
}
