// The generated sources of random graphs: nothing of the user's text gets into them, names do not
// change what they say, and NVRTC takes them.
#include <algorithm>
#include <cctype>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <mutex>
#include <set>
#include <string>

#include "plan/canonical_text.hpp"
#include "plan/plan_data.hpp"
#include "runtime/compiler.hpp"
#include "sinter/compile.hpp"
#include "support/can_compile.hpp"
#include "support/catch.hpp"
#include "support/environment.hpp"
#include "support/joined_kernels.hpp"
#include "support/on_all_cores.hpp"
#include "support/random_graph.hpp"

using namespace sinter;

namespace {

test::RandomGraphOptions compile_options_of(int seed, bool hostile_names = true) {
  test::RandomGraphOptions o;
  o.seed = static_cast<std::uint64_t>(100000 + seed);
  o.max_nodes = seed % 20 == 0 ? 60 : 12;
  o.hostile_names = hostile_names;
  return o;
}

Plan plan_of(const test::RandomGraphOptions& options, bool fuse = true) {
  const auto graph = test::random_graph(options);
  auto plan = Plan::make(*graph, {.fuse = fuse});
  for (const auto& d : plan.errors()) FAIL(d.message());
  return *plan;
}

bool is_plain(char c) { return c == '\n' || (c >= ' ' && c <= '~'); }
bool in_identifier(char c) { return c == '_' || std::isalnum(static_cast<unsigned char>(c)); }

// The words of a text: identifiers with the numbers, and single characters between them.
std::vector<std::string> tokens(const std::string& source) {
  std::vector<std::string> words;
  for (std::size_t i = 0; i < source.size();) {
    std::size_t end = i;
    while (end < source.size() && in_identifier(source[end])) ++end;
    if (end == i) ++end;
    words.push_back(source.substr(i, end - i));
    i = end;
  }
  return words;
}

// Whether two sources differ in nothing but how identifiers are spelt.
bool same_but_names(const std::string& a, const std::string& b) {
  const auto x = tokens(a), y = tokens(b);
  const auto is_name = [](const std::string& t) {
    return in_identifier(t[0]) && !std::isdigit(static_cast<unsigned char>(t[0]));
  };
  return std::equal(x.begin(), x.end(), y.begin(), y.end(),
                    [&](const std::string& s, const std::string& t) {
                      return s == t || (is_name(s) && is_name(t));
                    });
}

int graphs_to_compile() { return test::from_environment("SINTER_FUZZ_COMPILE", 2000); }

struct Compiled {
  std::vector<double> ms;  // each time
  std::vector<std::string> failures;
};

// Every source once, some joined, on as many threads as there are processors, one of eight texts to
// machine code: of the others only what the compiler says of the text, its instances and constants
// is asked. Where joined ones fail, each alone says which.
Compiled compile_all(const std::vector<std::vector<const PlanKernel*>>& work) {
  std::mutex mutex;
  Compiled result;
  test::on_all_cores(work.size(), [&](std::size_t i) {
    const std::string text = test::joined(work[i]);
    const auto start = std::chrono::steady_clock::now();
    const auto code =
        compile_uncached({text, work[i].front()->entry, "sm_90a", /*assemble=*/i % 8 == 0});
    const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - start;
    const std::lock_guard lock(mutex);
    result.ms.push_back(took.count());
    if (code) return;
    result.failures.push_back(code.error().message() + "\n" + text);
    for (const PlanKernel* k : work[i])
      if (const auto alone = compile_kernel({k->source, k->entry, "sm_90a"}); !alone)
        result.failures.push_back(alone.error().message() + "\n" + k->source);
  });
  return result;
}

}  // namespace

TEST_CASE("names appear in sources as identifiers alone and change nothing else", "[fuzz]") {
  for (int seed = 0; seed < 400; ++seed) {
    INFO("seed " << seed);
    const Plan hostile = plan_of(compile_options_of(seed)),
               plain = plan_of(compile_options_of(seed, false));
    const auto &a = hostile.data().kernels, &b = plain.data().kernels;
    REQUIRE(a.size() == b.size());
    for (std::size_t i = 0; i < a.size(); ++i) {
      CHECK(std::all_of(a[i].source.begin(), a[i].source.end(), is_plain));
      CHECK(std::all_of(a[i].entry.begin(), a[i].entry.end(), in_identifier));
      if (!same_but_names(a[i].source, b[i].source))
        FAIL_CHECK(a[i].source << "\n---- with plain names\n" << b[i].source);
    }
  }
}

TEST_CASE("the kernels of random graphs compile", "[fuzz][nvrtc]") {
  if (!test::can_compile()) return;
  const int graphs = graphs_to_compile();
  std::map<std::string, PlanKernel> kernels;  // by the text that is compiled, which they have here
  for (int seed = 0; seed < graphs; ++seed) {
    auto options = compile_options_of(seed);
    options.max_nodes = 1;  // every operation, type and layout, few kernels each
    const Plan plan = plan_of(options, seed % 4 != 3);
    for (PlanKernel k : plan.data().kernels) {
      k.source = canonical_text(k);
      kernels.emplace(k.source, k);
    }
  }
  std::vector<const PlanKernel*> each;
  for (const auto& [source, k] : kernels) each.push_back(&k);
  Compiled result =
      compile_all(test::joinable(each, test::kMostJoined, [](const PlanKernel&) { return 0; }));
  for (std::size_t i = 0; i < std::min<std::size_t>(result.failures.size(), 3); ++i)
    FAIL_CHECK(result.failures[i]);
  CHECK(result.failures.size() == 0);
  REQUIRE_FALSE(result.ms.empty());
  std::sort(result.ms.begin(), result.ms.end());
  std::printf(
      "%d random graphs, %zu kernels in %zu texts compiled: median %.0f ms a text, "
      "longest %.0f ms\n",
      graphs, kernels.size(), result.ms.size(), result.ms[result.ms.size() / 2], result.ms.back());
}
