// The formulas of pointwise.hpp on arrays of operands.
#pragma once
#include <utility>

#include "plan/with_formula.hpp"
#include "reference/bounded_math.hpp"

namespace sinter::reference {

// The formula on an array of operands and an array of parameters.
template <class Formula, class T>
T apply(const T* operands, const T* params) {
  return [&]<std::size_t... I, std::size_t... P>(std::index_sequence<I...>,
                                                 std::index_sequence<P...>) {
    return Formula::apply(operands[I]..., params[P]...);
  }
  (std::make_index_sequence<Formula::arity>(), std::make_index_sequence<Formula::params>());
}

}  // namespace sinter::reference
