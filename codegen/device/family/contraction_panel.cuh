// Operands of a contraction in shared memory, for the tensor cores of any GPU: how a step lies
// there and how warps read their fragments of it.
#pragma once
#include "sinter/device/core/warp_matrix.cuh"

namespace sinter::contraction {

// A step of one operand in shared memory: lines of 16-byte chunks, along k of every row or along
// the rows of every k, as the operand lies in memory. The chunks of a line are permuted so that
// eight lines, of each of which one instruction reads a chunk, spread over all banks.
//
// Turned, an operand that lies along k in memory lies along the rows here: the elements of a chunk
// are a line of rows apart. Its rows are permuted by fours so that what a warp writes at once, some
// rows of every chunk, spreads over all banks.
template <class Number, bool k_fastest_, int rows_, int depth, bool transposed_ = false>
struct Panel {
  static constexpr bool k_fastest = k_fastest_, transposed = transposed_;
  static constexpr int rows = rows_;
  static constexpr int each = 16 / static_cast<int>(sizeof(Number));  // elements of a chunk
  static constexpr int lines = k_fastest ? rows : depth;
  static constexpr int chunks = (k_fastest ? depth : rows) / each;  // of a line
  static constexpr int bytes = lines * chunks * 16;
  static constexpr int apart = (transposed ? rows : 1) * static_cast<int>(sizeof(Number));
  // Tensor cores take elements of 32 bits one by one there; CUDA cores take chunks of a line.
  static constexpr bool words = !k_fastest && sizeof(Number) == 4,
                        straight = words && is_same<Number, f32>;
  static_assert((chunks & (chunks - 1)) == 0);
  static_assert(!transposed || (k_fastest && sizeof(Number) == 4 && rows % 32 == 0));

  // Of the fours of rows of a transposed chunk.
  static SINTER_DEVICE int turn(int chunk) { return chunks >= 8 ? chunk & 7 : (chunk & 3) * 2; }
  static SINTER_DEVICE int place(int line, int chunk) {
    if constexpr (transposed)
      return (chunk * each * (rows / 4) + (line / 4 ^ turn(chunk))) * 16 + line % 4 * 4;
    const int turn = straight      ? 0
                     : words       ? (line & 3) * 2
                     : chunks >= 8 ? line & 7
                     : chunks == 4 ? line >> 1 & 3
                                   : line >> 2 & 1;
    return (line * chunks + (chunk ^ (turn & (chunks - 1)))) * 16;
  }
};

// A step of an operand of bytes that lie along k, as they are: see contraction_streamed.cuh. Chunks
// are permuted so that what eight lanes read, four chunks of two lines, spreads over all banks.
template <int rows_, int depth>
struct BytePanel {
  static constexpr bool k_fastest = true, transposed = false;
  static constexpr int rows = rows_, lines = rows;
  static constexpr int each = 16, chunks = depth / each;  // of a line
  static constexpr int bytes = lines * chunks * 16, apart = 1;
  static_assert(chunks == 4 || chunks == 8);

  static SINTER_DEVICE int place(int line, int chunk) {
    return (line * chunks + (chunk ^ (chunks == 8 ? (line & 1) * 4 : 0))) * 16;
  }
};

// Reads a warp's fragments of an operand from its panels: for 16 rows and 32 bytes of k four blocks
// of 8 rows and 16 bytes. Of A, the rows change first from block to block; of B, whose blocks are
// used in pairs of all k, k does. What differs from lane to lane is kept in a few registers, the
// rest are constants.
template <class Layout, bool is_a, int blocks, int slices>
struct Reader {
  static constexpr int line = Layout::chunks * 16;  // bytes
  static constexpr int kept = Layout::k_fastest ? slices : Layout::words ? 2 * blocks : blocks;
  unsigned lane_at[kept];

  static SINTER_DEVICE int row_half(int block) { return is_a ? block % 2 : block / 2; }
  static SINTER_DEVICE int k_half(int block) { return is_a ? block / 2 : block % 2; }

  // `row`: the warp's first in the panel.
  SINTER_DEVICE explicit Reader(int row) {
    const int lane = static_cast<int>(threadIdx.x) % 32, block = lane / 8;
#pragma unroll
    for (int i = 0; i < kept; ++i) {
      if constexpr (Layout::k_fastest)
        lane_at[i] = Layout::place(row + row_half(block) * 8 + lane % 8, i * 2 + k_half(block));
      else if constexpr (Layout::words)
        lane_at[i] = Layout::place(lane % 4, (row + i * 8 + lane / 4) / 4) + lane / 4 % 4 * 4;
      else
        lane_at[i] = Layout::place(k_half(block) * 8 + lane % 8, row / 8 + i * 2 + row_half(block));
    }
  }

  SINTER_DEVICE void get(unsigned (&fragments)[blocks][4], unsigned panel, int slice) const {
#pragma unroll
    for (int b = 0; b < blocks; ++b) {
      if constexpr (Layout::k_fastest) {
        warp_matrix::get(fragments[b], panel + lane_at[slice] + b * 16 * line);
      } else if constexpr (Layout::words) {
#pragma unroll
        for (int i = 0; i < 4; ++i)
          fragments[b][i] = warp_matrix::get_word(panel + lane_at[b * 2 + row_half(i)] +
                                                  (slice * 8 + k_half(i) * 4) * line);
      } else {
        warp_matrix::get_transposed(fragments[b], panel + lane_at[b] + slice * 16 * line);
      }
    }
  }
};

}  // namespace sinter::contraction
