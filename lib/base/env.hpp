// The registry of every environment variable that the project reads. What is not in the table is
// not read; a SINTER_ variable that is not in it is reported, because it is a misspelling.
#pragma once
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace sinter {

struct EnvVariable {
  std::string_view name, says;
};

std::span<const EnvVariable> env_variables();

// The value, or an empty string where the variable is absent.
std::string env_value(const char* name);

std::vector<std::string> unknown_env_variables();

}  // namespace sinter
