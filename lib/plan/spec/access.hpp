// How a kernel's indices reach memory: strides, windows, and the buffers themselves.
#pragma once
#include <string>
#include <vector>

#include "sinter/graph.hpp"

namespace sinter {

// A coordinate that may fall outside its tensor (convolution padding, parts of a concatenation):
// c = (base + sum coefficient[i] * index[i]) / divisor. The element exists when the division is
// exact and 0 <= c < extent; it then lies c * stride further.
struct Window {
  Dims coefficient;  // one an index of the domain
  std::int64_t base = 0, divisor = 1, extent = 0, stride = 0;
  bool operator==(const Window&) const = default;
};

// How the indices of the domain reach one element of a buffer:
// offset + sum stride[i] * index[i] + the windows. When `via` is not empty, the domain's indices
// are first joined row-major over the domain's extents to one number, which is split over the
// extents `via`; `stride` is then per split index (a reshape that is no view). Unused indices have
// stride 0.
struct Access {
  Dims stride;
  std::int64_t offset = 0;
  std::vector<Window> windows{};
  Dims via{};
  bool operator==(const Access&) const = default;
};

struct KernelPort {
  TensorId tensor = kNoTensor;  // of the lowered graph
  std::string name;             // the user's name of the tensor, not yet an identifier
  DataType type{};
  Access access;
  bool written = false;
  std::int64_t alignment = 16;  // of the buffer, bytes: what the caller promises, a power of two
  // pointwise: elements that are contiguous at each place; the statements that load or store it say
  // which of them they mean.
  int together = 1;
};

struct KernelScalar {  // a pass-by-value tensor
  TensorId tensor = kNoTensor;
  std::string name;
  DataType type{};
  double value = 0;
  std::int64_t integer_value = 0;
  bool bound = false;  // the value comes with each call, and this one stands for it
};

}  // namespace sinter
