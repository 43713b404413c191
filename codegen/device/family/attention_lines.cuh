// Operands of attention in shared memory, for the tensor cores of any GPU: a line for each query or
// key, how lines come there and where warps find their fragments.
#pragma once
#include "sinter/device/core/warp_matrix.cuh"
#include "sinter/device/engine/shared_tile.cuh"

namespace sinter::attention {

// `lines` of so many elements, a multiple of 16. What they are as operands, rows and k or k and
// rows, is the reader's business.
template <class Number, int lines, int elements>
using LinesOf = SharedTile<Number, Major::k, lines, elements,
                           elements * sizeof(Number) % 128 == 0  ? 128
                           : elements * sizeof(Number) % 64 == 0 ? 64
                                                                 : 32>;

// 8-bit elements of such a tile as they lie in memory, line by line.
template <class Stored, int lines_, int elements>
struct StoredLines {
  static constexpr int element = 1, lines = lines_, fastest = elements, bytes = lines * fastest;
  static_assert(sizeof(Stored) == 1 && fastest % 16 == 0);
  static SINTER_DEVICE int place(int line, int column) { return line * fastest + column; }
};

// Lines [first, end) of an operand to a tile in shared memory, and zeros for the others of its
// lines; a line has `elements`. line(i): where line i lies, null: nowhere. `together` lines from
// each multiple of it on lie `step` elements apart or all nowhere: a thread finds those of a whole
// tile from the first one by constants. `threads`: of the CTA, or 32: of a warp.
template <class Tile, int threads, int elements, int together = 1, class Line>
SINTER_DEVICE void copy_lines(unsigned tile, int first, int end, const Line& line,
                              long long step = 0) {
  constexpr int each = 16 / Tile::element, pieces = Tile::fastest / each,
                all = Tile::lines * pieces;  // of 16 bytes
  const int thread = static_cast<int>(threads == 32 ? threadIdx.x % 32 : threadIdx.x);
  if constexpr (elements == Tile::fastest && threads % pieces == 0 && all % threads == 0) {
    constexpr int lines = threads / pieces, period = 8;  // lines at a time; of the permutation
    if constexpr (together % lines == 0 &&
                  (together % Tile::lines == 0 || Tile::lines % together == 0)) {
      if (first + Tile::lines <= end) {
        const int number = thread / pieces, column = thread % pieces * each;
        auto from = line(first + number);
#pragma unroll
        for (int i = 0; i < Tile::lines / lines; ++i) {
          const int further = i * lines % together;
          if (i > 0 && further == 0) from = line(first + number + i * lines);
          warp_matrix::copy<16>(tile + Tile::place(number + i * lines % period, column) +
                                    i * lines / period * (Tile::panel_bytes / Tile::lines * period),
                                from + further * step + column, from);
        }
        return;
      }
    }
  }
#pragma unroll
  for (int i = 0; i < (all + threads - 1) / threads; ++i) {
    const int piece = thread + i * threads;
    if (all % threads != 0 && piece >= all) break;
    const int number = piece / pieces, column = piece % pieces * each;
    const bool exists = first + number < end;
    const auto* const from = line(exists ? first + number : 0);
    const unsigned to = tile + Tile::place(number, column);
    if constexpr (elements % each == 0) {
      warp_matrix::copy<16>(to, from + column, exists && from && column < elements);
    } else {
      const int left = elements - column, count = left < each ? left : each;
      warp_matrix::copy_part<16>(to, from + column,
                                 exists && from && count > 0 ? count * Tile::element : 0);
    }
  }
}

// A tile's elements from 8 bits to the 16 of its numbers, which hold each of them. All threads take
// part; what copied the elements has been waited for by all. Pieces are read several at a time, as
// reads wait for the writes before them and a warp may be alone on its quarter of the SM.
template <class Tile, class Stored, int threads>
SINTER_DEVICE void widen_lines(unsigned tile, unsigned stored) {
  constexpr int each = 8, pieces = Tile::fastest / each, all = Tile::lines * pieces, together = 8;
  using Number = typename Tile::Number;
  static_assert(sizeof(Number) == 2);
  const int thread = static_cast<int>(threadIdx.x);
  const auto exists = [](int piece) { return all % threads == 0 || piece < all; };
#pragma unroll
  for (int first = 0; first < all; first += together * threads) {
    uint2 held[together];
#pragma unroll
    for (int i = 0; i < together && first + i * threads < all; ++i)
      if (const int piece = first + i * threads + thread; exists(piece))
        held[i] = warp_matrix::get_two_words(stored + piece * each);
#pragma unroll
    for (int i = 0; i < together && first + i * threads < all; ++i) {
      const int piece = first + i * threads + thread;
      if (!exists(piece)) break;
      unsigned words[4];
#pragma unroll
      for (int w = 0; w < 4; ++w)
        words[w] = warp_matrix::widened(
            Number{}, Stored{},
            static_cast<unsigned short>((w < 2 ? held[i].x : held[i].y) >> w % 2 * 16));
      warp_matrix::put(tile + Tile::place(piece / pieces, piece % pieces * each),
                       uint4{words[0], words[1], words[2], words[3]});
    }
  }
}

// Where a lane finds its line of four blocks of a tile, of 8 lines and 16 bytes each: 16 lines, and
// 32 bytes along them. `lines_first`: the second block is that of the next eight lines, else of the
// next elements.
template <class Tile, bool lines_first>
struct LaneLine {
  int at;
  SINTER_DEVICE explicit LaneLine(int line) {
    const int lane = static_cast<int>(threadIdx.x) % 32, block = lane / 8;
    line += (lines_first ? block % 2 : block / 2) * 8 + lane % 8;
    const int along = (lines_first ? block / 2 : block % 2) * (16 / Tile::element);
    at = Tile::place(line, along);
  }
  // `lines` and `along`: how many times 16 lines and 32 bytes further; the permutation of a line is
  // an exclusive or.
  SINTER_DEVICE int operator()(int lines, int along) const {
    constexpr int in_panel = Tile::swizzle / 32;
    return (at ^ along % in_panel * 32) + along / in_panel * Tile::panel_bytes +
           lines * 16 * Tile::swizzle;
  }
};

}  // namespace sinter::attention
