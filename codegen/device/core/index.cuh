// From an element of the iteration domain to an element of a buffer. Extents and strides are
// constants of the generated file, so that divisions by them become multiplications, or come with
// the launch.
#pragma once
#include "sinter/device/core/dynamic.cuh"
#include "sinter/device/core/types.cuh"

namespace sinter {

template <long long... values>
struct Dims {
  static constexpr int size = sizeof...(values);
  static constexpr long long product = (1LL * ... * values);  // where all are literals
  static constexpr bool literal = (is_literal<values> && ...);
  // Called with constants after unrolling.
  static constexpr SINTER_DEVICE long long at(int i) {
    if constexpr (literal) {
      const long long all[] = {values..., 0};
      return all[i];
    } else {
      long long value = 0;
      int n = 0;
      ((n++ == i ? void(value = value_of<values>()) : void()), ...);
      return value;
    }
  }
  // Of `count` from number `from` on: whether they are literals, and their product.
  static constexpr SINTER_DEVICE bool literals(int from, int count) {
    const bool all[] = {is_literal<values>..., true};
    for (int i = from; i < from + count; ++i)
      if (!all[i]) return false;
    return true;
  }
  template <class Index>
  static constexpr SINTER_DEVICE Index multiplied(int from, int count) {
    Index p = 1;
    for (int i = from; i < from + count; ++i) p *= static_cast<Index>(at(i));
    return p;
  }
};

// Of constants, each by a number of its own: as elements of an array they would lie in memory.
template <class Values>
SINTER_DEVICE int select(int i) {
  int value = static_cast<int>(Values::at(0));
  for_each_number<Values::size - 1>([&]<int before>() {
    constexpr int next = static_cast<int>(Values::at(before + 1));
    value = i == before + 1 ? next : value;
  });
  return value;
}

// The indices of one element of the domain.
template <class IndexType, class ExtentDims>
struct Coordinates {
  using Index = IndexType;  // int where every offset of the kernel fits, else long long
  using Extent = ExtentDims;
  Index at[Extent::size + 1] = {};
};

// The same where packs may reach out of their row.
template <class IndexType, class ExtentDims>
struct ClippedCoordinates : Coordinates<IndexType, ExtentDims> {
  bool whole = false;  // the pack that starts here surely does not, nor do its neighbours
};

// The same where packs are cut out of the pieces around them.
template <class IndexType, class ExtentDims>
struct CutCoordinates : Coordinates<IndexType, ExtentDims> {
  bool whole = false;  // no piece of the pack that starts here lies past the tensor's end
};

// a / b, where neither is negative: shorter without signs.
SINTER_DEVICE constexpr int quotient(int a, long long b) {
  return static_cast<int>(static_cast<unsigned>(a) / static_cast<unsigned>(b));
}
SINTER_DEVICE constexpr long long quotient(long long a, long long b) {
  return static_cast<long long>(static_cast<unsigned long long>(a) /
                                static_cast<unsigned long long>(b));
}

// Whether an extent that comes with the launch is the first of `count` but for ones: no element
// lies past it, so that nothing is divided by it.
template <class Extent, int first, int count>
constexpr SINTER_DEVICE bool only_ones_before() {
  if constexpr (count > 1)
    if constexpr (!Extent::literals(first + count - 1, 1) && Extent::literals(first, count - 1))
      return Extent::template multiplied<long long>(first, count - 1) == 1;
  return false;
}

// Splits `linear`, row-major, over `count` extents from number `first` on. This and `dot` are
// written without loops: kernels hold hundreds of copies, which the compiler would unroll one by
// one.
template <class Extent, int first, int count, class Index>
SINTER_DEVICE void unravel(Index linear, Index* index) {
  if constexpr (only_ones_before<Extent, first, count>()) {
    index[count - 1] = linear;
    unravel<Extent, first, count - 1>(Index(0), index);
  } else if constexpr (count > 1) {
    const long long extent = Extent::at(first + count - 1);
    const Index rest = quotient(linear, extent > 0 ? extent : 1);
    index[count - 1] = linear - rest * static_cast<Index>(extent > 0 ? extent : 1);
    unravel<Extent, first, count - 1>(rest, index);
  } else if constexpr (count == 1) {
    index[0] = linear;
  }
}
template <int first, int count, class Index, class Extent>
SINTER_DEVICE void unravel(Index linear, Coordinates<Index, Extent>& c) {
  unravel<Extent, first, count>(linear, c.at + first);
}

template <class Index, long long... weights>
SINTER_DEVICE Index dot(Dims<weights...>, const Index* index) {
  Index sum = 0;
  int i = 0;
  ((weights != 0 ? void(sum += static_cast<Index>(value_of<weights>()) * index[i]) : void(), ++i),
   ...);
  return sum;
}

// What the generated access structs derive from; they hide what is not the default.
struct Strided {
  static constexpr long long offset = 0;
  using Windows = List<>;
  using Via = Dims<>;  // not empty: the strides belong to these extents
};

template <class Index>
struct Location {
  Index offset;
  bool inside;
};

// A window's coordinate is (base + coefficients . index) / divisor; it is inside where the division
// is exact and the result lies in [0, extent).
template <class Window, class Index>
SINTER_DEVICE void enter(Location<Index>& place, const Index* index) {
  const Index numerator =
      static_cast<Index>(Window::base) + dot(typename Window::Coefficient{}, index);
  Index coordinate = numerator;
  if constexpr (Window::divisor != 1) {
    coordinate = numerator / static_cast<Index>(Window::divisor);
    place.inside &= coordinate * static_cast<Index>(Window::divisor) == numerator;
  }
  place.inside &= coordinate >= 0 && coordinate < static_cast<Index>(Window::extent);
  place.offset += coordinate * static_cast<Index>(Window::stride);
}
template <class Index, class... Windows>
SINTER_DEVICE void enter_all(List<Windows...>, Location<Index>& place, const Index* index) {
  (enter<Windows>(place, index), ...);
}

template <class Access, class Coord>
SINTER_DEVICE Location<typename Coord::Index> locate(const Coord& c) {
  using Index = typename Coord::Index;
  Location<Index> place{static_cast<Index>(Access::offset), true};
  if constexpr (Access::Via::size > 0) {
    Index linear = 0, split[Access::Via::size];
#pragma unroll
    for (int i = 0; i < Coord::Extent::size; ++i)
      linear = linear * static_cast<Index>(Coord::Extent::at(i)) + c.at[i];
    unravel<typename Access::Via, 0, Access::Via::size>(linear, split);
    place.offset += dot(typename Access::Stride{}, split);
  } else {
    place.offset += dot(typename Access::Stride{}, c.at);
  }
  enter_all(typename Access::Windows{}, place, c.at);
  return place;
}

// The element at `c`; `otherwise` where a window is left.
template <class Access, class T, class Element, class Coord>
SINTER_DEVICE T load(const Element* base, const Coord& c, T otherwise = T(0)) {
  const auto place = locate<Access>(c);
  if constexpr (Access::Windows::size == 0) return read<T>(base + place.offset);
  return place.inside ? read<T>(base + place.offset) : otherwise;
}

template <class Access, class Element, class Coord, class T>
SINTER_DEVICE void store(Element* base, const Coord& c, T x) {
  const auto place = locate<Access>(c);
  if (Access::Windows::size == 0 || place.inside) write(base + place.offset, x);
}

// The same of what all elements along the last index have, by the first of them; `e`: of its place.
template <class Access, class Element, class Coord, class T>
SINTER_DEVICE void store_first(Element* base, const Coord& c, T x) {
  if (c.at[Access::Stride::size - 1] == 0) store<Access>(base, c, x);
}
template <class Access, class Element, class Coord, class T>
SINTER_DEVICE void store_first(Element* base, const Coord& c, int e, T x) {
  if (e == 0) store_first<Access>(base, c, x);
}

// Adds to the element at `c` atomically.
template <class Access, class Coord>
SINTER_DEVICE void add(float* base, const Coord& c, float x) {
  hardware::add(base + locate<Access>(c).offset, x);
}

template <class Access, class Coord>
SINTER_DEVICE bool holds(const Coord& c) {
  return locate<Access>(c).inside;
}

// x where the windows hold, else 0.
template <class Access, class Coord, class T>
SINTER_DEVICE T inside(const Coord& c, T x) {
  return holds<Access>(c) ? x : T(0);
}

// The one element of a buffer of raw integers.
template <class Access, class Element>
SINTER_DEVICE long long integer(const Element* base) {
  return static_cast<long long>(Format<Element>::fetch(base + Access::offset));
}

// The position that an access makes of the indices, where it describes no buffer.
template <class Access, class Coord>
SINTER_DEVICE long long logical_index(const Coord& c) {
  return static_cast<long long>(locate<Access>(c).offset);
}

}  // namespace sinter
