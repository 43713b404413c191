#include "planner/split/walked_sums.hpp"

#include <algorithm>

#include "plan/access.hpp"
#include "plan/liveness.hpp"
#include "planner/spec/domain.hpp"

namespace sinter {
namespace {

using Kind = StatementKind;

const Statement& argument(const KernelSpec& spec, const Statement& s) {
  return spec.body.statements[static_cast<std::size_t>(s.args.front())];
}

// The store of a finished reduction, with no more than a conversion before it; null of any other
// statement.
const Statement* finished(const KernelSpec& spec, const Statement& store) {
  if (store.kind != Kind::store || store.args.size() != 1) return nullptr;
  const Statement* s = &argument(spec, store);
  if (s->kind == Kind::convert) s = &argument(spec, *s);
  return s->kind == Kind::reduced ? s : nullptr;
}

bool only_sums(const KernelSpec& spec) {
  const RowwiseSpec* const r = spec.as_rowwise();
  if (!r || r->phases != 2 || !spec.cross_row_reductions.empty() || !spec.gathers.empty() ||
      !rows_lie_together(spec))
    return false;
  std::size_t stored = 0;
  for (const Statement& s : spec.body.statements) {
    const bool behind = s.phase > 0, plain = s.kind == Kind::load || s.kind == Kind::scalar ||
                                             s.kind == Kind::pointwise || s.kind == Kind::convert;
    if (behind && s.kind == Kind::store) {
      if (!finished(spec, s)) return false;
      ++stored;
    } else if (behind ? s.kind != Kind::reduced && s.kind != Kind::convert
                      : !plain && s.kind != Kind::store &&
                            !(s.kind == Kind::reduce && s.access.windows.empty())) {
      return false;
    }
  }
  return stored == r->reductions.size();
}

// Whether a value is the same for all columns.
bool of_row(const KernelSpec& spec, const Statement& s) {
  if (is_load(s)) {
    const Access& a = spec.ports[static_cast<std::size_t>(s.port)].access;
    for (int i = spec.rowwise().outer_rank; i < spec.extent.size(); ++i)
      if (!a.via.empty() || moves_along(a, i)) return false;
  }
  return std::all_of(s.args.begin(), s.args.end(), [&](int a) {
    return spec.body.statements[static_cast<std::size_t>(a)].per_row;
  });
}

}  // namespace

std::optional<KernelSpec> as_walked_sums(const KernelSpec& spec) {
  if (!only_sums(spec)) return {};
  KernelSpec walk = spec;
  const int rows = spec.rowwise().outer_rank, rank = spec.extent.size();
  for (int i = rows; i < rank; ++i) move_index(walk, i, i - rows);
  const KernelSpec moved = walk;
  const auto& statements = moved.body.statements;
  walk.family = RowwiseSpec{.outer_rank = rank - rows};
  walk.body.statements.clear();
  std::vector<int> place(statements.size(), -1);
  const auto add = [&](Statement s) {
    for (int& a : s.args) a = place[static_cast<std::size_t>(a)];
    s.per_row = !acts(s) && of_row(walk, s);
    walk.body.statements.push_back(std::move(s));
    return static_cast<int>(walk.body.statements.size()) - 1;
  };
  for (std::size_t i = 0; i < statements.size(); ++i) {
    const Statement& s = statements[i];
    if (s.phase == 0 && s.kind != Kind::reduce) place[i] = add(s);
    const Statement* const reduced = finished(moved, s);
    if (!reduced) continue;
    const KernelReduction& r = moved.rowwise().reductions[static_cast<std::size_t>(reduced->port)];
    const KernelPort& result = moved.ports[static_cast<std::size_t>(s.port)];
    const Statement& value = argument(moved, s);
    Statement column = *std::find_if(
        statements.begin(), statements.end(),
        [&](const Statement& of) { return of.kind == Kind::reduce && of.port == reduced->port; });
    column.kind = Kind::cross_row_reduce;
    column.label = reduced->label;
    column.access = {};
    column.port = static_cast<int>(walk.cross_row_reductions.size());
    add(std::move(column));
    walk.cross_row_reductions.push_back(
        {.mode = r.mode,
         .arithmetic = r.arithmetic,
         .length = r.length,
         .label = reduced->label,
         .type = value.kind == Kind::convert ? value.type : result.type,
         .result = result});
  }
  drop_unused(walk);
  return walk;
}

}  // namespace sinter
