// Executables by extents: a plan holds for one set of extents, a program meets many.
//
//   sinter::PlanCache cache([](sinter::Graph& g, std::span<const std::int64_t> e) {
//     auto x = g.tensor("x", {e[0], 64});
//     g.output(softmax(x), "y");
//   }, {.device = device});
//   auto run = cache.get({batch});      // compiles the first time, looks up afterwards
//   run->execute(stream, {{"x", dx}, {"y", dy}}, workspace);
#pragma once
#include "sinter/compile.hpp"

namespace sinter {

// The function that describes a graph for given extents. Any callable; the cache keeps it.
class GraphBuilder {
 public:
  using Extents = std::span<const std::int64_t>;
  template <class F>
  requires(!std::is_same_v<F, GraphBuilder>) GraphBuilder(F f)
      : function_(new F(std::move(f))),
        call_(
            [](void* g, Graph& graph, Extents extents) { (*static_cast<F*>(g))(graph, extents); }),
        end_([](void* g) { delete static_cast<F*>(g); }) {}
  GraphBuilder(GraphBuilder&& other) noexcept
      : function_(std::exchange(other.function_, nullptr)), call_(other.call_), end_(other.end_) {}
  GraphBuilder& operator=(GraphBuilder&&) = delete;
  ~GraphBuilder() {
    if (function_) end_(function_);
  }
  void operator()(Graph& graph, Extents extents) const { call_(function_, graph, extents); }

 private:
  void* function_;
  void (*call_)(void*, Graph&, Extents);
  void (*end_)(void*);
};

struct PlanCacheOptions {
  Device device = Device::current();
  PlanOptions plan{};
  GraphOptions graph{};
  std::size_t capacity =
      64;  // executables; of more, the one that was asked for least recently goes
  // A key that is new is answered with plain kernels, one a node and with what every GPU has, which
  // compile soon; a thread of the cache compiles the fast ones, which later calls get.
  bool background = false;
};

struct PlanCacheCounts {
  std::int64_t hits = 0;      // calls that found an executable
  std::int64_t compiles = 0;  // of the fast kernels, those that failed as well
  std::int64_t plain = 0;     // calls that were answered with plain kernels
  std::int64_t evicted = 0;
  std::int64_t held = 0;  // executables that are held now
};

// Any thread may call it. Threads that ask for one key at once share one compilation; other keys do
// not wait for it. Executables that were handed out live on when the cache drops them. A failure is
// reported to all who waited for it, and tried again by the next call.
class PlanCache {
 public:
  using Extents = GraphBuilder::Extents;

  // Several threads may call the builder at once.
  explicit PlanCache(GraphBuilder builder, PlanCacheOptions options = {});
  ~PlanCache();  // waits for what is being compiled
  PlanCache(const PlanCache&) = delete;
  PlanCache& operator=(const PlanCache&) = delete;

  Result<Executable> get(Extents extents);
  Result<Executable> get(std::initializer_list<std::int64_t> extents);
  // Returns when no compilation runs in the background.
  void wait();
  PlanCacheCounts counts() const;

 private:
  struct Impl;
  Impl* impl_;
};

}  // namespace sinter
