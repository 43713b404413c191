// What a condition over pairs of query and key is for whole blocks of them, as interval arithmetic
// knows it: masks by index hide most of their pairs in blocks.
#pragma once
#include <array>
#include <optional>
#include <vector>

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

// What each of its statements takes for a pair: quotients and remainders have branches, but not a
// quotient by a power of two, nor a remainder in f32 of which the quotient is small for all rows
// and keys (math::near_fmod).
enum class Division { none, near, far };
std::vector<Division> divisions(const KernelSpec& spec, const Body& condition, int row, int key);

}  // namespace sinter
