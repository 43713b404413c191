// Dispatch to the shape rule of each operation.
#pragma once
#include "sinter/ops/shapes_contraction.hpp"
#include "sinter/ops/shapes_layout.hpp"
#include "sinter/ops/shapes_norm.hpp"
#include "sinter/ops/shapes_pointwise.hpp"
#include "sinter/ops/shapes_sdpa.hpp"

namespace sinter::detail {

inline bool infer_shapes(ShapeRules& r) {
  switch (r.node().op) {
#define SINTER_OPERATION(name, inputs, outputs, attributes, rule, ...) \
  case OpKind::name:                                                   \
    return shapes::rule(r);
    SINTER_OPERATIONS(SINTER_OPERATION, SINTER_OPERATION, SINTER_OPERATION, SINTER_OPERATION)
#undef SINTER_OPERATION
    case OpKind::last_:
      break;
  }
  return false;
}

}  // namespace sinter::detail
