// The judge itself: correct kernels must pass, whatever their order of summation, and each kind of
// planted error must be found.
#include <cmath>
#include <functional>
#include <limits>
#include <vector>

#include "lower/lower.hpp"
#include "reference/element.hpp"
#include "reference/fills.hpp"
#include "reference/reference.hpp"
#include "reference/samples.hpp"
#include "sinter/operations.hpp"
#include "support/catch.hpp"

using namespace sinter;

namespace {

constexpr std::int64_t kM = 48, kN = 80, kK = 700;

struct Wrong {  // what a mutated kernel does
  std::int64_t dropped_k = -1;
  double scale = 1;
  std::int64_t swapped_row = -1;
  double constant = 0;
};

// relu-free linear layer Y = A B + bias in 16-bit types, with a float accumulator.
struct Linear {
  Graph graph;
  Lowered lowered;
  HostArrays arrays;
  HostPointers inputs;
  TensorId y;
  std::vector<std::uint16_t> out = std::vector<std::uint16_t>(kM * kN);

  Linear(DataType io, Fill fill) : graph({.io = io}) {
    const Tensor a = graph.tensor({.name = "A", .dim = {kM, kK}}),
                 b = graph.tensor({.name = "B", .dim = {kK, kN}}),
                 bias = graph.tensor({.name = "bias", .dim = {1, kN}});
    graph.output(matmul(a, b) + bias, "Y");
    REQUIRE(graph.check().empty());
    auto random = random_inputs(graph, fill, 11);
    REQUIRE(random);
    arrays = std::move(*random);
    lowered = lower(graph);
    for (auto& [t, pointer] : arrays.pointers())
      inputs[*lowered.graph->find(graph[t].name)] = pointer;
    y = *lowered.graph->find("Y");
  }

  float load(const char* name, std::int64_t i) {
    const TensorId t = *graph.find(name);
    return static_cast<float>(load_element(graph.type(t), arrays.bytes[t].data(), i));
  }

  // order 0: ascending, 1: descending, 2: four partial sums, 3: fma
  void kernel(int order, const Wrong& wrong = {}) {
    std::vector<float> a(kM * kK), b(kK * kN);
    for (std::int64_t i = 0; i < kM * kK; ++i) a[static_cast<std::size_t>(i)] = load("A", i);
    for (std::int64_t i = 0; i < kK * kN; ++i) b[static_cast<std::size_t>(i)] = load("B", i);
    for (std::int64_t m = 0; m < kM; ++m)
      for (std::int64_t n = 0; n < kN; ++n) {
        const std::int64_t row = m == wrong.swapped_row ? m + 1 : m;
        float sum[4] = {};
        for (std::int64_t i = 0; i < kK; ++i) {
          const std::int64_t k = order == 1 ? kK - 1 - i : i;
          if (k == wrong.dropped_k) continue;
          const float x = a[static_cast<std::size_t>(row * kK + k)],
                      w = b[static_cast<std::size_t>(k * kN + n)];
          float& s = sum[order == 2 ? k % 4 : 0];
          if (order == 3) {
            s = std::fma(x, w, s);
          } else {
            const volatile float product = x * w;
            s += product;
          }
        }
        const float total = (sum[0] + sum[1]) + (sum[2] + sum[3]);
        const float v = static_cast<float>(wrong.scale) * (total + load("bias", n)) +
                        static_cast<float>(wrong.constant);
        store_element(graph.options().io, out.data(), m * kN + n, v);
      }
  }

  Comparison judge(std::int64_t samples = 0) {
    auto c = compare(*lowered.graph, inputs, y, out.data(), samples);
    REQUIRE(c);
    return *c;
  }
};

}  // namespace

TEST_CASE("correct kernels pass in every order of summation", "[reference][compare]") {
  for (const DataType io : {bf16, f16})
    for (const Fill fill : {Fill::normal, Fill::uniform, Fill::ternary, Fill::heavy_tail}) {
      Linear linear(io, fill);
      for (int order = 0; order < 4; ++order) {
        linear.kernel(order);
        const Comparison c = linear.judge();
        CAPTURE(name(io), static_cast<int>(fill), order, c.first_wrong);
        CHECK(c.ok());
        CHECK(c.compared == kM * kN);
        CHECK(c.worst_ratio <= 1);
        if (fill != Fill::heavy_tail) CHECK(c.untrusted == 0);
        if (fill == Fill::ternary) CHECK(c.exact == c.compared);
      }
    }
}

TEST_CASE("planted errors are found", "[reference][compare]") {
  const Wrong mutants[] = {
      {.dropped_k = 13}, {.scale = 0.999}, {.swapped_row = 7}, {.constant = 0.01}, {.scale = -1}};
  for (const DataType io : {bf16, f16})
    for (const Fill fill : {Fill::normal, Fill::uniform})
      for (const Wrong& wrong : mutants) {
        Linear linear(io, fill);
        linear.kernel(0, wrong);
        const Comparison c = linear.judge();
        CAPTURE(name(io), static_cast<int>(fill), wrong.dropped_k, wrong.scale, wrong.swapped_row,
                wrong.constant);
        CHECK_FALSE(c.ok());
        CHECK(c.first_wrong.find("'Y'") != std::string::npos);
      }
}

TEST_CASE("one wrong element, an infinity and a NaN are found", "[reference][compare]") {
  Linear linear(bf16, Fill::normal);
  linear.kernel(0);
  const std::uint16_t right = linear.out[1234];
  for (const double value :
       {std::numeric_limits<double>::infinity(), std::numeric_limits<double>::quiet_NaN(), 1e6}) {
    store_element(bf16, linear.out.data(), 1234, value);
    const Comparison c = linear.judge();
    CAPTURE(value);
    CHECK(c.wrong == 1);
    CHECK_FALSE(c.ok());
    CHECK(c.first_wrong.find("[15, 34]") != std::string::npos);
  }
  linear.out[1234] = right;
  CHECK(linear.judge().ok());
}

TEST_CASE("samples take corners and find a wrong corner", "[reference][compare]") {
  Linear linear(bf16, Fill::normal);
  linear.kernel(0);
  CHECK(linear.judge(50).ok());
  CHECK(linear.judge(50).compared <= 50);
  store_element(bf16, linear.out.data(), kM * kN - 1, 1e6);
  CHECK_FALSE(linear.judge(50).ok());
}

TEST_CASE("samples are distinct, sorted and inside", "[reference][compare]") {
  for (const Dims& dim : {Dims{1000, 1000}, Dims{3, 5, 7, 2000}, Dims{100000}, Dims{5000, 1},
                          Dims{1, 1, 1}, Dims{4, 0}})
    for (const std::int64_t most : {1, 2, 7, 100, 333}) {
      const auto s = reference::sample_elements(dim, most, 5);
      CAPTURE(to_string(dim), most);
      CHECK(static_cast<std::int64_t>(s.size()) <= most);
      CHECK((count(dim) == 0 || !s.empty()));
      for (std::size_t i = 0; i < s.size(); ++i) {
        REQUIRE(s[i] >= 0);
        REQUIRE(s[i] < count(dim));
        REQUIRE((i == 0 || s[i - 1] < s[i]));
      }
      CHECK(s == reference::sample_elements(dim, most, 5));
    }
}

TEST_CASE("judging single elements gives what judging all gives", "[reference][compare]") {
  Graph g({.io = bf16});
  const Tensor x = g.tensor({.name = "X", .dim = {6, 40, 24}});
  const Tensor y = softmax(x, {.axis = 1}).y;
  g.output(reshape(transpose(y, {2, 0, 1}), {24, 240}), "Y");
  REQUIRE(g.check().empty());
  const Lowered lowered = lower(g);
  auto arrays = random_inputs(g, Fill::normal, 3);
  REQUIRE(arrays);
  HostPointers inputs{{*lowered.graph->find("X"), arrays->pointers().begin()->second}};
  const TensorId t = *lowered.graph->find("Y");
  const auto all = judge(*lowered.graph, inputs, t, reference::sample_elements({24, 240}, 0, 0));
  REQUIRE(all);
  const auto some = reference::sample_elements({24, 240}, 60, 9);
  const auto few = judge(*lowered.graph, inputs, t, some);
  REQUIRE(few);
  for (std::size_t i = 0; i < some.size(); ++i) {
    const auto& a = (*all)[static_cast<std::size_t>(some[i])];
    CHECK((*few)[i].value == a.value);
    CHECK((*few)[i].error == a.error);
  }
}

TEST_CASE("outputs that are judged together get what each gets alone, for the price of the last",
          "[reference][compare]") {
  Graph g({.io = bf16});
  constexpr int kLayers = 6;
  Tensor x = g.tensor({.name = "X", .dim = {32, 32}});
  for (int i = 0; i < kLayers; ++i) {  // each is stored in bf16, and the next reads it so
    x = matmul(x, g.tensor({.name = detail::text({"W", i}), .dim = {32, 32}})) * 0.25;
    g.output(x, detail::text({"Y", i}));
  }
  REQUIRE(g.check().empty());
  const Lowered lowered = lower(g);
  auto arrays = random_inputs(g, Fill::normal, 3);
  REQUIRE(arrays);
  HostPointers inputs;
  for (auto& [t, pointer] : arrays->pointers()) inputs[*lowered.graph->find(g[t].name)] = pointer;
  const auto every = reference::sample_elements({32, 32}, 0, 0);
  std::vector<JudgeRequest> requests;
  for (int i = 0; i < kLayers; ++i)
    requests.push_back({*lowered.graph->find(detail::text({"Y", i})), every});
  const auto together = judge(*lowered.graph, inputs, requests);
  REQUIRE(together);
  for (std::size_t i = 0; i < requests.size(); ++i) {
    const auto alone = judge(*lowered.graph, inputs, requests[i].tensor, every);
    REQUIRE(alone);
    bool same = true;
    for (std::size_t j = 0; j < every.size(); ++j)
      same &= (*alone)[j].value == (*together)[i][j].value &&
              (*alone)[j].error == (*together)[i][j].error;
    CHECK(same);
  }
  CHECK(judge_cost(*lowered.graph, requests) ==
        judge_cost(*lowered.graph, std::span(requests).last(1)));
  const TensorId last = requests.back().tensor;
  CHECK(compare_cost(*lowered.graph, std::span(&last, 1), 1) <
        compare_cost(*lowered.graph, std::span(&last, 1), 0));
}

TEST_CASE("a jump inside the bound is not judged, and counted", "[reference][compare]") {
  Graph g({.io = f32});
  const Tensor x = g.tensor({.name = "X", .dim = {64, 32}});
  // A sum that is exactly 0 in truth and not in float: its sign is open.
  const Tensor s = reduction(x, ReductionMode::add, {64, 1});
  g.output(s > 0.0, "positive", {.data_type = boolean});
  REQUIRE(g.check().empty());
  std::vector<float> values(64 * 32);
  for (std::size_t i = 0; i < values.size(); i += 2) {
    values[i] = 0.1f * static_cast<float>(i + 1);
    values[i + 1] = -values[i];
  }
  for (std::size_t i = 0; i < 32; ++i) values[i] = 1;
  const Lowered lowered = lower(g);
  HostPointers inputs{{*lowered.graph->find("X"), values.data()}};
  std::vector<std::uint8_t> out(64, 1);
  const auto c = compare(*lowered.graph, inputs, *lowered.graph->find("positive"), out.data());
  REQUIRE(c);
  CHECK(c->wrong == 0);
  CHECK(c->untrusted == 63);
  out[0] = 0;
  CHECK(compare(*lowered.graph, inputs, *lowered.graph->find("positive"), out.data())->wrong == 1);
}

TEST_CASE("a missing binding is named", "[reference][compare]") {
  Graph g;
  g.output(exp(g.tensor({.name = "X", .dim = {4}})), "Y");
  REQUIRE(g.check().empty());
  const Lowered lowered = lower(g);
  std::vector<float> y(4);
  const Status s = evaluate(*lowered.graph, {{*lowered.graph->find("Y"), y.data()}});
  REQUIRE_FALSE(s);
  CHECK(s.error().rule == Rule::binding_missing);
  CHECK(s.error().tensor == "X");
}
