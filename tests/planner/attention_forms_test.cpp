// Attention in the orders and dims in which models write it out: one kernel, with the right values.
#include <limits>

#include "planned.hpp"
#include "planner/rewrite/pass.hpp"
#include "schedule/attention/forward.hpp"
#include "schedule/scheduled_kernel.hpp"
#include "sinter/sinter.hpp"
#include "support/catch.hpp"
#include "target/device_model.hpp"

namespace sinter::test {
namespace forms {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

struct Operands {
  Tensor q, k, v;
};
// Leading dims of q, and of k and v.
Operands operands(Graph& g, Dims of_q, Dims of_k, std::int64_t rows = 50, std::int64_t keys = 70) {
  const auto tensor = [&](const char* name, Dims dim, std::int64_t count) {
    dim.push_back(count), dim.push_back(32);
    return g.tensor({.name = name, .dim = dim});
  };
  return {tensor("q", of_q, rows), tensor("k", of_k, keys), tensor("v", of_k, keys)};
}
Tensor scores(const Operands& o) {
  Dims order;
  for (int i = 0; i < o.k.dim().size(); ++i) order.push_back(i);
  std::swap(order[order.size() - 1], order[order.size() - 2]);
  return matmul(o.q, transpose(o.k, order)) * 0.2;
}
Dims row_of(const Tensor& x) {
  Dims dim = x.dim();
  dim.back() = 1;
  return dim;
}
Tensor largest(const Tensor& x) { return reduction(x, ReductionMode::max, row_of(x)); }
Tensor sum(const Tensor& x) { return reduction(x, ReductionMode::add, row_of(x)); }
Tensor row(const Tensor& x) { return gen_index(x, x.dim().size() - 2); }
Tensor column(const Tensor& x) { return gen_index(x, x.dim().size() - 1); }
Tensor hide(Graph& g, const Tensor& seen, const Tensor& x) {
  return select(seen, x, g.scalar(-kInfinity, f32));
}
Tensor causal(Graph& g, const Tensor& x) { return hide(g, column(x) <= row(x), x); }
Tensor copied(Graph& g, const Tensor& t, Dims dim, DataType type = bf16) {
  const Tensor y = pointwise({.mode = PointwiseMode::identity}, t);
  detail::GraphEditor(g).edit(y.id()).dim = dim,
  detail::GraphEditor(g).edit(y.id()).dim_known = true;
  detail::GraphEditor(g).edit(y.id()).data_type = type;
  return y;
}

using Form = void (*)(Graph& g);

// ---- dims

void joined_groups(Graph& g) {
  const Operands o = operands(g, {2, 2, 3}, {2, 2, 1});
  g.output(matmul(softmax(causal(g, scores(o))), o.v), "o");
}
void joined_groups_of_one_query(Graph& g) {
  const Operands o = operands(g, {2, 2, 3}, {2, 2, 1}, 1);
  const Tensor x = scores(o),
               length = g.tensor({.name = "length", .dim = {2, 1, 1, 1, 1}, .data_type = i32});
  g.output(matmul(softmax(hide(g, column(x) < length, x)), o.v), "o");
}
Tensor masked_windows(Graph& g, const Tensor& x) {
  return x + g.tensor({.name = "mask", .dim = {1, 3, 1, 50, 70}, .data_type = f32});
}
void windows(Graph& g) {
  const Operands o = operands(g, {2, 3, 4}, {2, 3, 4});
  g.output(matmul(softmax(masked_windows(g, scores(o))), o.v), "o");
}
void folded_windows(Graph& g) {
  const Operands o = operands(g, {6, 4}, {6, 4});
  const Tensor x = masked_windows(g, reshape(scores(o), {2, 3, 4, 50, 70}));
  g.output(matmul(softmax(reshape(x, {6, 4, 50, 70})), o.v), "o");
}

// Heads are entries of the products, and dims of their own for the masks.
Tensor heads_in_batch(Graph& g, const char* name, std::int64_t count) {
  const Tensor x = g.tensor({.name = name, .dim = {2, count, 96}});
  return reshape(transpose(reshape(x, {2, count, 3, 32}), {0, 2, 1, 3}), {6, count, 32});
}
void heads_among_entries(Graph& g) {
  const Operands o = {heads_in_batch(g, "q", 50), heads_in_batch(g, "k", 70),
                      heads_in_batch(g, "v", 70)};
  const Tensor mask = g.tensor({.name = "mask", .dim = {2, 1, 50, 70}, .data_type = f32}),
               x = reshape(scores(o), {2, 3, 50, 70}) + mask;
  const Tensor y = matmul(softmax(reshape(x, {6, 50, 70})), o.v);
  g.output(reshape(transpose(reshape(y, {2, 3, 50, 32}), {0, 2, 1, 3}), {2, 50, 96}), "o");
}

// ---- orders

void divided_last(Graph& g) {
  const Operands o = operands(g, {2, 3}, {2, 3});
  const Tensor x = scores(o), e = exp(x - largest(x));
  g.output(matmul(e, o.v) * reciprocal(sum(e)), "o");
}
void scaled_last(Graph& g) {
  const Operands o = operands(g, {2, 3}, {2, 3});
  g.output(matmul(softmax(causal(g, scores(o)) / 1.5), o.v), "o");
}
void added_stats(Graph& g) {
  const Operands o = operands(g, {2, 3}, {2, 3});
  const Tensor x = causal(g, scores(o)), most = largest(x), e = exp(x - most), total = sum(e);
  g.output(most + log(total), "stats", {.data_type = f32});
  g.output(matmul(e / total, o.v), "o");
}

void logarithm_of_sum(Graph& g) {
  const Operands o = operands(g, {2, 3}, {2, 3});
  const Tensor x = scores(o), most = largest(x), all = log(sum(exp(x - most))) + most;
  g.output(matmul(exp(x - all), o.v), "o");
}
void without_largest(Graph& g) {
  const Operands o = operands(g, {2, 3}, {2, 3});
  const Tensor e = exp(scores(o));
  g.output(matmul(e / sum(e), o.v), "o");
}
void without_largest_divided_last(Graph& g) {
  const Operands o = operands(g, {2, 3}, {2, 3});
  const Tensor e = exp(scores(o));
  g.output(matmul(e, o.v) / sum(e), "o");
}
void scaled_operands(Graph& g) {
  const Operands o = operands(g, {2, 3}, {2, 3});
  const Operands scaled = {o.q * 0.7, o.k * 0.6, o.v};
  g.output(matmul(softmax(scores(scaled)), o.v), "o");
}

// ---- sinks

void sink_beside(Graph& g) {
  const Operands o = operands(g, {2, 3}, {2, 3});
  const Tensor x = causal(g, scores(o)), sink = g.tensor({.name = "sink", .dim = {1, 3, 1, 1}});
  const Tensor all = concatenate({x, copied(g, sink, row_of(x))}, 3);
  g.output(matmul(slice(softmax(all).y, {.start = {0, 0, 0, 0}, .limit = x.dim()}), o.v), "o");
}
void sink_in_sum(Graph& g) {
  const Operands o = operands(g, {2, 3}, {2, 3});
  const Tensor x = scores(o),
               sink = g.tensor({.name = "sink", .dim = {1, 3, 1, 1}, .data_type = f32});
  const Tensor most = max(largest(x), sink), e = exp(x - most);
  g.output(matmul(e / (sum(e) + exp(sink - most)), o.v), "o");
}
void one_in_sum(Graph& g) {
  const Operands o = operands(g, {2, 3}, {2, 3}, 1, 900);
  const Tensor x = scores(o), most = max(largest(x), g.scalar(0, f32)), e = exp(x - most);
  g.output(matmul(e / (sum(e) + exp(-most)), o.v), "o");
}

// ---- masks

void segments(Graph& g) {
  const Operands o = operands(g, {2, 3}, {2, 3});
  const Tensor x = scores(o),
               of_rows = g.tensor({.name = "of_rows", .dim = {2, 1, 50, 1}, .data_type = i32}),
               of_keys = g.tensor({.name = "of_keys", .dim = {2, 1, 1, 70}, .data_type = i32});
  g.output(matmul(softmax(select(equal(of_rows, of_keys), x, g.scalar(-1e4, f32))), o.v), "o");
}
void integers(Graph& g) {
  const Operands o = operands(g, {2, 3}, {2, 3});
  const Tensor mask = g.tensor({.name = "mask", .dim = {2, 1, 1, 70}, .data_type = i32});
  g.output(matmul(softmax(select(mask, scores(o), g.scalar(-1e4, f32))), o.v), "o");
}
void chunks(Graph& g) {
  const Operands o = operands(g, {2, 3}, {2, 3}, 80, 80);
  const Tensor x = scores(o), of_rows = floor(row(x) / 24.0), of_keys = floor(column(x) / 24.0);
  const Tensor seen = logical_and(column(x) <= row(x), equal(of_rows, of_keys));
  g.output(matmul(softmax(hide(g, seen, x)), o.v), "o");
}
void whole_chunks(Graph& g) {
  const Operands o = operands(g, {2, 3}, {2, 3}, 80, 80);
  const Tensor x = scores(o);
  const Tensor seen = equal(floor(row(x) / 24.0), floor(column(x) / 24.0));
  g.output(matmul(softmax(hide(g, seen, x)), o.v), "o");
}

// What the rewritten graph is planned as, whose values are right.
Partition planned(Graph& g) {
  for (const auto& d : g.check()) FAIL(d.message());
  GraphCase c(g, Fill::normal, 7);
  const Lowered moved = rewritten(lower(g), device_model("sm_90a"));
  Partition p = partition(*moved.graph, true, "sm_90a", moved.regions);
  HostPointers memory;
  for (const auto& [t, pointer] : c.memory())
    if (const auto id = moved.graph->find(c.lowered()[t].name)) memory[*id] = pointer;
  c.clear_outputs();
  interpret(p, memory, *moved.graph);
  const Comparison r = c.judge();
  INFO(r.first_wrong);
  CHECK(r.ok());
  CHECK(r.compared > 0);
  return p;
}

// How many rows a tile of attention forward has.
struct Heads {
  std::int64_t entries, heads, tokens, elements;
  bool causal = false;
};
int rows_of_tile(const Heads& s) {
  auto g = Shared<Graph>::make(GraphOptions{.name = "attention", .io = bf16, .intermediate = f32});
  const auto tensor = [&](const char* name) {
    return g->tensor({.name = name, .dim = {s.entries, s.heads, s.tokens, s.elements}});
  };
  const Tensor q = tensor("q"), k = tensor("k"), v = tensor("v");
  g->output(sdpa(q, k, v, {.causal_mask = s.causal}, SdpaInputs{}).o, "o");
  REQUIRE(g->check().empty());
  const Partition p = for_sm_90a(*g);
  REQUIRE(families(p) == std::vector{Family::attention});
  const auto kernel = schedule_kernel(p.kernels[0], {device_model("sm_90a"), Tuning{}});
  return kernel.attention()->tile_q;
}

}  // namespace forms

TEST_CASE("attention in other orders and dims is one kernel") {
  using namespace forms;
  struct Case {
    const char* name;
    Form form;
    int kernels = 1;
  };
  const Case cases[] = {
      {"heads and groups apart", joined_groups},
      {"the same, one query", joined_groups_of_one_query},
      {"windows, whose masks are written for each", windows, 2},
      {"windows in the batch", folded_windows, 2},
      {"heads among the entries of the products", heads_among_entries},
      {"divided behind the second product", divided_last},
      {"scaled behind the mask", scaled_last},
      {"stats as they stand", added_stats},
      {"distances to the logarithm of the sum", logarithm_of_sum},
      {"exponentials of scores as they are", without_largest},
      {"the same, divided behind the second product", without_largest_divided_last},
      {"scaled queries and keys", scaled_operands},
      {"a sink beside the scores", sink_beside},
      {"a sink in the sum", sink_in_sum},
      {"one in the sum", one_in_sum},
      {"segments", segments},
      {"a mask of integers", integers},
      {"chunks", chunks},
      {"chunks without a diagonal", whole_chunks},
  };
  for (const Case& c : cases) {
    INFO(c.name);
    Graph g({.name = "attention", .io = bf16, .intermediate = f32});
    c.form(g);
    const auto p = planned(g);
    CHECK(static_cast<int>(p.kernels.size()) == c.kernels);
    CHECK(family_of(p.kernels.back()) == Family::attention);
  }
}

TEST_CASE("chunks of rows are a band") {
  Graph g({.name = "attention", .io = bf16, .intermediate = f32});
  forms::chunks(g);
  const auto p = forms::planned(g);
  REQUIRE(families(p) == std::vector{Family::attention});
  const AttentionSpec& a = p.kernels[0].attention();
  CHECK(a.band.chunk == 24);
  CHECK(a.band.right == 0);
  CHECK(a.score.statements.empty());
}

TEST_CASE("what a score reads of neighbouring keys comes in boxes or for eight of them at once") {
  enum class By { element, eight, box };
  struct Case {
    Dims dim;
    DataType type;
    std::int64_t keys;
    By by;
  };
  // Of up to 32 queries only what all of them share comes in boxes.
  const Case cases[] = {
      {{1, 3, 30, 72}, bf16, 72, By::eight},    {{2, 1, 50, 72}, f32, 72, By::box},
      {{2, 1, 1, 72}, u8, 72, By::eight},       {{1, 3, 50, 70}, bf16, 70, By::element},
      {{1, 3, 50, 1}, bf16, 72, By::element},   {{1, 3, 1, 76}, bf16, 76, By::element},
      {{2, 1, 1, 72}, i32, 72, By::element},    {{1, 3, 130, 72}, bf16, 72, By::box},
      {{2, 1, 130, 76}, f32, 76, By::box},      {{2, 3, 130, 80}, u8, 80, By::box},
      {{2, 1, 1, 72}, bf16, 72, By::box},       {{2, 1, 130, 1}, bf16, 72, By::element},
      {{1, 3, 130, 70}, bf16, 70, By::element},
  };
  for (const Case& c : cases) {
    INFO(to_string(c.dim));
    Graph g({.name = "attention", .io = bf16, .intermediate = f32});
    const auto o = forms::operands(g, {2, 3}, {2, 3}, c.dim[2] == 1 ? 50 : c.dim[2], c.keys);
    const Tensor bias = g.tensor({.name = "bias", .dim = c.dim, .data_type = c.type});
    g.output(matmul(softmax(forms::scores(o) + bias), o.v), "o");
    const auto p = forms::planned(g);
    REQUIRE(families(p) == std::vector{Family::attention});
    const auto plan = plan_attention(p.kernels[0], device_model("sm_90a"));
    REQUIRE(plan);
    const auto& beside = plan->engine.loads_beside;
    REQUIRE(beside.size() == (c.by == By::element ? 0 : 1));
    CHECK((!beside.empty() && beside[0].box) == (c.by == By::box));
    if (!beside.empty()) CHECK(beside[0].same_rows == (c.dim[2] == 1));
  }
}

TEST_CASE("biases that TMA does not take are copied first where many scores read them") {
  struct Case {
    std::int64_t entries;
    Dims dim;
    int copies;
  };
  const Case cases[] = {
      {64, {1, 3, 511, 511}, 1},   // rows of an odd number of keys
      {64, {64, 1, 1, 511}, 1},    // a row for each entry
      {64, {64, 3, 511, 511}, 0},  // read once
      {64, {1, 3, 511, 1}, 0},     // no keys that are contiguous
      {64, {1, 1, 1, 511}, 0},     // one row that starts where it may
  };
  for (const Case& c : cases) {
    INFO(to_string(c.dim) << ", " << c.entries);
    Graph g({.name = "attention", .io = bf16, .intermediate = f32});
    const auto o = forms::operands(g, {c.entries, 3}, {c.entries, 3}, 511, 511);
    const Tensor bias = g.tensor({.name = "bias", .dim = c.dim, .data_type = bf16});
    g.output(matmul(softmax(forms::scores(o) + bias), o.v), "o");
    const Lowered moved = rewritten(lower(g), device_model("sm_90a"));
    const Partition p = partition(*moved.graph, true, "sm_90a", moved.regions);
    std::vector expected(static_cast<std::size_t>(c.copies), Family::pointwise);
    expected.push_back(Family::attention);
    REQUIRE(families(p) == expected);
    const auto plan = plan_attention(p.kernels.back(), device_model("sm_90a"));
    REQUIRE(plan);
    const auto& beside = plan->engine.loads_beside;
    CHECK((!beside.empty() && beside[0].box) == (c.copies > 0 || c.dim[1] == 1));
  }
}

// 192 heads of 137 queries and keys: just enough scores for a copy.
TEST_CASE("attention reads the right elements of a bias that is copied first") {
  constexpr std::int64_t kKeys = 137;
  Graph g({.name = "attention", .io = bf16, .intermediate = f32});
  const auto tensor = [&](const char* name) {
    return g.tensor({.name = name, .dim = {64, 3, kKeys, 8}});
  };
  const Tensor q = tensor("q"), k = tensor("k"), v = tensor("v"),
               bias = g.tensor({.name = "bias", .dim = {1, 3, kKeys, kKeys}});
  const Tensor scores = matmul(q, transpose(k, {0, 1, 3, 2})) * 0.3 + bias;
  g.output(matmul(softmax(scores), v), "o");
  REQUIRE(families(for_sm_90a(g)) == std::vector{Family::pointwise, Family::attention});
  check_values(g);
}

TEST_CASE("of what a score reads beside its sum boxes come first, and no more than two loads") {
  Graph g({.name = "attention", .io = bf16, .intermediate = f32});
  const auto o = forms::operands(g, {2, 3}, {2, 3}, 130, 72);
  const auto read = [&](const char* name, const Dims& dim) {
    return g.tensor({.name = name, .dim = dim, .data_type = bf16});
  };
  const Tensor keys = read("keys", {2, 1, 1, 72}), pairs = read("pairs", {1, 3, 130, 72}),
               all = read("all", {2, 3, 130, 72});
  g.output(matmul(softmax(forms::scores(o) + keys + pairs + all), o.v), "o");
  const auto p = forms::planned(g);
  REQUIRE(families(p) == std::vector{Family::attention});
  const auto plan = plan_attention(p.kernels[0], device_model("sm_90a"));
  REQUIRE(plan);
  const auto& beside = plan->engine.loads_beside;
  REQUIRE(beside.size() == 2);
  CHECK(beside[0].box);
  CHECK(beside[1].box);
}

TEST_CASE("the CTA with the most keys decides how many rows a tile of attention has") {
  using forms::rows_of_tile;
  // 256 rows leave 36 SMs idle, and the others' longest tile has all keys.
  CHECK(rows_of_tile({1, 12, 2048, 64, true}) == 128);
  CHECK(rows_of_tile({1, 12, 1024, 64, true}) == 64);
  CHECK(rows_of_tile({1, 8, 2048, 128, true}) == 64);
  // A second or fourth round of a few tiles.
  CHECK(rows_of_tile({1, 4, 8192, 64}) == 256);
  CHECK(rows_of_tile({1, 12, 2048, 64}) == 192);
  CHECK(rows_of_tile({2, 10, 4096, 64}) == 128);
  CHECK(rows_of_tile({1, 16, 577, 128}) == 128);
  // Many rounds.
  CHECK(rows_of_tile({4, 32, 4096, 64, true}) == 256);
  CHECK(rows_of_tile({32, 16, 512, 64}) == 256);
  CHECK(rows_of_tile({4, 32, 4096, 128, true}) == 128);
  // Fewer tiles than would keep a quarter of the SMs busy.
  CHECK(rows_of_tile({1, 2, 200, 64}) > 64);
}

}  // namespace sinter::test
