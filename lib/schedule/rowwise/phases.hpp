// What a rowwise kernel runs in each phase, for a row, for a segment of it and for each element.
#pragma once
#include <vector>

#include "schedule/rowwise/rowwise.hpp"
#include "schedule/statement_forms.hpp"

namespace sinter {

struct PhaseStatements {
  std::vector<bool> live;  // all that the phase's stores and reductions need, by statement
  std::vector<int> of_row, of_segment, of_element;
  std::vector<int> row_stores;
  // Elements may be computed out of their row, too: what they reach of memory comes in packs, out
  // of which theirs are cut.
  bool anywhere = false;
  bool stores_rows = false;  // results of neighbouring rows leave together
};

// Of all phases; values that earlier ones keep are not computed again.
std::vector<PhaseStatements> phase_statements(const StatementForms& body,
                                              const RowwiseConfig& config, int phases);

}  // namespace sinter
