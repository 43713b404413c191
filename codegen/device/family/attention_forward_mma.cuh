// Attention forward on the tensor cores that every GPU from sm_80 on has; what it computes is said
// in attention_forward.cuh.
//
// Warps by fours (fewer where there are fewer rows) own 64 rows of a tile, 16 each, or `blocks`
// times as many, for which they read keys and values from shared memory once. Scores, weights and
// results of a row stay in the registers of four lanes. Keys and values come by asynchronous
// copies, `stages` tiles ahead; one barrier a tile suffices, since a stage is filled again only
// behind the barrier that follows the products which read it. (Dao, "FlashAttention-2", 2023,
// section 3; lines in shared memory are permuted as TMA does it, engine/shared_tile.cuh.)
//
// K and V of 8 bits are copied as they are and widened in shared memory, a tile at a time.
//
// A CTA has one tile of rows. Those with the most keys come first. Rows past a length and keys that
// are not there are zeros in shared memory, whatever lies behind them in memory.
//
// A generated file defines what attention_forward.cuh lists, but for
//
//   struct Config     tile_q in place of ping_pong and registers; store_boxes = false
//   OperandQ, OperandK, OperandV
//                     Number, element(args, c), and const Number* line(args, c): where the elements
//                     of a head's row lie, one behind another from a multiple of 16 bytes on; null:
//                     nowhere, they are zeros
//
// and calls attention::run_forward_by_warps with the same arguments. The launch has
// Config::threads threads, WarpsShape::shared_bytes bytes of shared memory, and a CTA for each of
// WarpsShape::items.
#pragma once
#include "sinter/device/engine/shared_memory.cuh"
#include "sinter/device/family/attention_factors.cuh"
#include "sinter/device/family/attention_forward_rows.cuh"
#include "sinter/device/family/attention_forward_store.cuh"
#include "sinter/device/family/attention_lines.cuh"

namespace sinter::attention {

template <class Config, class First, class Q, class K, class V>
struct WarpsShape : ForwardTiles<Config, First, Q, Config::tile_q> {
  using B = ForwardTiles<Config, First, Q, Config::tile_q>;
  using B::columns, B::steps, B::stages, B::tile_k, B::tile_q;
  using typename B::Number;
  static constexpr int warps = Config::threads / 32, blocks = tile_q / (16 * warps);
  static_assert(!B::walks_twice || (sizeof(typename K::Number) == sizeof(typename Q::Number) &&
                                    sizeof(typename V::Number) == sizeof(typename Q::Number)));
  static_assert((warps % 4 == 0 || 4 % warps == 0) && blocks * 16 * warps == tile_q &&
                tile_k % 16 == 0);

  using TileQ = LinesOf<Number, tile_q, B::up(B::depth, 16)>;
  using TileK = LinesOf<Number, tile_k, B::up(B::depth, 16)>;
  using TileV = LinesOf<Number, tile_k, columns>;
  // Operands of 8 bits: what a stage has of them becomes a tile in front of the stages, of which
  // there is one, for keys and then for values, where Q lay if that stays in registers: with less
  // shared memory more CTAs share an SM.
  static constexpr bool widens_k = sizeof(typename K::Number) == 1,
                        widens_v = sizeof(typename V::Number) == 1;
  template <bool widens, class Tile, class Operand>
  struct InStage {
    using Lines = Tile;
  };
  template <class Tile, class Operand>
  struct InStage<true, Tile, Operand> {
    using Lines = StoredLines<typename Operand::Number, tile_k, Tile::fastest>;
  };
  using StageK = typename InStage<widens_k, TileK, K>::Lines;
  using StageV = typename InStage<widens_v, TileV, V>::Lines;
  struct Scores {
    using Sums = Accumulator<float, tile_k>;
  };
  struct Outputs {
    using Sums = Accumulator<float, columns>;
  };
  // Rows of Q that fit into 32 registers stay there.
  static constexpr bool keeps_q = blocks * steps <= 8;

  static constexpr int most(int x, int y) { return x > y ? x : y; }
  static constexpr bool widens = widens_k || widens_v, in_place_of_q = widens && keeps_q;
  static constexpr int stage_bytes = StageK::bytes + StageV::bytes,
                       wide_bytes = most(widens_k ? TileK::bytes : 0, widens_v ? TileV::bytes : 0),
                       wide = in_place_of_q ? 0 : TileQ::bytes,  // where such a tile lies
      filled = most(TileQ::bytes, wide + wide_bytes),            // the first stage
      tile_bytes = filled + stages * stage_bytes,
                       epilogue_bytes = warps * static_cast<int>(sizeof(contraction::EpilogueTile)),
                       shared_bytes = most(tile_bytes, epilogue_bytes) + SharedMemory::lost;
  static_assert(shared_bytes == Config::shared_bytes);
};

// A warp's rows of a tile.
template <class S, class Bounds, class Score, class Weight, class Args>
class WarpOfRows {
  using Number = typename S::Number;
  using Scores = typename S::Scores::Sums;
  using Outputs = typename S::Outputs::Sums;
  static constexpr int blocks = S::blocks, kept = S::keeps_q ? S::steps : 1;
  const Args& args_;
  const LaneLine<typename S::TileQ, true> line_q_;
  const LaneLine<typename S::TileK, false> line_k_;
  const ValuesOfLane<typename S::TileV> values_;
  const unsigned q_;
  const int warp_;
  unsigned fragments_[kept][blocks][4];

 public:
  SINTER_DEVICE WarpOfRows(const Args& args, unsigned q, int warp)
      : args_(args), line_q_(warp * 16), line_k_(0), q_(q), warp_(warp) {}

  SINTER_DEVICE void keep_rows() {
    if constexpr (S::keeps_q)
#pragma unroll
      for (int d = 0; d < S::steps; ++d) get_rows(fragments_[d], d);
  }

  // Tile n of the keys, of which all lie from `keys` on and, behind get_values(), their values from
  // `values` on; `row`: the first of the four warps' rows. `looks`: in the walk before that which
  // makes weights, without values.
  template <class GetValues>
  SINTER_DEVICE void add(Outputs (&out)[blocks], RowSoftmax (&softmax)[blocks],
                         const typename S::F::Coord& c, const BandOf<S, Bounds>& band,
                         unsigned keys, unsigned values, int row, int n, bool looks,
                         const GetValues& get_values) {
    Scores s[blocks];
    score(s, keys);
    WeightFactors<Number, S::tile_k> weights[blocks];
#pragma unroll
    for (int b = 0; b < blocks; ++b) {
      const WeightsOfRows<S, Bounds, Score, Weight, Args> weights_of(args_, c, band,
                                                                     row + b * S::warps * 16);
      if constexpr (S::walks_twice) {
        if (looks) {
          weights_of.look(s[b], softmax[b], n);
          continue;
        }
      }
      weights_of.weigh(s[b], softmax[b], n);
      if (!S::walks_twice && softmax[b].outgrown)
        out[b].each([&](int i, float& x) { x *= softmax[b].worth[i / 2 % 2]; });
      weights[b].take(s[b]);
    }
    if (S::walks_twice && looks) return;
    get_values();
    add_values(out, weights, values);
  }

 private:
  SINTER_DEVICE void get_rows(unsigned (&rows)[blocks][4], int d) const {
#pragma unroll
    for (int b = 0; b < blocks; ++b) warp_matrix::get(rows[b], q_ + line_q_(b * S::warps, d));
  }
  SINTER_DEVICE void add_values(Outputs (&out)[blocks],
                                const WeightFactors<Number, S::tile_k> (&weights)[blocks],
                                unsigned values) const {
    constexpr int keys = S::tile_k * static_cast<int>(sizeof(Number)) / 32;  // steps
    if constexpr (sizeof(Number) == 2) {
#pragma unroll
      for (int k = 0; k < keys; ++k)
#pragma unroll
        for (int e = 0; e < S::columns / 16; ++e) {
          Factors<Number, 4> v;
          values_.get(v, values, k, e);
#pragma unroll
          for (int b = 0; b < blocks; ++b) {
            multiply(out[b].at + e * 8, weights[b].step(k), v, 0);
            multiply(out[b].at + e * 8 + 4, weights[b].step(k), v, 2);
          }
        }
    } else {
      // Tensor cores cut sums off where f32 rounds them: a tile's are added to the others' apart,
      // so that the error does not grow with the keys.
#pragma unroll
      for (int e = 0; e < S::columns / 16; ++e) {
        float sums[blocks][8] = {};
#pragma unroll
        for (int k = 0; k < keys; ++k) {
          Factors<Number, 4> v;
          values_.get(v, values, k, e);
#pragma unroll
          for (int b = 0; b < blocks; ++b) {
            multiply(sums[b], weights[b].step(k), v, 0);
            multiply(sums[b] + 4, weights[b].step(k), v, 2);
          }
        }
#pragma unroll
        for (int b = 0; b < blocks; ++b)
#pragma unroll
          for (int i = 0; i < 8; ++i) out[b].at[e * 8 + i] += sums[b][i];
      }
    }
  }
  SINTER_DEVICE void score(Scores (&s)[blocks], unsigned keys) {
#pragma unroll
    for (int b = 0; b < blocks; ++b) s[b].clear();
#pragma unroll
    for (int d = 0; d < S::steps; ++d) {
      auto& rows = fragments_[S::keeps_q ? d : 0];
      if constexpr (!S::keeps_q) get_rows(rows, d);
      Factors<Number, 4> q[blocks];
#pragma unroll
      for (int b = 0; b < blocks; ++b) q[b].take(rows[b]);
#pragma unroll
      for (int n = 0; n < S::tile_k / 16; ++n) {
        unsigned words[4];
        warp_matrix::get(words, keys + line_k_(n, d));
        Factors<Number, 4> k;
        k.take(words);
#pragma unroll
        for (int b = 0; b < blocks; ++b) {
          multiply(s[b].at + n * 8, q[b], k, 0);
          multiply(s[b].at + n * 8 + 4, q[b], k, 2);
        }
      }
    }
    if constexpr (Factors<Number, 4>::loses_infinity) score_again(s, keys);
  }
  // Where a score is NaN it may be that an infinite factor met a part that is zero.
  SINTER_DEVICE void score_again(Scores (&s)[blocks], unsigned keys) const {
#pragma unroll
    for (int b = 0; b < blocks; ++b)
      s[b].each([&](int i, float& x) {
        if (x == x) return;
        const int row = b * 16 * S::warps + warp_ * 16 + s[b].row(i) % 16, key = s[b].column(i);
        x = 0;
#pragma unroll 1
        for (int d = 0; d < S::depth; ++d)
          x = math::fma(__uint_as_float(warp_matrix::get_word(q_ + S::TileQ::place(row, d))),
                        __uint_as_float(warp_matrix::get_word(keys + S::TileK::place(key, d))), x);
      });
  }
};

template <class Config, class First, class Q, class K, class V, class Bounds, class Score,
          class Weight, class Rows, class Body, class Args>
SINTER_DEVICE void run_forward_by_warps(const Args& args) {
  using S = WarpsShape<Config, First, Q, K, V>;
  using contraction::EpilogueTile;
  constexpr int threads = Config::threads, blocks = S::blocks, stages = S::stages;
  hardware::grid_dependency_wait();
  const SharedMemory memory;
  const unsigned q = memory.address, filled = q + S::filled;
  const int warp = __shfl_sync(~0u, static_cast<int>(threadIdx.x) / 32, 0);

  const TileOfRows tile = tile_of_rows<Config, S>(static_cast<int>(blockIdx.x));
  const int row = tile.row + warp / 4 * 64;
  typename S::F::Coord c;
  S::F::set_batch(c, tile.entry);
  const BandOf<S, Bounds> band(args, c);
  const KeyTiles keys = keys_of<S>(band, tile);
  typename S::Outputs::Sums out[blocks];
  RowSoftmax softmax[blocks];
#pragma unroll
  for (int b = 0; b < blocks; ++b) softmax[b].start(), out[b].clear();

  if (keys.begin < keys.end) {
    copy_lines<typename S::TileQ, threads, S::depth>(q, tile.row, S::queries, [&](int m) {
      typename S::F::Coord at = c;
      S::F::set_m(at, m);
      return Q::line(args, at);
    });
    WarpOfRows<S, Bounds, Score, Weight, Args> rows(args, q, warp);
    // A warp none of whose rows exist only copies.
    const bool exists =
        S::queries % S::tile_q == 0 || S::warps == 1 || row + warp % 4 * 16 < S::queries;
    // The first tiles are loaded by the same code as the others.
    int to = 0, from = 0;  // stages
    // Of two walks, tiles of the first are numbered behind those of the second.
    const int each = keys.end - keys.begin, end = keys.end + (S::walks_twice ? each : 0);
    const auto looks = [&](int n) { return S::walks_twice && n >= keys.end; };
    const auto tile_of = [&](int n) { return looks(n) ? n - each : n; };
#pragma unroll 1
    for (int n = end + stages - 2, ahead = end - 1; n >= keys.begin; --n, --ahead) {
      if (n < end) {
        warp_matrix::wait<stages - 2>();
        __syncthreads();
      }
      if (ahead >= keys.begin) {
        const unsigned stage = filled + to * S::stage_bytes;
        const int first = tile_of(ahead) * S::tile_k;
        copy_lines<typename S::StageK, threads, S::depth>(stage, first, band.columns, [&](int i) {
          typename S::F::Coord at = c;
          S::F::set_n(at, i);
          return K::line(args, at);
        });
        if (!looks(ahead))
          copy_lines<typename S::StageV, threads, S::width>(stage + S::StageK::bytes, first,
                                                            band.columns, [&](int i) {
                                                              typename S::P::Coord at;
                                                              S::P::set_batch(at, tile.entry);
                                                              S::P::set_k(at, i);
                                                              return V::line(args, at);
                                                            });
      }
      warp_matrix::commit();
      to = to + 1 == stages ? 0 : to + 1;
      if (n >= end) continue;
      const unsigned stage = filled + from * S::stage_bytes;
      if constexpr (S::in_place_of_q)
        if (n == end - 1) {
          if (exists) rows.keep_rows();
          __syncthreads();  // nobody reads Q any more
        }
      const auto widen_values = [&] {
        if constexpr (S::widens_v) {
          widen_lines<typename S::TileV, typename V::Number, threads>(q + S::wide,
                                                                      stage + S::StageK::bytes);
          __syncthreads();
        }
      };
      if constexpr (S::widens_k) {
        widen_lines<typename S::TileK, typename K::Number, threads>(q + S::wide, stage);
        __syncthreads();
      } else {
        widen_values();
      }
      const auto values_in_turn = [&] {
        if constexpr (S::widens_k && S::widens_v) {
          __syncthreads();  // nobody reads keys any more
          widen_values();
        }
      };
      if (exists) {
        if (!S::in_place_of_q && n == end - 1) rows.keep_rows();
        rows.add(out, softmax, c, band, S::widens_k ? q + S::wide : stage,
                 S::widens_v ? q + S::wide : stage + S::StageK::bytes, row, tile_of(n), looks(n),
                 values_in_turn);
        if (S::walks_twice && n == keys.end)
#pragma unroll
          for (int b = 0; b < blocks; ++b) softmax[b].divide();
      } else {
        values_in_turn();
      }
      from = from + 1 == stages ? 0 : from + 1;
    }
    warp_matrix::wait<0>();
    __syncthreads();  // epilogue tiles lie where tiles were
  }

  EpilogueTile& epilogue_tile = reinterpret_cast<EpilogueTile*>(memory.pointer)[warp];
  // Registers have no index: the next block's become the first one's, so that what follows is
  // compiled once.
#pragma unroll 1
  for (int b = 0; b < blocks; ++b) {
    finish_tile<Config, S, Q, K, V, Bounds, Score, Weight, Rows, Body>(
        args, epilogue_tile, out[0], softmax[0], c, band, keys, tile, row + b * S::warps * 16,
        warp);
#pragma unroll
    for (int i = 1; i < blocks; ++i) out[i - 1] = out[i], softmax[i - 1] = softmax[i];
  }
}

}  // namespace sinter::attention
