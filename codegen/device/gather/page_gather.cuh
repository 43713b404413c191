// Paged keys and values: X [blocks, heads, block_size, d] seen through Page_table [b, 1, pages, 1]
// as [b, heads, pages * block_size, d]. A table entry that names no block gives zeros: entries past
// a sequence's end may hold anything.
#pragma once
#include "sinter/device/core/index.cuh"

namespace sinter {

// The block that holds a page of the entry; -1: none.
template <class G, class Entry, class Coord>
SINTER_DEVICE long long block_of_page(const Entry* table, const Coord& c,
                                      typename Coord::Index page) {
  using Index = typename Coord::Index;
  using Table = typename G::Table;
  if (page >= static_cast<Index>(Table::Dim::at(2))) return -1;
  const Index entry = static_cast<Index>(Table::offset) +
                      c.at[G::Indices::at(0)] * static_cast<Index>(Table::Stride::at(0)) +
                      page * static_cast<Index>(Table::Stride::at(2));
  const long long block = static_cast<long long>(Format<Entry>::fetch(table + entry));
  return block >= 0 && block < G::X::Dim::at(0) ? block : -1;
}

template <class G, class T, class Element, class Entry, class Coord>
SINTER_DEVICE T page_gather(const Element* x, const Entry* table, const Coord& c) {
  using Index = typename Coord::Index;
  using X = typename G::X;
  using At = typename G::Indices;  // of the domain
  constexpr Index block_size = static_cast<Index>(X::Dim::at(2) > 0 ? X::Dim::at(2) : 1);
  const Index page = c.at[At::at(2)] / block_size, row = c.at[At::at(2)] - page * block_size;
  const long long block = block_of_page<G>(table, c, page);
  if (block < 0) return T(0);
  return read<T>(x + static_cast<Index>(X::offset) +
                 static_cast<Index>(block) * static_cast<Index>(X::Stride::at(0)) +
                 c.at[At::at(1)] * static_cast<Index>(X::Stride::at(1)) +
                 row * static_cast<Index>(X::Stride::at(2)) +
                 c.at[At::at(3)] * static_cast<Index>(X::Stride::at(3)));
}

// Where the row lies whose elements are contiguous; null where the table names no block.
template <class G, class Element, class Entry, class Coord>
SINTER_DEVICE const Element* page_line(const Element* x, const Entry* table, const Coord& c) {
  using Index = typename Coord::Index;
  using X = typename G::X;
  using At = typename G::Indices;
  constexpr Index block_size = static_cast<Index>(X::Dim::at(2) > 0 ? X::Dim::at(2) : 1);
  const Index page = c.at[At::at(2)] / block_size, row = c.at[At::at(2)] - page * block_size;
  const long long block = block_of_page<G>(table, c, page);
  if (block < 0) return nullptr;
  return x + static_cast<Index>(X::offset) +
         static_cast<Index>(block) * static_cast<Index>(X::Stride::at(0)) +
         c.at[At::at(1)] * static_cast<Index>(X::Stride::at(1)) +
         row * static_cast<Index>(X::Stride::at(2));
}

}  // namespace sinter
