// From a scheduled kernel to its text. A pure function that decides nothing: the same kernel gives
// the same bytes.
// No user text reaches the source; names become identifiers of [a-z0-9_] first.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "emit/class_text.hpp"
#include "plan/tensor_map.hpp"
#include "schedule/scheduled_kernel.hpp"

namespace sinter {

struct EmittedArgument {  // one member of the kernel's Args struct, in order
  bool scalar = false;
  bool integer = false;            // scalar: a 64-bit integer
  int index = 0;                   // of KernelSpec::ports or ::scalars; -1: a launch argument
  int bytes = 8;                   // scalar: 4 (float) or 8 (double, long long)
  std::uint64_t bits = 0;          // scalar: its value
  std::optional<TensorMap> map{};  // set: a tensor map of port `index` instead of its pointer
};

struct EmittedKernel {
  std::string entry, source;
  std::vector<std::string> names;  // identifiers of `source` that are the user's: canonical_text()
  std::uint32_t grid = 1, block = 1;
  std::uint32_t shared_bytes = 0;    // dynamic shared memory
  bool grid_dependency_wait = true;  // as every family does; see hardware::grid_dependency_wait
  std::vector<std::pair<std::string, std::int64_t>> config;
  std::vector<EmittedArgument> arguments;
};

// The text of two kernels of which one is scheduled as the other; nothing where they need texts of
// their own.
std::optional<ClassText> class_text(const ScheduledKernel& one, const ScheduledKernel& other);

// `title`: the user's names of what it computes, for the kernel's own name, which then has a text
// of its own; any text. `of_class`, where not null and the kernel is of that class: the text that
// it gets.
EmittedKernel emit_kernel(const ScheduledKernel& kernel, std::string_view title = {},
                          const ClassText* of_class = nullptr);

}  // namespace sinter
