#include "planner/split/grouped_rows.hpp"

#include <algorithm>

#include "plan/access.hpp"
#include "plan/liveness.hpp"
#include "planner/spec/domain.hpp"

namespace sinter {
namespace {

// What does not depend on the places of the rows that there are now.
void mark_values_of_rows(KernelSpec& spec) {
  std::vector<int> along;
  for (int i = spec.rowwise().outer_rank; i < spec.extent.size(); ++i) along.push_back(i);
  const std::vector<bool> same = same_along(spec, spec.body, along);
  for (std::size_t i = 0; i < same.size(); ++i)
    if (same[i]) spec.body.statements[i].per_row = true;
}

}  // namespace

std::optional<KernelSpec> as_grouped_rows(const KernelSpec& spec) {
  KernelSpec fine = spec;
  RowwiseSpec& rows = fine.rowwise();
  const int last = spec.extent.size() - 1;
  if (rows.outer_rank == 0 || last <= rows.outer_rank) return {};
  move_index(fine, last, rows.outer_rank);
  ++rows.outer_rank;
  mark_values_of_rows(fine);
  if (!join_indices(fine, rows.outer_rank - 2)) return {};
  --rows.outer_rank;
  if (!rows_lie_together(fine)) return {};
  rows.group = spec.extent[last];
  return fine;
}

}  // namespace sinter
