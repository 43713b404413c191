// Attention forward in one kernel of sm_90a: for batch entry, head and row m of the scores
//
//   result(m, e) = epilogue of the sum over n of weight(m, n) v(n, e)
//   weight(m, n) = softmax over n of score(sum over d of q(m, d) k(n, d)), of the n that m sees
//
// One warpgroup produces: one of its threads has TMA bring the rows of Q of a tile, then K and V
// tile by tile into two pipelines. Each of the others consumes: it owns 64 rows, takes the scores
// of the next tile of keys while the weights of the one before are multiplied by V, and makes
// weights of them in registers, where they are the left operand of that product. Consumers take
// turns to issue products (ping_pong), so that one's exponentials run beside the other's products.
// (Shah et al., "FlashAttention-3", 2024, sections 3.1 and 3.2.)
//
// A CTA walks over tiles of rows: those with the most keys first, in groups of heads whose keys and
// values stay in the second-level cache together, every other round backwards. Tiles of keys that
// no row of a tile sees are not visited; only those that some of the rows do not see wholly are
// masked.
//
// Where a zero weight dominates, its product is zero whatever v holds: values past a batch entry's
// length are cleared in shared memory, and rows that come out NaN from numbers that are none (NaN
// or infinite values at masked places) are taken again from memory without those products.
//
// A generated file defines
//
//   SINTER_WGMMA_NAMED(tile_k, f32) and SINTER_WGMMA_HELD(e up to 16); of values of f8
//                     SINTER_WGMMA(e up to 16, f32) in place of this one
//   struct Config     of the second product, as contraction_wgmma.cuh's: Index, Extent (batch, m of
//                     two indices, e, n), Accumulator, Sum, threads, unroll, width,
//                     batch, m, n, k, products = 1, n_fastest; tile_k; stages; heads_together;
//                     splits; ping_pong; store_boxes; producer_registers, consumer_registers; and
//                     see WalksTwice, attention_forward_shares.cuh, attention_forward_cluster.cuh
//   struct First      of the first product: Index, Extent (batch, m, n, d), batch, m, n, k
//   struct Args       tensor maps and pointers; OperandQ, OperandK, OperandV as in
//                     contraction_wgmma.cuh, with float element(args, coordinates of First) of Q
//                     and K, and of Config for V
//   struct Bounds     see attention_bounds.cuh
//   struct Score      plain: true where a score is its sum times `scale`, above 0; else scale = 1
//   and
//                     float element(args, coordinates of First, float sum); and see
//                     attention_neighbours.cuh
//   struct Weight     plain: true; else float element(args, coordinates of First, float weight),
//                     behind the softmax (dropout)
//   struct Rows       has_sink, float sink(args, coordinates of First); has_stats, stats(args,
//                     coordinates of First, float): the logarithm of a row's sum of exponentials;
//                     or, with stores_totals, totals(args, coordinates of First, float largest,
//                     float total); written_out, zero_dominates and, where it is so, adds_stats as
//                     in AttentionSpec
//   struct Body       the epilogue, as in contraction_wgmma.cuh; or, with Config::store_boxes,
//                     store(args, coordinates of Config, row, column, from): 16 rows of 64 columns
//                     of 16 bits leave by TMA; and, of packed sequences, line(args, coordinates of
//                     Config): where a row's elements lie
//
// and calls attention::run_forward<Config, First, OperandQ, OperandK, OperandV, Bounds, Score,
// Weight, Rows, Body>(args). The launch has Config::threads threads, ForwardShape::shared_bytes
// bytes of shared memory, and any number of CTAs.
#pragma once
#include "sinter/device/engine/shared_memory.cuh"
#include "sinter/device/family/attention_forward_producer.cuh"
#include "sinter/device/family/attention_forward_store.cuh"
#include "sinter/device/family/attention_forward_sums.cuh"
#include "sinter/device/family/attention_forward_transpose.cuh"

namespace sinter::attention {

// A warpgroup's 64 rows of a tile.
template <class Config, class S, class Q, class K, class V, class Bounds, class Score, class Weight,
          class Rows, class Args>
class Consumer {
  using Scores = typename S::Scores;
  using ScoreSums = NamedAccumulator<float, S::tile_k, 1>;
  using Outputs = typename S::Outputs;
  using Weights = OperandFragment<typename S::WeightNumber, S::tile_k>;
  static constexpr bool sums_apart = S::transposes_values;
  using SumsOfOutputs = OutputSums<S, sums_apart>;
  using Coord = typename S::F::Coord;
  const Args& args_;
  const typename S::PipeQ pipe_q_;
  const typename S::Pipe pipe_k_, pipe_v_;
  typename S::PipeQ::State state_q_;
  typename S::Pipe::State state_k_, state_v_;
  const unsigned shared_;
  const unsigned long long q_, k_, v_;  // descriptors, of the first stages
  const Turns<S::warps / 4, Config::ping_pong && (S::consumers > 1)> turns_;
  const int number_;                // of those that share its rows
  const typename S::PipeB pipe_b_;  // what scores read beside their sums
  typename S::PipeB::State state_b_;
  const unsigned boxes_;  // of the first stage

 public:
  SINTER_DEVICE Consumer(const Args& args, unsigned shared, int warpgroup)
      : args_(args),
        pipe_q_{shared + S::pipe_q},
        pipe_k_{shared + S::pipe_k},
        pipe_v_{shared + S::pipe_v},
        shared_(shared),
        q_(S::TileQ::descriptor(shared + warpgroup / S::alternating * S::TileQ::bytes)),
        k_(S::TileK::descriptor(shared + S::k)),
        v_(S::TileV::descriptor(shared + S::v)),
        turns_{warpgroup},
        number_(warpgroup % S::alternating),
        pipe_b_{shared + S::pipe_boxes + warpgroup / S::alternating * S::PipeB::bytes},
        boxes_(shared + S::boxes + warpgroup / S::alternating * S::boxes_of_consumer) {
    turns_.start();
    state_k_.skip(number_), state_v_.skip(number_), state_b_.skip(number_);
  }
  SINTER_DEVICE void finish() const { turns_.finish(); }
  SINTER_DEVICE void meet() const { turns_.meet(); }

  // The sums of weights times values and what the softmax knows of the rows. `row`: the first.
  // Tiles that rows of other consumers see, but none of these, are passed over. `between` two
  // walks, the softmax is to know all keys of the rows.
  template <class Out, class Between>
  SINTER_DEVICE void multiply(Out& out, RowSoftmax& softmax, Coord c, const BandOf<S, Bounds>& band,
                              const KeyTiles& tiles, int first_row, int row,
                              const Between& between) {
    const WeightsOfRows<S, Bounds, Score, Weight, Args> weights_of(args_, c, band, row);
    const KeyTiles& own = weights_of.own;
    const bool whole = !sees_less;
    const int begin = whole || own.begin < tiles.begin ? tiles.begin : own.begin,
              end = whole || own.end > tiles.end ? tiles.end : own.end;
    softmax.start();
    out.clear();
    Walk walk(args_, c, first_row, row, begin, end, tiles.part);
    if (MasksTiles<Bounds> && !walk.more()) return;
    pipe_q_.wait(state_q_);
    if constexpr (S::walks_twice) {
      look_at_keys(softmax, weights_of, c, first_row, row, begin, end, tiles);
      between();
      softmax.divide();
    }
    if (S::alternating > 1 && begin >= end - number_) return release_q();
    const bool nothing = sees_less && begin >= end;
    if (nothing) release_q();
    if (sees_less) pass_over(tiles.end - (nothing ? tiles.begin : end), nothing);
    if (nothing) return;
    typename Scores::Sums s;
    Weights weights{};
    SumsOfOutputs sums;
    if constexpr (!HeldByName<Out>) sums.clear();
    const auto scale_sums = [&] {
      if (softmax.outgrown) sums.scale(softmax.worth);
    };
    if constexpr (!MasksTiles<Bounds>) walk.skip(number_);
    auto beside = weights_of.fetch(walk.n);
    const auto take_scores = [&] {
      release_k();
      if constexpr (!MasksTiles<Bounds>)
        if (walk.last()) release_q();
      score_from_boxes(weights_of, s, walk, beside);
    };
    pipe_k_.wait(state_k_);
    wgmma::fence();
    issue_scores();
    wgmma::wait<0>();
    get_scores(s);
    take_scores();
    // Weights of the scores; `later`: those of the tile before are being multiplied.
    const auto weigh = [&](auto later) {
      constexpr bool first = !is_same<decltype(later), Int<1>>;
      if constexpr (!S::has_boxes)
        weights_of.template score<first || !cut_once>(s, walk.n, beside, walk.all());
      weights_of.template weigh_scores<is_same<decltype(later), Int<0>>>(s, softmax, walk.n);
      // Within the branch, the compiler would wait after each product.
      wgmma::wait<0>(sums.multiplied(), weights);
      if (later) {
        release_v();
        if constexpr (!sums_apart) scale_sums();
      }
      weights = to_operand<typename S::WeightNumber>(s);
      walk.next(args_, c);
      if constexpr (MasksTiles<Bounds>)
        if (!walk.more()) release_q();
    };
    // They are multiplied, beside the scores of the next tile.
    const auto multiply_both = [&] {
      beside = weights_of.fetch(walk.n);
      pipe_k_.wait(state_k_);
      turns_.wait();
      wgmma::fence();
      issue_scores();
      if constexpr (sums_apart) sums.add_tile(), scale_sums();
      pipe_v_.wait(state_v_);
      clear_past_end(band, walk.before());
      issue_outputs(sums, weights);
      turns_.pass();
      wgmma::wait<1>();
      get_scores(s);
      take_scores();
    };
    if constexpr (!one_text<S, Score, Weight>) {
      weigh(Int<0>{});
#pragma unroll 1
      while (walk.more()) multiply_both(), weigh(Int<1>{});
    } else {
      bool later = false;
#pragma unroll 1
      for (;; later = true) {
        weigh(later);
        if (!walk.more()) break;
        multiply_both();
      }
    }
    if constexpr (sums_apart) sums.add_tile(), scale_sums();
    pipe_v_.wait(state_v_);
    clear_past_end(band, walk.before());
    issue_outputs(sums, weights);
    wgmma::wait<0>(sums.multiplied(), weights);
    release_v();
    sums.add_tile();
    sums.get(out);
    if constexpr (Bounds::has_left)
      if (sees_less) pass_over(begin - tiles.begin, false);
  }

 private:
  static constexpr int step = S::alternating;
  using Walk = KeyWalk<S, Bounds, step, true>;
  // Whether what rows see ends at their diagonal alone, and extents are whole tiles of rows.
  static constexpr bool ends_at_diagonal = [] {
    if constexpr (!Bounds::has_right || Bounds::has_left || Bounds::padding || Bounds::packed ||
                  Bounds::has_lengths || MasksTiles<Bounds> || !is_known(S::keys, S::queries))
      return false;
    else
      return S::queries % S::tile_q == 0;
  }();
  // Whether all rows of a tile then see as many tiles of keys: it lies beside one of them.
  static constexpr bool ends_together = [] {
    if constexpr (!ends_at_diagonal)
      return false;
    else
      return S::tile_k % S::tile_q == 0 &&
             (Bounds::right + (Bounds::bottom_right ? S::keys - S::queries : 0)) % S::tile_k == 0;
  }();
  // Whether a consumer's rows may see fewer tiles of keys than the others'. Those of f8, whose
  // registers are all taken, pass over none; nor do those under a mask, of which few would.
  static constexpr bool sees_less = S::consumers > 1 && !S::transposes_values &&
                                    !MasksTiles<Bounds> &&
                                    ((BandOf<S, Bounds>::bounded && !ends_together) ||
                                     !is_known(S::queries) || S::queries % S::tile_q != 0);
  // Whether rows see all of each tile of keys that they are given but the last one, which comes
  // first: 64 rows' diagonal crosses 64 keys, which lie within one tile. Then the loop has no text
  // of masks. (On an H100, us, with it and without: b4 h32 s4096 d128 954 and 948, 64 heads of 8,
  // 16,384 tokens 6,445 and 6,434; but d64 629 and 649.)
  static constexpr bool cut_once = [] {
    if constexpr (!ends_at_diagonal || S::transposes_values || S::consumers == 1 ||
                  S::columns <= 96)
      return false;
    else
      return S::keys % S::tile_k == 0 && S::tile_k % 64 == 0 && Bounds::right % 64 == 0;
  }();

  // The walk before that which makes weights. Consumers take no turns: each one's softmax runs
  // beside the other's products, of which there are few.
  template <class WeightsOf>
  SINTER_DEVICE void look_at_keys(RowSoftmax& softmax, const WeightsOf& weights_of, const Coord& c,
                                  int first_row, int row, int begin, int end,
                                  const KeyTiles& tiles) {
    static_assert(S::alternating == 1 && S::headroom == 0);
    const auto pass_over_keys = [&](int count) {
#pragma unroll 1
      for (int i = 0; i < count; ++i) {
        pipe_k_.wait(state_k_);
        release_k();
        pass_over_boxes();
      }
    };
    if (begin >= end) return pass_over_keys(tiles.end - tiles.begin);
    if (sees_less) pass_over_keys(tiles.end - end);
    typename Scores::Sums s;
#pragma unroll 1
    for (Walk walk(args_, c, first_row, row, begin, end, tiles.part); walk.more();
         walk.next(args_, c)) {
      const auto beside = weights_of.fetch(walk.n);
      pipe_k_.wait(state_k_);
      wgmma::fence();
      issue_scores();
      wgmma::wait<0>();
      get_scores(s);
      release_k();
      if constexpr (S::has_boxes)
        score_from_boxes(weights_of, s, walk, beside);
      else
        weights_of.score(s, walk.n, beside, walk.all());
      weights_of.look_at_scores(s, softmax);
    }
    if (sees_less) pass_over_keys(begin - tiles.begin);
  }
  // So many tiles of keys go by unread; with the consumer's turns, of which each takes as many:
  // none at the `first` of all.
  SINTER_DEVICE void pass_over(int tiles, bool first) {
#pragma unroll 1
    for (int i = 0; i < tiles; ++i) {
      if (i > 0 || !first) {
        turns_.wait();
        turns_.pass();
      }
      pipe_k_.wait(state_k_);
      release_k();
      pipe_v_.wait(state_v_);
      release_v();
      pass_over_boxes();
    }
  }
  SINTER_DEVICE void pass_over_boxes() {
    if constexpr (S::has_boxes) {
      pipe_b_.wait(state_b_);
      release_boxes();
    }
  }
  SINTER_DEVICE void issue_scores() const {
    Scores::template multiply<S::steps>(ScoreSums{}, q_,
                                        k_ + state_k_.stage * (S::TileK::bytes / 16), false);
    wgmma::commit();
  }
  template <class WeightsOf>
  SINTER_DEVICE void score_from_boxes(const WeightsOf& weights_of, typename Scores::Sums& s,
                                      const Walk& walk, const typename WeightsOf::Beside& beside) {
    if constexpr (S::has_boxes) {
      pipe_b_.wait(state_b_);
      weights_of.score(s, walk.n, beside, walk.all(), boxes_ + state_b_.stage * S::Beside::bytes);
      release_boxes();
    }
  }
  static SINTER_DEVICE void get_scores(typename Scores::Sums& s) {
    ScoreSums{}.template get<0, S::tile_k / 8>(s.at);
  }
  SINTER_DEVICE void issue_outputs(SumsOfOutputs& sums, Weights& weights) const {
    wgmma::fence(sums.multiplied(), weights);
    sums.multiply(weights, v_ + state_v_.stage * (S::TileV::bytes / 16));
    wgmma::commit();
  }
  SINTER_DEVICE void release_q() {
    pipe_q_.release(state_q_);
    state_q_.advance();
  }
  SINTER_DEVICE void release_k() {
    pipe_k_.release(state_k_);
    state_k_.skip(step);
  }
  SINTER_DEVICE void release_boxes() {
    __syncwarp();  // one lane gives them back
    pipe_b_.release(state_b_);
    state_b_.skip(step);
  }
  SINTER_DEVICE void release_v() {
    pipe_v_.release(state_v_);
    state_v_.skip(step);
  }

  SINTER_DEVICE void clear_past_end(const BandOf<S, Bounds>& band, int n) const {
    if constexpr (!S::transposes_values)
      clear_values<S, Bounds>(band, n, shared_ + S::v + state_v_.stage * S::TileV::bytes,
                              S::TileV::extent, [&] { turns_.meet(); });
  }
};

template <class Config, class First, class Q, class K, class V, class Bounds, class Score,
          class Weight, class Rows, class Body, class Args>
SINTER_DEVICE void run_forward(const Args& args) {
  using S =
      ForwardShape<Config, First, Q, K, V, Score, sequences_of<Bounds>(), bytes_of_tiles<Bounds>()>;
  using contraction::EpilogueTile;
  // More than a CTA starts with never come free: who asks for them waits for ever.
  constexpr int warpgroups = Config::threads / 128 - 1,
                of_thread = kRegistersOfSm / (Config::threads * blocks_of<Config>()) / 8 * 8;
  static_assert(Config::producer_registers + warpgroups * Config::consumer_registers <=
                (warpgroups + 1) * of_thread);
  const SharedMemory memory;
  const unsigned shared = memory.address;
  OutputSums<S, S::transposes_values>::declare();
  NamedAccumulator<float, S::tile_k, 1>::declare();
  const int warpgroup = __shfl_sync(~0u, static_cast<int>(threadIdx.x / 128), 0);
  if (threadIdx.x == 0) {
    Q::prefetch(args), K::prefetch(args), V::prefetch(args);
    S::Beside::prefetch(args);
    typename S::PipeQ{shared + S::pipe_q}.init(1, S::warps);
    typename S::Pipe{shared + S::pipe_k}.init(1, S::consumers * 4);
    typename S::Pipe{shared + S::pipe_v}.init(S::transposes_values ? kTransposingWarps * 32 : 1,
                                              S::consumers * 4);
    if constexpr (S::transposes_values)
      typename S::Pipe{shared + S::pipe_loaded_v}.init(1, kTransposingWarps);
    if constexpr (S::has_boxes)
      for (int i = 0; i < S::consumers; ++i)
        typename S::PipeB{shared + S::pipe_boxes + i * S::PipeB::bytes}.init(1, 4);
    if constexpr (CountsTiles<Bounds>) TileQueue::Pipe{shared + S::queue}.init(1, S::warps);
    if constexpr (joins_statistics<Config>())
      StatisticsBarrier{shared + S::statistics}.template init<Config>(S::warps);
    hopper::barriers_are_ready();
  }
  // Counters of shares, which the kernel before sets to zero, are wanted at the end alone. All
  // kernels before that one are over: it lets this one start when it has waited for them.
  if constexpr (!SharesKeys<Bounds>) {
    if constexpr (joins_statistics<Config>())
      hardware::cluster_barrier();  // other blocks tell the own one's barrier
    else
      __syncthreads();
    hardware::grid_dependency_wait();
  } else {
    find_share<Config, S, Bounds>(args, reinterpret_cast<int*>(memory.pointer + S::queue));
    __syncthreads();
  }
  if (warpgroup == 0) {
    hopper::keep_registers<Config::producer_registers>();
    if (leads_producer<Bounds>(0))
      produce<Config, S, Q, K, V, Bounds>(args, memory.pointer, shared);
    if constexpr (S::transposes_values)
      if (threadIdx.x >= 32)
        transpose_all_values<Config, S, Bounds>(args, memory.pointer, shared, threadIdx.x / 32 - 1);
    if constexpr (S::has_boxes && !S::transposes_values)
      if (threadIdx.x >= 32 && leads_producer<Bounds>(threadIdx.x / 32))
        produce_boxes<Config, S, Bounds>(args, memory.pointer, shared, threadIdx.x / 32 - 1);
    return;
  }
  hopper::take_registers<Config::consumer_registers>();
  const int warp = __shfl_sync(~0u, static_cast<int>(threadIdx.x / 32) - 4, 0);
  EpilogueTile& epilogue_tile =
      reinterpret_cast<EpilogueTile*>(memory.pointer + S::epilogue_tiles)[warp];
  Consumer<Config, S, Q, K, V, Bounds, Score, Weight, Rows, Args> consumer(args, shared,
                                                                           warpgroup - 1);
  auto tiles = tiles_of_consumers<Config, S, Bounds>(memory.pointer, shared);
#pragma unroll 1
  for (int round = 0, i; (i = tiles.next(args, round)) < S::items; ++round) {
    TileOfRows tile = tiles.tile(i);
    int row = tile.row + (warpgroup - 1) / S::alternating * 64;
    typename S::F::Coord c;
    S::F::set_batch(c, tile.entry);
    const BandOf<S, Bounds> band = tiles.band(args, c, tile);
    if constexpr (PacksSequences<Bounds>) {
      if (tile.row >= band.rows) continue;
      row = tile.row + (warpgroup - 1) * 64;
    }
    KeyTiles keys = tiles.keys(band, tile);
    Choice<stays_held<Config, S, Bounds, Rows>, HeldAccumulator<S::columns, 0>,
           typename S::Outputs::Sums>
        out;
    RowSoftmax softmax;
    // What the warpgroup has to itself of shared memory, and of scores, in powers of two.
    float* const own_tile = (&epilogue_tile - warp % 4)->at;
    const auto meet = [&] { consumer.meet(); };
    const auto scale = [&] { return WorthOfSums<Score>(args, c).powers_of_two(); };
    const auto between = [&] {
      if constexpr (joins_statistics<Config>())
        join_statistics<Config>(StatisticsBarrier{shared + S::statistics}, scale(), own_tile, out,
                                softmax);
    };
    if (keys.begin < keys.end) {
      consumer.multiply(out, softmax, c, band, keys, tile.row, row, between);
    } else {
      softmax.start();
      out.clear();
      if constexpr (S::walks_twice) between();
    }
    if constexpr (SharesKeys<Bounds>) {
      hardware::grid_dependency_wait();
      const KeyParts parts = tiles.parts();
      if (parts.count > 1 && !join_parts<Config, S, Bounds>(args, parts, warpgroup - 1, scale(),
                                                            own_tile, out, softmax, meet))
        continue;
      keys = tiles.whole();
    } else if constexpr (DividesKeys<Config>) {
      static_assert(S::consumers * S::alternating *
                        bytes_of_part<Config, typename S::Outputs::Sums>() <=
                    S::epilogue_tiles);
      if (!join_cluster<Config, S::consumers, S::walks_twice>(
              reinterpret_cast<float*>(memory.pointer), warpgroup - 1, scale(), own_tile, out,
              softmax, meet))
        continue;
      keys = tiles.whole();
    }
    finish_tile<Config, S, Q, K, V, Bounds, Score, Weight, Rows, Body>(
        args, epilogue_tile, out, softmax, c, band, keys, tile, row, warp);
  }
  if constexpr (Config::store_boxes)
    if (threadIdx.x % 32 == 0) hopper::wait_for_stores<0>();
  if constexpr (SharesKeys<Bounds>) hardware::grid_dependency_wait();  // with or without a tile
  if constexpr (DividesKeys<Config>) leave_cluster();
  consumer.finish();
}

}  // namespace sinter::attention
