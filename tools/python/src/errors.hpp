// Diagnostics as the exception sinter.Error.
#pragma once
#include <nanobind/nanobind.h>

#include <sinter/sinter.hpp>

namespace sinter::python {

namespace nb = nanobind;

// The line of the user's own Python code: the innermost frame outside the package.
Where caller();

// Raises sinter.Error; a diagnostic without a place gets the caller's. Needs the GIL.
[[noreturn]] void raise(Diagnostics errors);

template <class T>
T take(Result<T> result) {
  if (!result) raise(result.errors());
  return std::move(result).value();
}

void bind_errors(nb::module_& m);

}  // namespace sinter::python
