#include "schedule/rowwise/phases.hpp"

#include <algorithm>
#include <set>

#include "plan/liveness.hpp"

namespace sinter {
namespace {

bool reaches_memory(const Statement& s) {
  return s.kind == StatementKind::load || s.kind == StatementKind::store ||
         s.kind == StatementKind::gather;
}

bool leave_together(const std::vector<int>& row_stores, const StatementForms& body,
                    const RowwiseConfig& config) {
  return !config.row_aligned.empty() && config.packing.width > 1 && !row_stores.empty() &&
         std::ranges::all_of(row_stores, [&](int i) {
           return config.row_aligned[static_cast<std::size_t>(body.statement(i).port)] > 0;
         });
}

}  // namespace

std::vector<PhaseStatements> phase_statements(const StatementForms& body,
                                              const RowwiseConfig& config, int phases) {
  std::vector<PhaseStatements> all(static_cast<std::size_t>(phases));
  std::set<int> kept;
  for (int number = 0; number < phases; ++number) {
    PhaseStatements& phase = all[static_cast<std::size_t>(number)];
    phase.live = live_statements(body.body(), effects(body.body(), number), kept);
    for (int i = 0; i < body.size(); ++i) {
      if (!phase.live[static_cast<std::size_t>(i)]) continue;
      const Statement& s = body.statement(i);
      const bool store = s.kind == StatementKind::store;
      const bool of_row = s.per_row && (store || !acts(s));
      (body.runs_once_a_segment(i) ? phase.of_segment
       : !of_row                   ? phase.of_element
       : store                     ? phase.row_stores
                                   : phase.of_row)
          .push_back(i);
    }
    phase.anywhere = std::ranges::none_of(phase.of_element, [&](int i) {
      return reaches_memory(body.statement(i)) && !body.packed(i);
    });
    phase.stores_rows = leave_together(phase.row_stores, body, config);
    for (const int i : config.kept)
      if (std::ranges::find(phase.of_element, i) != phase.of_element.end()) kept.insert(i);
  }
  return all;
}

}  // namespace sinter
