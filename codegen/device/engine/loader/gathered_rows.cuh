// Rows that a table names, k fastest. TMA of sm_90a loads boxes of neighbours only, so all threads
// of the producer copy: 16 bytes of a step, the same ones of every step and of several rows, to
// where TMA would have put them.
#pragma once
#include "sinter/device/core/warp_matrix.cuh"
#include "sinter/device/engine/loader/loader.cuh"

namespace sinter {

// `depth`: all of k; rows of it start at multiples of 16 bytes.
template <class Tile_, int depth, int rows = Tile_::extent>
class GatheredRows {
 public:
  using Tile = Tile_;
  static constexpr int threads = 128, tma_bytes = 0;

 private:
  static constexpr int chunk = 16, line = Tile::swizzle, beside = line / chunk,
                       apart = threads / beside,  // rows
      own = rows / apart, each = chunk / Tile::element;
  static_assert(Tile::major == Major::k && Tile::panels == 1, "a step of k is one line");
  static_assert(depth % each == 0, "rows start at multiples of 16 bytes");
  static_assert(rows % apart == 0 && apart % 8 == 0, "after eight rows the swizzle repeats");

  const int row_ = static_cast<int>(threadIdx.x) % threads / beside,
            column_ = static_cast<int>(threadIdx.x) % beside;
  const char* from_[own];
  bool exists_[own];

 public:
  // row_at(i, exists): where the tile's row number i starts, or any address where it does not
  // exist.
  template <class RowAt>
  SINTER_DEVICE void aim(const RowAt& row_at) {
#pragma unroll
    for (int i = 0; i < own; ++i)
      from_[i] =
          reinterpret_cast<const char*>(row_at(row_ + i * apart, exists_[i])) + column_ * chunk;
  }
  // Rows that do not exist, and what lies past the last k, become zeros.
  template <class Args>
  SINTER_DEVICE void load(const Args&, int step, unsigned to, unsigned) const {
    const unsigned at = to + Tile::place(row_, column_ * each);
    const bool inside = step * Tile::depth + column_ * each < depth;
#pragma unroll
    for (int i = 0; i < own; ++i)
      warp_matrix::copy<chunk>(at + i * apart * line, from_[i] + step * line, inside && exists_[i]);
  }
};

}  // namespace sinter
