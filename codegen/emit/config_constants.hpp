// The constants of a generated file's Config, engine by engine.
#pragma once
#include <string_view>
#include <vector>

#include "schedule/scheduled_kernel.hpp"

namespace sinter {

// A named constant that the kernel family reads, also shown to people.
struct ConfigConstant {
  std::string_view name;
  std::int64_t value;
  bool flag = false;  // a bool, not an int
};
using ConfigConstants = std::vector<ConfigConstant>;
ConfigConstants config_constants(const ScheduledKernel& kernel);

// Those of each engine, in the file of its text. They need none of the text, so that schedules are
// compared by them.
#define SINTER_ENGINE(Config) \
  void add_constants(const KernelSpec&, const Config&, ConfigConstants&);
SINTER_ENGINES(SINTER_ENGINE)
#undef SINTER_ENGINE

// For engines: the groups of a contraction's indices, and the tile of one on warpgroups.
void add_groups(const KernelSpec& spec, ConfigConstants& c);
void add_tile(const KernelSpec& spec, const WarpgroupConfig& e, int products, ConfigConstants& c);

}  // namespace sinter
