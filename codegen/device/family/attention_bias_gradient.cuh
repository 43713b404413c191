// dBias of a tile: ds, the gradient of the score, goes to the element of dBias that its pair of
// query and key reads of Bias. Where Bias has one element for a row or a column of the tile, the
// warp's lanes sum what they hold of it first.
//
// A generated file defines
//
//   struct BiasGradient   wanted; by_query, by_key: whether different ones have different elements;
//                         put(args, coordinates, float): adds to an element, or stores it where
//                         each belongs to one pair; of_blocks: a query has an element for each
//                         block of keys in memory, that of the coordinates, which one warp stores;
//                         in_pairs: an element is what products take of its pair's score, and two
//                         neighbouring keys lie side by side, from Number* line(args, coordinates)
//                         of an even one on
#pragma once
#include "sinter/device/engine/fragment.cuh"

namespace sinter::attention {

struct NoBiasGradient {
  static constexpr bool wanted = false, by_query = true, by_key = true;
  template <class Args, class Coord>
  static SINTER_DEVICE void put(const Args&, const Coord&, float) {}
};

template <class BiasGradient>
concept SumsBlocks = requires {
  BiasGradient::of_blocks;
};

template <class BiasGradient>
concept LeavesInPairs = requires {
  BiasGradient::in_pairs;
};

// What a thread sums. Sums: an accumulator of the tile's 64 rows, which are queries or keys.
template <class BiasGradient, class Sums, bool queries_are_rows>
class BiasGradientOfTile {
  static constexpr bool by_row = queries_are_rows ? BiasGradient::by_query : BiasGradient::by_key,
                        by_column =
                            queries_are_rows ? BiasGradient::by_key : BiasGradient::by_query;
  float of_row_[2] = {}, of_column_[2] = {};

  static SINTER_DEVICE int lane() { return static_cast<int>(threadIdx.x) % 32; }

 public:
  // Register i, in their order. put(i, x): adds x to what register i's pair reads.
  template <class Put>
  SINTER_DEVICE void add(int i, float ds, const Put& put) {
    if constexpr (by_row && by_column) {
      put(i, ds);
    } else if constexpr (by_column) {  // two rows a thread, then eight lanes
      float& sum = of_column_[i % 2];
      sum = i % 4 < 2 ? ds : sum + ds;
      if (i % 4 < 2) return;
      const float all = sum_over_lanes<4, 16>(sum);
      if (lane() < 4) put(i - 2, all);  // of the warp's first row
    } else {
      of_row_[i / 2 % 2] += ds;
      if (i + 1 < Sums::count) return;
      if constexpr (by_row) {
#pragma unroll
        for (int r = 0; r < 2; ++r) {
          const float all = sum_over_lanes<1, 2>(of_row_[r]);
          if (lane() % 4 == 0) put(2 * r, all);
        }
      } else {
        const float all = sum_over_lanes<1, 16>(of_row_[0] + of_row_[1]);
        if (lane() == 0) put(0, all);
      }
    }
  }
};

}  // namespace sinter::attention
