#include <dlfcn.h>
#include <pthread.h>
#include <sys/resource.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <thread>

#include "embed/embedded.hpp"
#include "runtime/compiler.hpp"
#include "runtime/large_pages.hpp"
#include "runtime/module.hpp"
#include "runtime/nvrtc.hpp"
#include "support/catch.hpp"
#include "support/child.hpp"
#include "support/temporary_directory.hpp"

using namespace sinter;

namespace {

constexpr std::string_view kGood = "extern \"C\" __global__ void k(float* p) { *p += 1; }\n";

// Without NVRTC on the machine the compiler has nothing to be tested with but its absence.
bool absent() {
  if (nvrtc()) return false;
  const auto missing = compile_uncached({kGood, "k", "sm_80"});
  REQUIRE_FALSE(missing);
  CHECK(missing.error().rule == Rule::compiler_missing);
  return true;
}

std::string nested_expression(int depth) {
  std::string s = "extern \"C\" __global__ void k(float* p) { *p = ";
  for (int i = 0; i < depth; ++i) s += "(1.0f + ";
  s += "*p";
  return s + std::string(static_cast<std::size_t>(depth), ')') + "; }\n";
}

}  // namespace

TEST_CASE("a missing NVRTC is reported with every path that was tried") {
  const auto opened = open_nvrtc({"/nowhere/libnvrtc.so.13", "libnvrtc-nowhere.so", "libm.so.6"});
  REQUIRE_FALSE(opened);
  CHECK(opened.error().rule == Rule::compiler_missing);
  for (const char* part : {"/nowhere/libnvrtc.so.13", "libnvrtc-nowhere.so",
                           "libm.so.6 has no nvrtcVersion", "SINTER_NVRTC"})
    CHECK(opened.error().message().find(part) != std::string::npos);
}

TEST_CASE("the built-in functions beside NVRTC are opened with it") {
  if (absent()) return;
  const Nvrtc& n = **nvrtc();
  const auto name =
      "libnvrtc-builtins.so." + std::to_string(n.major) + "." + std::to_string(n.minor);
  const auto beside = std::filesystem::path(n.path).parent_path() / name;
  if (!std::filesystem::exists(beside)) return;
  CHECK(dlopen(name.c_str(), RTLD_NOW | RTLD_NOLOAD) != nullptr);
}

TEST_CASE("a text that is only checked leaves nothing in the cache, and its errors are found") {
  if (absent()) return;
  const auto checked = compile_kernel({kGood, "k", "sm_90a", /*assemble=*/false});
  REQUIRE(checked);
  CHECK(checked->empty());
  const auto code = compile_kernel({kGood, "k", "sm_90a"});
  REQUIRE(code);
  CHECK_FALSE(code->empty());
  // In the text, in a template that the kernel instantiates, in a constant, in an operand of asm.
  for (const char* wrong :
       {"nonsense",
        "template <int N> void f(auto x) { [](auto y) { static_assert(sizeof(y) < N); }(x); }\n"
        "extern \"C\" __global__ void k() { f<4>(1.0); }",
        "constexpr int two[2] = {}; constexpr int at(int i) { return two[i]; }\n"
        "extern \"C\" __global__ void k(int* p) { constexpr int i = at(2); *p = i; }",
        "extern \"C\" __global__ void k(float* p) { asm(\"mov.b32 %0, 1;\" : \"=r\"(*p)); }"})
    CHECK_FALSE(compile_kernel({wrong, "k", "sm_90a", /*assemble=*/false}));
}

TEST_CASE("a kernel compiles to machine code of its target, the same bytes each time") {
  if (absent()) return;
  const auto first = compile_uncached({kGood, "k", "sm_90a"});
  REQUIRE(first);
  CHECK(check_machine_code(*first).empty());
  const auto second = compile_uncached({kGood, "k", "sm_90a"});
  REQUIRE(second);
  CHECK(*first == *second);
  const auto other = compile_uncached({kGood, "k", "sm_80"});
  REQUIRE(other);
  CHECK(*first != *other);
}

TEST_CASE("a kernel can include the device library, which is given from memory") {
  if (absent()) return;
  REQUIRE_FALSE(embedded_files().empty());
  const std::string name(embedded_files().front().name);
  const auto missing = compile_uncached({"#include \"sinter/no_such_file.cuh\"\n", "k", "sm_90a"});
  REQUIRE_FALSE(missing);
  const auto result =
      compile_uncached({"#include \"" + name + "\"\n" + std::string(kGood), "k", "sm_90a"});
  CHECK(result);
  if (!result) INFO(result.error().message());
}

TEST_CASE(
    "a kernel that does not compile is reported with its name and the compiler's first lines") {
  if (absent()) return;
  const auto result = compile_uncached(
      {"// a comment\nextern \"C\" __global__ void k(float* p) { *p = undeclared_name; }\n", "k",
       "sm_90a"});
  REQUIRE_FALSE(result);
  const Diagnostic& d = result.error();
  CHECK(d.rule == Rule::compiler_error);
  CHECK(d.attribute == "kernel k for sm_90a:");
  CHECK(d.seen.find("k.cu(2)") != std::string::npos);
  CHECK(d.seen.find("undeclared_name") != std::string::npos);
  CHECK(d.seen.size() <= 2000);
}

TEST_CASE("a target that is none never reaches the compiler's options") {
  for (const char* target : {"", "sm_", "sm_9", "sm_90a --help", "compute_90", "sm_90b", "sm_1234",
                             "sm_90aa", "sm_-1"}) {
    const auto result = compile_kernel({kGood, "k", target});
    REQUIRE_FALSE(result);
    CHECK(result.error().rule == Rule::compiler_error);
    CHECK(result.error().allowed == "sm_80, sm_90a and the like");
  }
}

TEST_CASE("a source past 4 MiB is refused") {
  const std::string source(std::size_t{4 << 20} + 1, ' ');
  const auto result = compile_kernel({source, "k", "sm_90a"});
  REQUIRE_FALSE(result);
  CHECK(result.error().seen == "4194305 bytes of source");
}

TEST_CASE("a deep source compiles when the calling thread has a small stack") {
  if (absent()) return;
  Result<std::string> result = std::string();
  const std::string source = nested_expression(3000);
  auto work = [&] { result = compile_uncached({source, "k", "sm_80"}); };
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  REQUIRE(pthread_attr_setstacksize(&attributes, 64 << 10) == 0);
  pthread_t thread{};
  REQUIRE(pthread_create(
              &thread, &attributes,
              [](void* p) -> void* { return (*static_cast<decltype(work)*>(p))(), nullptr; },
              &work) == 0);
  pthread_join(thread, nullptr);
  pthread_attr_destroy(&attributes);
  CHECK(result);
}

TEST_CASE("[child] compiled kernels are kept and failures are not", "[.compiler_cache]") {
  REQUIRE(compile_kernel({kGood, "k", "sm_80"}));
  CHECK_FALSE(compile_kernel({"not a kernel", "k", "sm_80"}));
  CHECK_FALSE(compile_kernel({"not a kernel", "k", "sm_80"}));
  const auto kept =
      std::filesystem::directory_iterator(std::string(getenv("SINTER_CACHE_DIR")) + "/v1");
  CHECK(std::distance(begin(kept), end(kept)) == 1);
}

TEST_CASE("compiled kernels are kept on disk and failures are not") {
  if (absent()) return;
  TemporaryDirectory parent;
  const auto run = run_hidden_cases("compiler_cache",
                                    {{"SINTER_CACHE", ""}, {"SINTER_CACHE_DIR", parent / "cache"}});
  INFO(run.output);
  CHECK(run.passed);
}

TEST_CASE("[child] small blocks of a thread come in large pages", "[.large_pages]") {
  grow_heaps_in_large_steps();
  constexpr std::size_t kBlock = 4096, kBlocks = 4096;
  long faults = 0;
  std::thread([&] {
    ask_for_large_pages();
    std::vector<std::unique_ptr<char[]>> blocks;
    rusage before{}, after{};
    getrusage(RUSAGE_THREAD, &before);
    for (std::size_t i = 0; i < kBlocks; ++i) blocks.emplace_back(new char[kBlock]())[0] = 1;
    getrusage(RUSAGE_THREAD, &after);
    faults = after.ru_minflt - before.ru_minflt;
  }).join();
  CHECK(faults < static_cast<long>(kBlocks / 4));
}

TEST_CASE("compilations allocate in large pages where Linux has them") {
  std::string enabled;
  std::getline(std::ifstream("/sys/kernel/mm/transparent_hugepage/enabled"), enabled);
  if (enabled.find("[madvise]") == enabled.npos && enabled.find("[always]") == enabled.npos) return;
  const auto run = run_hidden_cases("large_pages", {});
  INFO(run.output);
  CHECK(run.passed);
}

TEST_CASE("[child] SINTER_NVRTC is the only place that is tried", "[.no_compiler]") {
  const auto result = compile_kernel({kGood, "k", "sm_80"});
  REQUIRE_FALSE(result);
  CHECK(result.error().rule == Rule::compiler_missing);
  CHECK(result.error().seen.find("/nowhere/libnvrtc.so") != std::string::npos);
  CHECK(nvrtc_paths().size() == 1);
}

TEST_CASE("without NVRTC, compiling is a typed error") {
  const auto run = run_hidden_cases("no_compiler", {{"SINTER_NVRTC", "/nowhere/libnvrtc.so"}});
  INFO(run.output);
  CHECK(run.passed);
}

TEST_CASE("kernels that take the longest are compiled first: attention, then the most text") {
  const std::string small = "#include \"sinter/device/core/device.cuh\"\n",
                    large = "#include \"sinter/device/family/rowwise.cuh\"\n", alone(100, ' '),
                    product = "#include \"sinter/device/family/contraction_wgmma.cuh\"\n" +
                              std::string(100000, ' '),
                    forward = "#include \"sinter/device/family/attention_forward.cuh\"\n",
                    backward = "#include \"sinter/device/family/attention_backward.cuh\"\n";
  const CompileRequest requests[] = {{alone, "a", "sm_90a"},   {small, "b", "sm_90a"},
                                     {large, "c", "sm_90a"},   {small, "d", "sm_90a"},
                                     {product, "e", "sm_90a"}, {forward, "f", "sm_90a"},
                                     {backward, "g", "sm_90a"}};
  CHECK(longest_first(requests) == std::vector<std::size_t>{6, 5, 4, 2, 1, 3, 0});
}
