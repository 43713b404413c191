#include "runtime/doctor.hpp"

#include <fmt/format.h>

#include <chrono>

#include "base/env.hpp"
#include "runtime/cache.hpp"
#include "runtime/compiler.hpp"
#include "runtime/driver.hpp"
#include "runtime/nvrtc.hpp"
#include "sinter/compile.hpp"
#include "sinter/operations.hpp"
#include "target/target.hpp"

#ifndef SINTER_VERSION
#define SINTER_VERSION "unknown"
#endif

namespace sinter {
namespace {

constexpr std::string_view kTrialSource =
    "extern \"C\" __global__ void trial(float* p) { *p += 1; }\n";

DoctorReport::Library examine_driver() {
  DoctorReport::Library l;
  auto d = driver();
  if (!d) l.problem = d.error().message();
  const DriverSearch& search = driver_search();
  l.path = search.path;
  if (search.version > 0)
    l.version = fmt::format("{}.{}", search.version / 1000, search.version % 1000 / 10);
  return l;
}

DoctorReport::Library examine_nvrtc() {
  DoctorReport::Library l;
  auto n = nvrtc();
  if (!n) {
    l.problem = n.error().message();
    return l;
  }
  l.path = (*n)->path;
  l.version = fmt::format("{}.{}", (*n)->major, (*n)->minor);
  return l;
}

DoctorReport::Gpu examine_gpu(const Driver& d, int ordinal) {
  DoctorReport::Gpu g{.ordinal = ordinal};
  auto target = Device::gpu(ordinal).target();
  if (target)
    g.target = *target;
  else
    g.problem = target.error().message();
  CUdevice device = 0;
  if (d.device_get(&device, ordinal) != CUDA_SUCCESS) return g;
  char name[256] = "";
  if (d.device_get_name(name, sizeof name, device) == CUDA_SUCCESS) g.name = name;
  std::size_t bytes = 0;
  if (d.device_total_mem(&bytes, device) == CUDA_SUCCESS)
    g.memory_bytes = static_cast<std::int64_t>(bytes);
  d.device_get_attribute(&g.sms, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, device);
  // A device can be listed and still refuse a context (exclusive mode, a broken one).
  ContextScope scope;
  if (auto entered = scope.enter(ordinal); !entered) g.problem = entered.error().message();
  return g;
}

DoctorReport::Trial try_compiler(std::string target) {
  DoctorReport::Trial t{.target = std::move(target)};
  const auto start = std::chrono::steady_clock::now();
  const auto compiled =
      compile_uncached({.source = kTrialSource, .entry = "trial", .target = t.target});
  const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - start;
  t.milliseconds = took.count();
  if (!compiled) t.problem = compiled.error().message();
  return t;
}

std::string try_cpu() {
  Graph graph;
  auto x = graph.tensor({.name = "x", .dim = {2}});
  graph.output(x + x, "y");
  auto executable = compile(graph, Device::cpu());
  if (!executable) return executable.error().message();
  alignas(16) float in[2] = {1, 2}, out[2] = {};  // as tensors are, unless declared otherwise
  auto executed = executable->execute(nullptr, {{"x", in}, {"y", out}});
  if (!executed) return executed.error().message();
  return out[0] == 2 && out[1] == 4 ? "" : fmt::format("1 + 1 gives {}", out[0]);
}

void print_library(std::string& s, const char* title, const DoctorReport::Library& l) {
  s += fmt::format("{:<10}{}{}{}\n", title, l.path.empty() ? "not found" : l.path,
                   l.version.empty() ? "" : ", version ", l.version);
  if (!l.problem.empty()) s += fmt::format("{:<10}{}\n", "", l.problem);
}

void print_cache(std::string& s, const CacheStatus& c) {
  constexpr double kMiB = 1 << 20;
  s += fmt::format("{:<10}{}\n", "cache", c.directory.empty() ? "memory only" : c.directory);
  if (c.usable)
    s +=
        fmt::format("{:<10}{} kernels, {:.1f} of {:.0f} MiB\n", "", c.entries,
                    static_cast<double>(c.bytes) / kMiB, static_cast<double>(c.limit_bytes) / kMiB);
  else
    s += fmt::format("{:<10}kernels are not kept on disk: {}\n", "", c.reason);
}

}  // namespace

DoctorReport examine() {
  DoctorReport r{.version = SINTER_VERSION, .driver = examine_driver(), .nvrtc = examine_nvrtc()};
  if (auto d = driver())
    for (int i = 0; i < (*d)->devices; ++i) r.gpus.push_back(examine_gpu(**d, i));
  const bool known = !r.gpus.empty() && !r.gpus.front().target.empty();
  if (r.nvrtc.problem.empty())
    r.trial = try_compiler(known ? r.gpus.front().target : kOldestTarget);
  r.cpu_problem = try_cpu();
  r.cache = kernel_cache().status();
  for (const auto& variable : env_variables())
    if (auto value = env_value(variable.name.data()); !value.empty())
      r.environment.emplace_back(variable.name, std::move(value));
  r.unknown_variables = unknown_env_variables();
  return r;
}

std::vector<std::string> DoctorReport::missing() const {
  std::vector<std::string> all;
  if (!driver.problem.empty())
    all.emplace_back("an NVIDIA GPU with its driver, to run on");
  else if (gpus.empty())
    all.emplace_back("an NVIDIA GPU, to run on");
  if (!can_compile()) all.emplace_back("NVRTC, to compile kernels");
  if (!cache.usable) all.emplace_back("a folder for compiled kernels, to start faster");
  return all;
}

std::string doctor_text(const DoctorReport& r) {
  std::string s = fmt::format("sinter    {}\n", r.version);
  print_library(s, "driver", r.driver);
  for (const auto& g : r.gpus) {
    s += fmt::format("{:<10}{}, {}, {:.0f} GiB, {} SMs\n", fmt::format("GPU {}", g.ordinal), g.name,
                     g.target, static_cast<double>(g.memory_bytes) / (1 << 30), g.sms);
    if (!g.problem.empty()) s += fmt::format("{:<10}{}\n", "", g.problem);
  }
  print_library(s, "NVRTC", r.nvrtc);
  if (r.nvrtc.problem.empty())
    s += r.trial.problem.empty()
             ? fmt::format("{:<10}a small kernel for {} compiled in {:.0f} ms\n", "",
                           r.trial.target, r.trial.milliseconds)
             : fmt::format("{:<10}{}\n", "", r.trial.problem);
  print_cache(s, r.cache);
  for (const auto& [name, value] : r.environment)
    s += fmt::format("{:<10}{}={}\n", "set", name, value);
  for (const auto& name : r.unknown_variables)
    s += fmt::format("{:<10}{} is not a variable that is read\n", "unknown", name);
  if (!r.unknown_variables.empty()) {
    s += "variables that are read:\n";
    for (const auto& v : env_variables()) s += fmt::format("  {:<24}{}\n", v.name, v.says);
  }
  s += fmt::format("compiling kernels: {}\nrunning on a GPU:  {}\nrunning on the CPU: {}\n",
                   r.can_compile() ? "yes" : "no", r.can_execute() ? "yes" : "no",
                   r.can_run_on_cpu() ? "yes" : "no, " + r.cpu_problem);
  const auto missing = r.missing();
  s += fmt::format("missing: {}\n",
                   missing.empty() ? "nothing" : fmt::format("{}", fmt::join(missing, "; ")));
  return s;
}

}  // namespace sinter
