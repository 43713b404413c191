// What a thread holds of neighbouring elements of a tensor, in storage format: elements that lie
// one after another in memory move together, up to 16 bytes at a time.
#pragma once
#include "sinter/device/core/index.cuh"

namespace sinter {

// The even one of two numbers that are converted together (see put).
template <class Element>
concept ConvertedInPairs = Element::in_pairs;
template <class Element>
struct HalfOfPair {};
template <ConvertedInPairs Element>
struct HalfOfPair<Element> {
  float even;
};

// `width` elements side by side. `aligned` of them are known to start at a multiple of their joint
// size, so that they move as one.
template <class Element, int width, int aligned = 16 / sizeof(Element)>
struct Pack : HalfOfPair<Element> {
  static constexpr int step = aligned < width ? aligned : width;
  alignas(16) Element at[width];
  bool inside = true;  // of the tensor, where it has windows

  SINTER_DEVICE Element element(int e) const { return at[e]; }
  SINTER_DEVICE unsigned word(int i) const { return reinterpret_cast<const unsigned*>(at)[i]; }
  SINTER_DEVICE void set_word(int i, unsigned x) { reinterpret_cast<unsigned*>(at)[i] = x; }
};

// One element that stands for all places of a pack.
template <class Element>
struct Same {
  Element value;
  bool inside = true;

  SINTER_DEVICE Element element(int) const { return value; }
};

template <int bytes>
struct Word;
template <>
struct Word<1> {
  using Type = unsigned char;
};
template <>
struct Word<2> {
  using Type = unsigned short;
};
template <>
struct Word<4> {
  using Type = unsigned;
};
template <>
struct Word<8> {
  using Type = uint2;
};
template <>
struct Word<16> {
  using Type = uint4;
};

// What lane number `lane` of the warp has.
template <class Element>
SINTER_DEVICE Same<Element> of_lane(const Same<Element>& mine, int lane) {
  return {__shfl_sync(0xffffffffu, mine.value, lane)};
}

// Brings the elements from `from` on.
template <class Element, int width, int aligned>
SINTER_DEVICE void read_pack(const Element* from, Pack<Element, width, aligned>& pack) {
  using Move = typename Word<Pack<Element, width, aligned>::step * sizeof(Element)>::Type;
#pragma unroll
  for (int i = 0; i < static_cast<int>(width * sizeof(Element) / sizeof(Move)); ++i)
    reinterpret_cast<Move*>(pack.at)[i] = hardware::load(reinterpret_cast<const Move*>(from) + i);
}

// Brings what lies at `c` and after it.
template <class Access, class Element, int width, int aligned, class Coord>
SINTER_DEVICE void fetch(const Element* base, const Coord& c, Pack<Element, width, aligned>& pack) {
  using Move = typename Word<Pack<Element, width, aligned>::step * sizeof(Element)>::Type;
  const auto place = locate<Access>(c);
  pack.inside = place.inside;
  const Move* from = reinterpret_cast<const Move*>(base + place.offset);
#pragma unroll
  for (int i = 0; i < static_cast<int>(width * sizeof(Element) / sizeof(Move)); ++i)
    if (Access::Windows::size == 0 || place.inside)
      reinterpret_cast<Move*>(pack.at)[i] = hardware::load(from + i);
}
template <class Access, class Element, class Coord>
SINTER_DEVICE void fetch(const Element* base, const Coord& c, Same<Element>& same) {
  const auto place = locate<Access>(c);
  same.inside = place.inside;
  if (Access::Windows::size == 0 || place.inside)
    same.value = Format<Element>::fetch(base + place.offset);
}

// Brings what lies at `c` and after it in that of the buffers whose windows hold there.
template <class... Accesses, class Element, int width, int aligned, class Coord, class... Bases>
SINTER_DEVICE void fetch_joined(List<Accesses...>, const Coord& c,
                                Pack<Element, width, aligned>& pack, const Bases*... bases) {
  const Element* from = nullptr;
  const auto choose = [&](const auto& place, const Element* base) {
    if (place.inside) from = base + place.offset;
  };
  (choose(locate<Accesses>(c), bases), ...);
  pack.inside = from != nullptr;
  if (pack.inside) read_pack(from, pack);
}

// Asks for the line at `c` to come to the second-level cache.
template <class Access, class Element, class Coord>
SINTER_DEVICE void prefetch(const Element* base, const Coord& c) {
  const auto place = locate<Access>(c);
  if (place.inside) hardware::prefetch(base + place.offset);
}

// Writes the pack to where it belongs.
template <class Access, class Element, int width, int aligned, class Coord>
SINTER_DEVICE void flush(Element* base, const Coord& c, const Pack<Element, width, aligned>& pack) {
  using Move = typename Word<Pack<Element, width, aligned>::step * sizeof(Element)>::Type;
  const auto place = locate<Access>(c);
  Move* to = reinterpret_cast<Move*>(base + place.offset);
#pragma unroll
  for (int i = 0; i < static_cast<int>(width * sizeof(Element) / sizeof(Move)); ++i)
    if (Access::Windows::size == 0 || place.inside)
      to[i] = reinterpret_cast<const Move*>(pack.at)[i];
}

// Writes what `member` of each of the phases of neighbouring rows is, from the first one's on.
template <class Access, int aligned, auto member, class Element, class Coord, class Phase, int rows>
SINTER_DEVICE void store_rows(Element* base, const Coord& c, const Phase (&phase)[rows]) {
  Pack<Element, rows, aligned> pack;
#pragma unroll
  for (int e = 0; e < rows; ++e) put(pack, e, phase[e].*member);
  flush<Access>(base, c, pack);
}

// One place of a pack as a value; `otherwise` where a window is left.
template <class T, class Held>
SINTER_DEVICE T get(const Held& held, int e) {
  using Element = decltype(held.element(e));
  return static_cast<T>(Format<Element>::decode(held.element(e)));
}
// A bf16 is the upper half of a float: each of the two in a word takes one instruction.
template <class T, int width, int aligned>
  requires(width % 2 == 0)
SINTER_DEVICE T get(const Pack<bf16, width, aligned>& pack, int e) {
  const unsigned pair = pack.word(e / 2);
  return static_cast<T>(__uint_as_float(e % 2 == 0 ? pair << 16 : pair & 0xffff0000u));
}
template <class T, ConvertedInPairs Element, int width, int aligned>
  requires(width % 2 == 0)
SINTER_DEVICE T get(const Pack<Element, width, aligned>& pack, int e) {
  const auto pair = reinterpret_cast<const unsigned short*>(pack.at)[e / 2];
  return static_cast<T>(Element::decode_pair(pair, e % 2));
}
template <class T, class Held>
SINTER_DEVICE T get(const Held& held, int e, T otherwise) {
  return held.inside ? get<T>(held, e) : otherwise;
}
template <class Element, int width, int aligned, class T>
SINTER_DEVICE void put(Pack<Element, width, aligned>& pack, int e, T x) {
  pack.at[e] = Format<Element>::encode(x);
}
// An odd one takes the even one before it along, whose own conversion the compiler then drops. Of
// an even one that is left out, outside of a row, the byte is undefined, and not stored.
template <ConvertedInPairs Element, int width, int aligned>
  requires(width % 2 == 0)
SINTER_DEVICE void put(Pack<Element, width, aligned>& pack, int e, float x) {
  if (e % 2 == 0) {
    pack.even = x;
    pack.at[e] = Element::encode(x);
  } else {
    reinterpret_cast<unsigned short*>(pack.at)[e / 2] = Element::encode_pair(pack.even, x);
  }
}
// The same without a conversion, between packs of one type.
template <class Element, int width, int aligned, class Held>
SINTER_DEVICE void copy(Pack<Element, width, aligned>& pack, int e, const Held& held) {
  pack.at[e] = held.element(e);
}

// Hides from the compiler that it has seen the pack before: what was computed from it is then
// computed again where it is needed, instead of being kept in registers.
template <class Element, int width, int aligned>
SINTER_DEVICE void recompute(Pack<Element, width, aligned>& pack) {
  if constexpr (sizeof(pack.at) % 4 == 0) {
#pragma unroll
    for (int i = 0; i < static_cast<int>(sizeof(pack.at) / 4); ++i)
      asm volatile("" : "+r"(reinterpret_cast<unsigned*>(pack.at)[i]));
  }
}
template <class Element>
SINTER_DEVICE void recompute(Same<Element>&) {}

// `c` moved on by `e` along one index.
template <int dim, class Coord>
SINTER_DEVICE Coord neighbour(Coord c, int e) {
  if constexpr (dim >= 0) c.at[dim] += e;
  return c;
}

// Draws a place's random numbers, where the body has some. `again`: also those that an earlier
// phase has drawn.
template <class Body, bool again = false, class Args, class Coord, class Fragment>
SINTER_DEVICE void draw_numbers(const Args& args, const Coord& c, Fragment& fragment) {
  if constexpr (requires { Body::draws; }) Body::draw(args, c, fragment);
  if constexpr (again && requires { Body::draws_again; }) Body::draw_again(args, c, fragment);
}

}  // namespace sinter
