// The products of attention_backward_wide.cuh with the places of their operands in shared memory.
#pragma once
#include "sinter/device/family/attention_backward_shape.cuh"

namespace sinter::attention {

template <class Config, class Bounds, class Q, class K, class V, class DO>
struct WideBackwardShape : LoadedBackwardTiles<Config, Q, Config::tile_k, sequences_of<Bounds>()> {
  using B = LoadedBackwardTiles<Config, Q, Config::tile_k, sequences_of<Bounds>()>;
  using B::consumers, B::tile_k, B::tile_q, B::panels, B::panels_v;
  using typename B::Number, typename B::Numbers, typename B::TileQ, typename B::TileDO,
      typename B::TileK, typename B::TileV, typename B::TileDS, typename B::TileKByLine;
  static_assert(consumers == 2 && tile_q == 64 && tile_k % 16 == 0, "two consumers share 64 rows");

  // A consumer scores half of the keys.
  static constexpr int half = tile_k / 2;
  using Scores = Mma<Shape<64, half>, Numbers, TileQ, TileK>;
  using DWeights = Mma<Shape<64, half>, Numbers, TileDO, TileV>;
  // Blocks of 64 elements of the head: the first consumer has as many as the second or one more.
  static constexpr int share(int blocks) { return (blocks + 1) / 2; }
  static constexpr int own = share(panels), own_v = share(panels_v);
  using Block = typename B::template ByLine<tile_q, 1>;      // of Q or dO, transposed
  using ByKey = typename B::template ByHead<tile_k, 1>;      // weights: a line of queries a key
  using DK = Mma<Shape<64, tile_k>, Numbers, Block, ByKey>;  // dK or dV, transposed
  using DQ = Mma<Shape<64, 64>, Numbers, TileDS, typename B::template ByLine<tile_k, 1>>;

  static constexpr bool parts_of_dq = false;
  static constexpr int keys_of_dq = tile_k, columns_of_dq = 64,
                       bytes_of_dq = columns_of_dq * 64 * 4;
  static constexpr int key_of_dq(int) { return 0; }
  // Of dQ's blocks the second consumer has one more, where the first has one more of dK's.
  static constexpr int adds_of_dq(int consumer) { return consumer == 0 ? panels - own : own; }
  static constexpr int row_of_dq(int) { return 0; }
  static constexpr int block_of_dq(int consumer, int add) {
    return consumer * (panels - own) + add;
  }
  static constexpr int column_of_dq(int consumer, int add) {
    return block_of_dq(consumer, add) * 64;
  }

  using PipeQ = Pipeline<Config::stages>;
  using PipeDO = Pipeline<Config::stages_do>;

  // Shared memory, from a multiple of 1024 on.
  static constexpr int k = 0, v = k + TileK::bytes, q = v + TileV::bytes,
                       d_o = q + PipeQ::stages * TileQ::bytes,
                       p = d_o + PipeDO::stages * TileDO::bytes, ds = p + TileDS::bytes,
                       dq = ds + TileDS::bytes, lse = dq + consumers * bytes_of_dq,
                       largest = lse + PipeQ::stages * tile_q * 4,
                       delta = largest + (B::totals ? PipeQ::stages * tile_q * 4 : 0),
                       pipe_q = delta + PipeDO::stages * tile_q * 4,
                       pipe_do = pipe_q + PipeQ::bytes, full_k = pipe_do + PipeDO::bytes,
                       full_v = full_k + 8, walked = full_v + 8,
                       recompute = walked + (Bounds::has_blocks ? PipeQ::stages * 8 : 0),
                       end = recompute + ToRecompute::bytes;
  static constexpr bool holds_dbias = false, keys_ahead = false;
  static constexpr SINTER_DEVICE int place_of_keys(int) { return 0; }
  static constexpr SINTER_DEVICE int barrier_of_keys(int) { return 0; }
  static constexpr SINTER_DEVICE int phase_of_keys(int) { return 0; }
  static constexpr int shared_bytes = end + SharedMemory::lost;
  static_assert(shared_bytes == Config::shared_bytes);
};

}  // namespace sinter::attention
