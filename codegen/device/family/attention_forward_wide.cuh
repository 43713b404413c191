// Attention forward as attention_forward.cuh has it, for heads of more than 256 elements: the sums
// of 64 rows are more than a warpgroup's registers. Q of 64 rows stays in shared memory, so that
// tiles are 64 rows high. Also where the values are the first columns of the keys (latent
// attention): then a tile of K is loaded once and multiplied twice.
//
// Two consumers share the rows. Each sums half of the result's columns, and scores every other tile
// of keys: with the rows' largest scores so far, which the other one told it, it makes weights
// of scores, multiplies its columns of the values by them from registers, and gives them through
// shared memory to the other consumer, which multiplies its own columns. So each score is computed
// once, and one consumer's softmax runs beside the other's products. (The division of work is
// FlashMLA's, "A deep dive into the Flash MLA FP8 decoding kernel on Hopper" and its predecessor on
// the 16-bit one, deepseek-ai, 2025; tiles are taken in order here, with one scale a tile.)
//
//   consumer 0   S0  softmax  P0 V0 left            P1 V1 left   S2  softmax  P2 V2 left
//   consumer 1       S1           P0 V0 right  softmax   P1 V1 right   S3          P2 V2 right
//
// Where values are in keys and K has two stages, a consumer multiplies the other's weights before
// it scores its next tile, so that the stage is free soon: K comes for one tile while the other is
// used. Else it scores first.
//
// A generated file defines what attention_forward.cuh says, with SINTER_WGMMA for tile_k and for
// the columns that each consumer sums (WideForwardShape::panels_of); Config also has
// values_in_keys. It calls attention::run_wide_forward with the same parameters.
#pragma once
#include "sinter/device/engine/shared_memory.cuh"
#include "sinter/device/family/attention_forward_rows.cuh"
#include "sinter/device/family/attention_forward_store.cuh"
#include "sinter/device/family/attention_forward_wide_shape.cuh"

namespace sinter::attention {

// `columns`: of the result, that it sums.
template <class S, int columns, class Bounds, class Score, class Weight, class Args>
class WideConsumer {
  using Scores = typename S::Scores;
  using Outputs = typename S::template Outputs<columns>;
  using OthersOutputs = typename S::template OthersOutputs<columns>;
  using Weights = OperandFragment<typename S::Number, S::tile_k>;
  using WeightsOf = WeightsOfRows<S, Bounds, Score, Weight, Args>;
  using Coord = typename S::F::Coord;
  const Args& args_;
  unsigned char* const pointer_;
  const unsigned shared_;
  const int consumer_;
  typename S::PipeQ::State state_q_;
  typename S::Pipe::State state_k_, state_v_;  // of its next own tile; of the next of all tiles
  typename S::PipeP::State state_p_;           // of the next of all tiles

 public:
  using Sums = typename Outputs::Sums;

  SINTER_DEVICE WideConsumer(const Args& args, const SharedMemory& memory, int consumer)
      : args_(args), pointer_(memory.pointer), shared_(memory.address), consumer_(consumer) {}

  // The sums of weights times values and what the softmax knows of the rows, their sums' halves
  // joined. `row`: the first.
  SINTER_DEVICE void multiply(Sums& out, RowSoftmax& softmax, const Coord& c,
                              const BandOf<S, Bounds>& band, const KeyTiles& tiles, int row) {
    const WeightsOf weights_of(args_, c, band, row);
    pipe_q().wait(state_q_);
    state_q_.advance();
    softmax.start();
    out.clear();
    const int count = tiles.end - tiles.begin;
    if (count <= 0) return;
    state_k_ = state_v_;
    if (consumer_ == 1) state_k_.advance();
    const auto tile = [&](int i) { return tiles.end - 1 - i; };  // in the order of loads
    int i = consumer_;                                           // own ones: i, i + 2, ...
    if (i == 0) {
      take_own(out, softmax, weights_of, tile(i));
      i += 2;
    }
#pragma unroll 1
    for (; i < count; i += 2) take_both(out, softmax, weights_of, tile(i));
    if (i == count) take_others(out, softmax, band, tile(i - 1));
    join_totals(softmax);
  }
  // Of the tile's place in shared memory; its results are on their way.
  SINTER_DEVICE void release_q() const {
    hopper::fence_async_proxy();
    __syncwarp();
    pipe_q().release_stage(0);
  }

 private:
  static constexpr int kBoth = 1, kOwn = 2;  // barriers

  SINTER_DEVICE typename S::PipeQ pipe_q() const { return {shared_ + S::pipe_q}; }
  SINTER_DEVICE typename S::Pipe pipe_k() const { return {shared_ + S::pipe_k}; }
  SINTER_DEVICE typename S::Pipe pipe_v() const { return {shared_ + S::pipe_v}; }
  SINTER_DEVICE typename S::PipeP pipe_p() const { return {shared_ + S::pipe_p}; }
  // Waits for the consumer's own threads.
  SINTER_DEVICE void meet() const {
    for_each_number<S::consumers>([&]<int i>() {
      if (consumer_ == i) hopper::wait_at<kOwn + i, 128>();
    });
  }

  // ---- tiles of keys

  // Tile n, which this consumer scores.
  SINTER_DEVICE void take_own(Sums& out, RowSoftmax& softmax, const WeightsOf& weights_of, int n) {
    typename Scores::Sums s;
    score<0, S::parts>(s);
    wgmma::wait<0>(s);
    Weights weights = weigh(s, softmax, weights_of, n, state_p_);
    multiply_own(out, weights, softmax, weights_of.band, n);
  }
  // Tile n, which the other one has scored.
  SINTER_DEVICE void take_others(Sums& out, RowSoftmax& softmax, const BandOf<S, Bounds>& band,
                                 int n) {
    multiply_others(out, softmax, band, n);
    wgmma::wait<0>(out);
    release_others();
  }
  // Tile n + 1, which the other one has scored, and n.
  SINTER_DEVICE void take_both(Sums& out, RowSoftmax& softmax, const WeightsOf& weights_of, int n) {
    typename Scores::Sums s;
    auto next = state_p_;
    next.advance();
    Weights weights;
    if constexpr (S::scores_first) {
      score<0, S::parts>(s);
      multiply_others(out, softmax, weights_of.band, n + 1);
      wgmma::wait<1>(s);
      weights = weigh(s, softmax, weights_of, n, next);
      wgmma::wait<0>(out);
      release_others();
    } else {
      score<0, 1>(s);
      multiply_others(out, softmax, weights_of.band, n + 1);
      wgmma::wait<0>(out, s);
      release_others();
      score<1, S::parts>(s);
      wgmma::wait<0>(s);
      weights = weigh(s, softmax, weights_of, n, state_p_);
    }
    multiply_own(out, weights, softmax, weights_of.band, n);
  }

  // ---- products

  // With parts [first, end) of the next own tile of keys, as they come.
  template <int first, int end>
  SINTER_DEVICE void score(typename Scores::Sums& s) const {
    const unsigned q = shared_ + S::q, k = shared_ + S::k + state_k_.stage * S::TileK::bytes;
    for_each_number<end - first>([&]<int i>() {
      constexpr int part = first + i;
      using Part = typename S::template PartScores<part>;
      constexpr int panel = part * S::panels_of_part, left = S::steps - panel * 4,
                    steps = left < S::panels_of_part * 4 ? left : S::panels_of_part * 4;
      S::pipe_of_part(shared_, part).wait(state_k_);
      if constexpr (i == 0) wgmma::fence(s);
      Part::template multiply<steps>(s, S::TileQ::descriptor(q + panel * S::TileQ::panel_bytes),
                                     S::TileK::descriptor(k + panel * S::TileK::panel_bytes),
                                     part > 0);
    });
    wgmma::commit();
  }
  SINTER_DEVICE void multiply_others(Sums& out, RowSoftmax& softmax, const BandOf<S, Bounds>& band,
                                     int n) const {
    pipe_p().wait(state_p_);
    const float* const rows = of_rows(state_p_.stage);
    bool outgrown = false;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      softmax.largest[r] = rows[Sums::row(2 * r)], softmax.worth[r] = rows[64 + Sums::row(2 * r)];
      outgrown = outgrown || softmax.worth[r] != 1.0f;
    }
    if (__any_sync(0xffffffffu, outgrown)) {
      scale(out, softmax);
#pragma unroll
      for (int r = 0; r < 2; ++r) softmax.total[r] *= softmax.worth[r];
    }
    wait_for_values();
    clear_past_end(band, n);
    wgmma::fence(out);
    OthersOutputs::multiply(out, S::TileP::descriptor(weights_at(state_v_.stage, state_p_.stage)),
                            own_values(), true);
    wgmma::commit();
  }
  SINTER_DEVICE void release_others() {
    __syncwarp();
    pipe_p().release(state_p_);
    pipe_v().release(state_v_);
    state_p_.advance(), state_v_.advance();
  }
  SINTER_DEVICE void multiply_own(Sums& out, Weights& weights, const RowSoftmax& softmax,
                                  const BandOf<S, Bounds>& band, int n) {
    if (softmax.outgrown) scale(out, softmax);
    if constexpr (!S::values_in_keys) pipe_v().wait(state_v_);
    clear_past_end(band, n);
    wgmma::fence(out, weights);
    Outputs::template multiply<0, S::tile_k / 16>(out, weights, own_values(), true);
    wgmma::commit();
    wgmma::wait<0>(out, weights);
    pipe_v().release(state_v_);
    state_p_.advance(), state_v_.advance();
    state_k_.skip(2);
  }
  static SINTER_DEVICE void scale(Sums& out, const RowSoftmax& softmax) {
    out.each([&](int i, float& x) { x *= softmax.worth[i / 2 % 2]; });
  }
  SINTER_DEVICE void wait_for_values() const {
    if constexpr (S::values_in_keys)
      for (int part = 0; part < S::parts; ++part) S::pipe_of_part(shared_, part).wait(state_v_);
    else
      pipe_v().wait(state_v_);
  }
  // Its columns of the next tile's values.
  SINTER_DEVICE unsigned own_columns() const {
    return shared_ + S::v + state_v_.stage * S::bytes_of_stage_v +
           S::TileV::further(S::first_column(consumer_));
  }
  SINTER_DEVICE unsigned long long own_values() const {
    return S::TileV::descriptor(own_columns());
  }
  SINTER_DEVICE void clear_past_end(const BandOf<S, Bounds>& band, int n) const {
    clear_values<S, Bounds>(band, n, own_columns(), columns, [&] { meet(); });
  }

  // ---- weights and what belongs to them

  SINTER_DEVICE float* of_rows(int stage) const {
    return reinterpret_cast<float*>(pointer_ + S::rows + stage * S::bytes_of_rows);
  }
  SINTER_DEVICE unsigned weights_at(int stage_k, int stage_p) const {
    return shared_ + S::p + (S::weights_in_keys ? stage_k : stage_p) * S::bytes_of_stage_p;
  }
  // Makes weights of scores, and gives them to the other consumer.
  SINTER_DEVICE Weights weigh(typename Scores::Sums& s, RowSoftmax& softmax,
                              const WeightsOf& weights_of, int n,
                              const typename S::PipeP::State& state_p) const {
    if constexpr (!S::values_in_keys) pipe_k().release(state_k_);
    weights_of.weigh(s, softmax, n);
    const Weights weights = to_operand<typename S::Number>(s);
    pipe_p().acquire(state_p);
    // All four warps have read the keys, so that weights may lie there and values be cleared.
    if constexpr (S::values_in_keys) meet();
    const int lane = static_cast<int>(threadIdx.x) % 32,
              warp = static_cast<int>(threadIdx.x) / 32 % 4;
    const unsigned to = weights_at(state_k_.stage, state_p.stage);
#pragma unroll
    for (int j = 0; j < Weights::steps; ++j)
      hopper::put_blocks(to + S::TileP::place(warp * 16 + lane % 16, j * 16 + lane / 16 * 8),
                         weights.at[j]);
    if (lane % 4 == 0) {
      float* const rows = of_rows(state_p.stage);
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        rows[Sums::row(2 * r)] = softmax.largest[r];
        rows[64 + Sums::row(2 * r)] = softmax.outgrown ? softmax.worth[r] : 1.0f;
      }
    }
    hopper::fence_async_proxy();
    __syncwarp();
    if (lane == 0) hopper::arrive(pipe_p().full(state_p));
    return weights;
  }
  // Each consumer's sums are of the tiles that it scored.
  SINTER_DEVICE void join_totals(RowSoftmax& softmax) const {
    auto* const totals = reinterpret_cast<float2*>(pointer_ + S::totals);
    const int thread = static_cast<int>(threadIdx.x) % 128;
    totals[consumer_ * 128 + thread] = {softmax.total[0], softmax.total[1]};
    hopper::wait_at<kBoth, 256>();
    const float2 other = totals[(1 - consumer_) * 128 + thread];
    softmax.total[0] += other.x, softmax.total[1] += other.y;
  }
};

// What a consumer does with all tiles of rows.
template <class Config, class S, int columns, class Q, class K, class V, class Bounds, class Score,
          class Weight, class Rows, class Body, class Args>
SINTER_DEVICE void consume_wide(const Args& args, const SharedMemory& memory, int which, int warp) {
  using Consumer = WideConsumer<S, columns, Bounds, Score, Weight, Args>;
  Consumer consumer(args, memory, which);
  using contraction::EpilogueTile;
  EpilogueTile& epilogue_tile = reinterpret_cast<EpilogueTile*>(memory.pointer + S::q)[warp];
  const OwnColumns own{S::first_column(which), S::panels == 1 && which == 1 ? 64 : 0, which == 0};
#pragma unroll 1
  for (int round = 0, i; (i = number_of_tile(round)) < S::items; ++round) {
    const TileOfRows tile = tile_of_rows<Config, S>(i);
    typename S::F::Coord c;
    S::F::set_batch(c, tile.entry);
    const BandOf<S, Bounds> band(args, c);
    const KeyTiles keys = keys_of<S>(band, tile);
    typename Consumer::Sums out;
    RowSoftmax softmax;
    consumer.multiply(out, softmax, c, band, keys, tile.row);
    finish_tile<Config, S, Q, K, V, Bounds, Score, Weight, Rows, Body>(
        args, epilogue_tile, out, softmax, c, band, keys, tile, tile.row, warp, own);
    if constexpr (Config::store_boxes)
      if (threadIdx.x % 32 == 0) hopper::wait_for_stores<0>();
    consumer.release_q();
  }
}

template <class Config, class First, class Q, class K, class V, class Bounds, class Score,
          class Weight, class Rows, class Body, class Args>
SINTER_DEVICE void run_wide_forward(const Args& args) {
  using S = WideForwardShape<Config, First, Q, K, V>;
  const SharedMemory memory;
  const int warpgroup = __shfl_sync(~0u, static_cast<int>(threadIdx.x) / 128, 0);
  if (threadIdx.x == 0) {
    Q::prefetch(args), K::prefetch(args), V::prefetch(args);
    S::init_barriers(memory.address);
    hopper::barriers_are_ready();
  }
  __syncthreads();
  hardware::grid_dependency_wait();
  if (warpgroup == 0) {
    hopper::keep_registers<Config::producer_registers>();
    if (threadIdx.x == 0) produce_wide<Config, S, Q, K, V, Bounds>(args, memory.address);
    return;
  }
  hopper::take_registers<Config::consumer_registers>();
  const int warp = __shfl_sync(~0u, static_cast<int>(threadIdx.x) / 32 - 4, 0);
  const auto consume = [&]<int panels>() {
    consume_wide<Config, S, 64 * panels, Q, K, V, Bounds, Score, Weight, Rows, Body>(
        args, memory, warpgroup - 1, warp);
  };
  if (S::panels_of(0) == S::panels_of(1) || warpgroup == 1)
    consume.template operator()<S::panels_of(0)>();
  else if constexpr (S::panels_of(0) != S::panels_of(1))
    consume.template operator()<S::panels_of(1)>();
}

}  // namespace sinter::attention
