// Plans of a class of extents beside plans of constant extents, on the GPU at hand: a graph of many
// shapes from one PlanCache, and each shape compiled for itself. Prints the rows of
// extents_that_change.md, and how many compilations the cache needed.
//
//   sinter_extents [llama|gpt|resnet] [--kernels PERCENT] [--estimates] [--sources FOLDER]
//   [--calls COUNT] [SHAPE...]
//
// llama: a decoder block; gpt: a training step of one; resnet: a training step of a residual block.
// A shape is BxS (batch and tokens) or a number of images; without any, the table's.
// --kernels: of shapes that are so many percent slower each kernel alone as well, with the
// configuration where the two plans' are unlike.
// --estimates: what the planner estimates for sm_90a, without a GPU and without compiling.
// --sources: the same, and the texts of both plans' kernels to files of FOLDER, which has to exist.
// --calls: what so many shapes that are drawn at random take to get from a cache, whose kernel
// cache should be empty (SINTER_CACHE); none is run. Both plans run on the same memory, so on the
// same numbers, which the power that a GPU draws and with it its clock depend on. Rounds of one and
// of the other take turns, so that both meet the same clock; each row is the median of the rounds.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <future>
#include <map>
#include <numeric>
#include <random>
#include <set>

#include "compile/extent_classes.hpp"
#include "plan/plan_data.hpp"
#include "runtime/driver.hpp"
#include "runtime/stream_functions.hpp"
#include "sinter/plan_cache.hpp"
#include "support/llama_block.hpp"
#include "support/training_steps.hpp"

namespace sinter {
namespace {

// How often two plans are timed in turns, and how long each time.
struct Rounds {
  int count;
  double us;
} constexpr kPlans{15, 20000}, kKernels{5, 5000};

template <class T>
T take(Result<T> result) {
  if (result) return std::move(*result);
  fmt::print(stderr, "error: {}\n", result.error().message());
  std::exit(1);
}
void take(const Status& status) {
  if (status.ok()) return;
  fmt::print(stderr, "error: {}\n", status.error().message());
  std::exit(1);
}

using Extents = std::vector<std::int64_t>;

const GraphOptions kOptions{.name = "extents", .io = DataType::bf16};

struct Block {
  const char *name, *extents;
  void (*build)(Graph&, GraphBuilder::Extents);
  std::vector<DynamicExtent> dynamic;
  std::vector<Extents> shapes;
};

const std::vector<DynamicExtent> kTokens{dyn("batch", 1, 64), dyn("tokens", 1, 4096)};
const std::vector<Block> kBlocks{
    {"llama",
     "B x S",
     [](Graph& g, GraphBuilder::Extents e) { test::build_llama_block(g, e[0], e[1], {}); },
     kTokens,
     {{1, 1},    {2, 1},    {8, 1},    {16, 1},   {33, 1},   {64, 1},   {1, 7},
      {1, 128},  {2, 100},  {1, 500},  {16, 64},  {1, 1024}, {4, 333},  {1, 2048},
      {1, 4096}, {64, 128}, {8, 1024}, {3, 4095}, {32, 700}, {16, 2048}}},
    {"gpt",
     "B x S",
     [](Graph& g, GraphBuilder::Extents e) { test::build_gpt_step(g, e[0], e[1], {}); },
     kTokens,
     {{1, 128}, {2, 100}, {33, 1}, {1, 500}, {4, 333}, {1, 2048}, {8, 1024}}},
    {"resnet",
     "images",
     [](Graph& g, GraphBuilder::Extents e) { test::build_resnet_step(g, e[0], {}); },
     {dyn("images", 1, 256)},
     {{2}, {5}, {13}, {24}, {32}, {48}, {64}, {100}, {128}, {256}}}};

std::uint16_t bf16_of(float x) {
  std::uint32_t bits = 0;
  std::memcpy(&bits, &x, sizeof bits);
  return static_cast<std::uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}
float float_of(std::uint16_t bf16) {
  const std::uint32_t bits = std::uint32_t{bf16} << 16;
  float x = 0;
  std::memcpy(&x, &bits, sizeof x);
  return x;
}

// Numbers as a model has them: of mean 0 and variance 1, of weights of the variance that keeps
// products so.
std::vector<char> numbers_of(const Plan::TensorInfo& t) {
  static const std::vector<float> normal = [] {
    constexpr std::size_t kCount = 1000003;  // a prime: rows do not repeat
    std::mt19937 bits(1);
    std::normal_distribution<float> draw;
    std::vector<float> all(kCount);
    for (float& x : all) x = draw(bits);
    return all;
  }();
  std::int64_t terms = 1;  // of a result: of a matrix its rows, of filters the channels of all taps
  for (int i = 1; t.name[0] == 'w' && i < t.dim.size() - (t.dim.size() == 3); ++i)
    terms *= t.dim[i];
  const float scale = 1 / std::sqrt(static_cast<float>(terms));
  const auto write = [&]<class T>(auto as) {
    std::vector<T> period(normal.size());
    std::transform(normal.begin(), normal.end(), period.begin(),
                   [&](float x) { return as(x * scale); });
    std::vector<char> bytes(static_cast<std::size_t>(t.bytes));
    for (std::size_t at = 0; at < bytes.size(); at += period.size() * sizeof(T))
      std::memcpy(bytes.data() + at, period.data(),
                  std::min(bytes.size() - at, period.size() * sizeof(T)));
    return bytes;
  };
  if (t.type == DataType::bf16) return write.operator()<std::uint16_t>(bf16_of);
  return write.operator()<float>([](float x) { return x; });
}

// Memory by the names of tensors; weights keep theirs from shape to shape.
class Tensors {
 public:
  explicit Tensors(Device device) : device_(device) {}
  std::vector<Binding> bind(const Plan& plan) {
    std::vector<Binding> bindings;
    for (const auto& t : plan.tensors()) {
      auto at = memory_.find(t.name);
      if (at == memory_.end() || at->second.bytes() != t.bytes) {
        if (at != memory_.end()) memory_.erase(at);
        at = memory_.emplace(t.name, take(Memory::allocate(device_, t.bytes))).first;
        if (!t.written) {
          const auto numbers = numbers_of(t);
          take(at->second.copy_in(numbers.data(), t.bytes));
        }
      }
      bindings.emplace_back(at->first, at->second);
    }
    return bindings;
  }
  std::vector<float> read(const Plan::TensorInfo& t) const {
    const Memory& memory = memory_.at(t.name);
    if (t.type == DataType::f32) {
      std::vector<float> all(static_cast<std::size_t>(t.bytes) / 4);
      take(memory.copy_out(all.data(), t.bytes));
      return all;
    }
    std::vector<std::uint16_t> bits(static_cast<std::size_t>(t.bytes) / 2);
    take(memory.copy_out(bits.data(), t.bytes));
    std::vector<float> result(bits.size());
    std::transform(bits.begin(), bits.end(), result.begin(), float_of);
    return result;
  }

 private:
  Device device_;
  std::map<std::string, Memory> memory_;
};

Executable compiled(const Block& block, const Extents& extents, Device device) {
  Graph graph(kOptions);
  block.build(graph, extents);
  return take(compile(graph, device));
}

double square_sum(const std::vector<float>& a) {
  return std::accumulate(a.begin(), a.end(), 0.0, [](double s, float x) { return s + x * x; });
}
double square_distance(const std::vector<float>& a, const std::vector<float>& b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += (a[i] - b[i]) * (a[i] - b[i]);
  return sum;
}

struct Pair {
  double constant, of_class;
  double excess() const { return (of_class / constant - 1) * 100; }
};

// Calls of one plan, captured: a launch lasts long enough for events to time it.
class Captured {
 public:
  Captured(const Driver& driver, const StreamFunctions& f, CUstream stream)
      : driver_(driver), f_(f), stream_(stream) {
    take(call("cuEventCreate", f_.event_create(&begin_, CU_EVENT_DEFAULT)));
    take(call("cuEventCreate", f_.event_create(&end_, CU_EVENT_DEFAULT)));
  }
  Captured(const Captured&) = delete;
  Captured& operator=(const Captured&) = delete;
  ~Captured() {
    if (graph_) f_.exec_destroy(graph_);
    f_.event_destroy(begin_);
    f_.event_destroy(end_);
  }
  void capture(const BoundExecutable& bound, int calls) {
    CUgraph graph = nullptr;
    take(call("cuStreamBeginCapture",
              f_.begin_capture(stream_, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL)));
    for (int i = 0; i < calls; ++i) take(bound.execute(stream_));
    take(call("cuStreamEndCapture", f_.end_capture(stream_, &graph)));
    take(call("cuGraphInstantiate", f_.graph_instantiate(&graph_, graph, 0)));
    f_.graph_destroy(graph);
    calls_ = calls;
  }
  double launched_us() {  // a call takes
    return elapsed_us([&] { take(call("cuGraphLaunch", f_.graph_launch(graph_, stream_))); }) /
           calls_;
  }
  double called_us(const BoundExecutable& bound) {
    return elapsed_us([&] { take(bound.execute(stream_)); });
  }

 private:
  Status call(const char* name, CUresult r) const { return sinter::check(driver_, name, r); }
  template <class Work>
  double elapsed_us(Work&& work) {
    take(call("cuEventRecord", f_.event_record(begin_, stream_)));
    work();
    take(call("cuEventRecord", f_.event_record(end_, stream_)));
    take(call("cuEventSynchronize", f_.event_synchronize(end_)));
    float ms = 0;
    take(call("cuEventElapsedTime", f_.event_elapsed_time(&ms, begin_, end_)));
    return ms * 1000.;
  }

  const Driver& driver_;
  const StreamFunctions& f_;
  CUstream stream_;
  CUevent begin_ = nullptr, end_ = nullptr;
  CUgraphExec graph_ = nullptr;
  int calls_ = 0;
};

Pair medians(const Executable& constant, const Executable& of_class,
             const std::vector<Binding>& bindings, Device device, const Rounds& rounds) {
  const auto workspace = take(
      Memory::allocate(device, std::max(constant.workspace_bytes(), of_class.workspace_bytes())));
  const Driver& driver = *take(sinter::driver());
  ContextScope scope;
  take(scope.enter(device.ordinal()));
  const StreamFunctions f = take(stream_functions(driver));
  CUstream stream = nullptr;
  take(sinter::check(driver, "cuStreamCreate", f.stream_create(&stream, CU_STREAM_NON_BLOCKING)));
  std::vector<double> times[2];
  {
    std::array<Captured, 2> plans{Captured{driver, f, stream}, Captured{driver, f, stream}};
    for (int which : {0, 1}) {
      const auto bound = take((which ? of_class : constant).bind(bindings, workspace));
      plans[which].called_us(bound);
      const double us = plans[which].called_us(bound);
      plans[which].capture(bound, std::max(1, static_cast<int>(rounds.us / us)));
      plans[which].launched_us();
    }
    for (int round = 0; round < rounds.count; ++round)
      for (const int which : round % 2 ? std::array{1, 0} : std::array{0, 1})
        times[which].push_back(plans[which].launched_us());
  }
  f.stream_destroy(stream);
  for (auto& t : times) std::sort(t.begin(), t.end());
  const auto middle = static_cast<std::size_t>(rounds.count / 2);
  return {times[0][middle], times[1][middle]};
}

void check(const Executable& constant, const Executable& of_class, Tensors& tensors,
           Device device) {
  constexpr double kApart = 0.02;
  std::vector<std::vector<float>> results;
  for (const Executable* e : {&constant, &of_class}) {
    const auto workspace = take(Memory::allocate(device, e->workspace_bytes()));
    take(e->execute(nullptr, tensors.bind(e->plan()), workspace));
    take(synchronize(device));
    for (const auto& t : e->plan().tensors())
      if (t.written) results.push_back(tensors.read(t));
  }
  // Of outputs with as many elements together: the gradient of a key's bias is nothing but what
  // rounding leaves. Single elements may be far apart, where a sum of almost zero meets a relu.
  const std::size_t outputs = results.size() / 2;
  std::map<std::size_t, double> sums;
  for (std::size_t i = 0; i < outputs; ++i) sums[results[i].size()] += square_sum(results[i]);
  for (std::size_t i = 0; i < outputs; ++i) {
    const double d =
        std::sqrt(square_distance(results[i], results[outputs + i]) / sums[results[i].size()]);
    if (!(d <= kApart)) fmt::print("error: the two plans' output {} is {:.2g} apart\n", i, d);
  }
}

std::string configuration(const PlanKernel& k) {
  std::string text;
  for (const auto& [name, value] : k.config) text += fmt::format(" {}={}", name, value);
  return text;
}

Executable alone(const Executable& all, std::size_t kernel, Device device) {
  PlanData one = all.plan().data();
  one.kernels = {all.plan().data().kernels[kernel]};
  return take(load(Plan(Shared<const PlanData>::make(std::move(one))), device));
}

// Kernels are timed by what the whole plan left in memory, and lose what the cache holds of it.
void print_kernels(const Executable& constant, const Executable& of_class, Tensors& tensors,
                   Device device) {
  const auto &own = constant.plan().data().kernels, &others = of_class.plan().data().kernels;
  for (std::size_t k = 0; k < own.size() && own.size() == others.size(); ++k) {
    const Pair p = medians(alone(constant, k, device), alone(of_class, k, device),
                           tensors.bind(constant.plan()), device, kKernels);
    fmt::print("    {:7.1f} {:7.1f} {:+5.1f} %  {}\n", p.constant, p.of_class, p.excess(),
               own[k].entry);
    const std::string a = configuration(own[k]), b = configuration(others[k]);
    if (a != b) fmt::print("      constant{}\n      class   {}\n", a, b);
  }
}

double estimated(const std::vector<PlanKernel>& kernels) {
  return std::accumulate(kernels.begin(), kernels.end(), 0.0,
                         [](double sum, const PlanKernel& k) { return sum + k.microseconds; });
}

// Kernels of both plans; where these are not as many, one list below the other.
void print_estimates(const std::vector<PlanKernel>& own, const std::vector<PlanKernel>& others) {
  const auto print = [](const PlanKernel& k) {
    fmt::print("    {:7.1f}            {} {}\n", k.microseconds, k.entry, configuration(k));
  };
  if (own.size() != others.size()) {
    fmt::print("    {} kernels of the constant plan\n", own.size());
    for (const PlanKernel& k : own) print(k);
    fmt::print("    {} kernels of the class\n", others.size());
    for (const PlanKernel& k : others) print(k);
    return;
  }
  for (std::size_t k = 0; k < own.size(); ++k) {
    fmt::print("    {:7.1f} {:7.1f}  {}\n", own[k].microseconds, others[k].microseconds,
               own[k].entry);
    const std::string a = configuration(own[k]), b = configuration(others[k]);
    if (a != b) fmt::print("      constant{}\n      class   {}\n", a, b);
  }
}

void write_sources(const std::string& folder, const std::vector<PlanKernel>& kernels,
                   std::string_view plan) {
  for (std::size_t k = 0; k < kernels.size(); ++k)
    std::ofstream(fmt::format("{}/{}_{:02}.cu", folder, plan, k)) << kernels[k].source;
}

std::string text_of(const Extents& extents) {
  return fmt::format("{}", fmt::join(extents.begin(), extents.end(), " x "));
}

int estimate(const Block& block, const std::vector<Extents>& shapes, double kernels,
             const std::string& sources) {
  const PlanOptions options{.architecture = "sm_90a"};
  const GraphBuilder builder(block.build);
  ExtentClasses classes(builder, block.dynamic, kOptions, options);
  std::set<std::string> texts;
  fmt::print("| {} | constant | class | | compiles |\n|---|---|---|---|---|\n", block.extents);
  for (const auto& extents : shapes) {
    Graph own(kOptions), other(kOptions);
    block.build(own, extents);
    block.build(other, extents);
    const Plan constant = take(Plan::make(own, options)),
               of_class = take(classes.plan(other, extents));
    const auto &a = constant.data().kernels, &b = of_class.data().kernels;
    const auto fresh = std::count_if(b.begin(), b.end(),
                                     [&](const auto& k) { return texts.insert(k.entry).second; });
    const Pair p{estimated(a), estimated(b)};
    fmt::print("| {} | {:.1f} us, {} kernels | {:.1f} us, {} kernels | {:+.1f} % | {} |\n",
               text_of(extents), p.constant, a.size(), p.of_class, b.size(), p.excess(), fresh);
    if (p.excess() >= kernels) print_estimates(a, b);
    if (sources.empty()) continue;
    const std::string name = fmt::format("{}_{}", block.name, fmt::join(extents, "x"));
    write_sources(sources, a, fmt::format("{}_constant", name));
    write_sources(sources, b, fmt::format("{}_class", name));
  }
  fmt::print("\n{}", classes.explain());
  return 0;
}

// Small extents are as likely as large ones.
Extents draw(const std::vector<DynamicExtent>& dynamic, std::mt19937& bits) {
  Extents extents;
  for (const DynamicExtent& e : dynamic) {
    const double most = static_cast<double>(e.most) + 1;
    std::uniform_real_distribution<double> logarithm(std::log(e.least), std::log(most));
    extents.push_back(std::min(e.most, static_cast<std::int64_t>(std::exp(logarithm(bits)))));
  }
  return extents;
}

int call(const Block& block, int count) {
  struct Calls {
    double count = 0, sum = 0, most = 0;
    double mean() const { return sum / std::max(count, 1.0); }
  };
  PlanCache cache(block.build,
                  {.device = Device::current(), .graph = kOptions, .extents = block.dynamic});
  std::mt19937 bits(1);
  std::array<Calls, 2> calls;  // those that compile behind the others
  for (int i = 0; i < count; ++i) {
    const auto before = cache.counts().compiles;
    const auto begin = std::chrono::steady_clock::now();
    take(cache.get(draw(block.dynamic, bits)));
    const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - begin;
    const double ms = took.count();
    Calls& of = calls[cache.counts().compiles > before ? 1 : 0];
    ++of.count, of.sum += ms, of.most = std::max(of.most, ms);
  }
  const PlanCacheCounts c = cache.counts();
  fmt::print(
      "{}: {} shapes drawn at random: {} hits, {} compilations, {} kernels, {} classes\n"
      "with a compilation {:.0f} ms on average, {:.0f} at most; without {:.1f}, {:.1f}; {:.1f} s\n",
      block.name, count, c.hits, c.compiles, c.kernels, c.classes, calls[1].mean(), calls[1].most,
      calls[0].mean(), calls[0].most, (calls[0].sum + calls[1].sum) / 1000);
  return 0;
}

int run(const Block& block, const std::vector<Extents>& shapes, double kernels) {
  const Device device = Device::current();
  if (device.is_cpu()) {
    fmt::print(stderr, "no usable GPU: sinter doctor says why\n");
    return 1;
  }
  std::vector<std::future<Executable>> constants;
  for (const auto& extents : shapes)
    constants.push_back(
        std::async(std::launch::async, compiled, std::cref(block), extents, device));
  PlanCache cache(block.build, {.device = device, .graph = kOptions, .extents = block.dynamic});
  std::vector<Executable> of_class;
  for (const auto& extents : shapes) of_class.push_back(take(cache.get(extents)));
  Tensors tensors(device);
  std::vector<Executable> own;
  for (auto& c : constants) own.push_back(c.get());
  const PlanCacheCounts counts = cache.counts();
  fmt::print("{}: {} compilations of {} kernels for {} shapes\n\n", block.name, counts.compiles,
             counts.kernels, shapes.size());
  fmt::print("| {} | constant | from the cache | |\n|---|---|---|---|\n", block.extents);
  for (std::size_t i = 0; i < shapes.size(); ++i) {
    check(own[i], of_class[i], tensors, device);
    const Pair p = medians(own[i], of_class[i], tensors.bind(own[i].plan()), device, kPlans);
    fmt::print("| {} | {:.1f} us | {:.1f} us | {:+.1f} % |\n", text_of(shapes[i]), p.constant,
               p.of_class, p.excess());
    if (p.excess() >= kernels) print_kernels(own[i], of_class[i], tensors, device);
    std::fflush(stdout);
  }
  return 0;
}

}  // namespace
}  // namespace sinter

int main(int count, char** words) {
  std::vector<sinter::Extents> shapes;
  const sinter::Block* block = &sinter::kBlocks.front();
  double kernels = INFINITY;
  bool estimates = false;
  int calls = 0;
  std::string sources;
  for (int i = 1; i < count; ++i) {
    const std::string_view word = words[i];
    const auto named = std::find_if(sinter::kBlocks.begin(), sinter::kBlocks.end(),
                                    [&](const auto& b) { return word == b.name; });
    long long batch = 0, tokens = 0;
    const int numbers = std::sscanf(words[i], "%lldx%lld", &batch, &tokens);
    if (named != sinter::kBlocks.end()) {
      block = &*named;
    } else if (word == "--kernels" && i + 1 < count) {
      kernels = std::atof(words[++i]);
    } else if (word == "--calls" && i + 1 < count) {
      calls = std::atoi(words[++i]);
    } else if (word == "--estimates") {
      estimates = true;
    } else if (word == "--sources" && i + 1 < count) {
      sources = words[++i];
      estimates = true;
    } else if (numbers == static_cast<int>(block->dynamic.size())) {
      shapes.push_back(numbers == 1 ? sinter::Extents{batch} : sinter::Extents{batch, tokens});
    } else {
      fmt::print(stderr,
                 "usage: sinter_extents [llama|gpt|resnet] [--kernels PERCENT] [--estimates] "
                 "[--sources FOLDER] [--calls COUNT] [SHAPE ...]\n");
      return 2;
    }
  }
  if (shapes.empty()) shapes = block->shapes;
  if (calls > 0) return sinter::call(*block, calls);
  return estimates ? sinter::estimate(*block, shapes, kernels, sources)
                   : sinter::run(*block, shapes, kernels);
}
