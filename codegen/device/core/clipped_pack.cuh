// Packs along the last index where rows start anywhere in memory. They start where memory is
// aligned, so that the first and the last of a row may reach out of it: what such a pack holds of
// the rows beside it has no meaning and is never written.
#pragma once
#include "sinter/device/core/shifted.cuh"

namespace sinter {

// Whether the element `e` behind `c` is one of the row.
template <class Coord>
SINTER_DEVICE bool inside_row(const Coord& c, int e) {
  constexpr int last = Coord::Extent::size - 1;
  constexpr auto length = static_cast<typename Coord::Index>(Coord::Extent::at(last));
  return c.whole || (c.at[last] + e >= 0 && c.at[last] + e < length);
}

// Whether the pack lies behind the row's end.
template <class Coord>
SINTER_DEVICE bool outside_row(const Coord& c) {
  constexpr int last = Coord::Extent::size - 1;
  return c.at[last] >= static_cast<typename Coord::Index>(Coord::Extent::at(last));
}

// Whether the pack reaches past the last element of an access without windows.
template <class Access, int width, class Coord>
SINTER_DEVICE bool past_end(const Coord& c) {
  using Extent = typename Coord::Extent;
  constexpr auto last = [] {
    long long place = Access::offset;
    for (int i = 0; i < Extent::size; ++i)
      if (Access::Stride::at(i) > 0) place += Access::Stride::at(i) * (Extent::at(i) - 1);
    return place;
  }();
  return locate<Access>(c).offset + (width - 1) > static_cast<typename Coord::Index>(last);
}

// As for packs that lie in their row.
template <class Index, class Extent>
SINTER_DEVICE const Coordinates<Index, Extent>& unclipped(
    const ClippedCoordinates<Index, Extent>& c) {
  return c;
}

// Loads what lies at `c` and after it. What a pack reaches of the rows beside it comes along; what
// lies past the end of the tensor is left alone.
template <class Access, class Element, int width, int aligned, class Index, class Extent>
SINTER_DEVICE void fetch(const Element* base, const ClippedCoordinates<Index, Extent>& c,
                         Pack<Element, width, aligned>& pack) {
  static_assert(Access::Windows::size == 0);
  if (c.whole) return fetch<Access>(base, unclipped(c), pack);
  if (outside_row(c)) return;
  if (!past_end<Access, width>(c)) return fetch<Access>(base, unclipped(c), pack);
  const Element* const from = base + locate<Access>(c).offset;
#pragma unroll
  for (int e = 0; e < width; ++e)
    if (inside_row(c, e)) pack.at[e] = hardware::load(from + e);
}
template <class Access, class Element, int width, class Index, class Extent>
SINTER_DEVICE void fetch(const Element* base, const ClippedCoordinates<Index, Extent>& c,
                         Shifted<Element, width>& pack) {
  const Element* const from = base + locate<Access>(c).offset;
  if (c.whole)
    pack.load(from);
  else
    pack.load_each(from, [&](int e) { return inside_row(c, e); });
}

// What is cut out of pieces of other rows than its own as well. Pieces that reach ahead of the
// buffer, which starts at a multiple of 16 bytes, or past the tensor's end are left alone.
template <class Element, int width>
struct ShiftedRow : Shifted<Element, width> {};
template <class Access, class Element, int width, class Index, class Extent>
SINTER_DEVICE void fetch(const Element* base, const ClippedCoordinates<Index, Extent>& c,
                         ShiftedRow<Element, width>& pack) {
  using Packs = Shifted<Element, width>;
  const Index offset = locate<Access>(c).offset;
  if (outside_row(c)) return;
  if (offset >= 0 && !past_end<Access, width + Packs::piece / Packs::size - 1>(c))
    pack.load(base + offset);
  else
    pack.load_each(base + offset, [&](int e) { return inside_row(c, e); });
}

template <class Access, class Element, int width, class Index, class Extent>
SINTER_DEVICE void fetch(const Element* base, const CutCoordinates<Index, Extent>& c,
                         ShiftedRow<Element, width>& pack) {
  using Packs = Shifted<Element, width>;
  const Index offset = locate<Access>(c).offset;
  if (c.whole || !past_end<Access, width + Packs::piece / Packs::size - 1>(c))
    pack.load(base, offset);
  else
    pack.load_each(base + offset, [](int) { return true; });
}

// Prefetches to the second-level cache what `fetch` loads.
template <class Access, class Element, class Index, class Extent>
SINTER_DEVICE void prefetch(const Element* base, const ClippedCoordinates<Index, Extent>& c) {
  if (!outside_row(c)) prefetch<Access>(base, unclipped(c));
}

template <class Access, class Element, int width, int aligned, class Index, class Extent>
SINTER_DEVICE void flush(Element* base, const ClippedCoordinates<Index, Extent>& c,
                         const Pack<Element, width, aligned>& pack) {
  static_assert(Access::Windows::size == 0);
  if (inside_row(c, 0) && inside_row(c, width - 1)) return flush<Access>(base, unclipped(c), pack);
  Element* to = base + locate<Access>(c).offset;
#pragma unroll
  for (int e = 0; e < width; ++e)
    if (inside_row(c, e)) to[e] = pack.at[e];
}

}  // namespace sinter
