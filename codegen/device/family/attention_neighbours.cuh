// What a score reads of memory beside its sum (biases, masks), where neighbouring keys have
// neighbouring elements. Element by element each load of a warp would look up eight lines for
// as many halves of sectors, which takes longer than the products. So
//
//   where TMA can, it brings a box of the tile's rows and keys, or of one row that all share, from
//   where each lane reads what belongs to its sums;
//   else each lane of a quad loads eight neighbours of a row, and the lanes hand each other those
//   of their own columns.
//
// A generated file defines
//
//   Score::Beside        List of structs with Number; same_rows: all rows have the same; and either
//     at(args, c): where that of a row and a key lies, the latter a multiple of 8
//     prefetch(args), load(args, c, row, key, to, barrier, blocks): a box by TMA, of one row where
//     all have the same
//   Score::element_beside(args, c, of_head, acc, beside)   element() with what was loaded, a number
//                        for each of them
#pragma once
#include "sinter/device/core/pack.cuh"
#include "sinter/device/engine/fragment.cuh"
#include "sinter/device/engine/loader/tma_boxes.cuh"
#include "sinter/device/engine/shared_tile.cuh"

namespace sinter::attention {

template <class Score>
concept LoadsBeside = requires {
  typename Score::Beside;
};
template <class Item>
concept ComesInBoxes = requires {
  Item::k_fastest;
};
// One row for all, as it lies in memory. The next tile begins behind `bytes`.
template <class Number, int columns>
struct OneRow {
  static constexpr int loaded = columns * static_cast<int>(sizeof(Number)), bytes = 1024;
  static_assert(loaded <= bytes);
  static SINTER_DEVICE int place(int, int column) {
    return column * static_cast<int>(sizeof(Number));
  }
  template <class Item, class Args, class Coord>
  static SINTER_DEVICE void load(const Args& args, const Coord& c, int, int key, unsigned to,
                                 unsigned full) {
    Item::load(args, c, 0, key, to, full, 0);
  }
};
// Each row's own, of 64, in lines as long as the keys of a tile allow, which readers meet without
// conflicts of banks.
template <class Number, int columns, int line = columns* static_cast<int>(sizeof(Number))>
struct EachRow : SharedTile<Number, Major::k, 64, columns,
                            line % 128 == 0  ? 128
                            : line % 64 == 0 ? 64
                                             : 32> {
  static constexpr int loaded = EachRow::bytes;
  template <class Item, class Args, class Coord>
  static SINTER_DEVICE void load(const Args& args, const Coord& c, int row, int key, unsigned to,
                                 unsigned full) {
    TmaBoxes<Item, EachRow, Coord>::load_at(args, c, row, key, 0, to, full);
  }
};
template <class Item, int columns>
using BoxBeside = Choice<Item::same_rows, OneRow<typename Item::Number, columns>,
                         EachRow<typename Item::Number, columns>>;

// Of 32 keys and one row of a thread: pairs of neighbours, each in `words` words.
template <class Number>
struct NeighboursOfRow {
  static constexpr int bytes = sizeof(Number), words = bytes == 4 ? 2 : 1, pairs = 4;
  unsigned at[pairs][words];

  // Of a tile in shared memory, from a column on, a multiple of 32. By whole warps; `row`: the
  // thread's, lane / 4 behind the first one of the eight.
  template <class Tile>
  SINTER_DEVICE void take(unsigned tile, int row, int column) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    if constexpr (bytes == 2) {
      unsigned blocks[pairs];
      warp_matrix::get(blocks,
                       tile + Tile::place(row - lane / 4 + lane % 8, column + lane / 8 * 8));
#pragma unroll
      for (int j = 0; j < pairs; ++j) at[j][0] = blocks[j];
    } else {
#pragma unroll
      for (int j = 0; j < pairs; ++j) {
        if constexpr (bytes == 4) {
          const uint2 x =
              warp_matrix::get_two_words(tile + Tile::place(row, column + 8 * j + lane % 4 * 2));
          at[j][0] = x.x, at[j][words - 1] = x.y;
        } else {
          const unsigned x =
              warp_matrix::get_word(tile + Tile::place(row, column + 8 * j + lane % 4 / 2 * 4));
          at[j][0] = lane % 2 == 0 ? x : x >> 16;
        }
      }
    }
  }
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

// Of a tile of keys: `columns` of them, a multiple of 32, and both rows of a thread; of a box 32
// keys at a time, since registers have no room for what shared memory holds.
template <class Item, int columns>
struct BesideOfTile {
  static constexpr bool boxed = ComesInBoxes<Item>;
  static constexpr int blocks = boxed ? 1 : columns / 32, rows = Item::same_rows ? 1 : 2;
  NeighboursOfRow<typename Item::Number> of[blocks][rows];

  // f(what a thread holds of 32 keys and a row, the first key, the number of the row).
  template <class F>
  SINTER_DEVICE void each(const F& f) {
#pragma unroll
    for (int b = 0; b < blocks; ++b)
#pragma unroll
      for (int r = 0; r < rows; ++r) f(of[b][r], 32 * b, r);
  }
  // Of register i of the sums.
  SINTER_DEVICE float get(int i) const {
    return of[i / 16 % blocks][i / 2 % 2 % rows].template get<float>(i / 4 % 4, i % 2);
  }
};

// What a thread holds of all of them for a tile of so many keys. `bytes`: of boxes for 64 rows, of
// which TMA brings `loaded`.
template <int columns, class... Items>
struct BesideOfTiles {
  static constexpr int count = 0, bytes = 0, loaded = 0;
  template <class F>
  SINTER_DEVICE void each_loaded(const F&) {}
  SINTER_DEVICE void exchange() {}
  SINTER_DEVICE void take(unsigned, int, int) {}
  SINTER_DEVICE void get(int, float*) const {}
  template <class Args>
  static SINTER_DEVICE void prefetch(const Args&) {}
  template <class Args, class Coord>
  static SINTER_DEVICE void load(const Args&, const Coord&, int, int, unsigned, unsigned) {}
};
template <int columns, class Item, class... Items>
struct BesideOfTiles<columns, Item, Items...> {
  using First = BesideOfTile<Item, columns>;
  using Rest = BesideOfTiles<columns, Items...>;
  static constexpr int count = 1 + Rest::count;
  using Box = BoxBeside<Item, columns>;
  static constexpr int bytes_of_first = First::boxed ? Box::bytes : 0,
                       bytes = bytes_of_first + Rest::bytes,
                       loaded = (First::boxed ? Box::loaded : 0) + Rest::loaded;
  First first;
  Rest rest;

  // f<Item>(what a thread is to load of 32 keys and a row, the first key, the number of the row).
  template <class F>
  SINTER_DEVICE void each_loaded(const F& f) {
    if constexpr (!First::boxed)
      first.each([&](auto& of, int key, int r) { f.template operator()<Item>(of, key, r); });
    rest.each_loaded(f);
  }
  SINTER_DEVICE void exchange() {
    if constexpr (!First::boxed) first.each([](auto& of, int, int) { of.exchange(); });
    rest.exchange();
  }
  // From the boxes of the warpgroup's rows, of which `row` is the thread's first one: 32 keys.
  SINTER_DEVICE void take(unsigned boxes, int row, int key) {
    if constexpr (First::boxed)
      first.each([&](auto& of, int, int r) { of.template take<Box>(boxes, row + 8 * r, key); });
    rest.take(boxes + bytes_of_first, row, key);
  }
  SINTER_DEVICE void get(int i, float* to) const {
    to[0] = first.get(i);
    rest.get(i, to + 1);
  }

  // By one thread.
  template <class Args>
  static SINTER_DEVICE void prefetch(const Args& args) {
    if constexpr (First::boxed) Item::prefetch(args);
    Rest::prefetch(args);
  }
  template <class Args, class Coord>
  static SINTER_DEVICE void load(const Args& args, const Coord& c, int row, int key, unsigned to,
                                 unsigned full) {
    if constexpr (First::boxed) Box::template load<Item>(args, c, row, key, to, full);
    Rest::load(args, c, row, key, to + bytes_of_first, full);
  }
};

template <class List, int columns>
struct BesideOfList;
template <class... Items, int columns>
struct BesideOfList<List<Items...>, columns> {
  using Type = BesideOfTiles<columns, Items...>;
};
template <class Score, int columns>
struct BesideOfScore {
  using Type = BesideOfTiles<columns>;
};
template <LoadsBeside Score, int columns>
requires(columns % 32 == 0) struct BesideOfScore<Score, columns> {
  using Type = typename BesideOfList<typename Score::Beside, columns>::Type;
};
template <class Score, int columns>
using BesideOf = typename BesideOfScore<Score, columns>::Type;

}  // namespace sinter::attention
