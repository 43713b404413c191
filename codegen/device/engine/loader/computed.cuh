// Elements that threads compute: dequantised, masked, normalised. Each writes pieces of 16 bytes to
// where TMA would have put them. `Element`: Number at(args, row, k) of the whole operand; rows and
// k that do not exist are its business.
#pragma once
#include "sinter/device/core/warp_matrix.cuh"
#include "sinter/device/engine/loader/loader.cuh"

namespace sinter {

template <class Element, class Tile_>
struct Computed {
  using Tile = Tile_;
  using Number = typename Tile::Number;
  static constexpr int threads = 128, tma_bytes = 0;
  int row;  // the tile's first

  template <class Args>
  SINTER_DEVICE void load(const Args& args, int step, unsigned to, unsigned) const {
    constexpr int each = 16 / Tile::element, beside = Tile::fastest / each,
                  pieces = Tile::lines * beside;
    static_assert(pieces % threads == 0);
#pragma unroll 1
    for (int i = static_cast<int>(threadIdx.x) % threads; i < pieces; i += threads) {
      const int line = i / beside, along = i % beside * each;
      union {
        Number element[each];
        uint4 bits;
      } piece;
#pragma unroll
      for (int e = 0; e < each; ++e)
        piece.element[e] = Tile::major == Major::k
                               ? Element::at(args, row + line, step * Tile::depth + along + e)
                               : Element::at(args, row + along + e, step * Tile::depth + line);
      warp_matrix::put(
          to + (Tile::major == Major::k ? Tile::place(line, along) : Tile::place(along, line)),
          piece.bits);
    }
  }
};

}  // namespace sinter
