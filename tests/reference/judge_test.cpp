// Cases that once fooled the judge, and the parts of it that whole comparisons do not reach: the
// slope check, long chains, sums of equal terms, products, broadcast and strided memory.
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "lower/lower.hpp"
#include "reference/element.hpp"
#include "reference/fills.hpp"
#include "reference/reference.hpp"
#include "reference/slope.hpp"
#include "sinter/operations.hpp"
#include "support/catch.hpp"

using namespace sinter;

namespace {

// The bounds of output "Y" of a graph with one input "X".
std::vector<Judged> judge_all(Graph& graph, void* x) {
  const auto wrong = graph.check();
  INFO((wrong.empty() ? "" : wrong.front().message()));
  REQUIRE(wrong.empty());
  const Lowered lowered = lower(graph);
  const TensorId y = *lowered.graph->find("Y");
  std::vector<std::int64_t> all;
  for (std::int64_t i = 0; i < count((*lowered.graph)[y].dim); ++i) all.push_back(i);
  const auto judged = judge(*lowered.graph, {{*lowered.graph->find("X"), x}}, y, all);
  REQUIRE(judged);
  return *judged;
}

std::vector<reference::SlopePoint> points(double scale, double lean, int n, bool equal = false) {
  std::mt19937_64 random(5);
  std::normal_distribution<> normal;
  std::vector<reference::SlopePoint> all;
  for (int i = 0; i < n; ++i) {
    const double v = equal ? 1.37 : normal(random), half = std::ldexp(1, std::ilogb(v) - 8);
    // The arithmetic may be off by half a step of bf16; `lean` of it is the same for all.
    const double shift = half * (lean + (1 - lean) * (static_cast<double>(i % 7) / 3 - 1));
    all.push_back(
        {round_to(bf16, v * scale + 0.5 * shift), {v, 0.5 * half}, round_to(bf16, v), half});
  }
  return all;
}

}  // namespace

TEST_CASE("a scale error beneath 16-bit roundings is seen over many elements",
          "[reference][judge]") {
  CHECK(reference::slope_ok(points(1, 0, 4000)));
  CHECK(reference::slope_ok(points(1, 0.5, 4000)));
  CHECK_FALSE(reference::slope_ok(points(0.996, 0, 4000)));
  CHECK_FALSE(reference::slope_ok(points(1.004, 0, 4000)));
  CHECK(reference::slope_ok(points(1, 1, 4000, true)));  // equal values round alike
  CHECK(reference::slope_ok({}));
}

TEST_CASE("sums of equal terms may drift in one direction", "[reference][judge]") {
  constexpr std::int64_t n = 1 << 14;
  Graph g;
  g.output(reduction(g.tensor({.name = "X", .dim = {1, n}}), ReductionMode::add, {1, 1}), "Y");
  std::vector<float> x(n, 0.1f);
  const Judged j = judge_all(g, x.data())[0];
  float sum = 0;
  for (float v : x) sum += v;
  CAPTURE(j.value, j.error, sum);
  CHECK(std::fabs(sum - j.value) <= j.error);
  CHECK(j.error < 2e-3 * j.value);
}

// As a scale for each block along k, of an operand that is broadcast along it, makes them.
TEST_CASE("sums of blocks of equal terms may drift, too", "[reference][judge]") {
  constexpr std::int64_t n = 1 << 12;
  for (const bool product : {false, true}) {
    CAPTURE(product);
    Graph g;
    const Tensor x = g.tensor({.name = "X", .dim = {1, n}});
    g.output(product ? matmul(x, transpose(x, {1, 0})) : reduction(x, ReductionMode::add, {1, 1}),
             "Y");
    std::vector<float> values(n, product ? 0.73f : 0.54608663f);
    std::fill(values.begin() + n / 2, values.end(), product ? 0.1234f : 0.01566726f);
    const Judged j = judge_all(g, values.data())[0];
    float sum = 0;
    for (float v : values) sum += product ? v * v : v;
    CAPTURE(j.value, j.error, sum);
    CHECK(std::fabs(sum - j.value) > 300 * 0x1p-24 * j.value);  // above a root's growth
    CHECK(std::fabs(sum - j.value) <= j.error);
  }
}

// A filter's gradient of an image and a gradient that are broadcast along the lines, and a sum over
// the axis that an operand is broadcast along: equal terms do not stand side by side.
TEST_CASE("sums of lines that are repeated may drift, too", "[reference][judge]") {
  constexpr std::int64_t n = 1 << 12;
  for (const bool product : {false, true}) {
    CAPTURE(product);
    Graph g;
    const Tensor x = g.tensor({.name = "X", .dim = {1, 1, n, 2}, .stride = {2, 2, 0, 1}});
    g.output(product ? conv_wgrad(x, x, {1, 1, 1, 1}, {})
                     : reduction(x, ReductionMode::add, {1, 1, 1, 1}),
             "Y");
    std::vector<float> values{product ? 0.73f : 0.13563359f, product ? 0.1234f : 0.5309463f};
    const Judged j = judge_all(g, values.data())[0];
    float sum = 0;
    for (std::int64_t i = 0; i < n; ++i)
      for (float v : values) sum += product ? v * v : v;
    CAPTURE(j.value, j.error, sum);
    CHECK(std::fabs(sum - j.value) > 400 * 0x1p-24 * j.value);  // above a root's growth
    CHECK(std::fabs(sum - j.value) <= j.error);
  }
}

// What is not judged may be infinite or NaN in a kernel, which multiplies it by the padding.
TEST_CASE("padding beside a number that is not judged is open", "[reference][judge]") {
  for (const double least : {0.0, 1.0}) {
    CAPTURE(least);
    Graph g;
    const Tensor x = g.tensor({.name = "X", .dim = {1, 1, 2}});
    const Tensor dy = sqrt((sin(x) - sin(x)) + (gen_index(x, 2) + least));
    g.output(conv_wgrad(dy, x, {1, 1, 2}, {.pre_padding = {1}}), "Y");
    std::vector<float> values{0.7f, 0.3f};
    CHECK(std::isinf(judge_all(g, values.data())[0].error) == (least == 0));
  }
}

TEST_CASE("sums of integers and of short binary fractions are exact, others are not",
          "[reference][judge]") {
  const auto error = [](std::vector<float> x) {
    Graph g;
    const auto n = static_cast<std::int64_t>(x.size());
    g.output(reduction(g.tensor({.name = "X", .dim = {n}}), ReductionMode::add, {1}), "Y");
    return judge_all(g, x.data())[0].error;
  };
  CHECK(error({1, 2, -3, 1000}) == 0);
  CHECK(error({0.25f, -0.5f, 1024}) == 0);
  CHECK(error({16777216, 1, 1}) > 0);
  CHECK(error({0.1f, 1}) > 0);
  CHECK(error({0x1p-140f, 0x1p-149f}) == 0);
}

TEST_CASE("an average of subnormal numbers may lose its last bit", "[reference][judge]") {
  for (const float x : {0x1p-149f, 1.0f}) {
    CAPTURE(x);
    Graph g;
    g.output(resample(g.tensor({.name = "X", .dim = {1, 1, 2}}),
                      {.mode = ResampleMode::avgpool_include_padding, .window = {2}})
                 .y,
             "Y");
    std::vector<float> values{x, 0};
    const Judged j = judge_all(g, values.data())[0];
    CHECK((j.error > 0) == (x < 1));
    CHECK(j.error >= std::fabs(static_cast<float>(j.value) - j.value));
  }
}

TEST_CASE("a product is exact only while its bits fit", "[reference][judge]") {
  const auto judged = [](std::vector<float> x, ReductionMode mode) {
    Graph g;
    const auto n = static_cast<std::int64_t>(x.size());
    g.output(reduction(g.tensor({.name = "X", .dim = {n}}), mode, {1}), "Y");
    return judge_all(g, x.data())[0];
  };
  CHECK(judged({3, 0.5f, -4, 5}, ReductionMode::mul).error == 0);
  CHECK(judged(std::vector<float>(14, 1.875f), ReductionMode::mul).error > 0);
  CHECK(judged({1e30f, 1e30f, 1e-30f}, ReductionMode::mul).error > 1e300);
  CHECK(judged({0, 3}, ReductionMode::mul_no_zeros).value == 3);
  CHECK(judged({0, 0}, ReductionMode::mul_no_zeros).value == 1);
  // Infinite, or NaN where the small ones vanish first.
  constexpr float inf = std::numeric_limits<float>::infinity();
  CHECK(judged({inf, 0.5f}, ReductionMode::mul_no_zeros).error == 0);
  CHECK(judged({inf, 1e-30f, 1e-30f}, ReductionMode::mul_no_zeros).error > 0);
}

TEST_CASE("products below the smallest float are not taken for exact", "[reference][judge]") {
  Graph g;
  const Tensor x = g.tensor({.name = "X", .dim = {1, 1}});
  g.output(matmul(x, x), "Y");
  float tiny = 0x1p-80f;
  const Judged j = judge_all(g, &tiny)[0];
  CHECK(j.value == 0x1p-160);
  CHECK(j.error >= j.value);  // a kernel has 0
}

TEST_CASE("subnormal factors of f16 cost tensor cores last bits", "[reference][judge]") {
  const auto error = [](std::vector<std::uint16_t> values) {
    Graph g({.io = f16, .intermediate = f32, .compute = f32});
    const Tensor x = g.tensor({.name = "X", .dim = {1, 2}});
    g.output(matmul(x, transpose(x, {1, 0})), "Y", {.data_type = f32});
    return judge_all(g, values.data())[0].error;
  };
  CHECK(error({0x3c00, 0x3800}) == 0);                       // 1, 0.5
  CHECK(error({0x0400, 0x0800}) == 0);                       // 2^-14, 2^-13
  CHECK(error({0x0001, 0x0010}) == 17 * 0x1p-28 * 0x1p-23);  // 2^-24, 2^-20
}

TEST_CASE("chains of 500 nodes need no deep stack and stay judged", "[reference][judge]") {
  Graph g;
  Tensor t = g.tensor({.name = "X", .dim = {3, 50}});
  for (int i = 0; i < 250; ++i) t = tanh(t) * 1.5;
  g.output(t, "Y");
  std::vector<float> x(150, 0.7f);
  for (const Judged& j : judge_all(g, x.data())) CHECK(j.error < 1e-3);
}

TEST_CASE("NaN and infinity are judged exactly where they are certain", "[reference][judge]") {
  Graph g;
  const Tensor x = g.tensor({.name = "X", .dim = {6}});
  g.output(sqrt(x) + 1.0, "Y");
  const float inf = std::numeric_limits<float>::infinity();
  std::vector<float> values{-1, inf, std::nanf(""), 4, 2, -inf};
  const auto judged = judge_all(g, values.data());
  for (const int i : {0, 2, 5}) {
    CHECK(std::isnan(judged[static_cast<std::size_t>(i)].value));
    CHECK(judged[static_cast<std::size_t>(i)].error == 0);
  }
  CHECK(judged[1].value == inf);
  CHECK(judged[1].error == 0);
  CHECK(judged[3].value == 3);
  CHECK(judged[3].error == 0);
  CHECK(judged[4].error > 0);
  CHECK(judged[4].error < 1e-6);
}

TEST_CASE("the reciprocal of what is stored as a zero of either sign is open",
          "[reference][judge]") {
  Graph g;
  const Tensor x = g.tensor({.name = "X", .dim = {3}});
  const Tensor a = exp(x) - 1.0;
  g.output(a, "A", {.data_type = DataType::f8e4m3});
  g.output(reciprocal(a), "Y");
  std::vector<float> values{-1e-9f, 0, 1};  // exp is off by two last places
  const auto judged = judge_all(g, values.data());
  CHECK(std::isinf(judged[0].error));
  CHECK(judged[1].value == std::numeric_limits<double>::infinity());
  CHECK(judged[1].error == 0);
  CHECK(judged[2].error < 1);
}

TEST_CASE("a virtual f32 operand of a bf16 graph may be rounded, and only there",
          "[reference][judge]") {
  const auto error = [](DataType io) {
    Graph g({.io = io});
    const Tensor x = g.tensor({.name = "X", .dim = {8, 8}, .data_type = f32});
    g.output(matmul(exp(x), x), "Y", {.data_type = f32});
    std::vector<float> values(64);
    for (std::size_t i = 0; i < 64; ++i) values[i] = 0.01f * static_cast<float>(i) + 0.123f;
    double worst = 0;
    for (const Judged& j : judge_all(g, values.data())) worst = std::max(worst, j.error / j.value);
    return worst;
  };
  CHECK(error(f32) < 1e-5);
  CHECK(error(bf16) > 1e-3);
  CHECK(error(bf16) < 1e-2);
}

TEST_CASE("tensor cores round a number that is passed by value, too", "[reference][judge]") {
  Graph g({.name = "tf32", .compute = tf32});
  TensorDesc number;
  number.name = "number", number.data_type = f32;
  number.dim = {1, 1}, number.dim_known = true;
  number.has_value = true, number.value = 0.1;
  const Tensor x = g.tensor("X", {1, 4});
  g.output(matmul(Tensor(&g, detail::GraphEditor(g).declare(number)), x), "Y");
  std::vector<float> ones(4, 1);
  for (const Judged& y : judge_all(g, ones.data())) CHECK(y.error >= 0.1 * 0x1p-12);
}

TEST_CASE("strided and broadcast memory is read and written by its strides", "[reference][judge]") {
  Graph g;
  const Tensor x = g.tensor({.name = "X", .dim = {2, 3}, .stride = {1, 4}}),
               row = g.tensor({.name = "R", .dim = {2, 3}, .stride = {0, 2}});
  g.output(x + row, "Y", {.stride = {5, 1}});
  REQUIRE(g.check().empty());
  const Lowered lowered = lower(g);
  std::vector<float> xs{1, 2, -1, -1, 3, 4, -1, -1, 5, 6}, rows{10, -1, 20, -1, 30}, y(8, -7);
  HostPointers memory{{*lowered.graph->find("X"), xs.data()},
                      {*lowered.graph->find("R"), rows.data()},
                      {*lowered.graph->find("Y"), y.data()}};
  REQUIRE(evaluate(*lowered.graph, memory));
  CHECK(y == std::vector<float>{11, 23, 35, -7, -7, 12, 24, 36});
  const auto c = compare(*lowered.graph, memory, *lowered.graph->find("Y"), y.data());
  REQUIRE(c);
  CHECK(c->ok());
  CHECK(c->exact == 6);
}

// The tensor cores of sm_90a multiply them as they lie, and sum 8-bit products with fewer bits.
TEST_CASE("a view of 8-bit floats is multiplied as they are", "[reference][judge]") {
  const auto error = [](DataType type, DataType io, bool copied = false) {
    Graph g({.io = io, .intermediate = f32});
    const auto x = g.tensor({.name = "X", .dim = {1, 4}, .data_type = type});
    const auto view =
        reshape(slice(transpose(x, {1, 0}), {.start = {0, 0}, .limit = {4, 1}}), {4, 1});
    const auto y = matmul(x, copied ? identity(view) : view);
    g.output(y, "Y", {.data_type = f32});
    std::vector<std::uint8_t> bytes{0x38, 0x3c, 0x08, 0x40};  // 1, 1.5, 2^-6, 2
    std::vector<float> floats{1, 1.5f, 0x1p-6f, 2};
    return judge_all(g, type == f32 ? static_cast<void*>(floats.data()) : bytes.data())[0].error;
  };
  for (const DataType io : {f8e4m3, f32}) {
    CHECK(error(f32, io) == 0);
    CHECK(error(f8e4m3, io) >= 0x1p-12);  // the square of the third is lost
    CHECK(error(f32, io, true) == 0);
    CHECK(error(f8e4m3, io, true) >= 0x1p-12);  // copied, as for several heads
  }
}

// Kernels scale the sum: x w is rounded, and then its multiple, where the first rounding may be
// twice as large, relative to the result, as that of x scale.
TEST_CASE("a scale of 8-bit numbers may be multiplied with the sum", "[reference][judge]") {
  const auto error = [](DataType type, bool constant) {
    Graph g({.io = f32, .intermediate = f32});
    const auto x = g.tensor({.name = "X", .dim = {1, 2}, .data_type = type});
    g.output(matmul(constant ? x * 1.1f : x * x, transpose(x, {1, 0})), "Y");
    std::vector<std::int8_t> bytes{3, 0};
    std::vector<float> floats{3, 0};
    return judge_all(g, type == i8 ? static_cast<void*>(bytes.data()) : floats.data())[0].error;
  };
  CHECK(error(i8, true) >= error(f32, true) + 9.8 * 0x1p-24);
  CHECK(error(i8, false) == error(f32, false));  // not the same for all of k
}

// Rows of equal scores: their exponentials are 1 in a kernel that subtracts first, and nearly 1 in
// one that scales first, as those of attention do.
TEST_CASE("attention that is written out may scale scores before it subtracts",
          "[reference][judge]") {
  const auto error = [](bool multiplied, bool of_largest, float score = 1000) {
    Graph g({.io = f32, .intermediate = f32});
    const auto x = g.tensor({.name = "X", .dim = {2, 2}});
    const auto shift = of_largest ? reduction(x, ReductionMode::max, {2, 1}) : x;
    const auto e = exp(x - shift), p = e / reduction(e, ReductionMode::add, {2, 1});
    g.output(multiplied ? matmul(p, p) : p, "Y");
    std::vector<float> scores(4, score);
    return judge_all(g, scores.data())[0].error;
  };
  CHECK(error(true, true) >= 500 * 0x1p-24);
  CHECK(error(true, true) <= 4000 * 0x1p-24);
  CHECK(error(false, true) == 0);
  CHECK(error(true, false) == 0);
  for (const float mask : {-30000.f, -1e30f}) {
    CHECK(error(true, true, mask) >= 4096 * 0x1p-24);
    CHECK(error(true, true, mask) <= 4 * 8192 * 0x1p-24);
  }
}

TEST_CASE("zero padding times infinity is open, what lies inside the image is not",
          "[reference][judge]") {
  Graph g;
  const auto x = g.tensor("X", {1, 1, 1, 3});
  const auto filter = slice(x, {.start = {0, 0, 0, 0}, .limit = {1, 1, 1, 2}});
  g.output(conv_fprop(x, filter, {.pre_padding = {0, 1}, .post_padding = {0, 0}}), "Y");
  constexpr float inf = std::numeric_limits<float>::infinity();
  const auto judged = [&](std::vector<float> values) { return judge_all(g, values.data()); };
  CHECK(judged({4, 1, 3})[0].error == 0);
  CHECK(judged({inf, 1, 3})[0].error == inf);
  CHECK(judged({inf, 1, 3})[1].value == inf);
  CHECK(judged({inf, 1, 3})[1].error == 0);
}
