// Executables by extents: a plan holds for one set of extents, a program meets many.
//
//   sinter::PlanCache cache([](sinter::Graph& g, std::span<const std::int64_t> e) {
//     auto x = g.tensor("x", {e[0], 64});
//     g.output(softmax(x), "y");
//   }, {.device = device});
//   auto run = cache.get({batch});      // compiles the first time, looks up afterwards
//   run->execute(stream, {{"x", dx}, {"y", dy}}, workspace);
//
// Where the cache is told which extents change and between which bounds, plans of other extents
// need not be compiled: {.device = device, .extents = {sinter::dyn("batch", 1, 64)}}.
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

// An extent that changes from call to call. Its range is divided in classes; plans whose extents
// are of the same classes share what is decided by extents, such as tiles, and with it the machine
// code of their kernels, which take extents and strides from the launch.
struct DynamicExtent {
  std::string name;  // for messages
  std::int64_t least = 1, most = 1;
  // The largest extents of the classes, rising; `most` need not be among them. Empty: 1, 16, 64,
  // 256, 1024 ...
  std::vector<std::int64_t> bounds{};
  Where where{};  // it was described
};
// Of an ill-formed one, such as with least > most, PlanCache::check() says what is wrong and where
// it was described.
inline DynamicExtent dyn(std::string name, std::int64_t least, std::int64_t most,
                         std::vector<std::int64_t> bounds = {}, Where where = Where::current()) {
  return {std::move(name), least, most, std::move(bounds), where};
}

struct PlanCacheOptions {
  Device device = Device::current();
  PlanOptions plan{};
  GraphOptions graph{};
  // Executables; of more, the one that was asked for least recently goes.
  std::size_t capacity = 64;
  // A key whose fast kernels are not all compiled is answered with plain kernels, one a node and
  // with what every GPU has, which compile soon; a thread of the cache compiles the fast ones,
  // which later calls get. The CPU backend compiles nothing, so it has no plain ones.
  bool background = false;
  // One for each extent that the builder is given; get() refuses others, and all where one of these
  // is ill-formed, which check() says at once. Empty: every plan is compiled for its extents.
  std::vector<DynamicExtent> extents{};
};

struct PlanCacheCounts {
  std::int64_t hits = 0;  // calls that found an executable
  // Plans with fast kernels, those that failed as well; with PlanCacheOptions::extents those that
  // had a kernel which was not compiled yet. Those of plans of alike extents come with them.
  std::int64_t compiles = 0;
  std::int64_t kernels = 0;  // fast ones that were compiled, or found in the kernel cache
  std::int64_t classes = 0;  // of extents that were met
  std::int64_t plain = 0;    // calls that were answered with plain kernels
  std::int64_t failed = 0;   // compilations in the background: the plain kernels stay
  std::int64_t evicted = 0;
  std::int64_t held = 0;  // executables in the cache now
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

  // Whether PlanCacheOptions::extents are well-formed: get() refuses any extents where not.
  Status check() const;
  Result<Executable> get(Extents extents);
  Result<Executable> get(std::initializer_list<std::int64_t> extents);
  // Returns when no compilation runs in the background.
  void wait();
  PlanCacheCounts counts() const;
  // Why the last of PlanCacheCounts::failed did; empty where none has.
  Diagnostics failure() const;
  // The classes of extents that were met, a line each: their ranges, and how many kernels serve all
  // extents of the class; below it the others, which are compiled for each set of extents, and why.
  // Empty without PlanCacheOptions::extents.
  std::string explain() const;

 private:
  struct Impl;
  Impl* impl_;
};

}  // namespace sinter
