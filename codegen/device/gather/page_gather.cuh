// Paged keys and values: X [blocks, heads, block_size, d] seen through Page_table [b, 1, pages, 1]
// as [b, heads, pages * block_size, d]. A table entry that names no block gives zeros: entries past
// a sequence's end may hold anything.
#pragma once
#include "sinter/device/core/index.cuh"

namespace sinter {

template <class G, class T, class Element, class Entry, class Coord>
SINTER_DEVICE T page_gather(const Element* x, const Entry* table, const Coord& c) {
  using Index = typename Coord::Index;
  using X = typename G::X;
  using Table = typename G::Table;
  constexpr Index block_size = static_cast<Index>(X::Dim::at(2) > 0 ? X::Dim::at(2) : 1);
  const Index page = c.at[2] / block_size, row = c.at[2] - page * block_size;
  const Index entry = static_cast<Index>(Table::offset) +
                      c.at[0] * static_cast<Index>(Table::Stride::at(0)) +
                      page * static_cast<Index>(Table::Stride::at(2));
  const long long block = static_cast<long long>(Format<Entry>::fetch(table + entry));
  if (block < 0 || block >= X::Dim::at(0)) return T(0);
  return read<T>(x + static_cast<Index>(X::offset) +
                 static_cast<Index>(block) * static_cast<Index>(X::Stride::at(0)) +
                 c.at[1] * static_cast<Index>(X::Stride::at(1)) +
                 row * static_cast<Index>(X::Stride::at(2)) +
                 c.at[3] * static_cast<Index>(X::Stride::at(3)));
}

}  // namespace sinter
