// Gradients of attention as attention_backward.cuh has them, for heads of more than 128 elements:
// sums of dK and dV for 64 keys are more than a warpgroup's registers hold. Also for V wider than
// 64 beside narrower K, where that kernel has no columns of dQ to share.
//
// Here two consumers share a tile of keys. Each scores half of the keys for the 64 queries of a
// tile, queries as rows, and writes weights and ds to shared memory, transposed: a line of queries
// for each key. Then each sums half of the head's elements of dK and dV, transposed: blocks of 64
// elements as rows, the tile's keys as columns, so that the number of keys fits the registers (80
// keys where both heads have 256 elements, 96 where dV has half as many). dQ it multiplies block by
// block. Of an odd number of blocks the first consumer has one more of dK and dV, the second one
// more of dQ. (Shah et al., "FlashAttention-3", 2024,
// hopper/mainloop_bwd_sm90_tma_gmma_ws.hpp, dKV_swapAB.)
//
// A generated file defines what attention_backward.cuh says, with SINTER_WGMMA for 64 columns, for
// tile_k and for half of it; Config also has tile_k, the keys of a CTA, and stages_do, the stages
// of dO, where `stages` are those of Q; boxes of ResultDK and ResultDV have tile_k rows. It calls
// attention::run_wide_backward with the same parameters.
#pragma once
#include "sinter/device/family/attention_backward_stages.cuh"
#include "sinter/device/family/attention_backward_wide_shape.cuh"

namespace sinter::attention {

template <class S, class Bounds, class Score, class Weight, class BiasGradient, class Args>
class WideBackwardConsumer {
  static constexpr bool plain = Score::plain && Weight::plain && !Rounds<Weight>;
  using Number = typename S::Number;
  using Sums = typename S::Scores::Sums;
  using Blocks = typename S::DK::Sums;
  const Args& args_;
  const QueryBand<S, Bounds>& band_;
  const BackwardStages<S, Bounds> stages_;
  typename S::Coord c_;
  unsigned char* const pointer_;
  const unsigned shared_;
  const int consumer_, key_;  // the first of the keys that it scores
  const unsigned place_;      // of a tile with a line for each key, where a lane puts blocks

 public:
  using Shift = RowShift<Score, S::totals>;
  SINTER_DEVICE WideBackwardConsumer(const Args& args, const QueryBand<S, Bounds>& band,
                                     const typename S::Coord& c, unsigned char* pointer,
                                     unsigned shared, int consumer, int, int = 0)
      : args_(args),
        band_(band),
        stages_{band, pointer, shared, consumer},
        c_(c),
        pointer_(pointer),
        shared_(shared),
        consumer_(consumer),
        key_(band.from + consumer * S::half),
        place_((lane() / 16 * 8 + lane() % 8) * 128 +
               ((warp() * 2 + lane() / 8 % 2) ^ lane() % 8) * 16) {}

  // The gradients of a tile of keys, stored; of `part` of the queries.
  template <class Wanted, class ResultDK, class ResultDV>
  SINTER_DEVICE NanColumns<S::tile_k> run(int part) const {
    const typename S::Coord place = place_of_part<S>(c_, part);
    NanColumns<S::tile_k> nan;
    Blocks dk[S::own], dv[S::own_v];
#pragma unroll
    for (Blocks& block : dk) block.clear();
#pragma unroll
    for (Blocks& block : dv) block.clear();
    if (band_.count() == 0) {  // no query sees one of them
      stages_.template clear_lines<typename S::TileK>(shared_ + S::k, 0, S::tile_k);
      stages_.template clear_lines<typename S::TileV>(shared_ + S::v, 0, S::tile_k);
    } else {
      sum<Wanted>(dk, dv);
      if constexpr (hides_pairs<Bounds>) {
        nan = NanColumns<S::tile_k>(dk, dv);
        if (nan.any()) to_recompute<S>(pointer_).sums[consumer_] = 1;
      }
      stages_.meet_all();  // nobody reads K any more
      if constexpr (by_lines<ResultDV>) put<S::panels_v>(dv, shared_ + S::v, 1);
      if constexpr (by_lines<ResultDK>) put<S::panels>(dk, shared_ + S::k, Score::scale);
      hopper::fence_async_proxy();
      stages_.template wait_at_mine<kOneConsumer, 128>();
    }
    store_elements<ResultDV, 5, S::panels_v, S::depth_v>(dv, 1, place);
    store_elements<ResultDK, 4, S::panels, S::depth>(dk, Score::scale, place);
    store_tiles<ResultDK, ResultDV>();
    return nan;
  }

  // What is recomputed: a warp has 16 elements of each block, of all keys.
  static constexpr int keys_of_warp = S::tile_k,
                       strips = ((S::own > S::own_v ? S::own : S::own_v) + 1) / 2;
  SINTER_DEVICE int key_of(int i) const { return band_.from + i; }
  SINTER_DEVICE int element_of_dk(int strip) const { return element<S::panels>(strip); }
  SINTER_DEVICE int element_of_dv(int strip) const { return element<S::panels_v>(strip); }
  // What lies in shared memory.
  template <class ResultDK, class ResultDV>
  SINTER_DEVICE void store_tiles() const {
    if constexpr (S::packed) {
      const int lines = band_.band.columns - band_.from;
      if (lines < S::tile_k) {
        store_own<ResultDV, typename S::TileV, S::depth_v>(S::v, lines);
        store_own<ResultDK, typename S::TileK, S::depth>(S::k, lines);
        return;
      }
    }
    if (threadIdx.x % 128 != 0) return;
    store<ResultDV, typename S::TileV>(shared_ + S::v);
    store<ResultDK, typename S::TileK>(shared_ + S::k);
    hopper::commit_stores();
    hopper::wait_for_stores<0>();
  }

 private:
  static SINTER_DEVICE int lane() { return static_cast<int>(threadIdx.x) % 32; }
  static SINTER_DEVICE int warp() { return static_cast<int>(threadIdx.x) / 32 % 4; }
  // Of blocks of the head's elements, the j-th of this consumer.
  template <int blocks>
  SINTER_DEVICE int block(int j) const {
    return consumer_ * S::share(blocks) + j;
  }
  template <int blocks>
  SINTER_DEVICE bool has_block(int j) const {
    return blocks % 2 == 0 || j + 1 < S::share(blocks) || consumer_ == 0;
  }
  SINTER_DEVICE bool has_block_of_dq(int j) const { return j < S::adds_of_dq(consumer_); }

  // `Wanted`: Gradients.
  template <class Wanted>
  SINTER_DEVICE void sum(Blocks (&dk)[S::own], Blocks (&dv)[S::own_v]) const {
    QueryTile<S> at(band_);
    typename S::PipeQ::State state_q;
    typename S::PipeDO::State state_do;
    const int count = band_.count();
    stages_.wait_for_keys();
#pragma unroll 1
    for (int i = 0; i < count; ++i, stages_.advance(at), state_q.advance(), state_do.advance()) {
      Sums s, dp;
      stages_.wait_for_q(state_q, at);
      score(s, state_q.stage);
      stages_.wait_for_do(state_do, at);
      if constexpr (Wanted::ds) differentiate_weights(dp, state_do.stage);
      wgmma::wait<Wanted::ds ? 1 : 0>(s);
      if constexpr (plain) weigh(s, at, state_q.stage);
      if (i > 0) stages_.meet_all();  // nobody reads the last tile's weights and ds any more
      if constexpr (plain && Wanted::dv) put_by_key(s, S::p);
      if constexpr (Wanted::ds)
        wgmma::wait<0>(dp);
      else
        dp.clear();
      if constexpr (plain) {
        differentiate(s, dp, at, state_do.stage);
      } else {
        weigh_and_differentiate(s, dp, at, state_q.stage, state_do.stage);
        if constexpr (Wanted::dv) put_by_key(s, S::p);
      }
      if constexpr (Wanted::dq || Wanted::dk) put_by_key(dp, S::ds);
      hopper::fence_async_proxy();
      stages_.meet_all();
      // Groups of products of which some may be empty.
      if constexpr (Wanted::dv)
        add<S::panels_v>(dv, shared_ + S::d_o + state_do.stage * S::TileDO::bytes, shared_ + S::p);
      wgmma::commit();
      if constexpr (Wanted::dk)
        add<S::panels>(dk, shared_ + S::q + state_q.stage * S::TileQ::bytes, shared_ + S::ds);
      wgmma::commit();
      typename S::DQ::Sums dq;
      if constexpr (Wanted::dq)
        if (has_block_of_dq(0)) multiply_dq(dq, 0);
      wgmma::commit();
      if constexpr (Wanted::dv) wait_for<2>(dv);
      stages_.pipe_do().release_stage(state_do.stage);
      if constexpr (Wanted::dk) wait_for<1>(dk);
      stages_.pipe_q().release_stage(state_q.stage);
      if constexpr (Wanted::dq) add_dq<typename Wanted::ResultDQ>(dq);
    }
  }
  // What is summed of dQ goes to the warp that adds it, or stores it (`ResultDQ`); the first block
  // is being multiplied.
  template <class ResultDQ>
  SINTER_DEVICE void add_dq(typename S::DQ::Sums& dq) const {
    wgmma::wait<0>(dq);
    if (has_block_of_dq(0))
      stages_.template add_dq<ResultDQ>(dq, S::ds, S::column_of_dq(consumer_, 0));
#pragma unroll
    for (int j = 1; j < S::own; ++j)
      if (has_block_of_dq(j)) {
        multiply_dq(dq, j);
        wgmma::commit();
        wgmma::wait<0>(dq);
        stages_.template add_dq<ResultDQ>(dq, S::ds, S::column_of_dq(consumer_, j));
      }
  }

  // ---- products

  SINTER_DEVICE void score(Sums& s, int stage) const {
    wgmma::fence(s);
    S::Scores::template multiply<S::steps>(
        s, S::TileQ::descriptor(shared_ + S::q + stage * S::TileQ::bytes),
        S::TileK::descriptor(shared_ + S::k + S::TileK::further(consumer_ * S::half)), false);
    wgmma::commit();
  }
  SINTER_DEVICE void differentiate_weights(Sums& dp, int stage) const {
    wgmma::fence(dp);
    S::DWeights::template multiply<S::steps_v>(
        dp, S::TileDO::descriptor(shared_ + S::d_o + stage * S::TileDO::bytes),
        S::TileV::descriptor(shared_ + S::v + S::TileV::further(consumer_ * S::half)), false);
    wgmma::commit();
  }
  // Adds rows of the transposed tile of Q or dO times weights or ds.
  template <int blocks>
  SINTER_DEVICE void add(Blocks (&sums)[S::share(blocks)], unsigned rows, unsigned by_key) const {
#pragma unroll
    for (int j = 0; j < S::share(blocks); ++j) {
      wgmma::fence(sums[j]);
      if (has_block<blocks>(j))
        S::DK::multiply(sums[j], S::Block::descriptor(rows + block<blocks>(j) * S::Block::bytes),
                        S::ByKey::descriptor(by_key), true);
    }
  }
  SINTER_DEVICE void multiply_dq(typename S::DQ::Sums& dq, int j) const {
    wgmma::fence(dq);
    S::DQ::multiply(
        dq, S::TileDS::descriptor(shared_ + S::ds),
        S::TileKByLine::descriptor(shared_ + S::k +
                                   S::block_of_dq(consumer_, j) * S::TileKByLine::panel_bytes),
        false);
  }
  template <int groups, int blocks>
  static SINTER_DEVICE void wait_for(Blocks (&sums)[blocks]) {
    wgmma::wait<groups>(sums[0]);
#pragma unroll
    for (int j = 1; j < blocks; ++j) wgmma::pin(sums[j]);
  }

  // ---- between products

  // A number of each query of a stage; of the thread's two queries.
  SINTER_DEVICE const float* of_queries(int numbers, int stage) const {
    return reinterpret_cast<const float*>(pointer_ + numbers) + stage * S::tile_q;
  }
  SINTER_DEVICE float2 of_rows(int numbers, int stage) const {
    const float* from = of_queries(numbers, stage);
    return {from[Sums::row(0)], from[Sums::row(2)]};
  }
  // Scores become weights.
  SINTER_DEVICE void weigh(Sums& s, const QueryTile<S>& at, int stage) const {
    if (band_.is_cut(at.row())) mask(s, at, minus_infinity());
    const float2 lse = of_rows(S::lse, stage);
    s.each([&](int i, float& x) {
      x = Shift::weight(x, Score::scale, i / 2 % 2 == 0 ? lse.x : lse.y);
    });
  }
  // Gradients of weights become ds.
  SINTER_DEVICE void differentiate(const Sums& p, Sums& dp, const QueryTile<S>& at,
                                   int stage) const {
    if (band_.is_cut(at.row())) mask(dp, at, 0.0f);
    const float2 delta = of_rows(S::delta, stage);
    dp.each([&](int i, float& x) { x = p.at[i] * (x - (i / 2 % 2 == 0 ? delta.x : delta.y)); });
  }
  SINTER_DEVICE void weigh_and_differentiate(Sums& s, Sums& dp, const QueryTile<S>& at, int stage_q,
                                             int stage_do) const {
    const PairsOfTile<true, S, Sums> pairs(c_, at, key_);
    attention::weigh_and_differentiate<Score, Weight, BiasGradient>(
        band_, args_, pairs, of_queries(S::lse, stage_q), of_queries(S::largest, stage_q),
        of_queries(S::delta, stage_do), s, dp, pairs.template draw<Weight>(args_));
  }
  // In place of what belongs to pairs that do not see each other.
  SINTER_DEVICE void mask(Sums& x, const QueryTile<S>& at, float masked) const {
    int first[2], end[2];
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int m = at.row() + Sums::row(2 * r), base = key_ + Sums::column(0);
      first[r] = band_.band.first(m) - base, end[r] = band_.band.end(m) - base;
      if (QueryBand<S, Bounds>::ends_rows && m >= band_.band.rows) end[r] = 0;
    }
    x.each([&](int i, float& value) {
      const int column = i / 4 * 8 + i % 2, r = i / 2 % 2;
      if (column >= end[r] || (Bounds::has_left && column < first[r])) value = masked;
    });
  }
  // The consumer's keys of a tile that has a line for each.
  SINTER_DEVICE void put_by_key(const Sums& x, int tile) const {
    put_transposed(x, shared_ + tile + consumer_ * S::half * 128);
  }
  // Columns become lines of 128 bytes, of which a warp's 16 rows are two pieces.
  template <int columns>
  SINTER_DEVICE void put_transposed(const Accumulator<float, columns>& x, unsigned to) const {
    const auto pair = [&](int i) { return warp_matrix::pair(Number{}, x.at[i], x.at[i + 1]); };
#pragma unroll
    for (int j = 0; j < columns / 16; ++j) {
      const unsigned blocks[] = {pair(8 * j), pair(8 * j + 2), pair(8 * j + 4), pair(8 * j + 6)};
      hopper::put_blocks_transposed(to + place_ + j * 16 * 128, blocks);
    }
    if constexpr (columns % 16 != 0) {  // the upper lanes write the same again
      constexpr int i = columns / 16 * 8;
      const unsigned blocks[] = {pair(i), pair(i + 2), pair(i), pair(i + 2)};
      hopper::put_blocks_transposed(to + place_ + (columns / 16 * 16 - lane() / 16 * 8) * 128,
                                    blocks);
    }
  }

  // ---- results

  // Into the shared memory of a tile that nobody reads any more.
  template <int blocks>
  SINTER_DEVICE void put(Blocks (&sums)[S::share(blocks)], unsigned tile, float scale) const {
#pragma unroll
    for (int j = 0; j < S::share(blocks); ++j)
      if (has_block<blocks>(j)) {
        sums[j].each([&](int, float& x) { x *= scale; });
        put_transposed(sums[j], tile + block<blocks>(j) * S::tile_k * 128);
      }
  }
  // Of this warp's elements in the blocks of its consumer, the lane's in pair j of blocks.
  template <int blocks>
  SINTER_DEVICE int element(int j) const {
    const int own = 2 * j + lane() / 16;
    return own < S::share(blocks) ? block<blocks>(own) * 64 + warp() * 16 + lane() % 16 : 1 << 20;
  }
  // By one thread.
  template <class Result, class Tile>
  SINTER_DEVICE void store(unsigned tile) const {
#pragma unroll
    for (int j = 0; j < S::share(Tile::panels); ++j)
      if (has_block<Tile::panels>(j)) {
        const int panel = block<Tile::panels>(j);
        if constexpr (by_lines<Result>)
          Result::store(args_, c_, band_.from, panel * 64, tile + panel * Tile::panel_bytes);
      }
  }
  // The same by all threads, of the first lines alone.
  template <class Result, class Tile, int width>
  SINTER_DEVICE void store_own(int tile, int lines) const {
#pragma unroll
    for (int j = 0; j < S::share(Tile::panels); ++j)
      if (has_block<Tile::panels>(j)) {
        const int panel = block<Tile::panels>(j);
        if constexpr (by_lines<Result>)
          stages_.template store_lines_of<Result, width>(
              args_, c_, tile + panel * Tile::panel_bytes, panel * 64, band_.from, lines);
      }
  }
  // From registers, where nothing passes through shared memory.
  template <class Result, int along, int blocks, int width>
  SINTER_DEVICE void store_elements(Blocks (&sums)[S::share(blocks)], float scale,
                                    const typename S::Coord& place) const {
    if constexpr (by_elements<Result>)
#pragma unroll
      for (int j = 0; j < S::share(blocks); ++j)
        if (has_block<blocks>(j))
          put_elements<Result, along>(
              args_, place, sums[j], scale, S::packed ? band_.band.columns : S::keys, width,
              [&](int i) { return band_.from + Blocks::column(i); },
              [&](int i) { return block<blocks>(j) * 64 + Blocks::row(i); });
  }
};

template <class Config, class Bounds, class Q, class K, class V, class DO, class Score,
          class Weight, class Rows, class BiasGradient, class SumsDQ, class ResultDK,
          class ResultDV, class Args>
SINTER_DEVICE void run_wide_backward(const Args& args) {
  using S = WideBackwardShape<Config, Bounds, Q, K, V, DO>;
  run_tile_of_keys<Config, S, WideBackwardConsumer<S, Bounds, Score, Weight, BiasGradient, Args>,
                   Bounds, BackwardOperands<Q, K, V, DO, Rows, Score, Weight>,
                   Gradients<BiasGradient, SumsDQ, ResultDK, ResultDV>, SumsDQ, ResultDK, ResultDV>(
      args);
}

}  // namespace sinter::attention
