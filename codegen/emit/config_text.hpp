// The structs of a generated file that hold constants and arguments.
#pragma once
#include "emit/body_text.hpp"
#include "schedule/schedule.hpp"

namespace sinter {

// The named constants that the kernel family reads, also shown to people.
struct ConfigConstant {
  std::string_view name;
  std::int64_t value;
  bool flag = false;  // a bool, not an int
};
std::vector<ConfigConstant> config_constants(const KernelSpec& spec, const Schedule& schedule);

void print_config(TextWriter& out, const KernelSpec& spec, const KernelNames& names,
                  const Schedule& schedule, const std::vector<const BodyText*>& bodies);
void print_args(TextWriter& out, const KernelSpec& spec, const KernelNames& names,
                const Schedule& schedule);

}  // namespace sinter
