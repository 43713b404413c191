// Neighbouring elements that lie anywhere in memory: they are cut out of the aligned pieces around
// them.
#pragma once
#include "sinter/device/core/pack.cuh"

namespace sinter {

template <class Element, int width>
struct Shifted {
  static constexpr int size = static_cast<int>(sizeof(Element)), bytes = width * size;
  static constexpr int piece = bytes < 16 ? bytes : 16, words = bytes / 4, in_word = 4 / size;
  static_assert(bytes % piece == 0 && (piece == 8 || piece == 16) && size <= 4);
  alignas(16) unsigned at[words + piece / 4];
  int shift;  // bytes
  bool inside;

  static SINTER_DEVICE int shift_of(const void* from) {
    return static_cast<int>(reinterpret_cast<unsigned long long>(from) % piece);
  }
  // Fetches the pieces around what lies at `from`.
  SINTER_DEVICE void load(const void* from) {
    shift = shift_of(from);
    load_pieces(static_cast<const char*>(from) - shift);
  }
  // The same of a buffer that starts at a multiple of 16 bytes: for offsets a multiple of a piece
  // apart the compiler sees that the shift is one.
  template <class Index>
  SINTER_DEVICE void load(const Element* buffer, Index offset) {
    constexpr int in_piece = piece / size;
    shift = static_cast<int>(offset & (in_piece - 1)) * size;
    load_pieces(buffer + (offset & -in_piece));
  }
  SINTER_DEVICE void load_pieces(const void* first) {
    using Move = typename Word<piece>::Type;
    const auto* pieces = static_cast<const Move*>(first);
#pragma unroll
    for (int i = 0; i <= bytes / piece; ++i)
      if (i < bytes / piece || shift != 0)
        reinterpret_cast<Move*>(at)[i] = hardware::load(pieces + i);
  }
  // Fetches those elements from `base` on that exist, for themselves.
  template <class Exists>
  SINTER_DEVICE void load_each(const Element* base, const Exists& exists) {
    using Bits = typename Word<size>::Type;
    shift = 0;
#pragma unroll
    for (int i = 0; i < words; ++i) at[i] = 0;
#pragma unroll
    for (int e = 0; e < width; ++e)
      if (exists(e))
        at[e / in_word] |=
            static_cast<unsigned>(hardware::load(reinterpret_cast<const Bits*>(base) + e))
            << e % in_word * 8 * size;
  }
  // Moves the elements to the front of the words. They are used behind this only, so that until
  // then the loads may be in flight.
  SINTER_DEVICE void shift_to_front() {
    if constexpr (piece == 16) {
#pragma unroll
      for (int i = 0; i < words + 2; ++i) at[i] = shift & 8 ? at[i + 2] : at[i];
    }
    constexpr int needed = words + (size < 4);
#pragma unroll
    for (int i = 0; i < needed; ++i) at[i] = shift & 4 ? at[i + 1] : at[i];
    if constexpr (size < 4)
#pragma unroll
      for (int i = 0; i < words; ++i)
        at[i] = __funnelshift_r(at[i], at[i + 1], static_cast<unsigned>(shift) % 4 * 8);
  }
  SINTER_DEVICE unsigned word(int i) const { return at[i]; }
  SINTER_DEVICE Element element(int e) const {
    using Bits = typename Word<size>::Type;
    const auto bits = static_cast<Bits>(at[e / in_word] >> e % in_word * 8 * size);
    return reinterpret_cast<const Element&>(bits);
  }
};

template <class Element, int width>
SINTER_DEVICE void recompute(Shifted<Element, width>& pack) {
#pragma unroll
  for (int i = 0; i < Shifted<Element, width>::words; ++i) asm volatile("" : "+r"(pack.at[i]));
}

}  // namespace sinter
