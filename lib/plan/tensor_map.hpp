// What a TMA instruction is told of a tensor: extents and byte strides, innermost first, and the
// box that one instruction moves.
#pragma once
#include <cstdint>

#include "sinter/base/data_type.hpp"
#include "sinter/base/dims.hpp"

namespace sinter {

struct TensorMap {
  DataType type{};
  Dims dim;                 // 1 to 5 extents in elements, innermost first, each 1 to 2^32
  Dims stride;              // bytes, of dims 1.. (one fewer than dim): multiples of 16, below 2^40
  Dims box;                 // elements, one a dim, 1 to 256
  int swizzle = 0;          // bytes: 0, 32, 64 or 128
  std::int64_t offset = 0;  // bytes from the tensor's pointer, a multiple of 16
  bool operator==(const TensorMap&) const = default;
};

}  // namespace sinter
