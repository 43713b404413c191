// Which values stay beside the vectors of a row for later phases.
#include <algorithm>
#include <cmath>
#include <set>

#include "plan/liveness.hpp"
#include "schedule/rowwise/rowwise_parts.hpp"

namespace sinter {
namespace {

// More instructions than a conversion, a sum or a choice.
bool is_costly(const Statement& s) {
  if (s.kind == StatementKind::gather) return true;
  if (s.kind != StatementKind::pointwise) return false;
  using enum PointwiseMode;
  switch (s.mode) {
    case identity:
    case add:
    case sub:
    case mul:
    case min:
    case max:
    case add_square:
    case abs:
    case ceil:
    case floor:
    case round:
    case neg:
    case logical_and:
    case logical_or:
    case logical_not:
    case cmp_eq:
    case cmp_neq:
    case cmp_gt:
    case cmp_ge:
    case cmp_lt:
    case cmp_le:
    case binary_select:
    case gen_index:
    case relu_fwd:
    case relu_bwd:
      return false;
    default:
      return true;
  }
}

bool is_value_of_vector(const Statement& s) {
  return !s.per_row && (s.kind == StatementKind::pointwise || s.kind == StatementKind::convert ||
                        s.kind == StatementKind::gather);
}

}  // namespace

bool computes_costly(const KernelSpec& spec) {
  return std::ranges::any_of(spec.body.statements,
                             [](const Statement& s) { return !s.per_row && is_costly(s); });
}

std::vector<int> kept_values(const KernelSpec& spec, const RowwiseConfig& s) {
  if (!s.resident || s.recompute) return {};
  const auto& statements = spec.body.statements;
  std::vector<bool> made(statements.size());  // by a phase before
  std::set<int> kept;
  for (int p = 0; p < spec.rowwise().phases; ++p) {
    const auto live = live_statements(spec.body, effects(spec.body, p), kept);
    // What is used by something that no phase has made yet.
    std::set<int> needed;
    for (std::size_t i = 0; i < live.size(); ++i)
      if (live[i] && !made[i])
        for (int a : statements[i].args)
          if (made[static_cast<std::size_t>(a)]) needed.insert(a);
    for (int i : needed) {
      if (kept.contains(i) || !is_value_of_vector(statements[static_cast<std::size_t>(i)]))
        continue;
      const auto of = live_statements(spec.body, {i}, kept);
      bool costly = false;
      for (std::size_t j = 0; j < of.size(); ++j)
        costly |= of[j] && !statements[j].per_row && is_costly(statements[j]);
      if (costly) kept.insert(i);
    }
    for (std::size_t i = 0; i < live.size(); ++i)
      if (live[i] && !statements[i].per_row) made[i] = true;
  }
  int numbers = 0;  // of 32 bits, at a vector
  for (int i : kept)
    numbers += s.packing.width *
               (statements[static_cast<std::size_t>(i)].arithmetic == DataType::f64 ? 2 : 1);
  const double columns = elements(spec.extent, spec.rowwise().outer_rank, spec.extent.size());
  const double vectors =
      s.held_vectors > 0 ? s.held_vectors
                         : std::ceil(columns / (s.rows_fastest ? 1 : s.packing.width) /
                                     (static_cast<double>(s.threads_per_row) * s.blocks_per_row));
  const int most = s.rows_fastest && s.packing.width == 4 ? kKeptAcross : kKeptValues;
  if (vectors * numbers > most) return {};
  return {kept.begin(), kept.end()};
}

}  // namespace sinter
