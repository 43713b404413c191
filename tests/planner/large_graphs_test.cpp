// Graphs of very many nodes: planned in about n log n, and on a small stack.
#include <pthread.h>
#include <time.h>

#include <functional>
#include <map>

#include "planner/planner.hpp"
#include "planner/rewrite/pass.hpp"
#include "reference/reference.hpp"
#include "sinter/compile.hpp"
#include "sinter/operations.hpp"
#include "support/catch.hpp"

using namespace sinter;

namespace {

double cpu_seconds() {
  timespec t{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

// In a thread whose stack has one MB.
void on_small_stack(std::function<void()> work) {
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, 1 << 20);
  pthread_t thread;
  const auto run = [](void* f) -> void* {
    (*static_cast<std::function<void()>*>(f))();
    return nullptr;
  };
  REQUIRE(pthread_create(&thread, &attributes, run, &work) == 0);
  pthread_join(thread, nullptr);
  pthread_attr_destroy(&attributes);
}

Tensor chain(Graph& g, int n, const std::function<Tensor(Tensor, int)>& next) {
  Tensor x = g.tensor({.name = "x", .dim = {32, 32}});
  for (int i = 0; i < n; ++i) x = next(x, i);
  return x;
}

Tensor node(Graph& g, OpKind op, Attributes a, std::vector<TensorId> inputs,
            std::string name = {}) {
  return {&g, detail::GraphEditor(g).add(op, std::move(a), std::move(inputs), {kNewTensor},
                                         {.name = std::move(name)}, Where::current())[0]};
}

// What grew with the square or the cube of the nodes, or deeper than a stack.
const std::map<std::string, std::function<void(Graph&, int)>> kShapes{
    {"a chain",
     [](Graph& g, int n) { g.output(chain(g, n, [](Tensor x, int) { return relu(x); }), "y"); }},
    {"readers of one input",
     [](Graph& g, int n) {
       const Tensor x = g.tensor({.name = "x", .dim = {32, 32}});
       for (int i = 0; i < n; ++i) g.output(relu(x), detail::text({"y", i}));
     }},
    {"a chain of softmaxes",
     [](Graph& g, int n) {
       g.output(chain(g, n, [](Tensor x, int) { return softmax(x, {.axis = 1}).y; }), "y");
     }},
    {"softmaxes of one input",
     [](Graph& g, int n) {
       const Tensor x = g.tensor({.name = "x", .dim = {32, 32}});
       for (int i = 0; i < n; ++i) g.output(softmax(x, {.axis = 1}).y, detail::text({"y", i}));
     }},
    {"residuals with products",
     [](Graph& g, int n) {
       const Tensor w = g.tensor({.name = "w", .dim = {32, 32}});
       g.output(chain(g, n / 3, [&](Tensor x, int) { return x + matmul(relu(x), w); }), "y");
     }},
    {"products",
     [](Graph& g, int n) {
       const Tensor w = g.tensor({.name = "w", .dim = {32, 32}});
       for (int i = 0; i < n; ++i)
         g.output(matmul(g.tensor({.name = detail::text({"x", i}), .dim = {32, 32}}), w),
                  detail::text({"y", i}));
     }},
    {"a chain of products",
     [](Graph& g, int n) {
       const Tensor w = g.tensor({.name = "w", .dim = {32, 32}});
       g.output(chain(g, n, [&](Tensor x, int) { return matmul(x, w); }), "y");
     }},
    {"a tree of additions",
     [](Graph& g, int n) {
       std::vector<Tensor> level;
       for (int i = 0; i < n; ++i)
         level.push_back(g.tensor({.name = detail::text({"x", i}), .dim = {32, 32}}));
       while (level.size() > 1) {
         std::vector<Tensor> next;
         for (std::size_t i = 0; i < level.size(); i += 2)
           next.push_back(i + 1 < level.size() ? level[i] + level[i + 1] : level[i]);
         level = std::move(next);
       }
       g.output(level[0], "y");
     }},
    {"a concatenation",
     [](Graph& g, int n) {
       std::vector<TensorId> parts;
       for (int i = 0; i < 4 * n; ++i)
         parts.push_back(g.tensor({.name = detail::text({"x", i}), .dim = {4, 1}}).id());
       g.output(node(g, OpKind::concatenate, ConcatenateAttributes{.axis = 1}, parts), "y");
     }},
    {"slices of one result",
     [](Graph& g, int n) {
       const Tensor r = relu(g.tensor({.name = "x", .dim = {n, 8}}));
       for (int i = 0; i < n / 2; ++i)
         g.output(tanh(slice(r, {.start = {i, 0}, .limit = {i + 1, 8}})), detail::text({"y", i}));
     }},
    {"a chain of views",
     [](Graph& g, int n) {
       Tensor x = g.tensor({.name = "x", .dim = {8, 8, 16}});
       for (int i = 0; i < n; ++i) x = transpose(x, {1, 2, 0});
       g.output(relu(x), "y");
     }},
    {"nodes of one name",
     [](Graph& g, int n) {
       g.output(chain(g, n / 6,
                      [](Tensor x, int) {
                        return node(*x.graph(), OpKind::softmax, SoftmaxAttributes{}, {x.id()},
                                    "same");
                      }),
                "y");
     }},
};

}  // namespace

TEST_CASE("10,000 nodes of any shape plan in seconds") {
  for (const auto& [name, build] : kShapes) {
    INFO(name);
    Graph g{{.io = bf16}};
    build(g, 10000);
    REQUIRE(g.check().empty());
    const double begin = cpu_seconds();
    CHECK(Plan::make(g, {.architecture = "sm_90a"}));
    const double seconds = cpu_seconds() - begin;
    INFO(seconds << " s");
    // At most 2 where nothing else runs; what is quadratic takes 20 and more.
    CHECK(seconds < 8);
  }
}

// Where the readers of x are more than one kernel has room for, a kernel of them all would store
// what is only for who goes on with it.
TEST_CASE("a kernel without room for all readers of its input computes some of them to their end") {
  for (const int n : {40, 400}) {
    Graph g{{.io = bf16}};
    kShapes.at("softmaxes of one input")(g, n);
    REQUIRE(g.check().empty());
    const Lowered l = lower(g);
    const Partition p = partition(*l.graph, true);
    CHECK(p.kernels.size() == static_cast<std::size_t>(n / 26 + 1));
    CHECK(p.workspace_bytes == 0);
  }
}

// Reductions that no pointwise kernel takes do not hide its other readers of x.
TEST_CASE("readers that a pattern never takes do not count as refused by it") {
  Graph g{{.io = bf16}};
  const Tensor x = g.tensor({.name = "x", .dim = {32, 32}});
  for (int i = 0; i < 300; ++i)
    g.output(reduction(x, ReductionMode::max, {32, 1}), detail::text({"largest", i}));
  for (int i = 0; i < 300; ++i) g.output(relu(x), detail::text({"y", i}));
  const Lowered l = lower(g);
  const Partition p = partition(*l.graph, true);
  CHECK(p.kernels.size() == 7);  // of up to 96 tensors each
}

// Each sum doubles the paths from the scores, or the weights, to the product.
TEST_CASE("attention's scores and weights are looked at once, by however many paths") {
  const auto doubled = [](Tensor x, int times) {
    for (int i = 0; i < times; ++i) x = x + x;
    return x;
  };
  for (const bool hidden : {false, true}) {
    Graph g{{.io = bf16, .intermediate = f32}};
    const auto tensor = [&](const char* name) {
      return g.tensor({.name = name, .dim = {1, 2, 80, 32}});
    };
    Tensor x = doubled(matmul(tensor("q"), transpose(tensor("k"), {0, 1, 3, 2})), 50);
    if (hidden) x = select(gen_index(x, 3) <= gen_index(x, 2), x, g.scalar(-1e9, f32));
    g.output(matmul(doubled(softmax(x).y, 50), tensor("v")), "o");
    const double begin = cpu_seconds();
    CHECK(Plan::make(g, {.architecture = "sm_90a"}));
    const double seconds = cpu_seconds() - begin;
    INFO(seconds << " s");
    CHECK(seconds < 2);  // 0.01; by each path for ever
  }
}

TEST_CASE("extents near their limit plan as fast as small ones") {
  for (const char* target : {"sm_80", "sm_90a"}) {
    Graph g{{.io = bf16}};
    const auto x = g.tensor("x", {std::int64_t{1} << 40, 4, 3}), s = g.tensor("s", {1, 4, 1});
    g.output(batchnorm(x, s, Tensor{}, 1e-3).y, "y");
    REQUIRE(g.check().empty());
    const double begin = cpu_seconds();
    CHECK(Plan::make(g, {.architecture = target}));
    const double seconds = cpu_seconds() - begin;
    INFO(seconds << " s");
    CHECK(seconds < 4);  // 0.1; a loop over all numbers of parts took 50
  }
}

TEST_CASE("chains of 100,000 nodes are planned and computed on a stack of one MB") {
  for (const char* name : {"a chain", "a chain of views"}) {
    INFO(name);
    Graph g;
    bool planned = false, computed = false;
    on_small_stack([&] {
      kShapes.at(name)(g, 100000);
      planned = g.check().empty() && Plan::make(g, {});
      const Lowered l = lower(g);
      std::vector<float> x(32 * 32, 1), y(32 * 32);
      computed = bool(evaluate(*l.graph, {{*l.graph->find("x"), x.data()},
                                          {*l.graph->find("y"), y.data()}})) &&
                 y[5] == 1;
    });
    CHECK(planned);
    CHECK(computed);
  }
}
