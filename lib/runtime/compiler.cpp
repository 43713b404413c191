#include "runtime/compiler.hpp"

#include <fmt/format.h>
#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <exception>
#include <map>
#include <mutex>
#include <system_error>
#include <thread>
#include <tuple>
#include <utility>

#include "base/env.hpp"
#include "embed/embedded.hpp"
#include "runtime/cache.hpp"
#include "runtime/large_pages.hpp"
#include "runtime/nvrtc.hpp"
#include "target/target.hpp"

namespace sinter {
namespace {

constexpr std::size_t kStackBytes = std::size_t{64} << 20;
constexpr std::size_t kLargestSource = std::size_t{4} << 20;
constexpr std::size_t kLogLines = 12, kLogBytes = 2000;

// Families by what is left of a compilation when its front end is done, which the bytes of text do
// not tell: of gradients of attention 1,188 ms of processor time, of attention 1,017, of a
// convolution 418 (tools/benchmarks/results/cold_plans.md).
constexpr std::string_view kLongFamilies[] = {"sinter/device/family/attention_backward",
                                              "sinter/device/family/attention_"};

// Unannotated functions are device functions, so that constexpr helpers need no macro. There is no
// fast-math option: the error bounds that kernels are held to leave no room for it.
// Without contraction of a product and a sum to one rounding, a kernel gives the same bits whether
// its nodes are fused or not; the sums over k ask for fma themselves.
constexpr const char* kOptions[] = {"-std=c++20", "-fmad=false",
                                    "--device-as-default-execution-space",
                                    "--ptxas-options=-warn-spills"};

// Those and what else suits. Line numbers leave the code as it is, but take 5% of the time.
std::vector<const char*> options_for(const Nvrtc& nvrtc) {
  std::vector<const char*> options(std::begin(kOptions), std::end(kOptions));
  // Leaves out declarations that no kernel uses: textures and the runtime's functions.
  const auto version = std::pair(nvrtc.major, nvrtc.minor);
  if (version >= std::pair(12, 4)) options.push_back("-minimal");
  // NVRTC's cache on disk belongs to the driver: the first compilation of a process initialises
  // it, which takes 190 ms beside a GPU. Kernels are cached here (runtime/cache.hpp).
  if (version >= std::pair(12, 9)) options.push_back("--no-cache");
  if (env_value("SINTER_LINE_INFO") == "on") options.push_back("-lineinfo");
  return options;
}

Diagnostic failure(const CompileRequest& request, std::string seen) {
  return {.rule = Rule::compiler_error,
          .attribute = fmt::format("kernel {} for {}:", request.entry, request.target),
          .seen = std::move(seen)};
}

// The lines from the first error on, as many as a person reads.
std::string first_errors(std::string_view log) {
  std::size_t at = log.find("error");
  at = at == std::string_view::npos ? 0 : log.rfind('\n', at) + 1;
  std::string text;
  for (std::size_t line = 0; line < kLogLines && at < log.size(); ++line) {
    const std::size_t end = std::min(log.find('\n', at), log.size());
    if (text.size() + (end - at) > kLogBytes) break;
    text += std::string(log.substr(at, end - at)) + "\n";
    at = end + 1;
  }
  while (!text.empty() && (text.back() == '\n' || text.back() == '\0')) text.pop_back();
  return text;
}

// An NVRTC program with what it includes of the device library beside it.
class Program {
 public:
  Program(const Nvrtc& nvrtc, const CompileRequest& request) : nvrtc_(nvrtc) {
    std::vector<const char*> names, texts;
    for (const auto& file : included_files(request.source)) {
      names.push_back(file.name.data());
      texts.push_back(file.text.data());
    }
    const std::string source(request.source), name = std::string(request.entry) + ".cu";
    created_ = nvrtc.create_program(&program_, source.c_str(), name.c_str(),
                                    static_cast<int>(names.size()), texts.data(), names.data());
  }
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;
  ~Program() {
    if (created_ == NVRTC_SUCCESS) nvrtc_.destroy_program(&program_);
  }

  nvrtcResult created() const { return created_; }
  nvrtcResult compile(const CompileRequest& request) {
    const std::string_view number = request.target.substr(request.target.find('_') + 1);
    const std::string architecture =
        fmt::format("--gpu-architecture={}_{}", request.assemble ? "sm" : "compute", number);
    std::vector<const char*> options = options_for(nvrtc_);
    options.push_back(architecture.c_str());
    // Templates are instantiated and constants evaluated; NVRTC before 13.0 goes on to PTX.
    if (!request.assemble && nvrtc_.major >= 13) options.push_back("--fdevice-syntax-only");
    return nvrtc_.compile_program(program_, static_cast<int>(options.size()), options.data());
  }
  std::string log() const {
    std::size_t bytes = 0;
    if (nvrtc_.get_log_size(program_, &bytes) != NVRTC_SUCCESS) return {};
    std::string text(bytes, '\0');
    if (nvrtc_.get_log(program_, text.data()) != NVRTC_SUCCESS) return {};
    text.resize(std::strlen(text.c_str()));
    return text;
  }
  nvrtcResult machine_code(std::string& cubin) const {
    std::size_t bytes = 0;
    if (const auto r = nvrtc_.get_cubin_size(program_, &bytes); r != NVRTC_SUCCESS) return r;
    cubin.resize(bytes);
    return nvrtc_.get_cubin(program_, cubin.data());
  }

 private:
  const Nvrtc& nvrtc_;
  nvrtcProgram program_ = nullptr;
  nvrtcResult created_;
};

Result<std::string> compile_here(const Nvrtc& nvrtc, const CompileRequest& request,
                                 std::string* log) {
  const auto named = [&](const char* call, nvrtcResult r) {
    return fmt::format("{}: {}", call, nvrtc.get_error_string(r));
  };
  Program program(nvrtc, request);
  if (const auto r = program.created(); r != NVRTC_SUCCESS)
    return failure(request, named("nvrtcCreateProgram", r));
  if (const auto r = program.compile(request); r != NVRTC_SUCCESS) {
    const std::string errors = first_errors(program.log());
    return failure(request, errors.empty() ? named("nvrtcCompileProgram", r) : errors);
  }
  if (log) *log = program.log();
  std::string cubin;
  if (!request.assemble) return cubin;
  if (const auto r = program.machine_code(cubin); r != NVRTC_SUCCESS)
    return failure(request, named("nvrtcGetCUBIN", r));
  if (cubin.empty()) return failure(request, "NVRTC gave no machine code");
  return cubin;
}

struct Job {
  const Nvrtc& nvrtc;
  const CompileRequest& request;
  std::string* log;
  Result<std::string> result = std::string();
};

void* run_job(void* argument) {
  Job& job = *static_cast<Job*>(argument);
  ask_for_large_pages();
  try {
    job.result = compile_here(job.nvrtc, job.request, job.log);
  } catch (const std::exception& e) {
    job.result = failure(job.request, e.what());
  }
  return nullptr;
}

// On a thread of its own: the stack that the compiler needs grows with the source, and the caller's
// may be small.
Result<std::string> compile_on_large_stack(const Nvrtc& nvrtc, const CompileRequest& request,
                                           std::string* log = nullptr) {
  Job job{nvrtc, request, log};
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, kStackBytes);
  pthread_t thread{};
  const int error = pthread_create(&thread, &attributes, run_job, &job);
  pthread_attr_destroy(&attributes);
  if (error) return failure(request, fmt::format("no thread to compile on: {}", strerror(error)));
  pthread_join(thread, nullptr);
  return std::move(job.result);
}

Status check_request(const CompileRequest& request) {
  if (!valid_target(request.target)) {
    Diagnostic d = failure(request, fmt::format("target \"{}\"", request.target));
    d.allowed = kTargetExamples;
    return d;
  }
  if (request.source.size() > kLargestSource) {
    Diagnostic d = failure(request, fmt::format("{} bytes of source", request.source.size()));
    d.allowed = fmt::format("at most {}", kLargestSource);
    return d;
  }
  return Done{};
}

}  // namespace

Result<std::string> compile_uncached(const CompileRequest& request, std::string* log) {
  auto checked = check_request(request);
  SINTER_TRY(checked);
  auto nvrtc = sinter::nvrtc();
  SINTER_TRY(nvrtc);
  return compile_on_large_stack(**nvrtc, request, log);
}

Result<std::string> compile_kernel(const CompileRequest& request) {
  if (!request.assemble) return compile_uncached(request);
  auto checked = check_request(request);
  SINTER_TRY(checked);
  auto nvrtc = sinter::nvrtc();
  SINTER_TRY(nvrtc);
  std::vector<std::string_view> parts = {request.source, request.entry, request.target,
                                         embedded_digest(), (*nvrtc)->fingerprint};
  for (const char* option : options_for(**nvrtc)) parts.emplace_back(option);
  return kernel_cache().get(cache_key(parts),
                            [&] { return compile_on_large_stack(**nvrtc, request); });
}

std::vector<std::size_t> longest_first(std::span<const CompileRequest> requests) {
  struct Work {
    std::size_t family = std::size(kLongFamilies), bytes = 0;
  };
  std::vector<Work> work;
  std::vector<std::size_t> order;
  for (const auto& request : requests) {
    order.push_back(work.size());
    Work& w = work.emplace_back();
    w.bytes = request.source.size();
    for (const auto& file : included_files(request.source)) {
      w.bytes += file.text.size();
      for (std::size_t i = 0; i < w.family; ++i)
        if (file.name.starts_with(kLongFamilies[i])) w.family = i;
    }
  }
  std::ranges::stable_sort(order, [&](std::size_t a, std::size_t b) {
    return std::pair(work[a].family, work[b].bytes) < std::pair(work[b].family, work[a].bytes);
  });
  return order;
}

std::vector<Result<std::string>> compile_kernels(std::span<const CompileRequest> requests,
                                                 const PlanOptions& options) {
  std::vector<Result<std::string>> results(requests.size(), std::string());
  std::map<std::tuple<std::string_view, std::string_view, std::string_view, bool>, std::size_t>
      known;
  std::vector<std::size_t> first;  // the first request that is equal to this one
  std::vector<CompileRequest> unlike;
  std::vector<std::size_t> places;
  for (const CompileRequest& r : requests) {
    first.push_back(
        known.try_emplace({r.source, r.entry, r.target, r.assemble}, first.size()).first->second);
    if (first.back() + 1 < first.size()) continue;
    unlike.push_back(r);
    places.push_back(first.back());
  }
  const auto order = longest_first(unlike);
  std::atomic<std::size_t> next{0};
  std::mutex reporting;
  std::size_t done = 0;
  const auto report = [&](std::size_t more) {
    const std::lock_guard lock(reporting);
    done += more;
    report_progress(options, PlanProgress::Stage::compiling, done, unlike.size());
  };
  report(0);
  const auto work = [&] {
    for (std::size_t at = next++; at < unlike.size(); at = next++) {
      const CompileRequest& request = unlike[order[at]];
      auto& result = results[places[order[at]]];
      try {
        result = compile_kernel(request);
      } catch (const std::exception& e) {  // would end the process from a helper thread
        result = failure(request, e.what());
      }
      report(1);
    }
  };
  std::vector<std::thread> helpers;
  const std::size_t wanted =
      std::min<std::size_t>(unlike.size(), std::max(1U, std::thread::hardware_concurrency()));
  try {
    while (helpers.size() + 1 < wanted) helpers.emplace_back(work);
  } catch (const std::system_error&) {
    // Fewer threads do the same work.
  }
  work();
  for (auto& helper : helpers) helper.join();
  for (std::size_t i = 0; i < results.size(); ++i)
    if (first[i] < i) results[i] = results[first[i]];
  return results;
}

}  // namespace sinter
