// The one place that turns a PointwiseMode into the struct of pointwise.hpp that knows its formula.
#pragma once
#include <utility>

#include "reference/bounded_math.hpp"
#include "sinter/ops/op_table.hpp"
#include "sinter/ops/pointwise.hpp"

namespace sinter::reference {

// Calls f with the struct of the mode. gen_index has no formula and is not among them.
template <class F>
void with_formula(PointwiseMode mode, F&& f) {
  switch (mode) {
#define SINTER_MODE(mode, Formula, ...)                                     \
  case PointwiseMode::mode:                                                 \
    static_assert(op::Formula::arity == info(PointwiseMode::mode).arity &&  \
                  op::Formula::params == info(PointwiseMode::mode).params); \
    return f(op::Formula{});
#define SINTER_INDEX(mode, ...) \
  case PointwiseMode::mode:     \
    return;
    SINTER_POINTWISE_MODES(SINTER_MODE, SINTER_MODE, SINTER_MODE, SINTER_INDEX)
#undef SINTER_MODE
#undef SINTER_INDEX
  }
}

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
