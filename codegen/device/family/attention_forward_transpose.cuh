// Values of 8 bits, of which wgmma reads lines of keys alone: the warps of the producer beside the
// one that has TMA load them transpose each tile in shared memory. (Shah et al.,
// "FlashAttention-3", 2024, section 3.3.)
//
// Of 16-bit elements, ldmatrix hands each lane two neighbouring keys of a column, and here an
// element is two neighbouring columns: so two blocks, of keys 0 to 7 and 8 to 15, hold for a lane
// keys 2 q, 2 q + 1, 8 + 2 q and 9 + 2 q (q: its number in its quad) of two columns. These four
// keys of a column are what the lane holds of a row of weights, too, as the left operand
// (column_of_k()), so that stmatrix writes them side by side, in that order.
#pragma once
#include "sinter/device/family/attention_forward_producer.cuh"

namespace sinter::attention {

inline constexpr int kTransposingWarps = 3;

// A tile by kTransposingWarps warps, of which this is number `warp`. `cut`: keys from `end` on
// become zeros.
template <class S, bool cut>
SINTER_DEVICE void transpose_values(unsigned from, unsigned to, unsigned warp, int end) {
  using Loaded = typename S::LoadedV;
  using Transposed = typename S::TileV;
  constexpr unsigned keys = 32, columns = 16, line = 128;  // of a step; bytes of a line
  constexpr unsigned across = S::columns / columns, steps = S::tile_k / keys * across;
  static_assert(S::tile_k % keys == 0 && Loaded::panels == 1);
  const unsigned lane = threadIdx.x % 32, block = lane / 8, i = lane % 8;
  // Of a block's eight columns, which lie in every other line, the first four are even ones, the
  // others odd ones, or the other way round: lines of one parity would share half of the banks.
  const unsigned even = lane / 4 < 4 ? 0x6420 : 0x7531, odd = even ^ (0x6420 ^ 0x7531);
  const unsigned column = 2 * i + ((block + i / 4) & 1);
  // Pieces of a line are exchanged by exclusive or, so that steps reach others by it.
  from += Loaded::place(static_cast<int>(lane), 0);
  to += Transposed::place(static_cast<int>(column), static_cast<int>(block / 2 * 16));
#pragma unroll 1
  for (unsigned step = warp; step < steps; step += kTransposingWarps) {
    const unsigned key = step / across * keys, e = step % across * columns;
    unsigned pairs[4];
    warp_matrix::get_transposed(pairs, (from + key * line) ^ e);
    if constexpr (cut)
#pragma unroll
      for (unsigned j = 0; j < 4; ++j) {
        const int left = end - static_cast<int>(key + 8 * j + lane % 4 * 2);
        pairs[j] = left >= 2 ? pairs[j] : left == 1 ? pairs[j] & 0xffffu : 0u;
      }
    const unsigned transposed[4] = {warp_matrix::bytes_of(pairs[0], pairs[1], even),
                                    warp_matrix::bytes_of(pairs[0], pairs[1], odd),
                                    warp_matrix::bytes_of(pairs[2], pairs[3], even),
                                    warp_matrix::bytes_of(pairs[2], pairs[3], odd)};
    hopper::put_blocks((to + key / line * Transposed::panel_bytes + e * line) ^ key % line,
                       transposed);
  }
}

// The warps that transpose values walk over tiles as the one does that has them loaded.
template <class Config, class S, class Bounds, class Args>
SINTER_DEVICE void transpose_all_values(const Args& args, unsigned char* pointer, unsigned shared,
                                        unsigned warp) {
  const typename S::Pipe loaded{shared + S::pipe_loaded_v}, transposed{shared + S::pipe_v};
  typename S::Pipe::State state;
  for_tiles_of_rows<Config, S, Bounds>(
      args, pointer, shared,
      [&](const auto& c, const auto& band, const TileOfRows& tile, const KeyTiles& keys) {
#pragma unroll 1
        for (KeyWalk<S, Bounds> at(args, c, tile.row, 0, keys.begin, keys.end, keys.part);
             at.more(); at.next(args, c)) {
          loaded.wait(state);
          transposed.acquire(state);
          transpose_values<S, Bounds::padding>(
              shared + S::loaded_v + state.stage * S::LoadedV::bytes,
              shared + S::v + state.stage * S::TileV::bytes, warp,
              band.columns - band.first_column - at.n * S::tile_k);
          transposed.commit(state);
          __syncwarp();
          loaded.release(state);
          state.advance();
        }
      });
}

}  // namespace sinter::attention
