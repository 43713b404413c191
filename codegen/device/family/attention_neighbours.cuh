// What a score reads of memory beside its sum (a bias, a mask), where neighbouring keys have
// neighbouring elements: each lane of a quad loads eight of a row, and the lanes hand each other
// those of their own columns. Element by element each load of a warp would look up eight lines for
// as many halves of sectors, which takes longer than the products.
//
// A generated file defines
//
//   struct Score::Neighbours   Number; same_rows: all rows have the same; at(args, c): where that
//                              of a row and a key lies, the latter a multiple of 8
//   Score::element_beside(args, c, of_head, acc, beside)   element() with what was loaded
#pragma once
#include "sinter/device/core/pack.cuh"
#include "sinter/device/engine/fragment.cuh"

namespace sinter::attention {

template <class Score>
concept LoadsNeighbours = requires {
  typename Score::Neighbours;
};

// Of 32 keys and one row of a thread: pairs of neighbours, each in `words` words.
template <class Number>
struct NeighboursOfRow {
  static constexpr int bytes = sizeof(Number), words = bytes == 4 ? 2 : 1, pairs = 4;
  unsigned at[pairs][words];

  // The eight from `from` on, four pairs that belong to the lanes of the quad in turn.
  SINTER_DEVICE void load(const Number* from) {
    if constexpr (bytes == 1) {
      const uint2 x = hardware::load(reinterpret_cast<const uint2*>(from));
      at[0][0] = x.x, at[1][0] = x.x >> 16, at[2][0] = x.y, at[3][0] = x.y >> 16;
    } else {
#pragma unroll
      for (int i = 0; i < words; ++i) {
        const uint4 x = hardware::load(reinterpret_cast<const uint4*>(from) + i);
        const unsigned all[4] = {x.x, x.y, x.z, x.w};
#pragma unroll
        for (int j = 0; j < 4; ++j) at[i * 4 / words + j / words][j % words] = all[j];
      }
    }
  }
  // Afterwards pair j is that of this lane among the eight that lane j of the quad loaded: of
  // columns 8 j + 2 (lane % 4) and the next.
  SINTER_DEVICE void exchange() {
    const int lane = static_cast<int>(threadIdx.x) % 4;
    exchange_by<1>(lane & 1);
    exchange_by<2>(lane & 2);
  }
  template <class T>
  SINTER_DEVICE T get(int pair, int e) const {
    Pack<Number, bytes == 1 ? 4 : 2> pack;
#pragma unroll
    for (int i = 0; i < words; ++i) pack.set_word(i, at[pair][i]);
    return sinter::get<T>(pack, e);
  }

 private:
  template <int distance>
  SINTER_DEVICE void exchange_by(bool upper) {
#pragma unroll
    for (int j = 0; j < pairs; ++j) {
      if (j & distance) continue;
#pragma unroll
      for (int i = 0; i < words; ++i) {
        unsigned &low = at[j][i], &high = at[j + distance][i];
        const unsigned other = __shfl_xor_sync(0xffffffffu, upper ? low : high, distance);
        low = upper ? other : low, high = upper ? high : other;
      }
    }
  }
};

// Of a tile of keys: `columns` of them, a multiple of 32, and both rows of a thread.
template <class Neighbours, int columns>
struct NeighboursOfTile {
  static constexpr int blocks = columns / 32, rows = Neighbours::same_rows ? 1 : 2;
  NeighboursOfRow<typename Neighbours::Number> of[blocks][rows];

  SINTER_DEVICE void exchange() {
#pragma unroll
    for (int b = 0; b < blocks; ++b)
#pragma unroll
      for (int r = 0; r < rows; ++r) of[b][r].exchange();
  }
  // Of register i of the sums.
  template <class T>
  SINTER_DEVICE T get(int i) const {
    return of[i / 16][i / 2 % 2 % rows].template get<T>(i / 4 % 4, i % 2);
  }
};

// What a thread holds of it for a tile of so many keys.
struct NoNeighbours {};
template <class Score, int columns>
struct NeighboursOf {
  using Type = NoNeighbours;
};
template <LoadsNeighbours Score, int columns>
requires(columns % 32 == 0) struct NeighboursOf<Score, columns> {
  using Type = NeighboursOfTile<typename Score::Neighbours, columns>;
};

}  // namespace sinter::attention
