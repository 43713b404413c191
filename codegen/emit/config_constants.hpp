// The constants of a generated file's Config, engine by engine.
#pragma once
#include <string_view>
#include <vector>

#include "schedule/scheduled_kernel.hpp"

namespace sinter {

// The named constants that the kernel family reads, also shown to people.
struct ConfigConstant {
  std::string_view name;
  std::int64_t value;
  bool flag = false;  // a bool, not an int
};
std::vector<ConfigConstant> config_constants(const ScheduledKernel& kernel);

}  // namespace sinter
