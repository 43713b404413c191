// Sequences of any lengths that lie one behind another in the rows of Q and in those of K and V.
// Row m belongs to sequence i where offset_q(i) <= m < offset_q(i + 1), and sees keys of the same
// sequence alone. Rows before the first offset and behind the last one see none: they are two more
// sequences here, the first and the last one.
//
// Tiles start where sequences do. Which sequence a tile is of is found without a list of them:
// sequence i has the numbers from start(i) / tile + i on, which grow with i and are one more than
// it needs at most. (FlashAttention places the rows of its padded sums so,
// hopper/flash_bwd_launch_template.h.)
//
// Offsets are held within the tensors. Where they decrease, results are undefined.
#pragma once
#include "sinter/device/core/index.cuh"

namespace sinter::attention {

// Bounds that have int sequences, their number; long long offset_q(args, i), offset_kv(args, i), i
// from 0 to `sequences`.
template <class Bounds>
concept PacksSequences = requires {
  Bounds::sequences;
};

template <class Bounds>
constexpr int sequences_of() {
  if constexpr (PacksSequences<Bounds>)
    return Bounds::sequences;
  else
    return 0;
}

// How many numbers the tiles of so many tokens have; or how many tiles, of one sequence.
constexpr int tiles_of(int tokens, int tile, int sequences) {
  return sequences > 0 ? tokens / tile + sequences + 2 : (tokens + tile - 1) / tile;
}

// Where a sequence starts in Q, or in K and V; that behind the last one is `tokens`.
template <class Bounds, auto tokens, bool of_keys>
struct Starts {
  static constexpr int sequences = Bounds::sequences + 2;

  template <class Args>
  static SINTER_DEVICE int at(const Args& args, int i) {
    if (i == 0) return 0;
    if (i == sequences) return tokens;
    const long long x = of_keys ? Bounds::offset_kv(args, i - 1) : Bounds::offset_q(args, i - 1);
    return x < 0 ? 0 : x < tokens ? static_cast<int>(x) : tokens;
  }
  // The sequence of a tile by its number.
  template <int tile, class Args>
  static SINTER_DEVICE int of_tile(const Args& args, int number) {
    int low = 0, high = sequences;
    while (high - low > 1) {
      const int middle = (low + high) / 2;
      if (at(args, middle) / tile + middle <= number)
        low = middle;
      else
        high = middle;
    }
    return low;
  }
  // Its first row.
  template <int tile, class Args>
  static SINTER_DEVICE int row_of_tile(const Args& args, int number, int sequence) {
    const int start = at(args, sequence);
    return start + (number - (start / tile + sequence)) * tile;
  }
};

// The first row and key of what a band is of: known where there is one sequence.
template <bool packed>
struct BandStart {
  static constexpr int first_row = 0, first_column = 0;
};
template <>
struct BandStart<true> {
  int first_row, first_column;
};

}  // namespace sinter::attention
