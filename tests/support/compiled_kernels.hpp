// Kernels to machine code for a target, for what the compiler says of them.
#pragma once
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "plan/plan_data.hpp"

namespace sinter::test {

struct NamedKernel {
  std::string name;  // for people
  std::string source, entry;
};
// A kernel's machine code is in `code`, beside that of those it was compiled with; `log` is what
// the compiler remarked on all of them.
using LookAtCode = std::function<void(std::span<const std::string> entries, const std::string& code,
                                      const std::string& log)>;

// Kernels that include the same headers are compiled as one text, equal ones once. Fails for each
// that does not compile. `look` may be empty.
void compile_together(std::span<const NamedKernel> kernels, std::string_view target,
                      const LookAtCode& look);

// Compiles them and fails where the compiler remarks one of `complaints`.
void expect_no_complaint(std::span<const NamedKernel> kernels, std::string_view target,
                         std::span<const std::string_view> complaints);

}  // namespace sinter::test
