// Masks of blocks and of indices: what they say of whole blocks of pairs of query and key.
//
// A generated file's Bounds may also have (MasksTiles)
//
//   Seen seen(args, c, Span rows, Span keys)  which pairs of these see each other, if the bounds
//                                             show them
//   bool sees(args, c)                        whether the pair of c does
//   int mask_block                            where a mask has a bit a block of so many rows and
//                                             keys; else 0
//   bool mask_divides                         whether a condition takes quotients or remainders
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

// What a mask hides of a warp's 16 rows of scores becomes `hidden`, by the whole warp. look(row,
// column): what is seen of the 8 rows and columns from there on, counted from the warp's first
// ones; sees(i): whether the pair of register i is. A lane looks at each block, so that pairs are
// asked for one by one where an edge of the mask crosses their block. Of a condition that divides a
// loop finds all as bits first: its text for each register would be longer than all else.
template <class Bounds, class Sums, class Look, class Sees>
SINTER_DEVICE void hide_pairs(Sums& s, float hidden, const Look& look, const Sees& sees) {
  static_assert(Sums::count <= 64);
  if constexpr (Bounds::mask_divides) {
    unsigned long long seen = 0;
#pragma unroll 8
    for (int i = Sums::count - 1; i >= 0; --i) seen = seen << 1 | static_cast<unsigned>(sees(i));
    s.each([&](int i, float& x) {
      if ((seen >> i & 1) == 0) x = hidden;
    });
  } else {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    Seen block{true, true};
    if (lane < Sums::count / 2) block = look(lane % 2 * 8, lane / 2 * 8);
    const unsigned all = __ballot_sync(~0u, block.all), some = __ballot_sync(~0u, block.some);
#pragma unroll
    for (int i = 0; i < Sums::count; i += 2) {
      if (all >> i / 2 & 1) continue;
      const bool edge = some >> i / 2 & 1;
#pragma unroll
      for (int e = i; e < i + 2; ++e)
        if (!edge || !sees(e)) s.at[e] = hidden;
    }
  }
}

}  // namespace sinter::attention
