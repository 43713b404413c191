// What consumers of attention_backward.cuh and attention_backward_wide.cuh read: tiles in shared
// memory, of which keys past a batch entry's lengths and queries that see none of the tile's keys
// are cleared, since a weight of zero times NaN would be NaN. What else a tile has of pairs that do
// not see each other: attention_backward_recompute.cuh.
#pragma once
#include "sinter/device/family/attention_backward_producer.cuh"
#include "sinter/device/family/attention_backward_recompute.cuh"
#include "sinter/device/family/attention_store_lines.cuh"

namespace sinter::attention {

template <class S, class Bounds>
struct BackwardStages {
  const QueryBand<S, Bounds>& band;
  unsigned char* const pointer;
  const unsigned shared;
  const int consumer;
  const int keys = 0;  // from where on K and V lie (S::place_of_keys)

  SINTER_DEVICE typename S::PipeQ pipe_q() const { return {shared + S::pipe_q}; }
  SINTER_DEVICE typename S::PipeDO pipe_do() const { return {shared + S::pipe_do}; }
  SINTER_DEVICE void meet_all() const { hopper::wait_at<kAllConsumers, S::consumers * 128>(); }

  SINTER_DEVICE void wait_for_keys(int window = 0) const {
    hopper::wait(shared + S::full_k + S::barrier_of_keys(window), S::phase_of_keys(window));
    clear_keys<typename S::TileK>(shared + S::k);
    hopper::wait(shared + S::full_v + S::barrier_of_keys(window), S::phase_of_keys(window));
    clear_keys<typename S::TileV>(shared + S::v);
  }
  SINTER_DEVICE void wait_for_q(const typename S::PipeQ::State& state, QueryTile<S>& at) const {
    pipe_q().wait(state);
    if constexpr (Bounds::has_blocks) {
      const int* const walked = reinterpret_cast<const int*>(pointer + S::walked) + 2 * state.stage;
      at.head = walked[0], at.tile = walked[1];
    }
    clear_queries<typename S::TileQ>(shared + S::q + state.stage * S::TileQ::bytes, at.row());
  }
  SINTER_DEVICE void wait_for_do(const typename S::PipeDO::State& state,
                                 const QueryTile<S>& at) const {
    pipe_do().wait(state);
    clear_queries<typename S::TileDO>(shared + S::d_o + state.stage * S::TileDO::bytes, at.row());
  }
  SINTER_DEVICE void advance(QueryTile<S>& at) const {
    if constexpr (!Bounds::has_blocks) at.advance(band);
  }

  // The barrier of this consumer; its number is to be known when compiling.
  template <int first, int threads>
  SINTER_DEVICE void wait_at_mine() const {
    if (consumer == 0)
      hopper::wait_at<first, threads>();
    else if (S::consumers < 3 || consumer == 1)
      hopper::wait_at<first + 1, threads>();
    else
      hopper::wait_at<first + 2, threads>();
  }
  // What is summed of dQ goes to the warp that adds it, or stores it (`ResultDQ`). `ds`: what it
  // was made of; `column`: the first one.
  template <class ResultDQ = NotWanted, int columns>
  SINTER_DEVICE void add_dq(const Accumulator<float, columns>& dq, int ds, int column) const {
    wait_at_mine<kEmptyDQ, 160>();
    const int sums = S::dq + consumer * S::bytes_of_dq;
    bool finite = true;
    if constexpr (hides_pairs<Bounds>) finite = to_recompute<S>(pointer).keys[consumer] == 0;
    if constexpr (stores_dq<ResultDQ>) {
      if (finite) put_rounded<typename S::Number>(dq, shared + sums, ResultDQ::factor);
    }
    if (!stores_dq<ResultDQ> || !finite) put_rows(dq, shared + sums);
    if constexpr (hides_pairs<Bounds>)
      if (!finite) {
        recompute_dq<S, columns>(pointer, sums, ds, S::k, S::row_of_dq(consumer), column, 0);
        if constexpr (stores_dq<ResultDQ>)
          round_rows<typename S::Number, columns>(pointer + sums, ResultDQ::factor);
      }
    hopper::fence_async_proxy();
    if (consumer == 0)
      hopper::pass<kFullDQ, 160>();
    else
      hopper::pass<kFullDQ + 1, 160>();
  }

  // Where each consumer has what its own keys sum to (S::parts_of_dq), the first one adds the parts
  // of a tile of queries and has it stored. Before the tile: the others may put theirs.
  SINTER_DEVICE void take_parts() const {
    if (consumer == 0)
      for_each_number<S::consumers - 1>([&]<int i>() { hopper::pass<kEmptyPart + i, 256>(); });
  }
  template <class ResultDQ, int columns>
  SINTER_DEVICE void add_parts(Accumulator<float, columns>& dq, int ds) const {
    const int own = S::dq + consumer * S::bytes_of_dq;
    if (consumer == 0)
      hopper::wait_at<kEmptyDQ, 160>();
    else
      for_each_number<S::consumers - 1>([&]<int i>() {
        if (consumer == i + 1) hopper::wait_at<kEmptyPart + i, 256>();
      });
    if constexpr (hides_pairs<Bounds>)
      if (to_recompute<S>(pointer).keys[consumer] != 0) {
        put_rows(dq, shared + own);
        recompute_dq<S, columns>(pointer, own, ds, keys + S::k, 0, 0, S::key_of_dq(consumer));
        get_rows(dq, pointer + own);
      }
    for_each_number<S::consumers - 1>([&]<int i>() {
      if (consumer == 0) {
        hopper::wait_at<kFullPart + i, 256>();
        add_part(dq, shared + S::dq + (i + 1) * S::bytes_of_dq);
      } else if (consumer == i + 1) {
        put_part(dq, shared + own);
        hopper::pass<kFullPart + i, 256>();
      }
    });
    if (consumer != 0) return;
    put_rounded<typename S::Number>(dq, shared + own, ResultDQ::factor);
    hopper::fence_async_proxy();
    hopper::pass<kFullDQ, 160>();
  }
  // Whether the keys of this consumer are finite, as they are in shared memory.
  SINTER_DEVICE void look_at_keys() const {
    const int thread = static_cast<int>(threadIdx.x) % 128, own = S::keys_of_dq / 4,
              first = S::key_of_dq(consumer) + thread / 32 * own;
    if (!is_finite<S>(band, pointer + keys + S::k, first, first + own, 0, S::depth) &&
        thread % 32 == 0)
      to_recompute<S>(pointer).keys[consumer] = 1;
  }

  // Clears lines `from` to `lines` of a tile; the others' part of them is cleared by the others.
  template <class Tile>
  SINTER_DEVICE void clear_lines(unsigned tile, int from, int lines) const {
    for (int i = static_cast<int>(threadIdx.x) - 128; i < (lines - from) * 8;
         i += S::consumers * 128)
#pragma unroll
      for (int panel = 0; panel < Tile::panels; ++panel)
        warp_matrix::put(tile + panel * Tile::panel_bytes + from * 128 + i * 16, uint4{0, 0, 0, 0});
    hopper::fence_async_proxy();
    meet_all();
  }

  // Of a box of a result in shared memory, keys from `key` on, the first `lines`; by the threads of
  // a consumer.
  template <class Result, int width, class Args>
  SINTER_DEVICE void store_lines_of(const Args& args, const typename S::Coord& c, int box,
                                    int column, int key, int lines) const {
    store_lines<width>(pointer + box, lines, column, static_cast<int>(threadIdx.x) % 128, 128,
                       [&](int line) {
                         auto at = c;
                         at.at[3] = key + line;
                         return Result::line(args, at);
                       });
  }

 private:
  template <class Tile>
  SINTER_DEVICE void clear_queries(unsigned tile, int row) const {
    if constexpr (QueryBand<S, Bounds>::hides_rows) {
      const int first = band.first_seen(), end = band.end_seen();
      if (row < first) clear_lines<Tile>(tile, 0, first - row);
      if (row + S::tile_q > end && end < S::queries) clear_lines<Tile>(tile, end - row, S::tile_q);
    }
  }
  template <class Tile>
  SINTER_DEVICE void clear_keys(unsigned tile) const {
    if constexpr (Bounds::has_lengths || S::packed) {
      const int columns = band.band.columns, from = band.from;
      if (from + S::tile_k > columns && columns < S::keys)
        clear_lines<Tile>(tile, columns - from, S::tile_k);
    }
  }
};

template <class S>
SINTER_DEVICE void clear_marks(unsigned char* shared) {
  volatile ToRecompute& marks = to_recompute<S>(shared);
#pragma unroll
  for (int i = 0; i < S::consumers; ++i) {
    marks.sums[i] = 0;
    if constexpr (S::parts_of_dq) marks.keys[i] = 0;
  }
}

// What a consumer's sums had of NaN, once more. Results that have left shared memory are changed
// there and leave it again.
template <class S, class Consumer, class Bounds, class Operands, class Wanted, class ResultDK,
          class ResultDV, class Args, class Nan>
SINTER_DEVICE void recompute_results(const Args& args, const Nan& nan, int window) {
  const SharedMemory memory;
  const int thread = hardware::thread(), number = thread / 128 - 1;
  const volatile ToRecompute& kept = to_recompute<S>(memory.pointer);
  if (kept.sums[number] == 0) return;
  const TileOfKeys tile{kept.tile.entry, kept.tile.head, kept.tile.from, kept.tile.part,
                        kept.tile.from_end};
  typename S::Coord c;
  c.at[0] = tile.entry, c.at[1] = tile.head;
  const auto place = place_of_part<S>(c, tile.part);
  const QueryBand<S, Bounds> band(args, c, tile.from, tile);
  const unsigned shared = memory.address;
  const Consumer consumer(args, band, c, memory.pointer, shared, number, thread, window);
  const unsigned keys = shared + S::place_of_keys(window);
  const BackwardStages<S, Bounds> stages{band, memory.pointer, shared, number};
  constexpr bool in_tiles = by_lines<ResultDK> || by_lines<ResultDV>;
  if constexpr (in_tiles) {
    if (thread % 128 == 0) hopper::wait_until_stored();
    stages.template wait_at_mine<kOneConsumer, 128>();
  } else {
    __syncwarp();  // other lanes have stored the elements
  }
  recompute_keys<S, Wanted, Operands, Consumer::strips>(
      args, c, band, [&](int i) { return consumer.key_of(i); }, Consumer::keys_of_warp, nan,
      [&](int strip) { return consumer.element_of_dk(strip); },
      [&](int strip) { return consumer.element_of_dv(strip); },
      [&](int key, int e, float x) {
        put_recomputed<ResultDK, typename S::TileK, 4>(args, place, keys + S::k, band.from, key, e,
                                                       x);
      },
      [&](int key, int e, float x) {
        put_recomputed<ResultDV, typename S::TileV, 5>(args, place, keys + S::v, band.from, key, e,
                                                       x);
      });
  if constexpr (in_tiles) {
    hopper::fence_async_proxy();
    stages.template wait_at_mine<kOneConsumer, 128>();
    consumer.template store_tiles<ResultDK, ResultDV>();
  }
}

// A CTA. `Consumer`: see BackwardConsumer; its run<Wanted, ResultDK, ResultDV>(part) has the
// gradients of the tile's keys and stores them. `Wanted`: Gradients.
template <class Config, class S, class Consumer, class Bounds, class Operands, class Wanted,
          class SumsDQ, class ResultDK, class ResultDV, class Args>
SINTER_DEVICE void run_tile_of_keys(const Args& args) {
  using Q = typename Operands::Q;
  using K = typename Operands::K;
  using V = typename Operands::V;
  using DO = typename Operands::DO;
  const SharedMemory memory;
  const unsigned shared = memory.address;
  const int warpgroup = __shfl_sync(~0u, static_cast<int>(threadIdx.x) / 128, 0);
  if (threadIdx.x == 0) {
    Q::prefetch(args), K::prefetch(args), V::prefetch(args), DO::prefetch(args);
    constexpr int producers = 1 + 32;  // who has TMA bring the tile, and the warp that writes rows
    typename S::PipeQ{shared + S::pipe_q}.init(producers, S::consumers * 4);
    typename S::PipeDO{shared + S::pipe_do}.init(producers, S::consumers * 4);
    if constexpr (takes_boxes<S>) {
      S::Box::prefetch(args);
      typename S::PipeBoxes{shared + S::pipe_boxes}.init(1, S::consumers * 4);
    }
    clear_marks<S>(memory.pointer);
    hopper::barrier_init(shared + S::full_k, 1);
    hopper::barrier_init(shared + S::full_v, 1);
    if constexpr (S::windows > 1) hopper::barrier_init(shared + S::free_keys, S::consumers);
    if constexpr (S::keys_ahead) {
      hopper::barrier_init(shared + S::full_k + 8, 1);
      hopper::barrier_init(shared + S::full_v + 8, 1);
      hopper::barrier_init(shared + S::free_keys + 8, S::consumers);
    }
    hopper::barriers_are_ready();
  }
  __syncthreads();
  hardware::grid_dependency_wait();
  const TileOfKeys tile =
      tile_of_keys<Config, S>(number_of_block<S, SumsDQ>(args, memory.pointer + S::lse));
  typename S::Coord c;
  c.at[0] = tile.entry, c.at[1] = tile.head;
  const QueryBand<S, Bounds> band(args, c, tile.from, tile);
  if (S::packed && !band.has_keys()) return;
  if (warpgroup == 0) {
    hopper::keep_registers<Config::producer_registers>();
    const int warp = __shfl_sync(~0u, static_cast<int>(threadIdx.x) / 32, 0);
    each_window<S>(c, [&](int window, const typename S::Coord& at) {
      if (warp == 0) {
        if (Bounds::has_blocks || threadIdx.x == 0)
          produce_tiles<S, Q, K, V, DO>(args, at, band, shared, window);
      } else if (warp == 1) {
        produce_rows<S, typename Operands::Rows, typename Consumer::Shift>(
            args, at, band, memory.pointer, shared, window);
      } else if constexpr (is_wanted<SumsDQ>) {
        if (warp == 2)
          add_dq<S, SumsDQ, 0>(args, at, band, memory.pointer, shared, window);
        else if constexpr (S::consumers > 1 && !S::parts_of_dq)
          add_dq<S, SumsDQ, 1>(args, at, band, memory.pointer, shared, window);
      }
    });
    return;
  }
  hopper::take_registers<Config::consumer_registers>();
  const auto consumer_of = [&](int window, const typename S::Coord& at) {
    return Consumer(args, band, at, memory.pointer, shared, S::holds_dbias ? 0 : warpgroup - 1,
                    static_cast<int>(threadIdx.x), window);
  };
  if constexpr (S::holds_dbias) consumer_of(0, c).clear_bias();
  each_window<S>(c, [&](int window, const typename S::Coord& at) {
    const auto run = [&] {
      return consumer_of(window, at).template run<Wanted, ResultDK, ResultDV>(tile.part);
    };
    if constexpr (!hides_pairs<Bounds>) {
      run();
    } else {
      if constexpr (S::windows > 1)  // all have read what is there of the window before
        hopper::wait_at<kAllConsumers, S::consumers * 128>();
      if (threadIdx.x == 128) {
        volatile ToRecompute& kept = to_recompute<S>(memory.pointer);
        volatile TileOfKeys& to = kept.tile;
        kept.cut_end = band.cut_end;
        to.entry = static_cast<int>(at.at[0]);
        to.head = tile.head, to.from = tile.from, to.part = tile.part;
        to.from_end = tile.from_end;
        if constexpr (S::windows > 1) clear_marks<S>(memory.pointer);
      }
      hopper::wait_at<kAllConsumers, S::consumers * 128>();
      const auto nan = run();
      recompute_results<S, Consumer, Bounds, Operands, Wanted, ResultDK, ResultDV>(args, nan,
                                                                                   window);
    }
    // Behind its wait for the stores of results that lie in place of the keys.
    if constexpr (S::holds_dbias)
      if (threadIdx.x == 128) hopper::arrive(shared + S::free_keys);
  });
  if constexpr (S::holds_dbias) consumer_of(0, c).put_bias();
  if constexpr (S::keys_ahead)
    if (threadIdx.x % 128 == 0) hopper::wait_for_stores<0>();
}

}  // namespace sinter::attention
