// Python values as attributes of operations, and attributes as rows that Python reads: both from
// the lists of fields in sinter/ops/attributes.hpp.
#pragma once
#include <sinter/ops/default_attributes.hpp>

#include "errors.hpp"

namespace sinter::python {

Dims dims_from(nb::handle value, std::string_view what);
DataType data_type_from(nb::handle value, std::string_view what);

// Raises sinter.Error for names that `op` does not have and values that do not fit.
Attributes attributes_from(OpKind op, const nb::dict& values, const std::string& node);

// Rows (name, kind, default, choices).
nb::list describe_attributes(OpKind op);
// The names of the attributes that a pointwise mode takes.
nb::list attributes_of(PointwiseMode mode);

}  // namespace sinter::python
