#include <atomic>
#include <chrono>
#include <cstdlib>
#include <stdexcept>
#include <thread>
#include <vector>

#include "runtime/cache.hpp"
#include "support/catch.hpp"
#include "support/temporary_directory.hpp"

using namespace sinter;

namespace {

CacheKey key_of(std::string_view text) { return cache_key(std::span(&text, 1)); }

// Sixteen threads ask for one key at once.
template <class Make>
std::vector<Result<std::string>> ask_together(KernelCache& cache, Make make) {
  std::vector<Result<std::string>> results(16, std::string());
  std::vector<std::jthread> threads;
  for (auto& result : results) threads.emplace_back([&] { result = cache.get(key_of("k"), make); });
  threads.clear();
  return results;
}

class Variable {  // an environment variable, put back at the end
 public:
  Variable(const char* name, const char* value) : name_(name) {
    if (const char* old = std::getenv(name)) old_ = old, had_ = true;
    value ? setenv(name, value, 1) : unsetenv(name);
  }
  ~Variable() { had_ ? setenv(name_, old_.c_str(), 1) : unsetenv(name_); }

 private:
  const char* name_;
  std::string old_;
  bool had_ = false;
};

}  // namespace

TEST_CASE("sixteen threads that ask for one kernel compile it once") {
  KernelCache cache(CacheConfig{});
  std::atomic<int> made{0};
  const auto results = ask_together(cache, [&]() -> Result<std::string> {
    ++made;
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    return std::string("code");
  });
  CHECK(made == 1);
  for (const auto& result : results) {
    REQUIRE(result);
    CHECK(*result == "code");
  }
}

TEST_CASE("a failed compilation reaches every thread that waits and is not kept") {
  KernelCache cache(CacheConfig{});
  std::atomic<int> made{0};
  const auto fail = [&]() -> Result<std::string> {
    ++made;
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    return Diagnostic{.rule = Rule::compiler_error, .seen = "line 3"};
  };
  for (const auto& result : ask_together(cache, fail)) {
    REQUIRE_FALSE(result);
    CHECK(result.error().rule == Rule::compiler_error);
    CHECK(result.error().seen == "line 3");
  }
  const int before = made;
  const auto again = cache.get(key_of("k"), [&]() -> Result<std::string> {
    ++made;
    return std::string("code");
  });
  CHECK(made == before + 1);
  REQUIRE(again);
  CHECK(*again == "code");
}

TEST_CASE("a compilation that throws is an error for everybody, not a hang") {
  KernelCache cache(CacheConfig{});
  const auto results =
      ask_together(cache, []() -> Result<std::string> { throw std::runtime_error("no memory"); });
  for (const auto& result : results) {
    REQUIRE_FALSE(result);
    CHECK(result.error().seen == "no memory");
  }
}

TEST_CASE("another process's kernel comes from the disk") {
  TemporaryDirectory parent;
  const CacheConfig config{.directory = parent / "cache", .why_none = ""};
  KernelCache first(config), second(config);
  REQUIRE(first.get(key_of("k"), []() -> Result<std::string> { return std::string("code"); }));
  const auto read = second.get(key_of("k"), []() -> Result<std::string> {
    return Diagnostic{.rule = Rule::compiler_error};
  });
  REQUIRE(read);
  CHECK(*read == "code");
}

TEST_CASE("a failure is not kept on disk either") {
  TemporaryDirectory parent;
  KernelCache cache(CacheConfig{.directory = parent / "cache", .why_none = ""});
  CHECK_FALSE(cache.get(key_of("k"), []() -> Result<std::string> {
    return Diagnostic{.rule = Rule::compiler_error};
  }));
  CHECK(cache.status().entries == 0);
}

TEST_CASE("a cache without a usable directory still keeps kernels in memory") {
  KernelCache cache(CacheConfig{.directory = "/proc/sinter-cache", .why_none = ""});
  int made = 0;
  for (int i = 0; i < 3; ++i)
    REQUIRE(cache.get(key_of("k"), [&]() -> Result<std::string> {
      ++made;
      return std::string("code");
    }));
  CHECK(made == 1);
}

TEST_CASE("the memory in front of the disk is bounded and stays right when it overflows") {
  KernelCache cache(CacheConfig{});
  int made = 0;
  const auto get = [&](int n) {
    const auto result = cache.get(key_of(std::to_string(n)), [&]() -> Result<std::string> {
      ++made;
      return std::string(std::size_t{10} << 20, static_cast<char>('a' + n));
    });
    REQUIRE(result);
    CHECK(result->front() == static_cast<char>('a' + n));
  };
  for (int n = 0; n < 10; ++n) get(n);
  CHECK(made == 10);
  get(9);
  CHECK(made == 10);  // among the newest 64 MiB
  get(0);
  CHECK(made == 11);  // was dropped, and is made again
}

TEST_CASE("the cache's directory comes from the first variable that names one") {
  Variable off("SINTER_CACHE", nullptr), own("SINTER_CACHE_DIR", "/own/"),
      xdg("XDG_CACHE_HOME", "/xdg"), home("HOME", "/home/u"), limit("SINTER_CACHE_LIMIT_MB", "3");
  CHECK(cache_config_from_environment().directory == "/own");
  CHECK(cache_config_from_environment().limit_bytes == 3 << 20);
  Variable no_own("SINTER_CACHE_DIR", nullptr);
  CHECK(cache_config_from_environment().directory == "/xdg/sinter");
  Variable relative("XDG_CACHE_HOME", "xdg"), words("SINTER_CACHE_LIMIT_MB", "3x");
  CHECK(cache_config_from_environment().directory == "/home/u/.cache/sinter");
  CHECK(cache_config_from_environment().limit_bytes == std::int64_t{512} << 20);
  Variable no_home("HOME", nullptr);
  CHECK(cache_config_from_environment().directory.empty());
  CHECK_FALSE(cache_config_from_environment().why_none.empty());
}

TEST_CASE("SINTER_CACHE=off keeps kernels off the disk") {
  TemporaryDirectory parent;
  const std::string directory = parent / "cache";
  Variable off("SINTER_CACHE", "off"), own("SINTER_CACHE_DIR", directory.c_str());
  KernelCache cache(cache_config_from_environment());
  REQUIRE(cache.get(key_of("k"), []() -> Result<std::string> { return std::string("code"); }));
  CHECK_FALSE(std::filesystem::exists(directory));
  CHECK_FALSE(cache.status().usable);
  CHECK(cache.status().reason == "SINTER_CACHE is off");
}
