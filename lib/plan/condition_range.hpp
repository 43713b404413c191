// What a condition over pairs of query and key is for whole blocks of them, as interval arithmetic
// knows it: masks by index hide most of their pairs in blocks.
#pragma once
#include <array>
#include <optional>

#include "plan/kernel_spec.hpp"

namespace sinter {

struct Interval {
  double low, high;
};

// How an interval that holds all results of a formula is found (codegen/device/core/range.cuh has
// the same).
struct RangeRule {
  enum class By { ends, corners, equal, unequal, remainder };
  By by;
  std::array<bool, 2> grows{true, true};  // by `ends`: with each operand; else it falls
};
std::optional<RangeRule> range_rule(PointwiseMode mode);

// Of a body of indices, constants, and formulas that have rules, over rows and keys that are
// indices `row` and `key` of the domain.
struct SeenPairs {
  bool some, all;  // `some` where it may be
};
SeenPairs seen_pairs(const KernelSpec& spec, const Body& condition, int row, Interval rows, int key,
                     Interval keys);

}  // namespace sinter
