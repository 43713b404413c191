// Reductions inside a kernel, and those that a kernel leaves as partial results for the next one.
#pragma once
#include <string>

#include "plan/spec/access.hpp"

namespace sinter {

struct KernelReduction {
  ReductionMode mode{};
  DataType arithmetic = DataType::f32;
  std::int64_t length = 0;  // elements reduced, for avg
  int phase = 0;            // the phase that accumulates it
  bool segmented = false;   // over each segment of the row (RowwiseSpec::segment)
};

// A reduction that is complete only when the kernel has ended: it writes partial results to the
// written port `port`; `result` is where the finishing kernel puts the total
// (lib/planner/split/columns). rowwise: one value a column, reduced over all rows. There are
// `num_partials` partial results of each, as many rows one behind another. contraction: reduced
// over m, n or both. Partial results are of kReducedTogether rows, or columns.
struct CrossRowReduction {
  ReductionMode mode{};
  DataType arithmetic = DataType::f32;
  std::int64_t length = 0;  // elements of a result, for avg
  std::string label;
  int port = -1;
  // contraction: from the partial result of some rows (columns) to the one of the next; 0 where it
  // is not reduced over m (n).
  std::int64_t partial_stride_m = 0, partial_stride_n = 0;
  DataType type{};  // of the result; `result` may store it narrower
  KernelPort result;
};

inline constexpr std::int64_t kReducedTogether = 16;

// The type in which a reduction runs until it is finished.
constexpr DataType partial_type(ReductionMode mode, DataType arithmetic) {
  return mode == ReductionMode::norm2 ? DataType::f64 : arithmetic;
}

}  // namespace sinter
