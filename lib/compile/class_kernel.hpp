// A kernel of plans that differ in extents alone.
#pragma once
#include <optional>
#include <string>

#include "emit/class_text.hpp"
#include "schedule/scheduled_kernel.hpp"

namespace sinter {

struct ClassKernel {
  ScheduledKernel decided;
  std::optional<ClassText> text;  // nothing: each set of extents has a text of its own
  std::string reason;             // of that
};

// What is compiled of one: its canonical_text().
struct ClassSource {
  std::string entry, text;
};

// `other`: what the kernel computes for other extents.
ClassKernel class_kernel(ScheduledKernel decided, const KernelSpec& other,
                         const PlanContext& context);

bool has_rows_of_other_length(const KernelSpec& spec, const KernelSpec& other);

}  // namespace sinter
