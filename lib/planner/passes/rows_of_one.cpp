#include "planner/passes/rows_of_one.hpp"

#include <algorithm>

#include "planner/spec/body_copy.hpp"
#include "planner/spec/domain.hpp"

namespace sinter {
namespace {

bool is_magnitude(ReductionMode mode) {
  return mode == ReductionMode::amax || mode == ReductionMode::norm1;
}
// Whether of one element x the reduction is x, or |x|.
bool keeps(const KernelReduction& r) {
  switch (r.mode) {
    case ReductionMode::add:
    case ReductionMode::mul:
    case ReductionMode::min:
    case ReductionMode::max:
      return true;
    case ReductionMode::avg:
      return r.length == 1;
    default:
      return is_magnitude(r.mode);
  }
}

}  // namespace

void make_elementwise(KernelSpec& spec) {
  const RowwiseSpec* const rows = spec.as_rowwise();
  if (!rows || rows->any_length || rows->combines_partials || rows->group > 1 ||
      rows->segment > 0 || !spec.cross_row_reductions.empty() ||
      count(spec.extent, rows->outer_rank, spec.extent.size()) != 1 ||
      !std::ranges::all_of(rows->reductions, keeps))
    return;
  std::vector<Statement> made;
  std::vector<int> place(spec.body.statements.size(), -1), of(rows->reductions.size(), -1);
  for (std::size_t i = 0; i < place.size(); ++i) {
    Statement s = spec.body.statements[i];
    for (int& a : s.args) a = place[static_cast<std::size_t>(a)];
    if (s.kind == StatementKind::reduce) {
      of[static_cast<std::size_t>(s.port)] = s.args[0];
      continue;
    }
    if (s.kind == StatementKind::reduced) {
      const auto number = static_cast<std::size_t>(s.port);
      const int value = of[number];
      if (value < 0 || made[static_cast<std::size_t>(value)].arithmetic != s.arithmetic) return;
      place[i] = value;
      if (!is_magnitude(rows->reductions[number].mode)) continue;
      s = statement(StatementKind::pointwise, s.arithmetic, s.label);
      s.mode = PointwiseMode::abs;
      s.args = {value};
    }
    s.phase = 0;
    s.per_row = false;
    place[i] = static_cast<int>(made.size());
    made.push_back(std::move(s));
  }
  spec.body.statements = std::move(made);
  spec.family = PointwiseSpec{};
  simplify_domain(spec);
}

}  // namespace sinter
