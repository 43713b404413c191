// Gradients of attention in one kernel of sm_90a. With the scores s(m, n) = score(q(m) . k(n)), the
// weights p = exp(s - stats(m)), dp(m, n) = do(m) . v(n) and ds = p (dp - delta(m)) of query m and
// key n:
//
//   dv(n) = sum over m of p(m, n) do(m)         dk(n) = sum over m of dscore(m, n) q(m)
//   dq(m) = sum over n of dscore(m, n) k(n)     delta(m) = do(m) . o(m), of an earlier kernel
//
// where dscore(m, n) is the score's derivative times ds(m, n). A CTA owns a tile of keys, whose dK
// and dV stay in registers, and walks over the tiles of queries of all heads of its group that see
// one of these keys. So dK and dV are summed in a fixed order. What a tile adds to dQ goes to sums
// of f32 in memory, which start as zeros; where one tile has all keys, it is dQ and is stored.
//
// Scores are computed with keys as rows. Then what a thread holds of p and ds is what it must hold
// of the left operand of dV and dK (engine/fragment.cuh), and only ds goes through shared memory,
// once, for dQ. A consumer's products and its arithmetic take turns; those of the other consumer
// fill the gaps. (Shah et al., "FlashAttention-3", 2024, section 3 and its implementation,
// hopper/mainloop_bwd_sm90_tma_gmma_ws.hpp, for transposed scores and the warps that add dQ. To
// multiply the scores of the next tile beside dQ and dK of this one was slower: registers are
// full.) Pairs that do not see each other have weights of zero whatever their scores are.
//
// A generated file defines
//
//   SINTER_WGMMA(tile_q, f32), SINTER_WGMMA_NAMED(columns, f32) for dQ's product: head_dim up to 8,
//                     or 64 where tile_q is 64 and head_dim above it; SINTER_WGMMA_HELD(columns)
//                     once for each of head_dim and head_dim_v up to 8; SINTER_WGMMA(last_queries,
//                     f32)
//   struct Config     Index, Extent (batch entries, heads of Q, queries, keys, head_dim,
//                     head_dim_v), group_size (heads of Q that share one of K), threads, tile_q,
//                     tile_k, stages, heads_together, producer_registers, consumer_registers;
//                     parts, where more CTAs than one walk over the queries of a tile of keys;
//                     blocks_of_round, CTAs that run at once, where they walk tile of queries by
//                     tile (QueryTile); windows, batch entries of one tile of keys each that a CTA
//                     takes in turn; last_queries, where fewer of a head's last tile are
//                     multiplied; entries_first, where entries share a bias; last_keys_first,
//                     where tiles of the last keys meet the most queries
//   struct Args       tensor maps and pointers; OperandQ, OperandK, OperandV, OperandDO: Number,
//                     prefetch(args), load(args, coordinates, row, k, to, barrier, blocks): boxes
//                     of 64 elements of the head's dimension and tile_q queries, or all keys of the
//                     tile
//   struct Bounds     see attention_bounds.cuh and attention_mask.cuh; has_blocks: whether a mask
//                     hides tiles; Blocks blocks(args, coordinates, key): those of a tile of keys,
//                     with bool sees(head, row); masks_pairs, where Score is plain
//   struct Score      scale, of the sums; plain: true where a score is just that, and scale above
//                     0; else, of a sum before it is scaled, float element(args, coordinates, float
//                     sum), the score, and float gradient(args, coordinates, float sum, float ds),
//                     the scaled sum's derivative from that of the score; additive, where that is
//                     1; takes_masks, where it takes numbers from memory; where boxes of these come
//                     by TMA, Box and both functions as NAME_beside(..., const float* numbers)
//   struct Weight     plain: true where weights are probabilities; else float element(args,
//                     coordinates, float x): of a probability the weight, of a weight's gradient
//                     the probability's
//   struct Rows       float stats(args, coordinates), delta(args, coordinates) of a query; in place
//                     of stats, where Config::row_totals is there, largest and total of the same
//                     (RowShift)
//   struct BiasGradient   see attention_bias_gradient.cuh; not wanted where Score is plain
//   struct SumsDQ     add(args, coordinates, row, column, from): adds a box of 32 columns and 64
//                     rows; where a tile of keys has all of dQ, `factor`, of the sums, and add()
//                     stores a box of 64 columns of Number, which is dQ itself
//   struct ResultDK, ResultDV   store(args, coordinates, row, column, from): boxes of 64 columns
//                     and 64 rows of the operands' Number; of packed sequences, line(args,
//                     coordinates): where a row's elements lie; or what
//                     attention_backward_results.cuh says, as of SumsDQ
//
// and calls attention::run_backward<Config, Bounds, OperandQ, OperandK, OperandV, OperandDO, Score,
// Weight, Rows, BiasGradient, SumsDQ, ResultDK, ResultDV>(args). Coordinates are those of Extent.
// The launch has Config::threads threads, BackwardShape::shared_bytes bytes of shared memory and a
// CTA for each tile of keys of each head of K, or for each part of it. dQ: the sums times the
// scale.
#pragma once
#include "sinter/device/family/attention_backward_keys.cuh"

namespace sinter::attention {

// A warpgroup that multiplies.
template <class S, class Bounds, class Score, class Weight, class BiasGradient, class Args>
class BackwardConsumer : public BackwardKeys<S, Bounds, Score, Args> {
  // dBias that scores' gradients go to one by one; in pairs it leaves as ds.
  using Bias = Choice<LeavesInPairs<BiasGradient>, NoBiasGradient, BiasGradient>;
  // Whether probabilities are made while the product of weights' gradients runs: where no body
  // takes both. Beside the sums of rows of dBias registers are spilled.
  static constexpr bool early =
      is_additive<Score> && !Rounds<Weight> && !(BiasGradient::wanted && !BiasGradient::by_key);
  // What few tiles or few instructions need of the thread's number is then made of it anew.
  static constexpr bool few_registers = S::consumers > 2;
  using Number = typename S::Number;
  using SumsDQ = typename S::DQ::Sums;
  template <class Sums>
  using Pairs = PairsOfTile<false, S, Sums>;
  using Keys = BackwardKeys<S, Bounds, Score, Args>;
  using Products = BackwardProducts<S>;
  using Keys::args_, Keys::band_, Keys::stages_, Keys::c_, Keys::pointer_, Keys::shared_,
      Keys::consumer_, Keys::lane_, Keys::warp_, Keys::key_, Keys::multiply_, Keys::line_,
      Keys::piece_;
  const int window_;  // see each_window

 public:
  using Shift = RowShift<Score, S::totals>;
  SINTER_DEVICE BackwardConsumer(const Args& args, const QueryBand<S, Bounds>& band,
                                 const typename S::Coord& c, unsigned char* pointer,
                                 unsigned shared, int consumer, int thread, int window = 0)
      : Keys(args, band, c, pointer, shared, consumer, thread, window), window_(window) {}

  // The gradients of a tile of keys, stored; of `part` of the queries.
  template <class Wanted, class ResultDK, class ResultDV>
  SINTER_DEVICE NanRows<S::blocks> run(int part) const {
    if (band_.count() > 0) sum<Wanted>();
    // Which thread it is, and where hidden pairs take registers which tile, is asked anew: what
    // held it through the walk was spilled.
    const int thread = hardware::thread();
    QueryBand<S, Bounds> band = band_;
    typename S::Coord c = c_;
    if constexpr (hides_pairs<Bounds>) {
      const volatile TileOfKeys& tile = to_recompute<S>(pointer_).tile;
      c.at[0] = tile.entry, c.at[1] = tile.head, part = tile.part;
      if constexpr (!S::packed) band.from = tile.from;  // there it is the number of a tile
    }
    return BackwardConsumer(args_, band, c, pointer_, shared_,
                            __shfl_sync(~0u, thread / 128, 0) - 1, thread, window_)
        .template finish<Wanted, ResultDK, ResultDV>(place_of_part<S>(c, part));
  }
  template <class Wanted, class ResultDK, class ResultDV>
  SINTER_DEVICE NanRows<S::blocks> finish(const typename S::Coord& place) const {
    NanRows<S::blocks> nan;
    for_each_number<S::blocks>([&]<int block>() {
      this->template finish_block<Wanted, ResultDK, ResultDV, block>(place, nan);
    });
    if (!S::keys_ahead && threadIdx.x % 128 == 0) hopper::wait_for_stores<0>();
    return nan;
  }
  // Of windows, the sums of dBias: before the first one and behind the last.
  SINTER_DEVICE void clear_bias() const {
    if constexpr (BiasGradient::wanted) held_bias().clear();
  }
  SINTER_DEVICE void put_bias() const {
    if constexpr (BiasGradient::wanted)
      held_bias().template put<BiasGradient>(
          args_,
          Pairs<typename S::template Scores<S::tile_q>::Sums>(c_, QueryTile<S>(band_), key_));
  }

 private:
  // ---- between products

  // f(the first of four registers of two neighbouring queries, these queries' numbers at `rows`)
  template <class Sums, class F>
  SINTER_DEVICE void each_pair(int rows, const F& f) const {
    const float2* from = reinterpret_cast<const float2*>(pointer_ + rows) + lane_ % 4;
#pragma unroll
    for (int j = 0; j < Sums::count / 4; ++j) f(4 * j, from[4 * j]);
  }
  // Whether a tile may hold pairs that do not see each other.
  SINTER_DEVICE bool is_cut(const QueryTile<S>& at, int block) const {
    constexpr int by_diagonal = QueryBand<S, Bounds>::cut_by_diagonal;
    if constexpr (S::parts_of_dq)
      return band_.cuts_keys(at.row(), key_ + block * 64);
    else if constexpr (by_diagonal > 0)
      return at.tile < at.begin + by_diagonal;
    else if constexpr (hides_pairs<Bounds>)
      return band_.is_cut(at.row(), to_recompute<S>(pointer_).cut_end);
    else
      return band_.is_cut(at.row());
  }
  // Whether a mask may hide pairs of it: the warp that brings rows has looked.
  SINTER_DEVICE bool is_masked(int stage, int block) const {
    if constexpr (!MasksPairs<Bounds>) return false;
    const int whole = reinterpret_cast<const int*>(pointer_ + S::unseen)[2 * stage + 1];
    return (whole >> (consumer_ * S::blocks + block) & 1) == 0;
  }
  // Sums become scores, and these probabilities.
  template <class Sums>
  SINTER_DEVICE void weigh(Sums& s, const QueryTile<S>& at, int stage, int block,
                           const PipelineState<2>& boxes, bool cut, bool masked) const {
    if constexpr (!Score::plain)
      score_pairs<Score>(args_, Pairs<Sums>(c_, at, key_ + block * 64), s,
                         read_beside(boxes, block));
    if (cut) mask(s, at, block, minus_infinity());
    if constexpr (MasksPairs<Bounds>)
      if (masked) hide(s, at, block);
    const float2* largest =
        reinterpret_cast<const float2*>(pointer_ + S::largest + stage * S::tile_q * 4) + lane_ % 4;
    each_pair<Sums>(S::lse + stage * S::tile_q * 4, [&](int i, float2 lse) {
      const float2 most = S::totals ? largest[i] : float2{};
#pragma unroll
      for (int e = 0; e < 4; ++e)
        s.at[i + e] = Shift::weight(s.at[i + e], Score::plain ? Score::scale : 1.0f,
                                    e % 2 == 0 ? lse.x : lse.y, e % 2 == 0 ? most.x : most.y);
    });
  }
  template <class Sums>
  SINTER_DEVICE auto draw(const QueryTile<S>& at, int block) const {
    if constexpr (DrawsBits<Weight>)
      return Pairs<Sums>(c_, at, key_ + block * 64).template draw<Weight>(args_);
    else
      return NothingDrawn{};
  }
  SINTER_DEVICE auto held_bias() const {
    if constexpr (S::holds_dbias)
      return BiasOfWindows<typename S::template Scores<S::tile_q>::Sums>{shared_ + S::dbias +
                                                                         (warp_ * 32 + lane_) * 16};
    else
      return NothingHeld{};
  }
  SINTER_DEVICE auto read_beside(const PipelineState<2>& boxes, int block) const {
    if constexpr (S::takes_boxes) {
      typename S::PipeBoxes{shared_ + S::pipe_boxes}.wait(boxes);
      return BesideFromBoxes<typename S::Box::Number>{
          shared_ + S::place_of_box(boxes.stage, 0, consumer_ * S::blocks + block),
          S::TileDS::panel_bytes, warp_ * 16};
    } else {
      return ReadByScores{};
    }
  }
  template <class Sums, class Drawn>
  SINTER_DEVICE void weigh_and_differentiate(Sums& s, Sums& dp, const QueryTile<S>& at, int stage,
                                             int block, const PipelineState<2>& boxes,
                                             const Drawn& drawn) const {
    const float* lse = reinterpret_cast<const float*>(pointer_ + S::lse) + stage * S::tile_q;
    const float* largest =
        reinterpret_cast<const float*>(pointer_ + S::largest) + stage * S::tile_q;
    const float* delta = reinterpret_cast<const float*>(pointer_ + S::delta) + stage * S::tile_q;
    attention::weigh_and_differentiate<Score, Weight, Bias>(
        band_, args_, Pairs<Sums>(c_, at, key_ + block * 64), lse, largest, delta, s, dp, drawn,
        held_bias(), read_beside(boxes, block));
  }
  // And gradients of weights those of scores, which dBias gets.
  template <class Sums, class Drawn>
  SINTER_DEVICE void differentiate_bias(Sums& p, Sums& dp, const QueryTile<S>& at, int stage,
                                        int block, const Drawn& drawn, bool cut) const {
    int key = key_ + block * 64;
    hardware::compute_here(key);  // and with it where elements of dBias lie
    const Pairs<Sums> pairs(c_, at, key);
    const auto of_head = Weight::of_head(args_, pairs.c);
    BiasGradientOfTile<Bias, Sums, false> bias;
    each_pair<Sums>(S::delta + stage * S::tile_q * 4, [&](int i, float2 delta) {
      differentiate_four<Weight>(args_, pairs, of_head, p, dp, i, delta, drawn);
    });
    if (hides_pairs<Bounds> && cut) mask(dp, at, block, 0.0f);  // again: whatever Delta is
#pragma unroll
    for (int i = 0; i < Sums::count; i += 4) {
      if constexpr (S::holds_dbias) {
        held_bias().add(i / 4, {dp.at[i], dp.at[i + 1], dp.at[i + 2], dp.at[i + 3]});
      } else {
#pragma unroll
        for (int e = i; e < i + 4; ++e)
          bias.add(e, dp.at[e],
                   [&](int j, float sum) { put_bias_gradient<Bias>(args_, pairs, j, sum); });
      }
    }
  }
  // Scores of pairs that a mask hides.
  template <class Sums>
  SINTER_DEVICE void hide(Sums& s, const QueryTile<S>& at, int block) const {
    const Pairs<Sums> pairs(c_, at, key_ + block * 64);
    hide_pairs<Bounds>(s, minus_infinity(), [&](int i) { return Bounds::sees(args_, pairs(i)); });
  }
  // In place of what belongs to pairs that do not see each other. The queries that see a key are an
  // interval; counted from the thread's first one, the registers' places are known when compiling.
  template <class Sums>
  SINTER_DEVICE void mask(Sums& x, const QueryTile<S>& at, int block, float masked) const {
    // Else a key is seen by all queries from the first one on.
    using Queries = QueryBand<S, Bounds>;
    constexpr bool ends = Queries::may_end || Queries::ends_rows || Bounds::has_left;
    int key = key_ + block * 64, query = Sums::column(0), row = 0;
    // Few tiles are cut: the walk has no register for what these alone read.
    if constexpr (hides_pairs<Bounds> && !S::packed)
      key = to_recompute<S>(pointer_).tile.from + (consumer_ * S::blocks + block) * 64;
    if constexpr (few_registers) {
      const unsigned thread = hardware::thread() % 128u;
      row = thread / 32 * 16 + thread % 32 / 4, query = thread % 4 * 2;
    }
    const int m = at.row() + query;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int n = few_registers ? key + row + 8 * r : key + Sums::row(2 * r);
      const int first = band_.first(n) - m, end = band_.stop(n) - m;
#pragma unroll
      for (int i = 2 * r; i < Sums::count; i += i % 2 == 0 ? 1 : 3) {
        const int column = i / 4 * 8 + i % 2;
        if ((Bounds::has_right && column < first) || (ends && column >= end)) x.at[i] = masked;
      }
    }
  }
  // Into the tile that dQ's product reads: of each four registers, eight keys and eight queries.
  // It takes the place of boxes that the consumer's warps have read.
  template <class Weights>
  SINTER_DEVICE void store_ds(const Weights& ds, int half, int block) const {
    if constexpr (S::takes_boxes) stages_.template wait_at_mine<kOneConsumer, 128>();
    unsigned line = line_, piece = piece_;
    if constexpr (few_registers) {
      const unsigned thread = hardware::thread() - 128u, lane = thread % 32;
      line = shared_ + S::ds + (thread / 32 * 16 + lane % 16) * 128;
      piece = (lane % 8 ^ lane / 16) * 16;
    }
#pragma unroll
    for (int j = 0; j < Weights::steps; ++j)
      hopper::put_blocks(place_of_ds(line, piece, j, half, block), ds.at[j]);
    hopper::fence_async_proxy();
  }
  // Of 16 queries and the warp's keys, where a lane writes or reads eight.
  static SINTER_DEVICE unsigned place_of_ds(unsigned line, unsigned piece, int j, int half,
                                            int block) {
    return line + half * S::TileDS::bytes + block * 64 * 128 + j / 4 * S::TileDS::panel_bytes +
           (piece ^ j % 4 * 32);
  }

  // ---- a tile

  // The operands of dV and dK, of weights (or of sums, where the score is a function of these) and
  // of dp; of a few queries at a time, so that few registers hold both.
  template <class Weights, class Sums, class Drawn>
  SINTER_DEVICE void finish(Weights& p, Weights& ds, Sums& s, Sums& dp, const QueryTile<S>& at,
                            int stage, int block, const PipelineState<2>& boxes, const Drawn& drawn,
                            bool cut) const {
    if constexpr (!early) {
      weigh_and_differentiate(s, dp, at, stage, block, boxes, drawn);
    } else if (cut) {
      mask(dp, at, block, 0.0f);
    }
    // What leaves as dBias is masked once more: whatever Delta is.
    constexpr bool masks_bias = early && LeavesInPairs<BiasGradient> && hides_pairs<Bounds>,
                   derives = early && !Bias::wanted && !masks_bias;
    if constexpr (early && S::marks_unseen)
      if (reinterpret_cast<const int*>(pointer_ + S::unseen)[2 * stage] != 0)
        each_pair<Sums>(S::lse + stage * S::tile_q * 4,
                        [&](int i, float2 lse) { clear_unseen(s, dp, i, lse); });
    if constexpr (early && Bias::wanted) differentiate_bias(s, dp, at, stage, block, drawn, cut);
    const Pairs<Sums> pairs(c_, at, key_ + block * 64);
    const auto of_head = Weight::of_head(args_, pairs.c);
    if constexpr (masks_bias) {
      each_pair<Sums>(S::delta + stage * S::tile_q * 4, [&](int i, float2 delta) {
        differentiate_four<Weight>(args_, pairs, of_head, s, dp, i, delta, drawn);
      });
      if (cut) mask(dp, at, block, 0.0f);
    }
    wgmma::pin(s), wgmma::pin(dp);
    each_pair<Sums>(S::delta + stage * S::tile_q * 4, [&](int i, float2 delta) {
      if constexpr (derives)
        differentiate_four<Weight>(args_, pairs, of_head, s, dp, i, delta, drawn);
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        const int to = i / 4 % 2 * 2 + r;
        ds.at[i / 8][to] = warp_matrix::pair(Number{}, dp.at[i + 2 * r], dp.at[i + 2 * r + 1]);
        p.at[i / 8][to] = warp_matrix::pair(Number{}, s.at[i + 2 * r], s.at[i + 2 * r + 1]);
      }
    });
  }

  // What is held of a tile of so many queries. The walk declares it: what sum_tile() did would be
  // new in each turn, and is spilled.
  template <int queries>
  struct OfTile {
    Accumulator<float, queries> s, dp;
    OperandFragment<Number, queries> p, ds;
  };
  // ---- all tiles

  // `Wanted`: Gradients.
  template <class Wanted>
  SINTER_DEVICE void sum() const {
    for_each_number<S::blocks>([&]<int block>() {
      if constexpr (Wanted::dk) typename Products::template DK<block>{}.clear();
      if constexpr (Wanted::dv) typename Products::template DV<block>{}.clear();
    });
    QueryTile<S> at(band_);
    typename S::PipeQ::State state;
    PipelineState<2> boxes;
    const int count = band_.count(), before = window_ * count;
    state.skip(before), boxes.skip(before);
    stages_.wait_for_keys(window_);
    if constexpr (Wanted::dq && S::parts_of_dq && hides_pairs<Bounds>) stages_.look_at_keys();
#pragma unroll 1
    for (int i = 0; i < count; ++i, stages_.advance(at), state.advance()) {
      OfTile<S::tile_q> tile;
      OfTile<S::last_queries> last;
      SumsDQ dq;
      if (S::last_queries < S::tile_q && at.tile == S::tiles_q - 1)
        sum_tile<Wanted>(last, dq, at, state, boxes, i, before);
      else
        sum_tile<Wanted>(tile, dq, at, state, boxes, i, before);
    }
  }
  // A block of keys: what dV and dK are summed of, ds where dQ's product reads it.
  template <class Wanted, int block, int queries>
  SINTER_DEVICE void sum_block(OfTile<queries>& held, QueryTile<S>& at,
                               const typename S::PipeQ::State& state, PipelineState<2>& boxes,
                               int i, int before) const {
    auto& [s, dp, p, ds] = held;
    constexpr int last = S::blocks - 1;
    if constexpr (block == 0) stages_.wait_for_q(state, at);
    multiply_.scores(s, state.stage, block);
    if constexpr (block == 0)
      stages_.wait_for_do(state, at);
    else  // for the registers of the block before
      wgmma::wait<1>(p, ds);
    if constexpr (Wanted::ds) multiply_.weights_gradient(dp, state.stage, block);
    const auto drawn = draw<Accumulator<float, queries>>(at, block);
    const bool cut = early && is_cut(at, block), masked = is_masked(state.stage, block);
    wgmma::wait<Wanted::ds ? 1 : 0>(s);
    if constexpr (early) weigh(s, at, state.stage, block, boxes, cut, masked);
    if constexpr (Wanted::ds)
      wgmma::wait<0>(dp);
    else
      dp.clear();
    finish(p, ds, s, dp, at, state.stage, block, boxes, drawn, cut);
    const int half = S::places_of_ds > 1 ? (before + i) & 1 : 0;
    if constexpr (block == 0 && S::keys_ahead) {
      if (i == 0 && window_ > 0 && threadIdx.x % 128 == 0) {  // results of the window before
        hopper::wait_for_stores<0>();
        hopper::arrive(shared_ + S::free_keys + S::barrier_of_keys(window_ - 1));
      }
      stages_.template wait_at_mine<kOneConsumer, 128>();  // dQ of the tile before is multiplied
    }
    if constexpr (Wanted::dq || LeavesInPairs<BiasGradient>) store_ds(ds, half, block);
    if constexpr (Wanted::dv) multiply_.template add_dv<block>(p, state.stage);
    if constexpr (Wanted::dk && block < last) multiply_.template add_dk<block>(ds, state.stage);
    if constexpr (LeavesInPairs<BiasGradient> && block < last) store_bias<block>(ds, at, half);
  }
  // dBias, from what the warp has written of ds; beside products.
  template <int block, class Weights>
  SINTER_DEVICE void store_bias(const Weights&, const QueryTile<S>& at, int half) const {
    using Sums = typename S::template Scores<S::tile_q>::Sums;
    store_bias_in_pairs<BiasGradient, Weights::steps>(
        args_, Pairs<Sums>(c_, at, key_ + block * 64 + warp_ * 16),
        [&](int j) { return place_of_ds(line_, piece_, j, half, block); });
  }
  // `queries`: of the tile, that are multiplied; `i`: the number of the tile among all.
  template <class Wanted, int queries>
  SINTER_DEVICE void sum_tile(OfTile<queries>& held, SumsDQ& dq, QueryTile<S>& at,
                              const typename S::PipeQ::State& state, PipelineState<2>& boxes, int i,
                              int before) const {
    constexpr int last = S::blocks - 1;
    // Behind dQ's product, or its rows that hidden pairs may have summed again: both read ds.
    constexpr bool boxes_early = Wanted::dq && !hides_pairs<Bounds>;
    const typename S::PipeBoxes pipe_boxes{shared_ + S::pipe_boxes};
    if constexpr (Wanted::dq && S::parts_of_dq) stages_.take_parts();
    for_each_number<S::blocks>(
        [&]<int block>() { sum_block<Wanted, block>(held, at, state, boxes, i, before); });
    auto& [s, dp, p, ds] = held;
    const int half = S::places_of_ds > 1 ? (before + i) & 1 : 0;
    if constexpr (Wanted::dq) {
      if constexpr (S::parts_of_dq)
        stages_.template wait_at_mine<kOneConsumer, 128>();
      else
        stages_.meet_all();
      multiply_.dq(half);
    } else if constexpr (Wanted::dk) {
      multiply_.template add_dk<last>(ds, state.stage);
    }
    if constexpr (LeavesInPairs<BiasGradient>) store_bias<last>(ds, at, half);
    if constexpr (Wanted::dv) wgmma::wait<Wanted::dq || Wanted::dk ? 1 : 0>(p);
    // One lane tells the barrier for its warp. The other lanes have read lse and delta of the
    // stage: all consumers have met since, and without dq a product has taken what was made of
    // them, so that the loads are complete. (racecheck takes the arrival for that lane's alone
    // and names the other lanes' reads.)
    stages_.pipe_do().release_stage(state.stage);
    if constexpr (Wanted::dq) {
      if constexpr (Wanted::dk) multiply_.template add_dk<last>(ds, state.stage);
      wgmma::wait<Wanted::dk ? 1 : 0>();
      if constexpr (S::takes_boxes && boxes_early) pipe_boxes.release(boxes);
      typename Products::DQ{}.template get<0, S::columns_of_dq / 8>(dq.at);
      const int from = S::ds + half * S::TileDS::bytes;
      if constexpr (S::parts_of_dq)
        stages_.template add_parts<typename Wanted::ResultDQ>(dq, from);
      else
        stages_.template add_dq<typename Wanted::ResultDQ>(dq, from, S::column_of_dq(consumer_, 0));
    }
    if constexpr (S::takes_boxes && !boxes_early) pipe_boxes.release(boxes);
    boxes.advance();
    if constexpr (Wanted::dk) wgmma::wait<0>(ds);
    stages_.pipe_q().release_stage(state.stage);
  }
};

template <class Config, class Bounds, class Q, class K, class V, class DO, class Score,
          class Weight, class Rows, class BiasGradient, class SumsDQ, class ResultDK,
          class ResultDV, class Args>
SINTER_DEVICE void run_backward(const Args& args) {
  using S = BackwardShape<Config, Bounds, Q, K, V, DO, Score>;
  BackwardProducts<S>::declare();
  run_tile_of_keys<Config, S, BackwardConsumer<S, Bounds, Score, Weight, BiasGradient, Args>,
                   Bounds, BackwardOperands<Q, K, V, DO, Rows, Score, Weight>,
                   Gradients<BiasGradient, SumsDQ, ResultDK, ResultDV>, SumsDQ, ResultDK, ResultDV>(
      args);
}

}  // namespace sinter::attention
