// What a TMA instruction is told of a tensor: extents and byte strides, innermost first, and what
// one instruction moves: a box, or pixels of an image (im2col).
#pragma once
#include <cstdint>

#include "sinter/base/data_type.hpp"
#include "sinter/base/dims.hpp"

namespace sinter {

struct TensorMap {
  DataType type{};
  Dims dim;                 // extents in elements, innermost first (limits: tma_limits.hpp)
  Dims stride;              // bytes, of dims 1.. (one fewer than dim)
  Dims box;                 // elements, one a dim; im2col: channels, pixels
  int swizzle = 0;          // bytes: 0, 32, 64 or 128
  std::int64_t offset = 0;  // bytes from the tensor's pointer, a multiple of 16
  // im2col: dims are channels, w, [h, [d,]] image. An instruction steps over base pixels, w
  // fastest: along each of w, h, d from `lower` to its extent - 1 + `upper`, `step` apart. Empty:
  // boxes.
  Dims lower{}, upper{}, step{};
  bool walks_pixels() const { return !step.empty(); }
  bool operator==(const TensorMap&) const = default;
};

}  // namespace sinter
