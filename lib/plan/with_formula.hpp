// The one place that turns a PointwiseMode into the struct of pointwise.hpp that knows its formula.
#pragma once
#include "sinter/ops/op_table.hpp"
#include "sinter/ops/pointwise.hpp"

namespace sinter {

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

}  // namespace sinter
