// A spec's kernel as a target runs it, with nothing measured.
#pragma once
#include "emit/emit.hpp"

namespace sinter {

inline ScheduledKernel scheduled(const KernelSpec& spec, std::string_view target = {}) {
  return schedule_kernel(spec, device_model(target), {});
}
inline EmittedKernel emitted(const KernelSpec& spec, std::string_view target = {},
                             const Tuning& tuning = {}) {
  return emit_kernel(schedule_kernel(spec, device_model(target), tuning));
}

}  // namespace sinter
