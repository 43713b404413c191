// Boxes of a tensor: rows (or columns) from `row` on, by a tiled tensor map whose box has one line
// of the tile's swizzle: of k and all rows, or of 64 rows (128 bytes) and the k of a step.
// `Operand`: k_fastest, prefetch(args), load(args, coordinates, row, k, to, barrier, blocks).
#pragma once
#include "sinter/device/engine/loader/loader.cuh"

namespace sinter {

template <class Operand, class Tile_, class Coord>
struct TmaTiled {
  using Tile = Tile_;
  static constexpr int threads = 1, tma_bytes = Tile::bytes;
  static_assert(Operand::k_fastest == (Tile::major == Major::k));
  static_assert(Tile::slabs == 1 || Tile::major == Major::mn, "a step of k is one line");
  Coord c;  // of the batch
  int row;

  template <class Args>
  SINTER_DEVICE void load(const Args& args, int step, unsigned to, unsigned full) const {
    constexpr int along = Tile::swizzle / Tile::element;  // of a line
    const int k = step * Tile::depth;
    if constexpr (Tile::major == Major::k) {
      Operand::load(args, c, row, k, to, full, 0);
    } else {
#pragma unroll
      for (int slab = 0; slab < Tile::slabs; ++slab)
        Operand::load(args, c, row + slab * along, k, to + slab * Tile::slab_bytes, full, 0);
    }
  }
};

}  // namespace sinter
