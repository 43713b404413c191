// Neighbouring elements of which only the first `count` exist, fetched some time before they are
// used: whole aligned words where memory allows it, and element by element where it does not. What
// does not exist is not read and has no value.
#pragma once
#include "sinter/device/core/shifted.cuh"

namespace sinter {

// Neighbours along index `dim` of the domain that lie apart or leave windows one by one.
template <class Element, int width, int dim>
struct Each {
  Element at[width];
  unsigned inside;  // a bit each

  SINTER_DEVICE Element element(int e) const { return at[e]; }
};
template <class T, class Element, int width, int dim>
SINTER_DEVICE T get(const Each<Element, width, dim>& held, int e, T otherwise) {
  return held.inside >> e & 1u ? get<T>(held, e) : otherwise;
}

template <class Access, long long first, long long end, class Element, int width, int aligned,
          class Coord>
SINTER_DEVICE void fetch_part(const Element* base, const Coord& c, int count,
                              Pack<Element, width, aligned>& pack) {
  constexpr int step = Pack<Element, width, aligned>::step;
  using Move = typename Word<step * sizeof(Element)>::Type;
  const auto place = locate<Access>(c);
  pack.inside = place.inside;
  const Move* from = reinterpret_cast<const Move*>(base + place.offset);
#pragma unroll
  for (int i = 0; i < width / step; ++i)
    if (i * step < count && place.inside)
      reinterpret_cast<Move*>(pack.at)[i] = hardware::load(from + i);
}

// The kernel reads elements [first, end) of the buffer: words that reach further are not touched.
template <class Access, long long first, long long end, class Element, int width, class Coord>
SINTER_DEVICE void fetch_part(const Element* base, const Coord& c, int count,
                              Shifted<Element, width>& pack) {
  using Packs = Shifted<Element, width>;
  const auto place = locate<Access>(c);
  pack.inside = place.inside;
  if (count <= 0 || !place.inside) return;
  const char* const from = reinterpret_cast<const char*>(base + place.offset);
  const int shift = Packs::shift_of(from);
  const int reach = shift == 0 ? Packs::bytes : Packs::bytes + Packs::piece;
  if (from - shift >= reinterpret_cast<const char*>(base + first) &&
      from - shift + reach <= reinterpret_cast<const char*>(base + end))
    pack.load(from);
  else
    pack.load_each(base + place.offset, [&](int e) { return e < count; });
}

// Where the neighbours of `c` along index `dim` lie. Most of it is the same for all of them.
template <class Access, int dim, class Coord>
struct Walk {
  using Index = typename Coord::Index;
  template <class Window>
  static constexpr bool fixed = Window::Coefficient::at(dim) == 0;
  template <class... Windows>
  static constexpr SINTER_DEVICE bool simple(List<Windows...>) {
    return Access::Via::size == 0 && (true && ... && (fixed<Windows> || Windows::divisor == 1));
  }
  template <class... Windows>
  static constexpr SINTER_DEVICE long long step(List<Windows...>) {
    return (Access::Stride::at(dim) + ... + (Windows::Coefficient::at(dim) * Windows::stride));
  }
  using Windows = typename Access::Windows;

  const Coord& c;
  Location<Index> first;  // inside: of the windows that all neighbours share
  SINTER_DEVICE explicit Walk(const Coord& c) : c(c), first(locate<Access>(c)) {
    if constexpr (simple(Windows{})) first.inside = enter_fixed(Windows{});
  }
  SINTER_DEVICE Location<Index> at(int e) const {
    if constexpr (!simple(Windows{}))
      return locate<Access>(neighbour<dim>(c, e));
    else
      return {first.offset + static_cast<Index>(step(Windows{})) * e, enter_moving(e, Windows{})};
  }

 private:
  template <class... Windows>
  SINTER_DEVICE bool enter_fixed(List<Windows...>) const {
    Location<Index> place{0, true};
    ((fixed<Windows> ? enter<Windows>(place, c.at) : void()), ...);
    return place.inside;
  }
  template <class Window>
  SINTER_DEVICE bool holds(int e) const {
    const Index coordinate = static_cast<Index>(Window::base) +
                             dot(typename Window::Coefficient{}, c.at) +
                             static_cast<Index>(Window::Coefficient::at(dim)) * e;
    return coordinate >= 0 && coordinate < static_cast<Index>(Window::extent);
  }
  template <class... Windows>
  SINTER_DEVICE bool enter_moving(int e, List<Windows...>) const {
    return (first.inside & ... & (fixed<Windows> || holds<Windows>(e)));
  }
};

template <class Access, long long first, long long end, class Element, int width, int dim,
          class Coord>
SINTER_DEVICE void fetch_part(const Element* base, const Coord& c, int count,
                              Each<Element, width, dim>& pack) {
  const Walk < Access, dim<0 ? Coord::Extent::size : dim, Coord> walk(c);
  pack.inside = 0;
#pragma unroll
  for (int e = 0; e < width; ++e) {
    const auto place = walk.at(e);
    if (e >= count || (Access::Windows::size > 0 && !place.inside)) continue;
    pack.inside |= 1u << e;
    pack.at[e] = Format<Element>::fetch(base + place.offset);
  }
}

template <class Access, class Element, int width, int dim, class Coord>
SINTER_DEVICE void fetch(const Element* base, const Coord& c, Each<Element, width, dim>& pack) {
  fetch_part<Access, 0, 0>(base, c, width, pack);
}

template <class Access, long long first, long long end, class Element, class Coord>
SINTER_DEVICE void fetch_part(const Element* base, const Coord& c, int count, Same<Element>& same) {
  if (count > 0) fetch<Access>(base, c, same);
}

}  // namespace sinter
