// Which values of an element's function are computed once for many elements, those of a head or of
// a tile, and which for each.
#pragma once
#include <vector>

#include "schedule/statement_forms.hpp"

namespace sinter {

// By statement.
struct HoistedValues {
  std::vector<bool> of_element;  // computed for each element
  std::vector<bool> values;      // once, and read where they are used
  std::vector<bool> divisors;    // once, as what divides by them (math::Divisor)
};

// Of the body's last statement. `same`: values that all elements share (same_along).
HoistedValues hoisted_values(const StatementForms& body, const std::vector<bool>& same);

// The one random statement whose number, 0 or 1, a function gets of callers that run the generator
// once for several elements; -1: none.
int drawn_by_caller(const StatementForms& body, const HoistedValues& hoisted);

}  // namespace sinter
