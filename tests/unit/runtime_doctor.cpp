#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <regex>

#include "base/env.hpp"
#include "runtime/doctor.hpp"
#include "support/catch.hpp"
#include "support/child.hpp"
#include "support/environment.hpp"
#include "support/fake_gpu.hpp"

using namespace sinter;
namespace fs = std::filesystem;

namespace {

bool says(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("every variable in the registry is a SINTER_ variable with a sentence, sorted") {
  std::string_view before;
  for (const auto& v : env_variables()) {
    CHECK(v.name.starts_with("SINTER_"));
    CHECK_FALSE(v.says.empty());
    CHECK(before < v.name);
    before = v.name;
  }
}

TEST_CASE("every variable that a source file reads is in the registry") {
  const fs::path root = sinter::test::source_tree();
  const std::regex read("(?:getenv|env_value|from_environment)\\(\"(SINTER_[A-Z_]+)\"");
  int found = 0;
  for (const char* folder : {"lib", "codegen", "tools", "tests", "samples"}) {
    if (!fs::exists(root / folder)) continue;
    for (const auto& entry : fs::recursive_directory_iterator(root / folder)) {
      if (entry.path().extension() != ".cpp" && entry.path().extension() != ".hpp") continue;
      std::ifstream in(entry.path());
      const std::string text{std::istreambuf_iterator<char>(in), {}};
      for (std::sregex_iterator m(text.begin(), text.end(), read), end; m != end; ++m, ++found) {
        const std::string name = (*m)[1];
        INFO(entry.path().string() << " reads " << name);
        CHECK(std::any_of(env_variables().begin(), env_variables().end(),
                          [&](const EnvVariable& v) { return v.name == name; }));
      }
    }
  }
  if (fs::exists(root / "lib")) CHECK(found > 0);
}

TEST_CASE("[child] the doctor works where nothing else does", "[.doctor_nothing]") {
  const DoctorReport r = examine();
  CHECK_FALSE(r.can_compile());
  CHECK_FALSE(r.can_execute());
  CHECK_FALSE(r.cache.usable);
  CHECK(r.unknown_variables == std::vector<std::string>{"SINTER_CACHEDIR"});
  const std::string text = doctor_text(r);
  for (const char* part :
       {"/nowhere/libcuda.so", "/nowhere/libnvrtc.so", "install the NVIDIA driver", "install NVRTC",
        "SINTER_CACHE is off", "SINTER_CACHEDIR is not a variable", "SINTER_CACHE_DIR ",
        "running on a GPU:  no", "compiling kernels: no"})
    CHECK(says(text, part));
}

TEST_CASE("the doctor reports what is missing and how to get it") {
  const auto run = run_hidden_cases("doctor_nothing", {{"SINTER_DRIVER", "/nowhere/libcuda.so"},
                                                       {"SINTER_NVRTC", "/nowhere/libnvrtc.so"},
                                                       {"SINTER_CACHE", "off"},
                                                       {"SINTER_CACHEDIR", "/tmp"}});
  INFO(run.output);
  CHECK(run.passed);
}

TEST_CASE("[child] the doctor lists the devices", "[.fake_gpu]") {
  const DoctorReport r = examine();
  REQUIRE(r.gpus.size() == 2);
  CHECK(r.can_execute());
  CHECK(r.gpus[1].ordinal == 1);
  CHECK(r.gpus[1].name == "Fake GPU");
  CHECK(r.gpus[1].sms == 132);
  CHECK(r.driver.version == "13.0");
  CHECK(says(r.driver.path, "libsinter_fake_driver"));
  CHECK(says(doctor_text(r), "8 GiB, 132 SMs"));
  if (r.nvrtc.problem.empty()) {
    CHECK(r.trial.problem.empty());
    CHECK(r.trial.milliseconds > 0);
  }
}
