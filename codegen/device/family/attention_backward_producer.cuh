// The warps of attention_backward.cuh's first warpgroup: one has TMA bring tiles, one brings what
// belongs to single rows, and one for each consumer adds its part of dQ to the sums in memory.
#pragma once
#include "sinter/device/family/attention_backward_order.cuh"
#include "sinter/device/family/attention_backward_recompute.cuh"
#include "sinter/device/family/attention_backward_results.cuh"
#include "sinter/device/family/attention_backward_shape.cuh"

namespace sinter::attention {

// Named barriers; 0 is that of all threads.
inline constexpr int kAllConsumers = 1, kFullDQ = 2, kEmptyDQ = 4, kOneConsumer = 6, kFullPart = 9,
                     kEmptyPart = 11;

template <class S>
inline constexpr bool takes_boxes = [] {
  if constexpr (requires { S::takes_boxes; })
    return S::takes_boxes;
  else
    return false;
}();

template <class S>
inline constexpr bool marks_unseen = [] {
  if constexpr (requires { S::marks_unseen; })
    return S::marks_unseen;
  else
    return false;
}();

template <class Operand, class Tile, class Args, class Coord>
SINTER_DEVICE void load_panels(const Args& args, const Coord& c, int row, unsigned to,
                               unsigned full) {
#pragma unroll
  for (int panel = 0; panel < Tile::panels; ++panel)
    Operand::load(args, c, row, panel * 64, to + panel * Tile::panel_bytes, full, 0);
}

// What scores of a tile of queries read beside their sums.
template <class S, class Args>
SINTER_DEVICE void load_boxes(const Args& args, const typename S::Coord& c, int row, int key,
                              unsigned shared, typename S::PipeBoxes::State& state) {
  const typename S::PipeBoxes pipe{shared + S::pipe_boxes};
  pipe.acquire(state);
  pipe.expect(state, S::boxes * S::box_bytes);
#pragma unroll
  for (int panel = 0; panel < S::tile_q / 64; ++panel)
#pragma unroll
    for (int keys = 0; keys < S::tile_k / 64; ++keys)
      S::Box::load(args, c, row + panel * 64, key + keys * 64,
                   shared + S::place_of_box(state.stage, panel, keys), pipe.full(state), 0);
  state.advance();
}

// One thread, or a warp where it looks for tiles. `window`: see each_window.
template <class S, class Q, class K, class V, class DO, class Args, class Band>
SINTER_DEVICE void produce_tiles(const Args& args, typename S::Coord c, const Band& band,
                                 unsigned shared, int window) {
  const typename S::PipeQ pipe_q{shared + S::pipe_q};
  const typename S::PipeDO pipe_do{shared + S::pipe_do};
  typename S::PipeQ::State state_q;
  typename S::PipeDO::State state_do;
  PipelineState<2> state_boxes;
  QueryTile<S> at = QueryTile<S>::start(band);
  const int count = band.count();
  state_q.skip(window * count), state_do.skip(window * count), state_boxes.skip(window * count);
  const auto load_k = [&](int window) {
    const unsigned full = shared + S::full_k + S::barrier_of_keys(window);
    hopper::arrive_and_expect(full, S::TileK::bytes);
    load_panels<K, typename S::TileK>(args, c, band.from, shared + S::place_of_keys(window) + S::k,
                                      full);
  };
  const auto load_v = [&](int window) {
    const unsigned full = shared + S::full_v + S::barrier_of_keys(window);
    hopper::arrive_and_expect(full, S::TileV::bytes);
    load_panels<V, typename S::TileV>(args, c, band.from, shared + S::place_of_keys(window) + S::v,
                                      full);
  };
#pragma unroll 1
  for (int i = 0; i < count; ++i, at.pass(band), state_q.advance(), state_do.advance()) {
    at.find(band);
    if (Band::has_blocks && threadIdx.x != 0) continue;
    c.at[1] = at.head;
    const bool first = i == 0 && (!S::keys_ahead || window == 0);
    if (!S::holds_dbias && first) load_k(window);
    // Consumers give their place back before that of Q.
    if constexpr (takes_boxes<S>) load_boxes<S>(args, c, at.row(), band.from, shared, state_boxes);
    pipe_q.acquire(state_q);
    pipe_q.expect(state_q, S::TileQ::bytes);
    load_panels<Q, typename S::TileQ>(
        args, c, at.row(), shared + S::q + state_q.stage * S::TileQ::bytes, pipe_q.full(state_q));
    if constexpr (S::holds_dbias)
      if (i == 0) {  // where the results of the window before have left
        if (window > 0) hopper::wait(shared + S::free_keys, (window & 1) ^ 1);
        load_k(window);
      }
    if (first) load_v(window);
    pipe_do.acquire(state_do);
    pipe_do.expect(state_do, S::TileDO::bytes);
    load_panels<DO, typename S::TileDO>(args, c, at.row(),
                                        shared + S::d_o + state_do.stage * S::TileDO::bytes,
                                        pipe_do.full(state_do));
  }
  if constexpr (S::keys_ahead) {
    const int next = window + 1;
    if (next == S::windows || static_cast<int>(c.at[0]) + 1 == S::entries) return;
    // Where the results of the window before this one have left.
    if (window > 0)
      hopper::wait(shared + S::free_keys + S::barrier_of_keys(next), S::phase_of_keys(next) ^ 1);
    c.at[0] += 1;
    load_k(next), load_v(next);
  }
}

// A warp. What is added to rows before the exponential (`Shift`: RowShift), -infinity where there
// is no row or it sees nothing, so that its weights are zeros; and Delta, zero there, since that of
// NaN times O is NaN.
template <class S, class Rows, class Shift, class Args, class Band>
SINTER_DEVICE void produce_rows(const Args& args, typename S::Coord c, const Band& band,
                                unsigned char* pointer, unsigned shared, int window) {
  const typename S::PipeQ pipe_q{shared + S::pipe_q};
  const typename S::PipeDO pipe_do{shared + S::pipe_do};
  typename S::PipeQ::State state_q;
  typename S::PipeDO::State state_do;
  QueryTile<S> at = QueryTile<S>::start(band);
  const int count = band.count(), lane = static_cast<int>(threadIdx.x) % 32;
  state_q.skip(window * count), state_do.skip(window * count);
  constexpr int each = S::tile_q / 32;
#pragma unroll 1
  for (int i = 0; i < count; ++i, at.pass(band), state_q.advance(), state_do.advance()) {
    at.find(band);
    float lse[each], largest[each], delta[each];
    bool unseen = false;
    c.at[1] = at.head;
#pragma unroll
    for (int r = 0; r < each; ++r) {
      const int row = at.row() + r * 32 + lane;
      const bool exists = row >= band.first_seen() && row < band.end_seen();
      c.at[2] = exists ? row : 0;
      const float of_row = Shift::template row<Rows>(args, c), sum = Rows::delta(args, c);
      const bool seen = exists && Shift::sees(of_row);
      lse[r] = seen ? Shift::of(of_row) : minus_infinity();
      largest[r] = Shift::template largest<Rows>(args, c);
      delta[r] = seen ? sum : 0.0f;
      unseen = unseen || !seen;
    }
    unseen = marks_unseen<S> && __any_sync(0xffffffffu, unseen);
    unsigned whole = 0;  // which blocks of 64 keys all of the tile's rows see
    if constexpr (MasksPairs<typename Band::Mask>)
      whole = __ballot_sync(0xffffffffu,
                            lane < S::tile_k / 64 &&
                                Band::Mask::seen(args, c, Span::of(at.row(), S::tile_q, S::queries),
                                                 Span::of(band.from + lane * 64, 64, S::keys))
                                    .all);
    float* to = reinterpret_cast<float*>(pointer + S::lse) + state_q.stage * S::tile_q + lane;
    pipe_q.acquire(state_q);
    if (Band::has_blocks && lane == 0) {
      int* const walked = reinterpret_cast<int*>(pointer + S::walked) + 2 * state_q.stage;
      walked[0] = at.head, walked[1] = at.tile;
    }
    if constexpr (marks_unseen<S>)
      if (lane == 0) {
        int* const of_tile = reinterpret_cast<int*>(pointer + S::unseen) + 2 * state_q.stage;
        of_tile[0] = unseen, of_tile[1] = static_cast<int>(whole);
      }
#pragma unroll
    for (int r = 0; r < each; ++r) to[r * 32] = lse[r];
    if constexpr (S::totals) {
      to += (S::largest - S::lse) / 4;
#pragma unroll
      for (int r = 0; r < each; ++r) to[r * 32] = largest[r];
    }
    hopper::arrive(pipe_q.full(state_q));
    to = reinterpret_cast<float*>(pointer + S::delta) + state_do.stage * S::tile_q + lane;
    pipe_do.acquire(state_do);
#pragma unroll
    for (int r = 0; r < each; ++r) to[r * 32] = delta[r];
    hopper::arrive(pipe_do.full(state_do));
  }
}

// A consumer's 64 rows of dQ, as TMA with a swizzle of 128 bytes reads a box of 32 columns: eight
// columns are two pieces of 16 bytes. Rows 2 i and 2 i + 1 have the same pair of pieces, in either
// order; so that a warp's rows meet all banks, odd rows write the block of columns two further at
// the same time.
template <int columns>
SINTER_DEVICE void put_rows(const Accumulator<float, columns>& dq, unsigned to) {
  const int lane = static_cast<int>(threadIdx.x) % 32,
            warp = static_cast<int>(threadIdx.x) / 32 % 4, row = lane / 4, odd = row & 1;
  const unsigned mine = to + (warp * 16 + row) * 128 + lane % 2 * 8;
  constexpr int blocks = columns / 8;
#pragma unroll
  for (int j = 0; j < (blocks + 3) / 4 * 4; ++j) {
    const int even_block = j, odd_block = j ^ 2;
    const unsigned at =
        mine + j / 4 * 8192 + (((odd ? odd_block : even_block) % 4 * 2 + lane % 4 / 2) ^ row) * 16;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int a = even_block < blocks ? 4 * even_block + 2 * half : 0,
                b = odd_block < blocks ? 4 * odd_block + 2 * half : 0;
      hopper::put_pair(at + half * 1024, odd ? dq.at[b] : dq.at[a],
                       odd ? dq.at[b + 1] : dq.at[a + 1]);
    }
  }
}

// A consumer's 64 rows of `factor` times dQ, rounded, in boxes of 64 columns.
template <class Number, int columns>
SINTER_DEVICE void put_rounded(const Accumulator<float, columns>& dq, unsigned to, float factor) {
  const int thread = hardware::thread() % 128, lane = thread % 32;  // anew, as in recompute_dq
  const unsigned line = to + (thread / 32 * 16 + lane % 16) * 128,
                 piece = (lane % 8 ^ lane / 16) * 16;
  const auto pair = [&](int i) {
    return i < dq.count ? warp_matrix::pair(Number{}, dq.at[i] * factor, dq.at[i + 1] * factor) : 0;
  };
#pragma unroll
  for (int j = 0; j < (columns + 15) / 16; ++j) {
    const unsigned blocks[4] = {pair(8 * j), pair(8 * j + 2), pair(8 * j + 4), pair(8 * j + 6)};
    hopper::put_blocks(line + j / 4 * 8192 + (piece ^ j % 4 * 32), blocks);
  }
}
// The same of the calling warp's rows, as put_rows has left them. No register holds them.
template <class Number, int columns>
SINTER_DEVICE void round_rows(unsigned char* box, float factor) {
  const int thread = hardware::thread() % 128, lane = thread % 32, first = thread / 32 * 16;
  constexpr int pairs = (columns + 63) / 64;  // of neighbouring columns of a row, of a lane
#pragma unroll 1
  for (int r = first; r < first + 16; ++r) {
    float2 x[pairs];
    __syncwarp();
#pragma unroll
    for (int i = 0; i < pairs; ++i)
      if (const int e = 64 * i + 2 * lane; e < columns)
        x[i] = *reinterpret_cast<const float2*>(box + e / 32 * 8192 + r * 128 +
                                                (e % 32 / 4 ^ r % 8) * 16 + e % 4 * 4);
    __syncwarp();
#pragma unroll
    for (int i = 0; i < pairs; ++i)
      if (64 * i + 2 * lane < columns)
        *reinterpret_cast<unsigned*>(box + i * 8192 + r * 128 + (lane / 4 ^ r % 8) * 16 +
                                     lane % 4 * 4) =
            warp_matrix::pair(Number{}, x[i].x * factor, x[i].y * factor);
  }
}

// A consumer's part of 64 rows of dQ for another consumer, whose threads hold the same elements.
// Each warp takes of shared memory what its rows of put_rows take.
template <int columns, class F>
SINTER_DEVICE void each_four(unsigned part, const F& f) {
  const int thread = hardware::thread() % 128;
#pragma unroll
  for (int i = 0; i < columns / 8; ++i)
    f(4 * i, part + i / 4 * 8192 + thread / 32 * 2048 + i % 4 * 512 + thread % 32 * 16);
}
template <int columns>
SINTER_DEVICE void put_part(const Accumulator<float, columns>& dq, unsigned part) {
  each_four<columns>(part, [&](int i, unsigned to) {
    warp_matrix::put(to, uint4{__float_as_uint(dq.at[i]), __float_as_uint(dq.at[i + 1]),
                               __float_as_uint(dq.at[i + 2]), __float_as_uint(dq.at[i + 3])});
  });
}
template <int columns>
SINTER_DEVICE void add_part(Accumulator<float, columns>& dq, unsigned part) {
  each_four<columns>(part, [&](int i, unsigned from) {
    const float4 x = warp_matrix::get_four(from);
    dq.at[i] += x.x, dq.at[i + 1] += x.y, dq.at[i + 2] += x.z, dq.at[i + 3] += x.w;
  });
}
// Back from where put_rows has left them.
template <int columns>
SINTER_DEVICE void get_rows(Accumulator<float, columns>& dq, const unsigned char* from) {
  __syncwarp();
  dq.each([&](int i, float& x) {
    const int row = dq.row(i), e = dq.column(i);
    x = *reinterpret_cast<const float*>(from + e / 32 * 8192 + row * 128 +
                                        (e % 32 / 4 ^ row % 8) * 16 + e % 4 * 4);
  });
  __syncwarp();
}

// Rows of dQ from number `rows` on, which are the next one's of packed sequences: zeros, which they
// are but for NaN among a sequence's keys.
template <class S>
SINTER_DEVICE void clear_rows(unsigned dq, int rows) {
  if (rows >= 64) return;
  const int first = rows > 0 ? rows : 0;
#pragma unroll 1
  for (int i = static_cast<int>(threadIdx.x) % 32; i < (64 - first) * 8; i += 32)
#pragma unroll
    for (int j = 0; j < S::columns_of_dq; j += 32)
      warp_matrix::put(dq + j * 256 + first * 128 + i * 16, uint4{0, 0, 0, 0});
  hopper::fence_async_proxy();
  __syncwarp();
}

// A warp for each consumer.
template <class S, class SumsDQ, int consumer, class Args, class Bounds>
SINTER_DEVICE void add_dq(const Args& args, typename S::Coord c, const QueryBand<S, Bounds>& band,
                          unsigned char* pointer, unsigned shared, int window) {
  QueryTile<S> at = QueryTile<S>::start(band);
  const int count = band.count(), lane = static_cast<int>(threadIdx.x) % 32;
  const unsigned from = shared + S::dq + consumer * S::bytes_of_dq;
  if constexpr (hides_pairs<Bounds> && !S::parts_of_dq) {
    // The consumer reads it behind the first turn at the barrier.
    bool finite = true;
    if (count > 0) {
      hopper::wait(shared + S::full_k, window & 1);
#pragma unroll
      for (int add = 0; add < S::adds_of_dq(consumer); ++add)
        finite = is_finite<S>(band, pointer + S::k, 0, S::tile_k, S::column_of_dq(consumer, add),
                              S::columns_of_dq) &&
                 finite;
    }
    if (lane == 0) to_recompute<S>(pointer).keys[consumer] = !finite;
  }
#pragma unroll 1
  for (int i = 0; i < count; ++i, at.pass(band)) {
    at.find(band);
    c.at[1] = at.head;
    const int before = S::in_order ? band.tiles_before(args, c, at.head, at.row()) : 0;
#pragma unroll
    for (int add = 0; add < S::adds_of_dq(consumer); ++add) {
      hopper::pass<kEmptyDQ + consumer, 160>();
      hopper::wait_at<kFullDQ + consumer, 160>();
      if constexpr (S::packed)
        clear_rows<S>(from, band.band.rows - at.row() - S::row_of_dq(consumer));
      if (lane == 0) {
        if constexpr (S::in_order)
          if (add == 0) {
            hardware::wait_for_count(counter_of<S, SumsDQ>(args, c, at.row(), consumer), before);
            hopper::order_stores();
          }
        constexpr int box = stores_dq<SumsDQ> ? 64 : 32;  // columns of 64 rows, 8 KB
#pragma unroll
        for (int j = 0; j < S::columns_of_dq; j += box)
          SumsDQ::add(args, c, at.row() + S::row_of_dq(consumer),
                      S::column_of_dq(consumer, add) + j, from + j / box * 8192);
        hopper::commit_stores();
        if (S::in_order && add + 1 == S::adds_of_dq(consumer))
          hopper::wait_until_stored();
        else
          hopper::wait_for_stores<0>();
        if constexpr (S::in_order)
          if (add + 1 == S::adds_of_dq(consumer))
            hardware::raise_count(counter_of<S, SumsDQ>(args, c, at.row(), consumer));
      }
      __syncwarp();
    }
  }
}

}  // namespace sinter::attention
