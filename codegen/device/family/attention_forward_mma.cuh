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
// K and V of 8 bits are copied as they are. Of up to 16 rows and 128 elements fragments of them are
// converted to f16 (attention_f8_fragments.cuh); else a tile at a time is widened in shared memory.
//
// A CTA has one tile of rows. Those with the most keys come first. Rows past a length and keys that
// are not there are zeros in shared memory, whatever lies behind them in memory.
//
// A generated file defines what attention_forward.cuh lists, but for
//
//   struct Config     tile_q in place of ping_pong and registers; store_boxes = false; key_warps,
//                     where that many warps have the same 16 rows and take tiles of keys in turns
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
#include "sinter/device/family/attention_f8_fragments.cuh"
#include "sinter/device/family/attention_forward_rows.cuh"
#include "sinter/device/family/attention_forward_store.cuh"
#include "sinter/device/family/attention_join_warps.cuh"
#include "sinter/device/family/attention_lines.cuh"

namespace sinter::attention {

// Warps that have the same rows and take tiles of keys in turns.
template <class Config>
constexpr int key_warps_of() {
  if constexpr (requires { Config::key_warps; })
    return Config::key_warps;
  else
    return 1;
}

template <class Config, class First, class Q, class K, class V>
struct WarpsShape : ForwardTiles<Config, First, Q, Config::tile_q> {
  using B = ForwardTiles<Config, First, Q, Config::tile_q>;
  using B::columns, B::steps, B::stages, B::tile_k, B::tile_q;
  using typename B::Number;
  static constexpr int key_warps =
      key_warps_of<Config>();  // share rows, each with tiles of its own
  static constexpr int warps = Config::threads / 32 / key_warps, blocks = tile_q / (16 * warps);
  static_assert(key_warps == 1 || (warps == 1 && key_warps <= 4 && !B::walks_twice));
  static_assert(!B::walks_twice || (sizeof(typename K::Number) == sizeof(typename Q::Number) &&
                                    sizeof(typename V::Number) == sizeof(typename Q::Number)));
  static_assert((warps % 4 == 0 || 4 % warps == 0) && blocks * 16 * warps == tile_q &&
                tile_k % 16 == 0);

  using TileQ = LinesOf<Number, tile_q, B::up(B::depth, 16)>;
  using TileK = LinesOf<Number, tile_k, B::up(B::depth, 16)>;
  using TileV = LinesOf<Number, tile_k, columns>;
  // Rows of Q that fit into 32 registers stay there.
  static constexpr bool keeps_q = blocks * B::steps <= 8;
  // Operands of 8 bits. `converts`: fragments become f16 in registers, whatever 16 bits Q has; of
  // one warp's rows, since each warp would convert all.
  static constexpr bool k_of_8_bits = sizeof(typename K::Number) == 1,
                        v_of_8_bits = sizeof(typename V::Number) == 1,
                        converts = k_of_8_bits && v_of_8_bits && tile_q == 16 && B::depth <= 128 &&
                                   B::width <= 128;
  using Factor = Choice<converts, f16, Number>;
  static constexpr int headroom = converts ? kHeadroomOfF16 : 0;
  // Else what a stage has of them becomes a tile in front of the stages, of which there is one, for
  // keys and then for values, where Q lay if that stays in registers: with less shared memory more
  // CTAs share an SM.
  static constexpr bool widens_k = k_of_8_bits && !converts, widens_v = v_of_8_bits && !converts;
  static_assert(key_warps == 1 || !(widens_k || widens_v));
  template <bool of_8_bits, class Tile, class Operand>
  struct InStage {
    using Lines = Tile;
  };
  template <class Tile, class Operand>
  struct InStage<true, Tile, Operand> {
    using Lines =
        Choice<converts, LinesOf<typename Operand::Number, tile_k, B::up(Tile::fastest, 32)>,
               StoredLines<typename Operand::Number, tile_k, Tile::fastest>>;
  };
  using StageK = typename InStage<k_of_8_bits, TileK, K>::Lines;
  using StageV = typename InStage<v_of_8_bits, TileV, V>::Lines;
  struct Scores {
    using Sums = Accumulator<float, tile_k>;
  };
  struct Outputs {
    using Sums = Accumulator<float, columns>;
  };

  static constexpr int most(int x, int y) { return x > y ? x : y; }
  static constexpr bool widens = widens_k || widens_v, in_place_of_q = widens && keeps_q;
  static constexpr int stage_bytes = StageK::bytes + StageV::bytes,
                       wide_bytes = most(widens_k ? TileK::bytes : 0, widens_v ? TileV::bytes : 0),
                       wide = in_place_of_q ? 0 : TileQ::bytes,  // where such a tile lies
      filled = most(TileQ::bytes, wide + wide_bytes),            // the first stage
      tile_bytes = filled + key_warps * stages * stage_bytes,
                       epilogue_bytes = warps * static_cast<int>(sizeof(contraction::EpilogueTile)),
                       part_floats = columns / 2 + 4,  // of a thread
      part_bytes = (key_warps - 1) * 32 * part_floats * 4,
                       shared_bytes =
                           most(tile_bytes, most(epilogue_bytes, part_bytes)) + SharedMemory::lost;
  static_assert(shared_bytes == Config::shared_bytes);
};

// How many lines of an operand lie in equal steps, from each multiple of that on, and the step:
// those of a page, or all.
template <class Operand>
concept InPages = requires {
  typename Operand::Pages;
};
template <class Operand>
constexpr int lines_together = 1 << 30;
template <InPages Operand>
constexpr int lines_together<Operand> = Operand::page;
template <class Operand, class Line>
SINTER_DEVICE long long step_of_lines(const Line& line) {
  if constexpr (InPages<Operand>)
    return static_cast<long long>(Operand::Pages::X::Stride::at(2));
  else
    return line(1) - line(0);
}

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
  using NarrowKeys = NarrowKeysOfLane<typename S::StageK>;
  using NarrowValues = NarrowValuesOfLane<typename S::StageV>;
  Choice<S::converts, NarrowKeys, NoFragments> narrow_keys_;
  Choice<S::converts, NarrowValues, NoFragments> narrow_values_;
  const unsigned q_;
  const int warp_;
  unsigned fragments_[kept][blocks][4];
  float worth_of_rows_[2] = {1, 1};

 public:
  SINTER_DEVICE WarpOfRows(const Args& args, unsigned q, int warp)
      : args_(args), line_q_(warp * 16), line_k_(0), q_(q), warp_(warp) {}

  SINTER_DEVICE void keep_rows() {
    if constexpr (S::converts) {
#pragma unroll
      for (int d = 0; d < S::steps; ++d) get_rows_as_bytes(fragments_[d][0], d);
      to_f16<Number>(fragments_, worth_of_rows_);
    } else if constexpr (S::keeps_q)
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
    if constexpr (S::converts)
      score_narrow(s[0], keys);
    else
      score(s, keys);
    WeightFactors<typename S::Factor, S::tile_k> weights[blocks];
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
    if constexpr (S::converts)
      add_narrow_values(out[0], weights[0], values);
    else
      add_values(out, weights, values);
  }

 private:
  // In the order of k that four bytes of a line of K have in a lane.
  SINTER_DEVICE void get_rows_as_bytes(unsigned (&rows)[4], int d) const {
    const int lane = static_cast<int>(threadIdx.x % 32);
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const uint2 words = warp_matrix::get_two_words(
          q_ + S::TileQ::place(warp_ * 16 + r * 8 + lane / 4, d * 16 + lane % 4 * 4));
      rows[r] = words.x, rows[r + 2] = words.y;
    }
  }
  SINTER_DEVICE void score_narrow(Scores& s, unsigned keys) const {
    s.clear();
#pragma unroll
    for (int d = 0; d < S::steps; d += 2)
#pragma unroll
      for (int n = 0; n < S::tile_k / 16; ++n) {
        Factors<f16, 4> k[2];
        narrow_keys_.get(k, keys, n, d / 2);
#pragma unroll
        for (int i = 0; i < 2 && d + i < S::steps; ++i) {
          warp_matrix::multiply(f16{}, s.at + n * 8, fragments_[d + i][0], k[i].at[0], k[i].at[1]);
          warp_matrix::multiply(f16{}, s.at + n * 8 + 4, fragments_[d + i][0], k[i].at[2],
                                k[i].at[3]);
        }
      }
    if constexpr (is_same<Number, bf16>)
      s.each([&](int i, float& x) { x *= worth_of_rows_[i / 2 % 2]; });
  }
  SINTER_DEVICE void add_narrow_values(Outputs& out, const WeightFactors<f16, S::tile_k>& weights,
                                       unsigned values) const {
    constexpr int blocks_of_columns = S::columns / 16;
#pragma unroll
    for (int k = 0; k < S::tile_k / 16; ++k)
#pragma unroll
      for (int e = 0; e < blocks_of_columns; e += 2) {
        Factors<f16, 4> v[2];
        narrow_values_.get(v, values, k, e / 2);
#pragma unroll
        for (int i = 0; i < 2 && e + i < blocks_of_columns; ++i) {
          float* const sums = out.at + (e + i) * 8;
          multiply(sums, weights.step(k), v[i], 0);
          multiply(sums + 4, weights.step(k), v[i], 2);
        }
      }
  }
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
    if constexpr (Factors<Number, 4>::loses_infinity) {
      bool again = false;
#pragma unroll
      for (int b = 0; b < blocks; ++b) s[b].each([&](int, float& x) { again = again || x != x; });
      if (again) score_again(s, keys);
    }
  }
  // Where a score is NaN it may be that of an infinite factor, whose low part is.
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
  constexpr int threads = Config::threads / S::key_warps, blocks = S::blocks, stages = S::stages,
                step = S::key_warps;
  hardware::grid_dependency_wait();
  const SharedMemory memory;
  const int warp = __shfl_sync(~0u, static_cast<int>(threadIdx.x) / 32, 0),
            of_keys = step > 1 ? warp : 0, of_rows = step > 1 ? 0 : warp;
  const unsigned q = memory.address, filled = q + S::filled + of_keys * (stages * S::stage_bytes);
  // Of the threads that have a tile of keys together.
  const auto meet = [] {
    if constexpr (step > 1)
      __syncwarp();
    else
      __syncthreads();
  };

  const TileOfRows tile = tile_of_rows<Config, S>(static_cast<int>(blockIdx.x));
  const int row = step > 1 ? tile.row - warp * 16  // lanes count their rows by warps
                           : tile.row + warp / 4 * 64;
  typename S::F::Coord c;
  S::F::set_batch(c, tile.entry);
  const BandOf<S, Bounds> band(args, c);
  const KeyTiles keys = keys_of<S>(band, tile);
  typename S::Outputs::Sums out[blocks];
  RowSoftmax softmax[blocks];
#pragma unroll
  for (int b = 0; b < blocks; ++b) softmax[b].start(), out[b].clear();

  if (keys.begin < keys.end) {
    copy_lines<typename S::TileQ, Config::threads, S::depth>(q, tile.row, S::queries, [&](int m) {
      typename S::F::Coord at = c;
      S::F::set_m(at, m);
      return Q::line(args, at);
    });
    WarpOfRows<S, Bounds, Score, Weight, Args> rows(args, q, of_rows);
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
    for (int all = end - 1 + (stages - 1) * step; all >= keys.begin; all -= step) {
      const int n = all - of_keys, ahead = n - (stages - 1) * step;
      const bool first = all == end - 1;  // products
      if (all < end) {
        warp_matrix::wait<stages - 2>();
        if (step > 1 && first)
          __syncthreads();  // Q has come
        else
          meet();
      }
      if (ahead >= keys.begin) {
        const unsigned stage = filled + to * S::stage_bytes;
        const int first_key = tile_of(ahead) * S::tile_k;
        constexpr bool steps = S::converts || step > 1;
        const auto line_k = [&](int i) {
          typename S::F::Coord at = c;
          S::F::set_n(at, i);
          return K::line(args, at);
        };
        copy_lines<typename S::StageK, threads, S::depth, steps ? lines_together<K> : 1>(
            stage, first_key, band.columns, line_k, step_of_lines<K>(line_k));
        const auto line_v = [&](int i) {
          typename S::P::Coord at;
          S::P::set_batch(at, tile.entry);
          S::P::set_k(at, i);
          return V::line(args, at);
        };
        if (!looks(ahead))
          copy_lines<typename S::StageV, threads, S::width, steps ? lines_together<V> : 1>(
              stage + S::StageK::bytes, first_key, band.columns, line_v, step_of_lines<V>(line_v));
      }
      warp_matrix::commit();
      to = to + 1 == stages ? 0 : to + 1;
      if (all >= end) continue;
      const unsigned stage = filled + from * S::stage_bytes;
      if constexpr (S::in_place_of_q)
        if (first) {
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
      if (!S::in_place_of_q && first && exists) rows.keep_rows();
      if (exists && (step == 1 || n >= keys.begin)) {
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

  if constexpr (step > 1) {
    join_warps<S>(reinterpret_cast<float*>(memory.pointer), warp,
                  WorthOfSums<Score>(args, c).powers_of_two(), out[0], softmax[0]);
    if (warp > 0) return;
    __syncwarp();  // the epilogue tile lies where parts were
  }
  if constexpr (S::converts) put_in_order(out[0]);
  EpilogueTile& epilogue_tile = reinterpret_cast<EpilogueTile*>(memory.pointer)[of_rows];
  // Registers have no index: the next block's become the first one's, so that what follows is
  // compiled once.
#pragma unroll 1
  for (int b = 0; b < blocks; ++b) {
    finish_tile<Config, S, Q, K, V, Bounds, Score, Weight, Rows, Body>(
        args, epilogue_tile, out[0], softmax[0], c, band, keys, tile, row + b * S::warps * 16,
        of_rows);
#pragma unroll
    for (int i = 1; i < blocks; ++i) out[i - 1] = out[i], softmax[i - 1] = softmax[i];
  }
}

}  // namespace sinter::attention
