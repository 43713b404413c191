// Values of 8 bits, of which wgmma reads lines of keys alone: the warps of the producer beside the
// one that has TMA load them turn each tile in shared memory. (Shah et al., "FlashAttention-3",
// 2024, section 3.3.)
//
// Of 16-bit elements, ldmatrix hands each lane two neighbouring keys of a column, and here an element
// is two neighbouring columns: so two blocks, of keys 0 to 7 and 8 to 15, hold for a lane keys 2 q,
// 2 q + 1, 8 + 2 q and 9 + 2 q (q: its number in its quad) of two columns. These four keys of a
// column are what the lane holds of a row of weights, too, as the left operand (column_of_k()), so
// that stmatrix writes them side by side, in that order.
#pragma once
#include "sinter/device/family/attention_forward_producer.cuh"

namespace sinter::attention {

inline constexpr int kTurningWarps = 3;

// A tile by kTurningWarps warps, of which this is number `warp`. `cut`: keys from `end` on become
// zeros.
template <class S, bool cut>
SINTER_DEVICE void turn_values(unsigned from, unsigned to, int warp, int end) {
  using Loaded = typename S::LoadedV;
  using Turned = typename S::TileV;
  constexpr int keys = 32, columns = 16;  // of a step
  constexpr int across = S::columns / columns, steps = S::tile_k / keys * across;
  static_assert(S::tile_k % keys == 0 && S::columns % columns == 0);
  const int lane = static_cast<int>(threadIdx.x) % 32, block = lane / 8, line = lane % 8;
  // Of a block's eight columns, which lie in every other line, the first four are even ones, the
  // others odd ones, or the other way round: lines of one parity would share four banks of eight.
  const bool first_even = lane / 4 < 4;
  const unsigned even = first_even ? 0x6420 : 0x7531, odd = first_even ? 0x7531 : 0x6420;
  const int column = 2 * line + ((block + line / 4) & 1);
#pragma unroll 1
  for (int step = warp; step < steps; step += kTurningWarps) {
    const int key = step / across * keys, e = step % across * columns;
    unsigned pairs[4];
    warp_matrix::get_transposed(pairs, from + Loaded::place(key + lane, e));
    if constexpr (cut)
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int left = end - (key + 8 * i + lane % 4 * 2);
        pairs[i] = left >= 2 ? pairs[i] : left == 1 ? pairs[i] & 0xffffu : 0u;
      }
    const unsigned turned[4] = {warp_matrix::bytes_of(pairs[0], pairs[1], even),
                                warp_matrix::bytes_of(pairs[0], pairs[1], odd),
                                warp_matrix::bytes_of(pairs[2], pairs[3], even),
                                warp_matrix::bytes_of(pairs[2], pairs[3], odd)};
    hopper::put_blocks(to + Turned::place(e + column, key + block / 2 * 16), turned);
  }
}

// The warps that turn values walk over tiles as the one does that has them loaded.
template <class Config, class S, class Bounds, class Args>
SINTER_DEVICE void turn_all_values(const Args& args, unsigned char* pointer, unsigned shared,
                                   int warp) {
  const typename S::Pipe loaded{shared + S::pipe_loaded_v}, turned{shared + S::pipe_v};
  typename S::Pipe::State state;
  auto tiles = tiles_of_producer<Config, S, Bounds>(pointer, shared);
#pragma unroll 1
  for (int round = 0, i; (i = tiles.next(args, round)) < S::items; ++round) {
    TileOfRows tile = tiles.tile(i);
    typename S::F::Coord c;
    S::F::set_batch(c, tile.entry);
    const BandOf<S, Bounds> band = tiles.band(args, c, tile);
    const KeyTiles keys = tiles.keys(band, tile);
#pragma unroll 1
    for (int n = keys.end - 1; n >= keys.begin; --n) {
      loaded.wait(state);
      turned.acquire(state);
      turn_values<S, Bounds::padding>(
          shared + S::loaded_v + state.stage * S::LoadedV::bytes,
                     shared + S::v + state.stage * S::TileV::bytes, warp,
                     band.columns - band.first_column - n * S::tile_k);
      turned.commit(state);
      __syncwarp();
      loaded.release(state);
      state.advance();
    }
  }
}

}  // namespace sinter::attention
