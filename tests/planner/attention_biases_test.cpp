// Biases of attention that nodes make: which ones the scores' bodies compute, and which are written
// to memory.
#include <algorithm>
#include <functional>

#include "planned.hpp"
#include "schedule/attention/backward.hpp"
#include "sinter/sinter.hpp"
#include "support/catch.hpp"

namespace sinter::test::computed_biases {
namespace {

struct Shape {
  std::int64_t b = 2, h = 4, sq = 80, skv = 160;
};
using Bias = std::function<Tensor(Graph&, const Shape&)>;

Tensor input(Graph& g, const char* name, Dims dim, DataType type = DataType::none) {
  return g.tensor({.name = name, .dim = std::move(dim), .data_type = type});
}
Tensor distance(Graph& g, const Shape& s) {
  return gen_index(g, {1, 1, 1, s.skv}, 3) - gen_index(g, {1, 1, s.sq, 1}, 2);
}
Tensor slopes(Graph& g, const Shape& s) {
  return distance(g, s) * input(g, "slope", {1, s.h, 1, 1}, f32);
}
Tensor outer(Graph& g, const Shape& s) {
  return input(g, "of_queries", {s.b, s.h, s.sq, 1}) + input(g, "of_keys", {s.b, 1, 1, s.skv});
}

Shared<Graph> graph_of(const Shape& s, const Bias& bias, bool forward, bool backward) {
  auto g = Shared<Graph>::make(GraphOptions{.name = "biases", .io = bf16, .intermediate = f32});
  const Dims rows{s.b, s.h, s.sq, 64}, keys{s.b, s.h, s.skv, 64};
  const Tensor q = input(*g, "q", rows), k = input(*g, "k", keys), v = input(*g, "v", keys);
  const SdpaInputs more{.bias = bias(*g, s)};
  const SdpaAttributes a{.attn_scale = 0.125};
  if (forward) g->output(sdpa(q, k, v, a, more).o, "result");
  if (backward) {
    const auto r = sdpa_backward(q, k, v, input(*g, "o", rows), input(*g, "do", rows),
                                 input(*g, "stats", {s.b, s.h, s.sq, 1}, f32), a, more);
    g->output(r.dq, "dq"), g->output(r.dk, "dk"), g->output(r.dv, "dv");
  }
  REQUIRE(g->check().empty());
  return g;
}
// Kernels besides those that gradients without a bias have.
std::size_t written(const Shape& s, const Bias& bias, bool forward, bool backward) {
  const auto count = [](const Graph& g) { return for_sm_90a(g).kernels.size(); };
  const Bias none = [](Graph&, const Shape&) { return Tensor(); };
  return count(*graph_of(s, bias, forward, backward)) -
         count(*graph_of(s, none, forward, backward));
}

}  // namespace

TEST_CASE("scores compute biases of indices and of small tensors") {
  const Bias powers = [](Graph& g, const Shape& s) {
    const Tensor head = gen_index(g, {1, s.h, 1, 1}, 1);
    return abs(distance(g, s)) * pow(2.0, (head + 1.0) * -2.0);
  };
  const Bias decays = [](Graph& g, const Shape& s) {
    return exp(distance(g, s) * input(g, "slope", {s.b, s.h, 1, 1}, f32));
  };
  for (const Bias& bias : {Bias(slopes), powers, decays, Bias(outer)}) {
    CHECK(written({}, bias, true, false) == 0);
    CHECK(written({}, bias, false, true) == 0);
    CHECK(written({}, bias, true, true) == 0);  // one bias that both read
    check_values(*graph_of({}, bias, true, true));
  }
}

TEST_CASE("scores compute no bias that memory brings sooner, or whose operands are computed") {
  // Dear numbers that all heads share.
  const Bias shared = [](Graph& g, const Shape& s) { return exp(distance(g, s) * -0.1); };
  CHECK(written({.b = 16, .h = 16, .sq = 1024, .skv = 1024}, shared, true, false) == 1);
  // Rows of keys that boxes do not take.
  CHECK(written({.skv = 77}, outer, true, false) == 1);
  CHECK(written({.skv = 77}, slopes, true, false) == 0);
  // Gradients read rows of queries and of keys element by element.
  const Bias of_heads = [](Graph& g, const Shape& s) {
    return input(g, "of_queries", {1, s.h, s.sq, 1}) + input(g, "of_keys", {1, 1, 1, s.skv});
  };
  const Shape large{.b = 4, .h = 16, .sq = 1024, .skv = 1024};
  CHECK(written(large, of_heads, true, false) == 0);
  CHECK(written(large, of_heads, false, true) == 1);
  CHECK(written(large, slopes, false, true) == 0);
  // Slopes that a product gives.
  const Bias of_product = [](Graph& g, const Shape& s) {
    const Tensor slope = matmul(input(g, "a", {1, s.h, 1, 24}), input(g, "w", {1, s.h, 24, 1}));
    return distance(g, s) * slope;
  };
  CHECK(written({}, of_product, true, false) == 2);
  // Integers that are compared in f64.
  const Bias segments = [](Graph& g, const Shape& s) {
    const Tensor same = equal(input(g, "of_rows", {s.b, 1, s.sq, 1}, DataType::i32),
                              input(g, "of_columns", {s.b, 1, 1, s.skv}, DataType::i32));
    return select(same, 0.0, -1e30);
  };
  CHECK(written({}, segments, true, false) == 1);
}

TEST_CASE("biases of -infinity by rows and columns are bounds") {
  const auto hides = [](bool chunks) {
    return [chunks](Graph& g, const Shape& s) {
      const Tensor row = gen_index(g, {1, 1, s.sq, 1}, 2),
                   column = gen_index(g, {1, 1, 1, s.skv}, 3);
      const Tensor seen = chunks ? equal(floor(row / 16.0), floor(column / 16.0))
                                 : logical_and(column <= row + 3.0, column > row - 20.0);
      return select(seen, 0.0, -kInfinity);
    };
  };
  const Partition forward = for_sm_90a(*graph_of({}, hides(false), true, false));
  REQUIRE(families(forward) == std::vector{Family::attention});
  const AttentionSpec& a = forward.kernels[0].attention();
  CHECK((a.band.right == 3 && a.band.left == 20 && a.score.statements.empty()));
  const Partition chunked = for_sm_90a(*graph_of({}, hides(true), true, false));
  REQUIRE(families(chunked) == std::vector{Family::attention});
  CHECK(chunked.kernels[0].attention().band.chunk == 16);
  const Partition backward = for_sm_90a(*graph_of({}, hides(false), false, true));
  REQUIRE(backward.kernels.size() == 3);
  const AttentionBackwardSpec& of = backward.kernels[1].attention_backward();
  CHECK((of.band.right == 3 && of.band.left == 20 && of.score.statements.empty()));
  for (const bool chunks : {false, true}) check_values(*graph_of({}, hides(chunks), true, true));
}

TEST_CASE("dBias of pairs leaves as dS where two keys lie side by side, rounded like operands") {
  const auto leaves_in_pairs = [](const Shape& s, std::int64_t entries, DataType type,
                                  double softcap) {
    Graph g(GraphOptions{.name = "dbias", .io = bf16, .intermediate = f32});
    const Dims rows{s.b, s.h, s.sq, 64}, keys{s.b, s.h, s.skv, 64};
    const SdpaInputs more{.bias = input(g, "bias", {entries, s.h, s.sq, s.skv}, type)};
    const auto r = sdpa_backward(input(g, "q", rows), input(g, "k", keys), input(g, "v", keys),
                                 input(g, "o", rows), input(g, "do", rows),
                                 input(g, "stats", {s.b, s.h, s.sq, 1}, f32),
                                 {.attn_scale = 0.125, .softcap = softcap}, more);
    g.output(r.dq, "dq"), g.output(r.dbias, "dbias", {.data_type = type});
    const Partition planned = for_sm_90a(g);
    const auto kernel = std::ranges::find_if(
        planned.kernels, [](const KernelSpec& k) { return k.as_attention_backward() != nullptr; });
    REQUIRE(kernel != planned.kernels.end());
    return bias_gradient_of(*kernel).in_pairs;
  };
  CHECK(leaves_in_pairs({}, 2, bf16, 0));
  CHECK(leaves_in_pairs({.skv = 70}, 2, bf16, 0));
  CHECK_FALSE(leaves_in_pairs({.skv = 77}, 2, bf16, 0));
  CHECK_FALSE(leaves_in_pairs({}, 2, f32, 0));
  CHECK_FALSE(leaves_in_pairs({}, 1, bf16, 0));    // added up over entries
  CHECK_FALSE(leaves_in_pairs({}, 2, bf16, 5.0));  // dS is another number than the score's
}

TEST_CASE("a bias that the graph has as a result is read from memory") {
  const Bias output = [](Graph& g, const Shape& s) {
    const Tensor bias = slopes(g, s);
    g.output(bias, "bias");
    return bias;
  };
  CHECK(written({}, output, true, false) == 1);
}

}  // namespace sinter::test::computed_biases
