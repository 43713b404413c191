// Which statements of a body a result needs.
#pragma once
#include <set>
#include <vector>

#include "plan/kernel_spec.hpp"

namespace sinter {

// True for stores and reductions, which make no value.
bool acts(const Statement& statement);

// Rowwise: some elements of a row need a reduction over it.
bool has_later_elements(const KernelSpec& spec);

// What the given statements need, themselves included; not what those of `known` do, whose values
// are at hand.
std::vector<bool> live_statements(const Body& body, const std::vector<int>& roots,
                                  const std::set<int>& known = {});

// True for values that are the same whatever the given indices are: constants, other indices, loads
// that do not follow the given ones, and formulas of such.
std::vector<bool> same_along(const KernelSpec& spec, const Body& body,
                             const std::vector<int>& dims);

// The statements of a phase that act: stores and reductions.
std::vector<int> effects(const Body& body, int phase);

}  // namespace sinter
