// Rows cut in parts: a kernel whose rows are the parts, and one that combines them.
#pragma once
#include <optional>
#include <vector>

#include "planner/split/split.hpp"

namespace sinter {

// A spec whose rows are parts of the rows of another: the first `added` indices count them.
struct CutRows {
  KernelSpec spec;
  std::int64_t parts = 1;
  int added = 0;
  bool even = true;         // all parts have as many elements
  bool any_number = false;  // plans of a class of extents have other numbers of parts
  // What even parts leave of each row: one more part, which is short.
  std::optional<KernelSpec> rest{};
};

CutRows in_parts(const KernelSpec& spec, std::int64_t wished);

// Nothing where the parts of in_parts() are even, or are loaded by as wide vectors.
std::optional<CutRows> in_even_parts(const KernelSpec& spec, std::int64_t wished,
                                     const DeviceModel& device);

// Phases of reductions, then values of the row: one kernel for the parts of rows, and one that
// combines them. There is one phase of reductions, or a second one with what has_statistics()
// found. `pieces`: the parts are of what a row has at one place along its first index, which both
// the first kernel's rows and the second one's reductions have, too.
std::vector<KernelSpec> cut_rows(const KernelSpec& spec, CutRows rows, bool pieces,
                                 Temporaries& temporaries);

}  // namespace sinter
