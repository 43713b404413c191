// What a call may bind: numbers by value, memory that two tensors share, and constants that were
// prepared; and the cache of plans. On the CPU backend.
#include <atomic>
#include <chrono>
#include <future>
#include <thread>

#include "sinter/buffers.hpp"
#include "sinter/operations.hpp"
#include "sinter/plan_cache.hpp"
#include "support/catch.hpp"

using namespace sinter;

namespace {

const Device kCpu = Device::cpu();

Rule rule(const Status& s) { return s ? Rule::last_ : s.error().rule; }

// next = p - lr g, in place where the caller likes.
struct Update {
  Graph graph;
  Executable executable;
  Array<float> p{kCpu, 8, 1}, g{kCpu, 8, 2}, next{kCpu, 8, 0};
  explicit Update(bool alias = true) : executable(make(graph, alias)) {}
  static Executable make(Graph& graph, bool alias) {
    auto p = graph.tensor("p", {8}), g = graph.tensor("g", {8});
    auto next = p - graph.scalar_input("lr") * g;
    graph.output(next, "next", {.alias = alias ? p : Tensor{}});
    return compile(graph, kCpu).value();
  }
};

}  // namespace

TEST_CASE("a number of each call is no part of the plan") {
  const Update u;
  REQUIRE(u.executable.execute(nullptr, {{"p", u.p}, {"g", u.g}, {"lr", 0.25}, {"next", u.next}}));
  CHECK(u.next.get()[3] == 0.5f);
  REQUIRE(u.executable.execute(nullptr, {{"p", u.p}, {"g", u.g}, {"lr", 1}, {"next", u.next}}));
  CHECK(u.next.get()[3] == -1);
  const auto bound = u.executable.bind({{"p", u.p}, {"g", u.g}, {"lr", 0.5f}, {"next", u.next}});
  REQUIRE(bound);
  REQUIRE(bound->execute(nullptr));
  CHECK(u.next.get()[3] == 0);
  REQUIRE(bound->execute(nullptr, {{"lr", 2.0}}));
  CHECK(u.next.get()[3] == -3);
  REQUIRE(bound->execute(nullptr));  // what was bound stays
  CHECK(u.next.get()[3] == 0);
  CHECK(rule(bound->execute(nullptr, {{"rate", 2.0}})) == Rule::binding_unknown);
  CHECK(rule(bound->execute(nullptr, {{"p", u.next}})) == Rule::binding_repeated);
  CHECK(rule(bound->execute(nullptr, {{"lr", u.p}})) == Rule::binding_number);
  CHECK(rule(bound->execute(nullptr, {{"lr", 2.0}, {"lr", 3.0}})) == Rule::binding_repeated);
}

TEST_CASE("numbers and memory are not taken for each other") {
  const Update u;
  const auto call = [&](Binding lr, Binding p) {
    return rule(u.executable.execute(nullptr, {lr, p, {"g", u.g}, {"next", u.next}}));
  };
  CHECK(call({"lr", 1}, {"p", u.p}) == Rule::last_);
  CHECK(call({"lr", u.p}, {"p", u.p}) == Rule::binding_number);
  CHECK(call({"lr", 1}, {"p", 1.0}) == Rule::binding_memory);
  CHECK(rule(u.executable.execute(nullptr, {{"p", u.p}, {"g", u.g}, {"next", u.next}})) ==
        Rule::binding_missing);
}

TEST_CASE("a number is rounded to the type of its tensor") {
  Graph g;
  auto x = g.tensor("x", {1}, f64);
  g.output(x + g.scalar_input("b", bf16), "b_sum", {.data_type = f64});
  g.output(x + g.scalar_input("i", i32), "i_sum", {.data_type = f64});
  const auto e = compile(g, kCpu);
  REQUIRE(e);
  const Array<double> zero(kCpu, 1, 0), b(kCpu, 1), i(kCpu, 1);
  REQUIRE(e->execute(nullptr, {{"x", zero}, {"b", 1.001}, {"i", 2.5}, {"b_sum", b}, {"i_sum", i}},
                     Scratch(*e)));
  CHECK(b.get()[0] == 1.0);  // of 8 bits
  CHECK(i.get()[0] == 2.0);  // ties to even
  REQUIRE(e->execute(nullptr, {{"x", zero}, {"b", 3}, {"i", 1e12}, {"b_sum", b}, {"i_sum", i}},
                     Scratch(*e)));
  CHECK(b.get()[0] == 3.0);
  CHECK(i.get()[0] == 2147483647.0);  // saturates
}

TEST_CASE("memory that is written is shared with nothing but a declared alias") {
  Update u;
  const auto call = [&](const Update& of, Binding next) {
    return rule(of.executable.execute(nullptr, {{"p", u.p}, {"g", u.g}, {"lr", 0.5}, next}));
  };
  CHECK(call(u, {"next", u.p.data()}) == Rule::last_);  // in place
  CHECK(u.p.get()[7] == 0);
  CHECK(call(u, {"next", u.g.data()}) == Rule::binding_overlap);
  CHECK(call(u, {"next", u.p.data() + 4}) == Rule::binding_overlap);  // by half
  const Update plain(false);
  CHECK(call(plain, {"next", u.p.data()}) == Rule::binding_overlap);
  CHECK(call(plain, {"next", u.next}) == Rule::last_);
  // Left out, the output takes the place of its input; without an alias it is missing.
  u.p.set(std::vector<float>(8, 1));
  REQUIRE(u.executable.execute(nullptr, {{"p", u.p}, {"g", u.g}, {"lr", 0.25}}));
  CHECK(u.p.get()[0] == 0.5f);
  CHECK(rule(plain.executable.execute(nullptr, {{"p", u.p}, {"g", u.g}, {"lr", 0.25}})) ==
        Rule::binding_missing);
  // Reading the same memory by two names is harmless.
  REQUIRE(u.executable.execute(nullptr, {{"p", u.p}, {"g", u.p}, {"lr", 1}, {"next", u.next}}));
  CHECK(u.next.get()[2] == 0);
  // But not in place: g would be read from what is written.
  CHECK(rule(u.executable.execute(nullptr, {{"p", u.p}, {"g", u.p}, {"lr", 1}})) ==
        Rule::binding_overlap);
}

TEST_CASE("an input that no node reads need not be bound") {
  Graph g;
  auto x = g.tensor("x", {4});
  g.tensor("bias", {4});
  g.scalar_input("unused");
  g.output(exp(x), "y");
  const auto e = compile(g, kCpu);
  REQUIRE(e);
  const Array<float> dx(kCpu, 4, 0), dy(kCpu, 4, 0);
  REQUIRE(e->execute(nullptr, {{"x", dx}, {"y", dy}}));
  CHECK(dy.get()[0] == 1);
}

TEST_CASE("constants are cut off where that makes them no larger") {
  Graph g({.io = bf16});
  const auto constant = [&](const char* name, Dims dim, DataType type) {
    return g.tensor({.name = name, .dim = dim, .data_type = type, .constant = true});
  };
  auto x = g.tensor("x", {4, 64});
  auto folded = (constant("w", {64, 64}, bf16) * constant("s", {1, 64}, bf16)).named("folded");
  auto wide = (constant("q", {64, 64}, i8) * 0.5).named("wide").type(bf16);
  auto turned = transpose(constant("t", {64, 64}, bf16), {1, 0}).named("turned");
  auto h = matmul(matmul(matmul(x, folded), wide), turned);
  g.output(h, "y");
  g.output(exp(folded), "seen");  // follows from constants, and the caller sees it
  const auto parts = prepare(g);
  REQUIRE(parts);
  const Graph &first = *parts->constants, &rest = *parts->rest;
  const auto has = [](const Graph& graph, const char* name) {
    return graph.find(name).has_value();
  };
  CHECK(has(first, "folded"));
  CHECK(has(first, "seen"));
  CHECK_FALSE(has(first, "wide"));  // twice the bytes of q
  CHECK(first[*first.find("folded")].output);
  CHECK(first.type(*first.find("folded")) == bf16);  // an operand of products
  CHECK(rest.is_input(*rest.find("folded")));
  CHECK(rest.type(*rest.find("folded")) == bf16);
  CHECK_FALSE(has(rest, "w"));
  CHECK_FALSE(has(rest, "seen"));
  CHECK(has(rest, "q"));
  CHECK(rest.is_input(*rest.find("turned")));
  CHECK(parts->constants->check().empty());
  CHECK(parts->rest->check().empty());
}

TEST_CASE("prepared plans give what the whole graph gives") {
  Graph g;
  auto x = g.tensor("x", {4, 16});
  auto w = g.tensor({.name = "w", .dim = {8, 16}, .constant = true});
  auto b = g.tensor({.name = "b", .dim = {8, 1}, .constant = true});
  g.output(matmul(x, transpose(w * (b + 1.0), {1, 0}).named("folded")), "y");
  const auto whole = compile(g, kCpu).value();
  const auto parts = prepare(g, {});
  REQUIRE(parts);
  REQUIRE(parts->constants);
  const auto first = load(*parts->constants, kCpu).value(), rest = load(parts->rest, kCpu).value();
  std::vector<float> numbers(128);
  for (std::size_t i = 0; i < numbers.size(); ++i) numbers[i] = static_cast<float>(i % 7) - 3;
  const Array<float> dx(kCpu, std::vector<float>(numbers.begin(), numbers.begin() + 64)),
      dw(kCpu, numbers), db(kCpu, std::vector<float>(numbers.begin(), numbers.begin() + 8));
  const Array<float> folded(kCpu, 128), y(kCpu, 32), expected(kCpu, 32);
  REQUIRE(
      whole.execute(nullptr, {{"x", dx}, {"w", dw}, {"b", db}, {"y", expected}}, Scratch(whole)));
  REQUIRE(first.execute(nullptr, {{"w", dw}, {"b", db}, {"folded", folded}}, Scratch(first)));
  REQUIRE(rest.execute(nullptr, {{"x", dx}, {"folded", folded}, {"y", y}}, Scratch(rest)));
  CHECK(y.get() == expected.get());
}

TEST_CASE("a cache of plans compiles each key once, whoever asks") {
  std::atomic<int> built{0};
  PlanCache cache(
      [&](Graph& g, PlanCache::Extents e) {
        ++built;
        g.output(exp(g.tensor("x", {e[0], e[1]})), "y");
      },
      {.device = kCpu, .capacity = 4});
  std::vector<std::thread> threads;
  std::atomic<int> right{0};
  for (int t = 0; t < 8; ++t)
    threads.emplace_back([&] {
      for (std::int64_t i = 0; i < 20; ++i) {
        const std::int64_t rows = 1 + i % 3;
        const auto e = cache.get({rows, 2});
        right += e && e->plan().tensors()[0].dim == Dims{rows, 2};
      }
    });
  for (auto& t : threads) t.join();
  CHECK(right == 160);
  CHECK(built == 3);
  PlanCacheCounts counts = cache.counts();
  CHECK(counts.compiles == 3);
  CHECK(counts.held == 3);
  CHECK(counts.evicted == 0);
  const auto kept = cache.get({1, 2});
  for (const std::int64_t rows : {4, 5, 6, 7}) REQUIRE(cache.get({rows, 2}));
  counts = cache.counts();
  CHECK(counts.held == 4);
  CHECK(counts.evicted == 3);
  REQUIRE(kept);  // an executable outlives its place in the cache
  CHECK(kept->plan().name() == "graph");
  const auto hits = counts.hits;
  REQUIRE(cache.get({7, 2}));
  CHECK(cache.counts().hits == hits + 1);
  REQUIRE(cache.get({1, 2}));  // dropped, so compiled again
  CHECK(cache.counts().compiles == 8);
}

TEST_CASE("a cache of plans says at once which extents are ill-formed") {
  const auto build = [](Graph& g, PlanCache::Extents e) {
    g.output(exp(g.tensor("x", {e[0], 3})), "y");
  };
  CHECK(PlanCache(build, {.device = kCpu}).check());
  CHECK(PlanCache(build, {.device = kCpu, .extents = {dyn("rows", 1, 4)}}).check());
  PlanCache cache(build, {.device = kCpu, .extents = {dyn("rows", 4, 1)}});
  const Status checked = cache.check();
  REQUIRE_FALSE(checked);
  CHECK(checked.error().attribute == "rows, the most");
  CHECK(std::string_view(checked.error().file).ends_with("calls_test.cpp"));
  const auto got = cache.get({2});
  REQUIRE_FALSE(got);
  CHECK(got.error().message() == checked.error().message());
}

// A Python builder waits for the interpreter's lock, which the thread that asks may hold.
TEST_CASE("a cache of plans says what it holds while a builder runs") {
  std::vector<std::future<std::string>> asked;
  bool in_time = true;
  PlanCache* held = nullptr;
  PlanCache cache(
      [&](Graph& g, PlanCache::Extents e) {
        asked.push_back(std::async(std::launch::async, [&] {
          return held->explain() + std::to_string(held->counts().classes);
        }));
        in_time &= asked.back().wait_for(std::chrono::seconds(3)) == std::future_status::ready;
        g.output(exp(g.tensor("x", {e[0], 3})), "y");
      },
      {.device = kCpu, .extents = {dyn("rows", 1, 64)}});
  held = &cache;
  REQUIRE(cache.get({5}));
  CHECK(in_time);
  CHECK(asked.size() == 3);  // two for the class
  CHECK(cache.counts().classes == 1);
}

TEST_CASE("what cannot become an output, or an alias, is told why") {
  Graph g;
  auto x = g.tensor("x", {4});
  g.output(x, "a");
  const Tensor y = exp(x);
  g.output(y, "y", {.alias = x});
  g.output(y, "z");
  g.output(-x, "w", {.alias = x});
  const Diagnostics all = g.check();
  REQUIRE(all.size() == 4);
  CHECK((all[0].rule == Rule::tensor_role && all[1].rule == Rule::tensor_role));
  CHECK(all[0].seen == "a tensor that no node produces");
  CHECK(all[1].seen == "an output already, named 'y'");
  CHECK((all[2].rule == Rule::tensor_alias && all[3].rule == Rule::tensor_alias));
  CHECK(all[2].allowed == "an input for each output that names one");
}

TEST_CASE("a cache of plans reports what fails, and tries again") {
  bool good = false;
  PlanCache cache(
      [&](Graph& g, PlanCache::Extents e) {
        auto x = g.tensor("x", {e[0], 3});
        g.output(good ? exp(x) : matmul(x, x), "y");
      },
      {.device = kCpu});
  const auto e = cache.get({5});
  REQUIRE_FALSE(e);
  CHECK(e.error().rule == Rule::matmul_contraction);
  CHECK(cache.counts().held == 0);
  good = true;
  CHECK(cache.get({5}));
}
