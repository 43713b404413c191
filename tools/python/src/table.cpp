// The list of operations as rows that the Python builders are made from.
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>

#include "graph.hpp"

namespace sinter::python {
namespace {

constexpr std::string_view kComputes[] = {  // by pointwise mode
#define SINTER_NAMED(mode, formula, function, says) says,
#define SINTER_OTHER(mode, formula, operands, parameters, says) says,
#define SINTER_INDEX(mode, says) says,
    SINTER_POINTWISE_MODES(SINTER_NAMED, SINTER_NAMED, SINTER_OTHER, SINTER_INDEX)
#undef SINTER_NAMED
#undef SINTER_OTHER
#undef SINTER_INDEX
};

nb::list ports_of(const Ports& ports) {
  nb::list rows;
  for (const auto& p : ports) rows.append(nb::make_tuple(p.name, p.required));
  return rows;
}

nb::list operations() {
  nb::list rows;
  for (int i = 0; i < static_cast<int>(OpKind::last_); ++i) {
    const auto kind = static_cast<OpKind>(i);
    const auto& op = info(kind);
    if (op.internal) continue;
    rows.append(nb::make_tuple(op.name, ports_of(op.inputs), ports_of(op.outputs),
                               describe_attributes(kind), op.variadic));
  }
  return rows;
}

nb::list pointwise_modes() {
  nb::list rows;
  for (int i = 0; i < static_cast<int>(std::size(kPointwiseModes)); ++i) {
    const auto mode = static_cast<PointwiseMode>(i);
    rows.append(nb::make_tuple(name(mode), info(mode).arity, attributes_of(mode), kComputes[i]));
  }
  return rows;
}

}  // namespace

void bind_table(nb::module_& m) {
  m.def("operations", &operations,
        "Rows (name, inputs, outputs, attributes, variadic); a port is (name, required), an "
        "attribute (name, type, default, choices).");
  m.def("pointwise_modes", &pointwise_modes,
        "Rows (name, operands, attributes, what it computes).");
}

}  // namespace sinter::python
