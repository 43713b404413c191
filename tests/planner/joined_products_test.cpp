// Products whose sums are added are one on sm_90a.
#include <algorithm>

#include "plan/access.hpp"
#include "planner/images.hpp"
#include "planner/planned.hpp"
#include "sinter/operations.hpp"

using namespace sinter;
using namespace sinter::test;

namespace {

struct Maker {
  Shared<Graph> g;
  int made = 0;

  explicit Maker(DataType io = bf16) : g(Shared<Graph>::make(GraphOptions{.io = io})) {}
  Tensor input(Dims dim, Dims stride = {}) {
    return g->tensor({.name = "x" + std::to_string(made++), .dim = dim, .stride = stride});
  }
  Tensor weight(std::int64_t k, std::int64_t n) { return input({k, n}, {1, k}); }
};

std::size_t parts(const KernelSpec& spec) {
  const ContractionSpec& c = spec.contraction();
  const auto a = joined_parts(spec, c.a().body), b = joined_parts(spec, c.b().body);
  CHECK(a.size() == b.size());
  return a.size();
}

const std::vector kOne{Family::contraction}, kTwo{Family::contraction, Family::contraction};

}  // namespace

TEST_CASE("a low-rank update is summed with its layer") {
  for (const bool low_first : {false, true}) {
    Maker m;
    const Tensor x = m.input({72, 1088}),
                 layer = matmul(x, m.weight(1088, 128)) + m.input({1, 128}),
                 low = matmul(matmul(x, m.weight(1088, 16)), m.weight(16, 128)) * 0.75;
    m.g->output(relu(low_first ? low + layer : layer + low), "y");
    const Partition p = for_sm_90a(*m.g);
    REQUIRE(families(p) == kTwo);
    CHECK(parts(p.kernels[0]) == 0);
    CHECK(parts(p.kernels[1]) == 2);
    CHECK(p.kernels[1].extent.back() == 1088 + 16);
    // The factor multiplies what has few columns.
    CHECK(p.kernels[0].body.statements.size() == 4);
    CHECK(p.kernels[0].scalars.size() == 1);
    CHECK(p.kernels[1].scalars.empty());
    check_values(*m.g);
    CHECK(for_target(*m.g, "sm_80").kernels.size() == 3);
  }
}

TEST_CASE("a factor multiplies no operand of f16, which has not the range of its sums") {
  Maker m(f16);
  const Tensor x = m.input({72, 1088}), layer = matmul(x, m.weight(1088, 128)),
               low = matmul(matmul(x, m.weight(1088, 16)), m.weight(16, 128));
  m.g->output(layer + low * 1e4, "y", {.data_type = f32});
  const Partition p = for_sm_90a(*m.g);
  CHECK(std::none_of(p.kernels.begin(), p.kernels.end(), joins_products));
  check_values(*m.g);
}

TEST_CASE("the factor of a low-rank update leaves what others read as it is") {
  Maker m;
  const Tensor x = m.input({72, 1088}), dy = m.input({72, 128}),
               inner = matmul(x, m.weight(1088, 16));
  m.g->output(matmul(x, m.weight(1088, 128)) + matmul(inner, m.weight(16, 128)) * 0.75, "y");
  m.g->output(matmul(transpose(inner, {1, 0}), dy), "gradient", {.data_type = f32});
  const Partition p = for_sm_90a(*m.g);
  const auto writes_both = [](const KernelSpec& spec) {
    return std::count_if(spec.ports.begin(), spec.ports.end(),
                         [](const KernelPort& port) { return port.written; }) == 2;
  };
  CHECK(std::any_of(p.kernels.begin(), p.kernels.end(), writes_both));
  CHECK(std::any_of(p.kernels.begin(), p.kernels.end(), joins_products));
  check_values(*m.g);
}

TEST_CASE("the gradient of what several projections read is one product") {
  for (const bool together : {false, true}) {  // whether weights lie along k
    Maker m(f16);
    Tensor sum;
    for (const std::int64_t k : {128, 64, 72}) {
      const Tensor term = matmul(m.input({192, k}), together ? m.weight(k, 96) : m.input({k, 96}));
      sum = k == 128 ? term : sum + term;
    }
    m.g->output(sum, "dx");
    const Partition p = for_sm_90a(*m.g);
    REQUIRE(families(p) == kOne);
    CHECK(parts(p.kernels[0]) == 3);
    check_values(*m.g);
  }
}

TEST_CASE("a product whose k fills no stages is the last one") {
  Maker m;
  const Tensor input = matmul(m.input({128, 40}), m.weight(40, 128)) + m.input({1, 128}),
               state = matmul(m.input({128, 128}), m.weight(128, 128));
  m.g->output(tanh(input + state), "y");
  const Partition p = for_sm_90a(*m.g);
  REQUIRE(families(p) == kOne);
  CHECK(joined_parts(p.kernels[0], p.kernels[0].contraction().a().body)[1].from == 128);
  check_values(*m.g);
}

// A bottleneck of 64 to 256 channels of 56 x 56 pixels, 32 images: 206 MB less between two kernels.
TEST_CASE("a block's projection with a bias of its own is summed with its last product") {
  for (const std::int64_t stride : {1, 2})
    for (const bool large : {false, true}) {
      Images i;
      const std::int64_t n = large ? 32 : 2, size = large ? 28 : 6, k = large ? 512 : 72,
                         c = large ? 256 : 64;
      const Dims x{n, c, size * stride, size * stride}, y{n, k, size, size};
      const auto bias = [&](const char* name) {
        return i.g->tensor({.name = name, .dim = {1, k, 1, 1}});
      };
      const Tensor main = conv_fprop(i.input("a", {n, 64, size, size}), i.input("w", {k, 64, 1, 1}),
                                     padded(0)) +
                          bias("b"),
                   side =
                       conv_fprop(i.input("x", x), i.input("v", {k, c, 1, 1}), padded(0, stride)) +
                       bias("d");
      i.output(relu(main + side), "y", y);
      const Partition p = planned(*i.g);
      CHECK(engines(*i.g) == (stride == 1 ? Engines{"wgmma"} : Engines{"pointwise", "wgmma"}));
      CHECK(parts(p.kernels.back()) == 2);
      if (!large) check_values(*i.g);
    }
}

TEST_CASE("products that are not only added keep kernels of their own") {
  const auto kernels = [](const auto& make) {
    Maker m;
    const Tensor one = matmul(m.input({128, 128}), m.weight(128, 128)),
                 other = matmul(m.input({128, 64}), m.weight(64, 128));
    make(m, one, other);
    check_values(*m.g);
    return for_sm_90a(*m.g).kernels.size();
  };
  CHECK(kernels([](Maker& m, const Tensor& a, const Tensor& b) { m.g->output(a + b, "y"); }) == 1);
  CHECK(kernels([](Maker& m, const Tensor& a, const Tensor& b) {
          m.g->output(relu(a) + relu(b), "y");
        }) == 2);
  CHECK(kernels([](Maker& m, const Tensor& a, const Tensor& b) { m.g->output(a * b, "y"); }) == 2);
  CHECK(kernels([](Maker& m, const Tensor& a, const Tensor& b) {
          m.g->output(a + b, "y");
          m.g->output(b, "b", {.data_type = f32});
        }) == 2);
  // Neither fills stages.
  Maker m;
  m.g->output(
      matmul(m.input({128, 72}), m.weight(72, 128)) + matmul(m.input({128, 40}), m.weight(40, 128)),
      "y");
  CHECK(for_sm_90a(*m.g).kernels.size() == 2);
  check_values(*m.g);
}
