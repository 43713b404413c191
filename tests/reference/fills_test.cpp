// Inputs made for a graph: reproducible, laid out by strides, and sensible for what they mean.
#include "reference/fills.hpp"

#include <cmath>
#include <set>

#include "lower/lower.hpp"
#include "reference/element.hpp"
#include "sinter/operations.hpp"
#include "support/catch.hpp"

using namespace sinter;

namespace {

std::vector<double> values(const Graph& g, HostArrays& arrays, const char* name) {
  const TensorId t = *g.find(name);
  std::vector<double> v;
  for (std::int64_t i = 0; i < count(g[t].dim); ++i)
    v.push_back(load_element(g.type(t), arrays.bytes[t].data(), i));
  return v;
}

HostArrays fill(const Graph& g, Fill f = Fill::normal, std::uint64_t seed = 1) {
  auto arrays = random_inputs(g, f, seed);
  REQUIRE(arrays);
  return std::move(*arrays);
}

}  // namespace

TEST_CASE("fills have their distribution and depend on seed and name", "[reference][fills]") {
  Graph g;
  const Tensor a = g.tensor({.name = "A", .dim = {100, 100}}),
               b = g.tensor({.name = "B", .dim = {100, 100}});
  g.output(a + b, "Y");
  for (const Fill f : {Fill::normal, Fill::uniform, Fill::ternary, Fill::heavy_tail}) {
    auto arrays = fill(g, f), again = fill(g, f), other = fill(g, f, 2);
    CHECK(arrays.bytes == again.bytes);
    CHECK(arrays.bytes != other.bytes);
    const auto v = values(g, arrays, "A");
    CHECK(v != values(g, arrays, "B"));
    double sum = 0, squares = 0, low = v[0], high = v[0];
    for (double x : v) {
      sum += x;
      squares += x * x;
      low = std::min(low, x);
      high = std::max(high, x);
    }
    const double n = static_cast<double>(v.size()), mean = sum / n,
                 deviation = std::sqrt(squares / n - mean * mean);
    CAPTURE(static_cast<int>(f), mean, deviation, low, high);
    switch (f) {
      case Fill::normal:
        CHECK(std::fabs(mean) < 0.02);
        CHECK(deviation == Approx(0.5).epsilon(0.03));
        break;
      case Fill::uniform:
        CHECK(low >= 0);
        CHECK(high < 1.0000001);
        CHECK(mean == Approx(0.5).epsilon(0.03));
        break;
      case Fill::ternary:
        CHECK(std::set<double>(v.begin(), v.end()) == std::set<double>{-1, 0, 1});
        CHECK(squares / n == Approx(2.0 / 3).epsilon(0.03));
        break;
      default:
        CHECK(high > 100);
    }
  }
}

TEST_CASE("gaps between strided elements hold NaN", "[reference][fills]") {
  Graph g;
  g.output(exp(g.tensor({.name = "X", .dim = {3, 2}, .stride = {4, 1}})), "Y");
  auto arrays = fill(g);
  const float* x = reinterpret_cast<const float*>(arrays.bytes.begin()->second.data());
  CHECK(arrays.bytes.begin()->second.size() == 10 * sizeof(float));
  for (const int i : {0, 1, 4, 5, 8, 9}) CHECK(std::isfinite(x[i]));
  for (const int i : {2, 3, 6, 7}) CHECK(std::isnan(x[i]));
}

TEST_CASE("inputs are what their ports mean", "[reference][fills]") {
  Graph g({.io = bf16});
  const Tensor x = g.tensor({.name = "X", .dim = {1, 12, 8}}),
               scale = g.tensor({.name = "scale", .dim = {1, 1, 8}}),
               epsilon = g.tensor({.name = "eps", .dim = {1}, .data_type = f32}),
               weight = g.tensor({.name = "W", .dim = {3, 8, 4}}),
               offsets = g.tensor({.name = "offsets", .dim = {4}, .data_type = i32}),
               index = g.tensor({.name = "index", .dim = {12}, .data_type = i32});
  g.output(layernorm(x, scale, Tensor{}, epsilon).y, "N");
  g.output(moe_grouped_matmul(x, weight, offsets, index, {.mode = MoeMode::scatter}), "M");
  REQUIRE(g.check().empty());
  auto arrays = fill(g);
  for (double v : values(g, arrays, "scale")) CHECK((v >= 0.5 && v <= 1.5));
  CHECK(values(g, arrays, "eps")[0] > 0);
  CHECK(values(g, arrays, "offsets") == std::vector<double>{0, 4, 8, 12});
  const auto order = values(g, arrays, "index");
  CHECK(std::set<double>(order.begin(), order.end()).size() == 12);
  CHECK(*std::max_element(order.begin(), order.end()) == 11);
}

TEST_CASE("lengths are full, page tables valid and distinct", "[reference][fills]") {
  Graph g;
  const auto i32_tensor = [&](const char* name, Dims dim) {
    return g.tensor({.name = name, .dim = dim, .data_type = i32});
  };
  const Tensor q = g.tensor({.name = "Q", .dim = {2, 2, 3, 4}}),
               k = g.tensor({.name = "K", .dim = {9, 2, 5, 4}}),
               v = g.tensor({.name = "V", .dim = {9, 2, 5, 4}});
  SdpaInputs in;
  in.seq_len_q = i32_tensor("LQ", {2, 1, 1, 1});
  in.seq_len_kv = i32_tensor("LK", {2, 1, 1, 1});
  in.page_table_k = i32_tensor("TK", {2, 1, 4, 1});
  in.page_table_v = i32_tensor("TV", {2, 1, 4, 1});
  g.output(sdpa(q, k, v, {.padding_mask = true}, in).o, "O");
  REQUIRE(g.check().empty());
  auto arrays = fill(g);
  CHECK(values(g, arrays, "LQ") == std::vector<double>{3, 3});
  CHECK(values(g, arrays, "LK") == std::vector<double>{20, 20});
  const auto table = values(g, arrays, "TK");
  const std::set<double> blocks(table.begin(), table.end());
  CHECK(blocks.size() == 8);
  CHECK(*blocks.begin() >= 0);
  CHECK(*blocks.rbegin() < 9);
}

TEST_CASE("O and Stats of an attention's gradient come from its forward pass",
          "[reference][fills]") {
  Graph g;
  const Dims dim{1, 2, 6, 4}, rows{1, 2, 6, 1};
  const Tensor q = g.tensor({.name = "Q", .dim = dim}), k = g.tensor({.name = "K", .dim = dim}),
               v = g.tensor({.name = "V", .dim = dim}), o = g.tensor({.name = "O", .dim = dim}),
               d_o = g.tensor({.name = "dO", .dim = dim}),
               stats = g.tensor({.name = "Stats", .dim = rows});
  const SdpaAttributes a{.attn_scale = 0.5, .causal_mask = true};
  g.output(sdpa_backward(q, k, v, o, d_o, stats, a).dq, "dQ");
  REQUIRE(g.check().empty());
  auto arrays = fill(g);
  // The first row sees the first key alone.
  const auto vs = values(g, arrays, "V"), os = values(g, arrays, "O"), qs = values(g, arrays, "Q"),
             ks = values(g, arrays, "K"), s = values(g, arrays, "Stats");
  double score = 0;
  for (std::size_t i = 0; i < 4; ++i) {
    CHECK(os[i] == Approx(vs[i]));
    score += 0.5 * qs[i] * ks[i];
  }
  CHECK(s[0] == Approx(score));
}
