// The rowwise family: reductions along rows, with what stands before, between and behind them.
#pragma once
#include <cstdint>
#include <vector>

#include "plan/spec/reductions.hpp"

namespace sinter {

// The first `outer_rank` indices of the domain name a row, the rest run along it. The body is split
// in phases: phase p sees the reductions that phases before p finished. Values marked `per_row` do
// not depend on the inner indices and run once a row and phase. Values may also be reduced down the
// columns, over all rows: KernelSpec::cross_row_reductions, in `num_partials` partial results.
struct RowwiseSpec {
  int outer_rank = 0;
  int phases = 1;
  std::vector<KernelReduction> reductions{};
  std::int64_t num_partials = 0;   // partial results of each of the cross-row reductions
  int rows_per_cta = 1;            // with num_partials: rows that one CTA takes side by side
  bool combines_partials = false;  // what it reduces are partial results of the kernel before
  // Neighbouring rows along index outer_rank - 1 whose reductions are one (channels of a group,
  // where channels are contiguous); rows of all values that are `per_row` nevertheless.
  std::int64_t group = 1;
  // Elements of a segment of a row, or 0: reductions that are KernelReduction::segmented are over
  // each, neighbours along the last index. They run in the last phase but one, and what needs them
  // in the last.
  std::int64_t segment = 0;
  bool any_length = false;  // rows may be as long as the launch says: none stays in registers

  Dims group_ends(int rank) const { return {outer_rank, rank}; }
  int result_rank(int) const { return outer_rank; }
};

}  // namespace sinter
