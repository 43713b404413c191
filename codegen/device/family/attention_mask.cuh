// Masks of blocks and of indices: what they say of whole blocks of pairs of query and key.
//
// A generated file's Bounds may also have (MasksTiles)
//
//   Seen seen(args, c, Span rows, Span keys)  which pairs of these see each other, if the bounds
//                                             show them
//   bool sees(args, c)                        whether the pair of c does
//   int mask_block                            where a mask has a bit a block of so many rows and
//                                             keys; else 0
//   bool mask_divides                         whether a condition's quotients or remainders have
//                                             branches
//   bool masks_pairs                          backward: where a condition is no part of the score
#pragma once
#include "sinter/device/core/range.cuh"

namespace sinter::attention {

struct Seen {
  bool some, all;  // `some` where it may be; `all` where it is sure
};
// Of a condition that is 0 or 1.
template <class T>
SINTER_DEVICE Seen seen_of(const Range<T>& condition) {
  return {condition.high != 0, condition.low != 0};
}
// Of a mask's blocks: sees(row, key).
template <int block, class Sees>
SINTER_DEVICE Seen seen_of_blocks(const Span& rows, const Span& keys, const Sees& sees) {
  Seen s{false, true};
  for (int m = rows.first / block; m * block < rows.end; ++m)
    for (int n = keys.first / block; n * block < keys.end; ++n) {
      const bool one = sees(m * block, n * block);
      s.some |= one, s.all &= one;
    }
  return s;
}

template <class Bounds>
concept MasksTiles = requires {
  Bounds::mask_block;
};
template <class Bounds>
concept MasksPairs = requires {
  Bounds::masks_pairs;
};

// What a mask hides of a thread's scores becomes `hidden`. sees(i): whether the pair of register i
// is seen. Of a condition that divides, whose text for each register would be longer than all else,
// a loop finds it first, as a bit a pair.
template <class Bounds, class Sums, class Sees>
SINTER_DEVICE void hide_pairs(Sums& s, float hidden, const Sees& sees) {
  static_assert(Sums::count <= 64);
  if constexpr (!Bounds::mask_divides)
    return s.each([&](int i, float& x) {
      if (!sees(i)) x = hidden;
    });
  unsigned long long seen = 0;
#pragma unroll 8
  for (int i = Sums::count - 1; i >= 0; --i) seen = seen << 1 | static_cast<unsigned>(sees(i));
  s.each([&](int i, float& x) {
    if ((seen >> i & 1) == 0) x = hidden;
  });
}

}  // namespace sinter::attention
