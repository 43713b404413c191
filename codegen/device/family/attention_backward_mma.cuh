// Gradients of attention on the tensor cores that every GPU from sm_80 on has; what they are is
// said in attention_backward.cuh.
//
// A CTA owns a tile of keys, 16 a warp, whose dK and dV stay in registers, and walks over the tiles
// of queries that see one of them. Keys are the rows of scores, so that weights and ds are the left
// operands of dV and dK as they lie. ds also passes through shared memory, for dQ = dS K, of which
// each warp multiplies 16 queries and 16 columns in steps of the warps and adds them to sums of f32
// in memory. The next tile of queries is copied meanwhile. (Dao, "FlashAttention-2", 2023, section
// 3.1.2.) Factors of f32 are sums of two of tf32 (attention_factors.cuh).
//
// A generated file defines what attention_backward.cuh lists, but for
//
//   struct Config     tile_q, tile_k in place of stages and registers
//   OperandQ, OperandK, OperandV, OperandDO
//                     Number, line(args, c): see attention_forward_mma.cuh; element(args, c)
//   struct SumsDQ     float* line(args, c), of a query
//   struct ResultDK, ResultDV   Number* line(args, c), of a key: at multiples of 4 bytes
//
// and calls attention::run_backward_by_warps with the same arguments. The launch has
// Config::threads threads, BackwardWarpsShape::shared_bytes bytes of shared memory, and a CTA for
// each tile of keys of each head of K.
#pragma once
#include "sinter/device/engine/shared_memory.cuh"
#include "sinter/device/family/attention_backward_order.cuh"
#include "sinter/device/family/attention_backward_recompute.cuh"
#include "sinter/device/family/attention_factors.cuh"

namespace sinter::attention {

template <class Config, class Q>
struct BackwardWarpsShape : BackwardTiles<Config, Q, Config::tile_k> {
  using B = BackwardTiles<Config, Q, Config::tile_k>;
  using B::steps, B::steps_v, B::tile_k, B::tile_q;
  using typename B::Number;
  static constexpr int threads = Config::threads, warps = threads / 32, blocks_q = tile_q / 16;
  static_assert(warps * 16 == tile_k && warps % 4 == 0 && warps % blocks_q == 0 && tile_q <= 128);

  using TileQ = LinesOf<Number, tile_q, 16 * steps>;
  using TileDO = LinesOf<Number, tile_q, 16 * steps_v>;
  using TileK = LinesOf<Number, tile_k, 16 * steps>;
  using TileV = LinesOf<Number, tile_k, 16 * steps_v>;
  using TileDS = LinesOf<Number, tile_k, tile_q>;
  static SINTER_DEVICE int place_of_ds(int query, int key) { return TileDS::place(key, query); }
  using Scores = Accumulator<float, tile_q>;
  using DK = Accumulator<float, 16 * steps>;
  using DV = Accumulator<float, 16 * steps_v>;

  // Shared memory, from a multiple of 1024 on; of queries there are two stages.
  static constexpr int v = TileK::bytes, stages = v + TileV::bytes,
                       rows = TileQ::bytes + TileDO::bytes,
                       stage_bytes = rows + (2 + B::totals) * tile_q * 4,
                       ds_from = stages + 2 * stage_bytes, ds = (ds_from + 127) / 128 * 128,
                       shared_bytes = ds + TileDS::bytes + SharedMemory::lost;
  static_assert(shared_bytes == Config::shared_bytes);
};

// d += a b, where a lies in registers: k are the lines of `tile`, columns their elements.
template <class Number, int k, class Tile, int columns>
SINTER_DEVICE void multiply_lines(Accumulator<float, columns>& d, const WeightFactors<Number, k>& a,
                                  unsigned tile, const ValuesOfLane<Tile>& lines) {
  constexpr int steps = WeightFactors<Number, k>::steps;
  if constexpr (sizeof(Number) == 2) {
#pragma unroll
    for (int i = 0; i < steps; ++i)
#pragma unroll
      for (int e = 0; e < columns / 16; ++e) {
        Factors<Number, 4> b;
        lines.get(b, tile, i, e);
        multiply<Number>(d.at + e * 8, a.step(i), b, 0);
        multiply<Number>(d.at + e * 8 + 4, a.step(i), b, 2);
      }
  } else {
    // Tensor cores cut sums off: those of a tile are added to the others by CUDA cores.
#pragma unroll
    for (int e = 0; e < columns / 16; ++e) {
      Accumulator<float, 16> of_tile;
      of_tile.clear();
#pragma unroll
      for (int i = 0; i < steps; ++i) {
        Factors<Number, 4> b;
        lines.get(b, tile, i, e);
        multiply<Number>(of_tile.at, a.step(i), b, 0);
        multiply<Number>(of_tile.at + 4, a.step(i), b, 2);
      }
#pragma unroll
      for (int j = 0; j < 8; ++j) d.at[e * 8 + j] += of_tile.at[j];
    }
  }
}
// d = a b: rows are 16 lines of one tile, columns the lines of the other, k their elements, of
// which there are so many `blocks` of 16.
template <class Number, int blocks, class A, class B, int columns>
SINTER_DEVICE void multiply_tiles(Accumulator<float, columns>& d, unsigned a,
                                  const LaneLine<A, true>& line_a, unsigned b,
                                  const LaneLine<B, false>& line_b) {
  constexpr int steps = blocks * 16 * static_cast<int>(sizeof(Number)) / 32;
  d.clear();
#pragma unroll
  for (int k = 0; k < steps; ++k) {
    unsigned words[4];
    warp_matrix::get(words, a + line_a(0, k));
    Factors<Number, 4> rows;
    rows.take(words);
#pragma unroll
    for (int n = 0; n < columns / 16; ++n) {
      warp_matrix::get(words, b + line_b(n, k));
      Factors<Number, 4> two;
      two.take(words);
      multiply<Number>(d.at + n * 8, rows, two, 0);
      multiply<Number>(d.at + n * 8 + 4, rows, two, 2);
    }
  }
}

// ds, whose rows are keys, on its way through shared memory, and what of it is the left operand of
// dQ: rows are 16 queries, k keys. Of 32 bits, keys are k in the order of ValuesOfLane.
template <class Tile>
class QueriesOfLane {
  using Number = typename Tile::Number;
  const LaneLine<Tile, false> line_;

 public:
  static constexpr int keys = 32 / static_cast<int>(sizeof(Number));  // of a step
  SINTER_DEVICE QueriesOfLane() : line_(0) {}
  template <int queries>
  static SINTER_DEVICE void put(unsigned char* tile, const WeightFactors<Number, queries>& ds,
                                const Accumulator<float, queries>& exact, int warp) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const auto at = [&](int key, int query) {
      return tile + Tile::place(warp * 16 + key * 8 + lane / 4, query + lane % 4 * 2);
    };
    if constexpr (sizeof(Number) == 2) {
#pragma unroll
      for (int j = 0; j < queries / 16; ++j)
#pragma unroll
        for (int b = 0; b < 4; ++b)
          *reinterpret_cast<unsigned*>(at(b % 2, j * 16 + b / 2 * 8)) = ds.step(j).at[b];
    } else {
#pragma unroll
      for (int i = 0; i < queries / 2; i += 2)
        *reinterpret_cast<float2*>(at(i / 2 % 2, i / 4 * 8)) = float2{exact.at[i], exact.at[i + 1]};
    }
  }
  SINTER_DEVICE void get(unsigned (&words)[4], unsigned tile, int k, int block) const {
    if constexpr (sizeof(Number) == 2) {
      warp_matrix::get_transposed(words, tile + line_(k, block));
    } else {
      const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
      for (int i = 0; i < 4; ++i)
        words[i] = warp_matrix::get_word(
            tile + Tile::place(k * 8 + lane % 4 * 2 + i / 2, block * 16 + i % 2 * 8 + lane / 4));
    }
  }
};

// A warp's 16 keys of a result, of which `elements` exist.
template <class Result, class Number, int along, int elements, class S, class Args, int columns>
SINTER_DEVICE void store_keys(const Args& args, typename S::Coord c, int key,
                              Accumulator<float, columns>& sums, float scale) {
  using Sums = Accumulator<float, columns>;
  if constexpr (by_elements<Result>) {
    put_elements<Result, along>(
        args, c, sums, scale, S::keys, elements, [&](int i) { return key + Sums::row(i); },
        [](int i) { return Sums::column(i); });
  } else if constexpr (by_lines<Result>) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int n = key + Sums::row(2 * r);
      if (n >= S::keys) continue;
      c.at[3] = n;
      Number* const line = Result::line(args, c);
#pragma unroll
      for (int i = 2 * r; i < Sums::count; i += 4) {
        const int e = Sums::column(i);
        const unsigned two =
            warp_matrix::pair(Number{}, sums.at[i] * scale, sums.at[i + 1] * scale);
        if (e + 1 < elements)
          *reinterpret_cast<unsigned*>(line + e) = two;
        else if (e < elements)
          line[e] = Number{static_cast<unsigned short>(two & 0xffffu)};
      }
    }
  }
}

// One element of it.
template <class Result, class Number, int along, class Args, class Coord>
SINTER_DEVICE void store_key(const Args& args, Coord c, int key, int element, float x) {
  if constexpr (by_elements<Result>) {
    put_element<Result, along>(args, c, key, element, x);
  } else if constexpr (by_lines<Result>) {
    c.at[3] = key;
    Result::line(args, c)[element] = Number::encode(x);
  }
}

template <class Config, class Bounds, class Q, class K, class V, class DO, class Score,
          class Weight, class Rows, class BiasGradient, class SumsDQ, class ResultDK,
          class ResultDV, class Args>
SINTER_DEVICE void run_backward_by_warps(const Args& args) {
  using S = BackwardWarpsShape<Config, Q>;
  using Wanted = Gradients<BiasGradient, SumsDQ, ResultDK, ResultDV>;
  using Number = typename S::Number;
  constexpr int threads = S::threads;
  hardware::grid_dependency_wait();
  const SharedMemory memory;
  const unsigned k = memory.address, v = k + S::v, ds = k + S::ds;
  const int thread = static_cast<int>(threadIdx.x), warp = __shfl_sync(~0u, thread / 32, 0),
            lane = thread % 32;
  const TileOfKeys tile = tile_of_keys<Config, S>(number_of_block<S, SumsDQ>(args, memory.pointer));
  typename S::Coord c;
  c.at[0] = tile.entry, c.at[1] = tile.head;
  const QueryBand<S, Bounds> band(args, c, tile.from, tile);
  const int key = tile.from + warp / 4 * 64;  // the first of four warps
  typename S::DK dk;
  typename S::DV dv;
  dk.clear(), dv.clear();

  const int count = band.count();
  if (count > 0) {
    const auto lines_of = [&]<class Operand, int index>(Operand*, Int<index>, int head) {
      return [&args, c, head](int i) {
        typename S::Coord at = c;
        at.at[1] = head, at.at[index] = i;
        return Operand::line(args, at);
      };
    };
    const LaneLine<typename S::TileK, true> keys(0);
    const ValuesOfLane<typename S::TileK> keys_as_k;
    const LaneLine<typename S::TileV, true> values(0);
    const unsigned own_k = k + warp * 16 * S::TileK::swizzle,
                   own_v = v + warp * 16 * S::TileV::swizzle;
    const LaneLine<typename S::TileQ, false> queries(0);
    const ValuesOfLane<typename S::TileQ> queries_as_k;
    const LaneLine<typename S::TileDO, false> outputs(0);
    const ValuesOfLane<typename S::TileDO> outputs_as_k;
    // What belongs to a query: what is added to its scores before the exponential, -infinity
    // where it sees nothing; and Delta. Fetched a tile ahead, beside the products.
    using Shift = RowShift<Score, S::totals>;
    float lse = 0, largest = 0, delta = 0;
    const auto fetch_row = [&](const QueryTile<S>& at) {
      if (thread >= S::tile_q) return;
      const int row = at.row() + thread;
      const bool exists = row >= band.first_seen() && row < band.end_seen();
      typename S::Coord of = c;
      of.at[1] = at.head, of.at[2] = exists ? row : 0;
      const float of_row = Shift::template row<Rows>(args, of), sum = Rows::delta(args, of);
      const bool seen = exists && Shift::sees(of_row);
      lse = seen ? Shift::of(of_row) : minus_infinity();
      largest = Shift::template largest<Rows>(args, of);
      delta = seen ? sum : 0.0f;
    };
    const auto rows_of = [&](int stage) {
      return reinterpret_cast<float*>(memory.pointer + S::stages + stage * S::stage_bytes +
                                      S::rows);
    };
    const auto put_row = [&](int stage) {
      if (thread >= S::tile_q) return;
      float* const to = rows_of(stage) + thread;
      to[0] = lse, to[S::tile_q] = delta;
      if constexpr (S::totals) to[2 * S::tile_q] = largest;
    };
    // Rows that see none of the keys are zeros in shared memory, whatever they hold.
    const auto queries_of = [&]<class Operand>(Operand* operand, int head) {
      return [line = lines_of(operand, Int<2>{}, head), first = band.first_seen()](int i) {
        const auto* const at = line(i);
        return QueryBand<S, Bounds>::hides_rows && i < first ? nullptr : at;
      };
    };
    const auto copy_queries = [&](const QueryTile<S>& at, int stage) {
      const unsigned to = k + S::stages + stage * S::stage_bytes;
      copy_lines<typename S::TileQ, threads, S::depth>(
          to, at.row(), band.end_seen(), queries_of(static_cast<Q*>(nullptr), at.head));
      copy_lines<typename S::TileDO, threads, S::depth_v>(
          to + S::TileQ::bytes, at.row(), band.end_seen(),
          queries_of(static_cast<DO*>(nullptr), at.head));
    };
    QueryTile<S> next = QueryTile<S>::first(band);
    copy_lines<typename S::TileK, threads, S::depth>(
        k, tile.from, band.band.columns, lines_of(static_cast<K*>(nullptr), Int<3>{}, tile.head));
    if constexpr (Wanted::ds)
      copy_lines<typename S::TileV, threads, S::depth_v>(
          v, tile.from, band.band.columns, lines_of(static_cast<V*>(nullptr), Int<3>{}, tile.head));
    // The first tile is copied by the same code as the others.
    QueryTile<S> at = next;
#pragma unroll 1
    for (int i = -1, stage = 1; i < count; ++i, stage ^= 1) {
      if (i >= 0) {
        warp_matrix::wait<0>();
        __syncthreads();
      }
      if (i + 1 < count) {
        copy_queries(next, stage ^ 1);
        warp_matrix::commit();
        fetch_row(next);
      }
      if (i >= 0) {
        const unsigned q = k + S::stages + stage * S::stage_bytes, d_o = q + S::TileQ::bytes;
        typename S::Scores s, dp;
        multiply_tiles<Number, S::steps>(s, own_k, keys, q, queries);
        if constexpr (Wanted::ds)
          multiply_tiles<Number, S::steps_v>(dp, own_v, values, d_o, outputs);
        else
          dp.clear();
        __syncwarp();  // what comes behind is not mixed with this: registers are full
        const PairsOfTile<false, S, typename S::Scores> pairs(c, at, key);
        const float* const rows = rows_of(stage);
        weigh_and_differentiate<Score, Weight, BiasGradient>(
            band, args, pairs, rows, rows + 2 * S::tile_q, rows + S::tile_q, s, dp,
            pairs.template draw<Weight>(args));
        WeightFactors<Number, S::tile_q> weights, gradients;
        if constexpr (Wanted::dv) {
          weights.take(s);
          multiply_lines(dv, weights, d_o, outputs_as_k);
        }
        gradients.take(dp);
        using DS = QueriesOfLane<typename S::TileDS>;
        if constexpr (Wanted::dq) DS::put(memory.pointer + S::ds, gradients, dp, warp);
        if constexpr (Wanted::dk) multiply_lines(dk, gradients, q, queries_as_k);
        if constexpr (Wanted::dq) {
          __syncthreads();
          typename S::Coord of = c;
          of.at[1] = at.head;
          if constexpr (S::in_order) {
            const int before = band.tiles_before(args, of, at.head, at.row());
            if (thread == 0)
              hardware::wait_for_count(counter_of<S, SumsDQ>(args, of, at.row(), 0), before);
            __syncthreads();
          }
          // Rows are queries, k keys.
          const int block = warp % S::blocks_q;
          const DS ds_of;
          // Of 16 bits they stay in registers; of f32, which are twice as many, a warp reads them
          // once in any case.
          constexpr int steps = S::tile_k / DS::keys;
          constexpr bool kept = sizeof(Number) == 2;
          unsigned rows[kept ? steps : 1][4];
          if constexpr (kept)
#pragma unroll
            for (int n = 0; n < steps; ++n) ds_of.get(rows[n], ds, n, block);
          float* to[2];
#pragma unroll
          for (int r = 0; r < 2; ++r) {
            const int m = at.row() + block * 16 + lane / 4 + 8 * r;
            of.at[2] = m;
            to[r] = m < band.band.rows ? SumsDQ::line(args, of) : nullptr;
          }
#pragma unroll 1
          for (int e = warp / S::blocks_q; e < S::steps; e += S::warps / S::blocks_q) {
            Accumulator<float, 16> dq;
            dq.clear();
#pragma unroll
            for (int n = 0; n < steps; ++n) {
              if constexpr (!kept) ds_of.get(rows[0], ds, n, block);
              Factors<Number, 4> a, b;
              a.take(rows[kept ? n : 0]);
              keys_as_k.get(b, k, n, e);
              multiply<Number>(dq.at, a, b, 0);
              multiply<Number>(dq.at + 4, a, b, 2);
            }
            if constexpr (hides_pairs<Bounds>) {
              // Zeros of pairs that do not see each other, times what K has.
              bool found = false;
              dq.each([&](int, float x) { found = found || is_nan(x); });
              if (found)
                dq.each([&](int i, float& x) {
                  if (is_nan(x))
                    x = dq_element<S>(memory.pointer, S::ds, 0,
                                      block * 16 + lane / 4 + i / 2 % 2 * 8, e * 16 + dq.column(i),
                                      0, S::tile_k);
                });
            }
            dq.each([&](int i, float& x) {
              const int column = e * 16 + dq.column(i);
              float* const line = to[i / 2 % 2];
              if (line && column < S::depth) hardware::add(line + column, x);
            });
          }
          if constexpr (S::in_order) {
            __syncthreads();
            of.at[2] = 0;
            if (thread == 0) hardware::raise_count(counter_of<S, SumsDQ>(args, of, at.row(), 0));
          }
        }
      }
      if (i + 1 < count) put_row(stage ^ 1);
      at = next;
      if (i + 2 < count) next.advance(band);
    }
  }
  const auto place = place_of_part<S>(c, tile.part);
  store_keys<ResultDV, Number, 5, S::depth_v, S>(args, place, key, dv, 1.0f);
  store_keys<ResultDK, Number, 4, S::depth, S>(args, place, key, dk, Score::scale);
  if constexpr (recomputes_keys<Number, Bounds>) {
    NanRows<1> nan;
    nan.add<0>(dk), nan.add<0>(dv);
    if (!nan.any<0>()) return;
    __syncwarp();                        // other lanes have stored the elements
    const int own = hardware::thread();  // nothing made of it is held by the walk
    const auto element = [&](int j) { return own % 32 + 32 * j; };
    constexpr int elements = S::depth > S::depth_v ? S::depth : S::depth_v;
    recompute_keys<S, Wanted, BackwardOperands<Q, K, V, DO, Rows, Score, Weight>,
                   (elements + 31) / 32>(
        args, c, band, [&](int i) { return tile.from + own / 32 * 16 + i; }, 16, nan, element,
        element,
        [&](int n, int i, float x) { store_key<ResultDK, Number, 4>(args, place, n, i, x); },
        [&](int n, int i, float x) { store_key<ResultDV, Number, 5>(args, place, n, i, x); });
  }
}

}  // namespace sinter::attention
