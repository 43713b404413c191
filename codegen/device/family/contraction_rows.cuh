// Which rows m of a contraction belong to a batch entry, and where they are read and written.
#pragma once
#include "sinter/device/core/index.cuh"

namespace sinter {

// Every batch entry has all rows.
struct AllRows {
  static constexpr bool grouped = false, gathers = false;
  template <class Index>
  SINTER_DEVICE Index begin(Index, Index) const {
    return 0;
  }
  template <class Index>
  SINTER_DEVICE Index end(Index, Index rows) const {
    return rows;
  }
  template <class Index>
  SINTER_DEVICE Index source(Index row) const {
    return row;
  }
  template <class Index>
  SINTER_DEVICE Index target(Index row) const {
    return row;
  }
};

enum class MoeMode { none, gather, scatter };

// Batch entry e is an expert with the rows [offsets[e], offsets[e + 1]); `index` renumbers the rows
// of A (gather) or of the result (scatter). Offsets are clipped to the rows that exist.
template <MoeMode mode, class OffsetsAccess, class IndexAccess, class Offset, class Number>
struct GroupedRows {
  const Offset* offsets;
  const Number* index;
  static constexpr bool grouped = true, gathers = mode == MoeMode::gather;

  template <class Index>
  SINTER_DEVICE Index begin(Index expert, Index rows) const {
    const long long row =
        static_cast<long long>(hardware::load(offsets + OffsetsAccess::offset + expert));
    return row < 0 ? 0 : row > rows ? rows : static_cast<Index>(row);
  }
  template <class Index>
  SINTER_DEVICE Index end(Index expert, Index rows) const {
    return begin<Index>(expert + 1, rows);
  }
  template <class Index>
  SINTER_DEVICE Index renumbered(Index row) const {
    return static_cast<Index>(hardware::load(index + IndexAccess::offset + row));
  }
  template <class Index>
  SINTER_DEVICE Index source(Index row) const {
    if constexpr (mode == MoeMode::gather) return renumbered(row);
    return row;
  }
  template <class Index>
  SINTER_DEVICE Index target(Index row) const {
    if constexpr (mode == MoeMode::scatter) return renumbered(row);
    return row;
  }
};

}  // namespace sinter
