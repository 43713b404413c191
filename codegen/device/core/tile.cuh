// A rectangle of a tensor in shared memory, where a block turns it around: memory is read and
// written along one index of the domain (`across`), threads hold packs along another (`along`).
//
// In shared memory the elements lie in the order of memory: `across` fastest, so that one move
// takes up to 16 bytes from there to here. A thread that gathers a pack meets one element in each
// of `width` rows. Without further care the packs of a warp would lie a multiple of 128 bytes apart
// and fall into the same bank; so every group of `width` rows is followed by a gap, which makes the
// distance from a pack to the next one an odd multiple of `spread` bytes. As many packs as 128
// bytes have spreads then fall into banks of their own: 2 packs by 16 columns, 4 by 8, 8 by 4, 16
// by 2 or 32 by 1 fill all banks exactly once with four-byte elements, and share words with
// narrower ones. The moves touch neighbouring pieces, eight threads 128 bytes, and never reach over
// a gap.
//
// A tile of several matrices (Config::tile_through of them, along a third index of the domain)
// holds all rows of the first, then those of the next.
#pragma once
#include "sinter/device/core/async_copy.cuh"
#include "sinter/device/core/pack.cuh"

namespace sinter {

// The first element of a tile, and how much of it lies inside the domain.
template <class CoordType, bool all_inside>
struct Corner {
  static constexpr bool whole = all_inside;
  CoordType c;
  int rows, columns, matrices;
};

// Where a thread's pack lies in a tile.
struct Spot {
  int pack, column;
  int misalignment = 0;  // elements that the pack starts early
  int matrix = 0;
};

// Where the place of this number lies. Config::lanes threads stand next to each other along the
// packs; the rest of their warp takes the next columns, so that a warp touches few lines of memory
// and all banks of shared memory.
template <class Config>
constexpr SINTER_DEVICE Spot spot_of(unsigned number) {
  constexpr unsigned packs = Config::tile_along / Config::width, columns = Config::tile_across;
  constexpr unsigned lanes = Config::lanes, turns = packs / lanes;
  constexpr bool even = 32 % lanes == 0 && columns % (32 / lanes) == 0;
  constexpr unsigned beside = even ? 32 / lanes : 1;
  const unsigned matrix = Config::tile_through > 1 ? number / (packs * columns) : 0;
  number -= matrix * (packs * columns);
  const unsigned lane = number % (lanes * beside), group = number / (lanes * beside);
  return {static_cast<int>(lane % lanes + group % turns * lanes),
          static_cast<int>(lane / lanes + group / turns * beside), 0, static_cast<int>(matrix)};
}

constexpr SINTER_DEVICE int largest_power_in(int n) { return n & -n; }
constexpr SINTER_DEVICE int least(int a, int b) { return a < b ? a : b; }
constexpr SINTER_DEVICE int most(int a, int b) { return a < b ? b : a; }

// `vector` elements of the tensor move as one. It has stride 1 along `across` and no windows.
template <class Config, class Access, class Element, int vector>
struct Tile {
  using Index = typename Config::Index;
  static constexpr int size = sizeof(Element), width = Config::width, threads = Config::threads;
  static constexpr int matrix_rows = Config::tile_along, columns = Config::tile_across;
  static constexpr int matrices = Config::tile_through, rows = matrices * matrix_rows;
  static constexpr long long step = Access::Stride::at(Config::along);
  static constexpr long long matrix_step = matrices > 1 ? Access::Stride::at(Config::through)
                                                        : matrix_rows* step;
  // Whole rows that follow one another in memory are one long row: vectors may cross their ends.
  // So may they cross those of matrices that follow one another.
  static constexpr bool joined = columns == Config::Extent::at(Config::across) && step == columns;
  static constexpr bool stacked = matrix_step == matrix_rows * step;
  static constexpr int moves = rows * columns / vector, each = (moves + threads - 1) / threads;
  static_assert(rows % width == 0 && rows * columns % vector == 0);
  static_assert(joined || columns % vector == 0);
  static_assert(stacked || matrix_rows * columns % vector == 0);

  static constexpr int pitch = columns * size;  // bytes from row to row
  static constexpr int lanes = Config::lanes;
  static constexpr int beside = lanes > 1 && 32 % lanes == 0 ? 32 / lanes : 1;  // columns
  static constexpr int spread = most(size, lanes > 16  ? 4
                                           : lanes > 8 ? 8
                                                       : most(16, beside* least(size, 4)));
  // What moves as one in shared memory, so that neither rows nor gaps break it.
  static constexpr int piece = least(largest_power_in(width * pitch), least(spread, vector* size));
  static constexpr int gap = (3 * spread - width * pitch % (2 * spread)) % (2 * spread);

  alignas(16) unsigned char memory[rows * pitch + rows / width * gap];

  // Where element `e`, counted row by row, lies.
  static constexpr SINTER_DEVICE unsigned at(unsigned e) {
    return e * size + (gap ? e / (width * columns) * gap : 0);
  }
  // Where piece `i` of the move that starts with element `e` lies.
  static constexpr SINTER_DEVICE unsigned at(unsigned e, int i) {
    return width * columns % vector == 0 ? at(e) + i * piece : at(e + i * (piece / size));
  }
  static constexpr SINTER_DEVICE unsigned at(const Spot& spot) {
    return (spot.matrix * (matrix_rows / width) + spot.pack) * (width * pitch + gap) +
           spot.column * size;
  }

  // Calls f(number, first element, its distance from the corner in memory) for the thread's moves.
  template <class Corner, class F>
  static SINTER_DEVICE void for_moves(const Corner& corner, const F& f) {
    constexpr unsigned stride = threads * vector, row_length = columns;
    const unsigned first = threadIdx.x * vector;
#pragma unroll(Corner::whole ? each : 1)
    for (int k = 0; k < each; ++k) {
      const unsigned e = first + k * stride;
      if (moves % threads != 0 && e >= rows * row_length) break;
      if constexpr (joined && stacked) {
        const int inside = matrices > 1 ? corner.matrices * matrix_rows : corner.rows;
        if (Corner::whole || e < inside * row_length) f(k, e, static_cast<Index>(e));
      } else {
        constexpr bool steady = stride % row_length == 0;  // the thread stays in its columns
        const int row = steady ? first / row_length + k * (stride / row_length) : e / row_length;
        const int column = steady ? first % row_length : e % row_length;
        const int matrix = matrices > 1 ? row / matrix_rows : 0;
        if (Corner::whole || (row - matrix * matrix_rows < corner.rows && column < corner.columns &&
                              matrix < corner.matrices))
          f(k, e,
            matrix * static_cast<Index>(matrix_step - matrix_rows * step) +
                row * static_cast<Index>(step) + column);
      }
    }
  }

  using Move = typename Word<vector * size>::Type;
  using Piece = typename Word<piece>::Type;
  static constexpr int pieces = vector * size / piece;

  SINTER_DEVICE void put_move(unsigned e, const Move& move) {
#pragma unroll
    for (int i = 0; i < pieces; ++i)
      *reinterpret_cast<Piece*>(memory + at(e, i)) = reinterpret_cast<const Piece*>(&move)[i];
  }

  // From memory to the tile; the block meets at a barrier before it reads.
  template <class Corner>
  SINTER_DEVICE void load(const Element* base, const Corner& corner) {
    const Element* from = base + locate<Access>(corner.c).offset;
    const auto fetch = [&](Index offset) {
      return hardware::load(reinterpret_cast<const Move*>(from + offset));
    };
    if constexpr (pieces == 1 && piece >= 4) {
      for_moves(corner, [&](int, unsigned e, Index offset) {
        copy_async<piece>(memory + at(e), from + offset);
      });
    } else if constexpr (Corner::whole) {  // all of them are in flight before the first is needed
      Move held[each];
      for_moves(corner, [&](int k, unsigned, Index offset) { held[k] = fetch(offset); });
      for_moves(corner, [&](int k, unsigned e, Index) { put_move(e, held[k]); });
    } else {
      for_moves(corner, [&](int, unsigned e, Index offset) { put_move(e, fetch(offset)); });
    }
  }

  // From the tile to memory, after a barrier.
  template <class Corner>
  SINTER_DEVICE void store(Element* base, const Corner& corner) const {
    Element* to = base + locate<Access>(corner.c).offset;
    for_moves(corner, [&](int, unsigned e, Index offset) {
      Move move;
#pragma unroll
      for (int i = 0; i < pieces; ++i)
        reinterpret_cast<Piece*>(&move)[i] = *reinterpret_cast<const Piece*>(memory + at(e, i));
      *reinterpret_cast<Move*>(to + offset) = move;
    });
  }

  SINTER_DEVICE void read(const Spot& spot, Pack<Element, width>& pack) const {
    const unsigned char* from = memory + at(spot);
#pragma unroll
    for (int e = 0; e < width; ++e)
      pack.at[e] = *reinterpret_cast<const Element*>(from + e * pitch);
  }
  SINTER_DEVICE void write(const Spot& spot, const Pack<Element, width>& pack) {
    unsigned char* to = memory + at(spot);
#pragma unroll
    for (int e = 0; e < width; ++e) *reinterpret_cast<Element*>(to + e * pitch) = pack.at[e];
  }
};

}  // namespace sinter
