// The bit of an attention block mask [b, heads, ceil(rows / 128), ceil(columns / 1024)] that
// governs score (b, head, row, column): bit i of a byte is the i-th tile of 128 columns.
#pragma once
#include "sinter/device/core/index.cuh"

namespace sinter {

template <class G, class T, class Element, class Coord>
SINTER_DEVICE T block_mask(const Element* mask, const Coord& c) {
  using Index = typename Coord::Index;
  using Stride = typename G::Mask::Stride;
  using At = typename G::Indices;  // of the domain
  constexpr Index tile = 128;
  const Index column_tile = c.at[At::at(3)] / tile;
  const Index offset = static_cast<Index>(G::Mask::offset) +
                       c.at[At::at(0)] * static_cast<Index>(Stride::at(0)) +
                       c.at[At::at(1)] * static_cast<Index>(Stride::at(1)) +
                       c.at[At::at(2)] / tile * static_cast<Index>(Stride::at(2)) +
                       column_tile / 8 * static_cast<Index>(Stride::at(3));
  return static_cast<T>(Format<Element>::fetch(mask + offset) >> (column_tile % 8) & 1);
}

}  // namespace sinter
