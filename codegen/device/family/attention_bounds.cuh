// Which keys a query sees: an interval of columns for each row of the scores, and for each tile of
// rows the tiles of columns that it meets.
//
//   diagonal(row) = row, or row + keys - queries where the diagonal ends in the last row and column
//   first(row)    = diagonal - left + 1, or 0
//   end(row)      = diagonal + right + 1, but no more than keys
//
// A generated file defines
//
//   struct Bounds    bool has_left, has_right, bottom_right, has_lengths, padding; int left, right;
//                    with lengths, long long queries(args, c) and keys(args, c) of a batch entry;
//                    padding: rows and columns past them are not seen
#pragma once
#include "sinter/device/core/index.cuh"

namespace sinter::attention {

// Tiles of keys [begin, end); of these, [begin, full_begin) and [full_end, end) hold columns that
// some of the rows do not see.
struct KeyTiles {
  int begin, end, full_begin, full_end;
};

template <class Bounds, int queries, int keys>
struct Band {
  static constexpr bool bounded = Bounds::has_left || Bounds::has_right || Bounds::padding;
  int rows, columns, shift;  // of the batch entry; from a row to its diagonal

  template <class Args, class Coord>
  SINTER_DEVICE Band(const Args& args, const Coord& c) : rows(queries), columns(keys), shift(0) {
    if constexpr (Bounds::has_lengths) {
      const long long q = Bounds::queries(args, c), k = Bounds::keys(args, c);
      if constexpr (Bounds::padding) rows = clamp(q, queries), columns = clamp(k, keys);
      if constexpr (Bounds::bottom_right) shift = static_cast<int>(k - q);
    } else if constexpr (Bounds::bottom_right) {
      shift = keys - queries;
    }
  }

  SINTER_DEVICE int first(int row) const {
    if constexpr (!Bounds::has_left) return 0;
    const int at = row + shift - Bounds::left + 1;
    return at > 0 ? at : 0;
  }
  SINTER_DEVICE int end(int row) const {
    if constexpr (!Bounds::has_right) return columns;
    const int at = row + shift + Bounds::right + 1;
    return at < columns ? at : columns;
  }
  SINTER_DEVICE bool sees_row(int row) const { return row < rows; }

  // For the rows [from, to), of which those that do not exist do not count.
  template <int tile>
  SINTER_DEVICE KeyTiles tiles(int from, int to) const {
    const int last = (to < rows ? to : rows) - 1;
    if (last < from) return {0, 0, 0, 0};
    const int begin = first(from), stop = end(last);
    if (stop <= begin) return {0, 0, 0, 0};
    KeyTiles t{begin / tile, (stop + tile - 1) / tile, (first(last) + tile - 1) / tile,
               end(from) > 0 ? end(from) / tile : 0};
    return t;
  }

 private:
  static SINTER_DEVICE int clamp(long long x, int most) {
    return x < 0 ? 0 : x < most ? static_cast<int>(x) : most;
  }
};

}  // namespace sinter::attention
