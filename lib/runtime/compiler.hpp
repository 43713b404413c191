// NVRTC behind a function: source text in, machine code out. Compiles on a thread with a large
// stack, because NVRTC recurses with the size of the source. The kernel cache stands in front.
#pragma once
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "sinter/compile.hpp"

namespace sinter {

struct CompileRequest {
  std::string_view source;
  std::string_view entry;
  std::string_view target;  // "sm_80", "sm_90a", "sm_100a", ...
  // false: no code is generated, which takes a third of the time and finds what is wrong with the
  // text. The result is empty, and the cache, which keeps machine code, has no part in it.
  bool assemble = true;
};

// The cubin, from the cache or from NVRTC.
Result<std::string> compile_kernel(const CompileRequest& request);
// In which order several are compiled. NVRTC's front ends of a process run one after the other, so
// that the kernel that takes the longest behind its own is the first: gradients of attention,
// attention, then the kernel with the most text.
std::vector<std::size_t> longest_first(std::span<const CompileRequest> requests);
// The same as compile_kernel for each of several, equal ones once, on as many threads as there are
// cores. `options` say whom to tell how many are done.
std::vector<Result<std::string>> compile_kernels(std::span<const CompileRequest> requests,
                                                 const PlanOptions& options = {});
// From NVRTC, whatever the cache holds; nothing is kept.
// `log`, where not null: what the compiler remarked.
Result<std::string> compile_uncached(const CompileRequest& request, std::string* log = nullptr);

inline void report_progress(const PlanOptions& options, PlanProgress::Stage stage, std::size_t done,
                            std::size_t total) {
  if (options.progress)
    options.progress(options.progress_context,
                     {stage, static_cast<int>(done), static_cast<int>(total)});
}

}  // namespace sinter
