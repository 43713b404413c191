// Boxes of a tensor, by TMA: the rows (or columns) of a tile from `row` on, of batch entry `c`. A
// box has one line of the tile's swizzle: of k and all rows where k is fastest in memory, or of 64
// rows (128 bytes) and the k of a step. Of a tile that `ctas` of a cluster share, each loads a part
// for all, by multicast.
//
// `Operand`: k_fastest, load(args, c, row, k, to, barrier, ctas' mask), by a tiled tensor map or,
// for pixels of a convolution, by im2col, whose rows are pixels of the result and whose k are taps
// and channels; box_rows, where a box has not all rows.
#pragma once
#include "sinter/device/engine/loader/loader.cuh"

namespace sinter {

template <class Operand>
concept InSeveralBoxes = requires {
  Operand::box_rows;
};

// How many rows or columns of a tile are loaded: all, or `extent` of them, a constant or a number
// of the launch.
struct WholeTile {};
template <class Loaded>
concept LoadsPart = requires {
  Loaded::extent;
};

// `loaded_depth`: elements of k that boxes have, where MMAs read no others of the
// tile's; 0: all.
template <class Operand, class Tile_, class Coord, int ctas = 1, class Loaded = WholeTile,
          int loaded_depth = 0>
struct TmaBoxes {
  using Tile = Tile_;
  static constexpr int threads = 1;
  static constexpr auto tma_bytes = [] {
    if constexpr (loaded_depth > 0 && !LoadsPart<Loaded>)
      return Tile::bytes / Tile::depth * loaded_depth;
    else if constexpr (loaded_depth > 0)
      return number<is_known(Loaded::extent)>(
          [] { return Loaded::extent * (loaded_depth * Tile::element); });
    else if constexpr (LoadsPart<Loaded>)
      return number<is_known(Loaded::extent)>([] { return Loaded::extent * Tile::swizzle; });
    else
      return Tile::bytes;
  }();
  static_assert((!LoadsPart<Loaded> && loaded_depth == 0) || !Operand::k_fastest ||
                Tile::panels == 1);
  static_assert(!LoadsPart<Loaded> || Operand::k_fastest);
  Coord c;
  int row, rank = 0;  // of the cluster's CTAs

  template <class Args>
  SINTER_DEVICE void load(const Args& args, int step, unsigned to, unsigned full) const {
    load_at(args, c, row, step * Tile::depth, rank, to, full);
  }
  template <class Args>
  static SINTER_DEVICE void load_at(const Args& args, const Coord& c, int row, int k, int rank,
                                    unsigned to, unsigned full) {
    constexpr int along = Tile::swizzle / Tile::element,  // of a line
        parts = Operand::k_fastest ? Tile::extent : Tile::panels, part = parts / ctas;
    constexpr unsigned mask = ctas > 1 ? (1u << ctas) - 1 : 0;
    static_assert(parts % ctas == 0, "the cluster's CTAs load as much each");
    const int first = ctas > 1 ? rank * part : 0;
    if constexpr (LoadsPart<Loaded>) {
      const int own = ctas > 1 ? rank * (Loaded::extent / ctas) : 0;
      Operand::load(args, c, row + own, k, to + own * Tile::swizzle, full, mask);
    } else if constexpr (Operand::k_fastest) {
      constexpr int box = [] {
        if constexpr (InSeveralBoxes<Operand>)
          return Operand::box_rows;
        else
          return part;
      }();
      static_assert(part % box == 0);
#pragma unroll
      for (int panel = 0; panel < Tile::panels; ++panel)
#pragma unroll
        for (int i = first; i < first + part; i += box)
          Operand::load(args, c, row + i, k + panel * along,
                        to + panel * Tile::panel_bytes + i * Tile::swizzle, full, mask);
    } else {
#pragma unroll
      for (int panel = first; panel < first + part; ++panel)
        Operand::load(args, c, row + panel * along, k, to + panel * Tile::panel_bytes, full, mask);
    }
  }
};

}  // namespace sinter
