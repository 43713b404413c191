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
//                    padding: rows and columns past them are not seen; packed: rows are those of
//                    several heads, `queries` of each one behind another; or what
//                    attention_sequences.cuh says: then `padding`, without lengths, and rows and
//                    columns count from a sequence's first ones; float hidden, see HidesByNumber;
//                    int chunk, see HasChunks: then has_left and has_right
#pragma once
#include "sinter/device/family/attention_sequences.cuh"

namespace sinter::attention {

// Tiles of keys [begin, end), counted from the band's first key; of these, [begin, full_begin) and
// [full_end, end) hold columns that some of the rows do not see.
struct KeyTiles {
  int begin, end, full_begin, full_end;
  int part = 0;  // of those that a mask lets be visited, by turns (KeyWalk)
};

// Forward: where the score of columns that a row does not see is a number, Bounds::hidden. The
// exponentials of those are zeros where the row's largest score is kFarAbove it, as it is unless
// scores are as large as such masks: so tiles of them are not visited, and a row where it is not is
// taken again. Each row sees some columns.
template <class Bounds>
concept HidesByNumber = requires {
  Bounds::hidden;
};
inline constexpr float kFarAbove = 104;

// Forward: rows see the columns of their own chunk alone, those with the same index / chunk.
template <class Bounds>
concept HasChunks = requires {
  Bounds::chunk;
};

template <class Bounds, auto queries, auto keys>  // int, or known at launch
struct Band : BandStart<PacksSequences<Bounds>> {
  using Mask = Bounds;
  using Start = BandStart<PacksSequences<Bounds>>;
  using Start::first_row, Start::first_column;
  static constexpr bool bounded = Bounds::has_left || Bounds::has_right || Bounds::padding;
  int rows, columns, shift;  // of the batch entry; from a row to its diagonal

  // The query that a row stands for.
  static SINTER_DEVICE int query(int row) { return Bounds::packed ? row % queries : row; }

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

  // Of a tile of rows, or of keys, that is the one of this number among those of all sequences:
  // what `first` becomes is its first row or key, behind the sequence's where there is no such
  // tile.
  template <int tile, bool of_keys, class Args>
  static SINTER_DEVICE Band of_tile(const Args& args, int number, int& first) {
    using Rows = Starts<Bounds, queries, false>;
    using Columns = Starts<Bounds, keys, true>;
    using Own = Choice<of_keys, Columns, Rows>;
    const int i = Own::template of_tile<tile>(args, number);
    first = Own::template row_of_tile<tile>(args, number, i);
    Band band;
    band.first_row = Rows::at(args, i), band.rows = Rows::at(args, i + 1);
    band.first_column = Columns::at(args, i), band.columns = Columns::at(args, i + 1);
    band.shift =
        Bounds::bottom_right ? band.columns - band.rows : band.first_column - band.first_row;
    if (i == 0 || i == Own::sequences - 1)  // is no sequence
      (of_keys ? band.rows : band.columns) = of_keys ? band.first_row : band.first_column;
    return band;
  }

  static SINTER_DEVICE Band nothing() { return {}; }

  SINTER_DEVICE int first(int row) const {
    if constexpr (!Bounds::has_left) return first_column;
    int at = query(row) + shift - Bounds::left + 1;
    if constexpr (HasChunks<Bounds>) {
      const int start = query(row) / Bounds::chunk * Bounds::chunk;
      at = at > start ? at : start;
    }
    return at > first_column ? at : first_column;
  }
  SINTER_DEVICE int end(int row) const {
    if constexpr (!Bounds::has_right) return columns;
    int at = query(row) + shift + Bounds::right + 1;
    if constexpr (HasChunks<Bounds>) {
      const int stop = (query(row) / Bounds::chunk + 1) * Bounds::chunk;
      at = at < stop ? at : stop;
    }
    return at < columns ? at : columns;
  }
  SINTER_DEVICE bool sees_row(int row) const { return query(row) < rows; }

  // For the rows [from, to), of which those that do not exist do not count.
  template <int tile>
  SINTER_DEVICE KeyTiles tiles(int from, int to) const {
    if constexpr (Bounds::packed) from = 0, to = queries;
    const int last = (to < rows ? to : rows) - 1;
    if (last < from) return {0, 0, 0, 0};
    const int begin = first(from), stop = end(last);
    if (stop <= begin) return {0, 0, 0, 0};
    KeyTiles t{(begin - first_column) / tile, (stop - first_column + tile - 1) / tile,
               (first(last) - first_column + tile - 1) / tile,
               end(from) > first_column ? (end(from) - first_column) / tile : 0};
    return t;
  }

 private:
  Band() = default;
  static SINTER_DEVICE int clamp(long long x, int most) {
    return x < 0 ? 0 : x < most ? static_cast<int>(x) : most;
  }
};

}  // namespace sinter::attention
