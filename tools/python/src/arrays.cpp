// Arrays that speak DLPack, as pointer, type, dims and strides.
#include <nanobind/ndarray.h>

#include "graph.hpp"

namespace sinter::python {
namespace {

nb::tuple view(const nb::ndarray<nb::ro>& a) {
  nb::list dim, stride;
  for (std::size_t i = 0; i < a.ndim(); ++i) {
    dim.append(a.shape(i));
    stride.append(a.stride(i));
  }
  return nb::make_tuple(reinterpret_cast<std::uintptr_t>(a.data()), int(a.dtype().code),
                        int(a.dtype().bits), nb::tuple(dim), nb::tuple(stride), a.device_type(),
                        a.device_id());
}

}  // namespace

void bind_arrays(nb::module_& m) {
  m.def("dlpack_view", &view, nb::arg("array"),
        "(pointer, type code, bits, dim, stride, device type, device id) of an array that speaks "
        "DLPack. The strides are in elements.");
}

}  // namespace sinter::python
