// Compiling for the fake GPU: in the background of a cache of plans, and with a word on progress.
// The cases run in runtime_execute.cpp's child process.
#include <atomic>
#include <stdexcept>

#include "plan/plan_data.hpp"
#include "sinter/operations.hpp"
#include "sinter/plan_cache.hpp"
#include "support/catch.hpp"
#include "support/fake_gpu.hpp"

using namespace sinter;

TEST_CASE("[child] a cache of plans answers with plain kernels first", "[.fake_gpu]") {
  fake_gpu().argument_bytes = 0;  // that of real machine code is not known here
  PlanCache cache(
      [](Graph& g, PlanCache::Extents e) {
        auto a = g.tensor("x", {e[0], 64});
        g.output(exp(relu(a)), "y");
      },
      {.device = Device::gpu(0), .background = true});
  const auto plain = cache.get({3});
  if (!plain) {
    CHECK(plain.error().rule == Rule::compiler_missing);
    return;
  }
  CHECK(plain->plan().kernels() == 2);
  CHECK(plain->plan().data().architecture.empty());
  cache.wait();
  const auto fast = cache.get({3});
  REQUIRE(fast);
  CHECK(fast->plan().kernels() == 1);
  CHECK(fast->plan().data().architecture == "sm_90a");
  const PlanCacheCounts counts = cache.counts();
  CHECK(counts.plain == 1);
  CHECK(counts.compiles == 1);
  CHECK(counts.hits == 1);
}

TEST_CASE("[child] a class whose kernels are compiled needs no plain ones", "[.fake_gpu]") {
  fake_gpu().argument_bytes = 0;
  PlanCache cache(
      [](Graph& g, PlanCache::Extents e) {
        if (e[0] > 64 && e[0] != 100) throw std::runtime_error("no such class");
        g.output(exp(relu(g.tensor("x", {e[0], 64}))), "y");
      },
      {.device = Device::gpu(0), .background = true, .extents = {dyn("rows", 1, 256)}});
  const auto kernels = [&](std::int64_t rows) {
    const auto e = cache.get({rows});
    return e ? e->plan().kernels() : 0;
  };
  if (const auto first = cache.get({20}); !first) {
    CHECK(first.error().rule == Rule::compiler_missing);
    return;
  }
  cache.wait();
  CHECK(kernels(20) == 1);
  CHECK(kernels(50) == 1);  // of the same class
  CHECK(kernels(9) == 2);   // of another
  CHECK(cache.counts().plain == 2);
  cache.wait();
  CHECK(kernels(8) == 1);
  CHECK(cache.counts().compiles == 1);  // the text serves both classes
  CHECK(cache.failure().empty());

  CHECK(kernels(100) == 2);
  cache.wait();
  CHECK(kernels(100) == 2);  // whose fast kernels could not be made
  CHECK(cache.counts().failed == 1);
  REQUIRE_FALSE(cache.failure().empty());
  CHECK(cache.failure().front().seen == "no such class");
}

TEST_CASE("[child] extents whose class has other kernels compiled are planned once",
          "[.fake_gpu]") {
  fake_gpu().argument_bytes = 0;
  std::atomic<int> planned = 0;
  PlanCacheOptions options{
      .device = Device::gpu(0), .background = true, .extents = {dyn("length", 1, 256)}};
  options.plan.progress_context = &planned;
  options.plan.progress = [](void* count, const PlanProgress& at) {
    if (at.stage == PlanProgress::Stage::planning && at.done == at.total)
      ++*static_cast<std::atomic<int>*>(count);
  };
  // Rows whose length changes: each extent has a text of its own.
  PlanCache cache(
      [](Graph& g, PlanCache::Extents e) {
        g.output(softmax(g.tensor("x", {4, e[0]})).y, "y");
      },
      options);
  if (const auto first = cache.get({20}); !first) {
    CHECK(first.error().rule == Rule::compiler_missing);
    return;
  }
  cache.wait();
  planned = 0;
  REQUIRE(cache.get({50}));
  cache.wait();
  CHECK(planned == 2);  // plain, and as one of the class
  CHECK(cache.counts().plain == 2);
  CHECK(cache.counts().compiles == 2);
}

TEST_CASE("[child] a plan of a class compiles the tiles of other numbers of rows, too",
          "[.fake_gpu]") {
  fake_gpu().argument_bytes = 0;
  PlanCache cache(
      [](Graph& g, PlanCache::Extents e) {
        g.output(matmul(g.tensor("x", {e[0], 1024}), g.tensor("w", {1024, 4096})), "y");
      },
      {.device = Device::gpu(0),
       .graph = {.name = "graph", .io = DataType::bf16},
       .extents = {dyn("rows", 1, 4096)}});
  const auto entry = [&](std::int64_t rows) {
    const auto e = cache.get({rows});
    return e ? e->plan().data().kernels[0].entry : "";
  };
  if (const auto first = cache.get({100}); !first) {
    CHECK(first.error().rule == Rule::compiler_missing);
    return;
  }
  const auto kernels = cache.counts().kernels;
  CHECK(kernels > 1);
  CHECK(entry(100) != entry(512));
  CHECK(cache.counts().compiles == 1);
  CHECK(cache.counts().kernels == kernels);
}

TEST_CASE("[child] planning and compiling say how far they are", "[.fake_gpu]") {
  Graph g;
  auto a = g.tensor("x", {4, 64});
  g.output(exp(relu(a)), "y");
  struct Seen {
    std::vector<PlanProgress> all;
  } seen;
  PlanOptions options{.fuse = false};
  options.progress_context = &seen;
  options.progress = [](void* s, const PlanProgress& at) {
    static_cast<Seen*>(s)->all.push_back(at);
  };
  fake_gpu().argument_bytes = 0;
  const auto e = compile(g, Device::gpu(0), options);
  const auto count = [&](PlanProgress::Stage stage) {
    int last = -1, calls = 0;
    for (const auto& at : seen.all) {
      if (at.stage != stage) continue;
      CHECK(at.total == 2);
      CHECK(at.done == ++last);
      ++calls;
    }
    return calls;
  };
  CHECK(count(PlanProgress::Stage::planning) == 3);  // 0, 1 and 2 of 2
  CHECK(count(PlanProgress::Stage::compiling) == 3);
  if (!e) CHECK(e.error().rule == Rule::compiler_missing);
}
