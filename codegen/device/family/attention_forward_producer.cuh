// What attention_forward.cuh has in shared memory, and the thread that has TMA bring it.
#pragma once
#include "sinter/device/engine/loader/paged_rows.cuh"
#include "sinter/device/engine/loader/tma_boxes.cuh"
#include "sinter/device/engine/pipeline.cuh"
#include "sinter/device/engine/shared_memory.cuh"
#include "sinter/device/engine/wgmma.cuh"
#include "sinter/device/family/attention_forward_queue.cuh"
#include "sinter/device/family/attention_forward_rows.cuh"
#include "sinter/device/family/contraction_epilogue_tile.cuh"

namespace sinter::attention {

// Tiles that TMA loads: one warpgroup produces, the others consume.
template <class Config, class First, class Q, int tile_q, int sequences = 0>
struct LoadedTiles : ForwardTiles<Config, First, Q, tile_q, sequences> {
  using Number = typename Q::Number;
  using Numbers = Types<Number, Number, float>;
  static constexpr int consumers = Config::threads / 128 - 1;

  template <class Operand, int extent, int k>
  using Tile =
      SharedTile<typename Operand::Number, Operand::k_fastest ? Major::k : Major::mn, extent, k>;
  using Pipe = Pipeline<Config::stages>;
  using PipeQ = Pipeline<1>;
};

// Tiles of values as TMA leaves them and as they are multiplied: the same but of 8 bits, which come
// as lines of elements, one a key, and are transposed to lines of keys, where wgmma reads them
// (attention_forward_transpose.cuh).
template <class V, int columns, int tile_k, bool transposed>
struct ValueTiles {
  static constexpr int line = 128 / static_cast<int>(sizeof(typename V::Number));
  static constexpr int up(int x, int to) { return (x + to - 1) / to * to; }
  using Multiplied = SharedTile<typename V::Number, V::k_fastest ? Major::k : Major::mn,
                                up(columns, line), up(tile_k, V::k_fastest ? line : 8)>;
  using Loaded = Multiplied;
  using WeightNumber = typename V::Number;
  static constexpr int headroom = 0;
};
template <class V, int columns, int tile_k>
struct ValueTiles<V, columns, tile_k, true> {
  static constexpr int line = 128;
  static constexpr int up(int x, int to) { return (x + to - 1) / to * to; }
  using Multiplied = SharedTile<typename V::Number, Major::k, columns, up(tile_k, line)>;
  using Loaded = SharedTile<typename V::Number, Major::k, tile_k, up(columns, line)>;
  // It holds numbers up to 448, those from 2^-6 on with 4 bits, the others as multiples of 2^-9.
  using WeightNumber = f8e4m3;
  static constexpr int headroom = 5;
};

// Warpgroups that share 64 rows, and rows of a tile.
template <class Config>
constexpr int warpgroups_of_rows() {
  if constexpr (DividesKeys<Config>)
    return Config::alternating;
  else
    return 1;
}
template <class Config>
constexpr int rows_of_tile() {
  return 64 * (Config::threads / 128 - 1) / warpgroups_of_rows<Config>();
}

// CTAs of an SM, where there are several.
template <class Config>
constexpr int blocks_of() {
  if constexpr (requires { Config::blocks; })
    return Config::blocks;
  else
    return 1;
}

// Stages of what scores read beside their sums, where it comes in boxes.
template <class Config>
constexpr int stages_of_boxes() {
  if constexpr (requires { Config::box_stages; })
    return Config::box_stages;
  else
    return 1;
}

// `Score`: what it reads beside its sums comes in stages of its own, of each consumer.
template <class Config, class First, class Q, class K, class V, class Score, int sequences,
          int tile_bytes>
struct ForwardShape : LoadedTiles<Config, First, Q, rows_of_tile<Config>(), sequences> {
  using B = LoadedTiles<Config, First, Q, rows_of_tile<Config>(), sequences>;
  // Consumers of 64 rows each, of so many warpgroups that take turns at tiles of keys.
  static constexpr int alternating = warpgroups_of_rows<Config>(),
                       consumers = B::consumers / alternating, warps = B::consumers * 4;
  using B::tile_k, B::stages, B::depth, B::columns, B::up;
  using typename B::Numbers, typename B::Pipe, typename B::PipeQ;
  // Elements of a line of 128 bytes.
  template <class Operand>
  static constexpr int line = 128 / static_cast<int>(sizeof(typename Operand::Number));
  using TileQ = typename B::template Tile<Q, 64, up(depth, line<Q>)>;  // of a consumer
  using TileK =
      typename B::template Tile<K, up(tile_k, K::k_fastest ? 8 : line<K>), up(depth, line<K>)>;
  static constexpr bool transposes_values = sizeof(typename V::Number) == 1;
  using Values = ValueTiles<V, columns, tile_k, transposes_values>;
  using TileV = typename Values::Multiplied;
  using LoadedV = typename Values::Loaded;
  using WeightNumber = typename Values::WeightNumber;
  static constexpr int headroom = Values::headroom;
  using Beside = BesideOf<Score, tile_k>;
  static constexpr bool has_boxes = Beside::bytes > 0;
  static constexpr int box_stages = stages_of_boxes<Config>();
  using PipeB = Pipeline<box_stages>;
  using Scores =
      Mma<Shape<64, tile_k>, Types<typename Q::Number, typename K::Number, float>, TileQ, TileK>;
  using Outputs =
      Mma<Shape<64, columns>, Types<WeightNumber, typename V::Number, float>, Registers, TileV>;

  // Shared memory, from a multiple of 1024 on.
  static constexpr int k = consumers * TileQ::bytes, v = k + stages * TileK::bytes,
                       boxes = v + stages * TileV::bytes,
                       boxes_of_consumer = box_stages * Beside::bytes,
                       epilogue_tiles_or_loaded_v = boxes + consumers * boxes_of_consumer,
                       loaded_v = transposes_values ? epilogue_tiles_or_loaded_v : v,
                       epilogue_tiles = epilogue_tiles_or_loaded_v +
                                        (transposes_values ? stages * LoadedV::bytes : 0),
                       pipe_q = epilogue_tiles +
                                consumers * 4 * static_cast<int>(sizeof(contraction::EpilogueTile)),
                       pipe_k = pipe_q + PipeQ::bytes, pipe_v = pipe_k + Pipe::bytes,
                       pipe_loaded_v = transposes_values ? pipe_v + Pipe::bytes : pipe_v,
                       pipe_boxes = pipe_loaded_v + Pipe::bytes,
                       queue = pipe_boxes + (has_boxes ? consumers * PipeB::bytes : 0),
                       statistics = queue + tile_bytes,
                       // whether or not clusters divide the keys, which is chosen after the tile
      end = statistics + (WalksTwice<Config> ? StatisticsBarrier::bytes : 0);
  static constexpr int shared_bytes = end + SharedMemory::lost;
  static_assert(shared_bytes == Config::shared_bytes);
};

// Keys and values that lie in pages: a Load of PagedRows, whose arguments are these.
template <class Operand>
concept LiesInPages = requires {
  Operand::page_rows;
};
template <class Args, class Coord>
struct ArgsAt {
  const Args& args;
  const Coord& c;
};

template <class Operand, class Tile, class Args, class Coord>
SINTER_DEVICE void load_tile(const Args& args, const Coord& c, int row, int k, unsigned to,
                             unsigned full) {
  if constexpr (LiesInPages<Operand>) {
    constexpr bool keys = Tile::major == Major::k;
    return PagedRows<Operand, Tile, Operand::page_rows>{keys ? row : 0}.load(
        ArgsAt<Args, Coord>{args, c}, k / Tile::depth, to, full);
  } else {
    TmaBoxes<Operand, Tile, Coord>::load_at(args, c, row, k, 0, to, full);
  }
}

// Calls visit(coordinates of the entry and head, band, tile of rows, its tiles of keys) for the
// tiles of rows of the CTA, as a thread of the producer takes them.
template <class Config, class S, class Bounds, class Args, class Visit>
SINTER_DEVICE void for_tiles_of_rows(const Args& args, unsigned char* pointer, unsigned shared,
                                     const Visit& visit) {
  auto tiles = tiles_of_producer<Config, S, Bounds>(pointer, shared);
#pragma unroll 1
  for (int round = 0, i; (i = tiles.next(args, round)) < S::items; ++round) {
    TileOfRows tile = tiles.tile(i);
    typename S::F::Coord c;
    S::F::set_batch(c, tile.entry);
    const BandOf<S, Bounds> band = tiles.band(args, c, tile);
    const KeyTiles keys = tiles.keys(band, tile);
    visit(c, band, tile, keys);
  }
}

// Of each tile, the last one first, the keys before the values of the one loaded before it;
// `behind_first` keys what else is wanted. One text of each load, which compilers make a loop of.
template <class S, class V, class Bounds, class Args, class LoadK, class BehindFirst>
SINTER_DEVICE void load_keys_and_values(const Args& args, const typename S::F::Coord& c,
                                        KeyWalk<S, Bounds> walk, int first_key, unsigned shared,
                                        typename S::Pipe::State& state_v, const LoadK& load_k,
                                        const BehindFirst& behind_first) {
  using Tile = typename S::LoadedV;
  const typename S::Pipe pipe_v{shared + S::pipe_loaded_v};
#pragma unroll 1
  for (bool first = true, more = true; more; first = false) {
    more = walk.more();
    if (more) load_k(walk.n);
    if (first) {
      behind_first();
    } else {
      pipe_v.acquire(state_v);
      if (loads<Bounds>()) {
        pipe_v.expect(state_v, Tile::bytes);
        load_tile<V, Tile>(args, c, 0, first_key + walk.before() * S::tile_k,
                           shared + S::loaded_v + state_v.stage * Tile::bytes,
                           pipe_v.full(state_v));
      }
      state_v.advance();
    }
    if (more) walk.next(args, c);
  }
}

// What the scores of a consumer, and of each `step` further on, read beside their sums of tile n.
template <class S, class Bounds, class Args>
SINTER_DEVICE void load_boxes(const Args& args, const typename S::F::Coord& c,
                              const BandOf<S, Bounds>& band, int row, int n, unsigned shared,
                              int consumer, int step, typename S::PipeB::State& state) {
#pragma unroll 1
  for (; consumer < S::consumers; consumer += step) {
    const typename S::PipeB pipe{shared + S::pipe_boxes + consumer * S::PipeB::bytes};
    pipe.acquire(state);
    if (!loads<Bounds>()) continue;
    pipe.expect(state, S::Beside::loaded);
    S::Beside::load(
        args, c, row + consumer * 64, band.first_column + n * S::tile_k,
        shared + S::boxes + consumer * S::boxes_of_consumer + state.stage * S::Beside::bytes,
        pipe.full(state));
  }
  state.advance();
}

// A thread of each of the producer's other warps: consumers do not wait for each other's.
inline constexpr int kBoxWarps = 3;
template <class Config, class S, class Bounds, class Args>
SINTER_DEVICE void produce_boxes(const Args& args, unsigned char* pointer, unsigned shared,
                                 int warp) {
  if (warp >= S::consumers) return;
  typename S::PipeB::State state;
  for_tiles_of_rows<Config, S, Bounds>(
      args, pointer, shared,
      [&](const auto& c, const auto& band, const TileOfRows& tile, const KeyTiles& keys) {
#pragma unroll 1
        for (int walk = 0; walk < (S::walks_twice ? 2 : 1); ++walk)
#pragma unroll 1
          for (KeyWalk<S, Bounds> at(args, c, tile.row, 0, keys.begin, keys.end, keys.part);
               at.more(); at.next(args, c))
            load_boxes<S, Bounds>(args, c, band, tile.row, at.n, shared, warp, kBoxWarps, state);
      });
}

// One thread of the producer, or its first warp.
template <class Config, class S, class Q, class K, class V, class Bounds, class Args>
SINTER_DEVICE void produce(const Args& args, unsigned char* pointer, unsigned shared) {
  const typename S::PipeQ pipe_q{shared + S::pipe_q};
  const typename S::Pipe pipe_k{shared + S::pipe_k};
  typename S::PipeQ::State state_q;
  typename S::Pipe::State state_k, state_v;
  [[maybe_unused]] typename S::PipeB::State state_b;
  for_tiles_of_rows<Config, S, Bounds>(
      args, pointer, shared,
      [&](const auto& c, const auto& band, const TileOfRows& tile, const KeyTiles& keys) {
        if (keys.begin == keys.end) return;
        const KeyWalk<S, Bounds> walk(args, c, tile.row, 0, keys.begin, keys.end, keys.part);
        if (MasksTiles<Bounds> && !walk.more()) return;
        const auto load_k = [&](int n) {
          pipe_k.acquire(state_k);
          if (loads<Bounds>()) {
            pipe_k.expect(state_k, S::TileK::bytes);
            load_tile<K, typename S::TileK>(args, c, band.first_column + n * S::tile_k, 0,
                                            shared + S::k + state_k.stage * S::TileK::bytes,
                                            pipe_k.full(state_k));
          }
          state_k.advance();
          // Other warps transpose values.
          if constexpr (S::has_boxes && S::transposes_values)
            load_boxes<S, Bounds>(args, c, band, tile.row, n, shared, 0, 1, state_b);
        };
        // Q behind keys, whose stage consumers leave earlier than its place: so that keys are there
        // when they begin this tile of rows. (As FlashAttention-3 has it.)
        load_keys_and_values<S, V>(args, c, walk, band.first_column, shared, state_v, load_k, [&] {
          pipe_q.acquire(state_q);
          if (loads<Bounds>()) {
            pipe_q.expect(state_q, S::consumers * S::TileQ::bytes);
#pragma unroll 1
            for (int consumer = 0; consumer < S::consumers; ++consumer)
              load_tile<Q, typename S::TileQ>(args, c, tile.row + consumer * 64, 0,
                                              shared + consumer * S::TileQ::bytes,
                                              pipe_q.full(state_q));
          }
          state_q.advance();
          if constexpr (S::walks_twice) {
            KeyWalk<S, Bounds> rest = walk;
#pragma unroll 1
            for (rest.next(args, c); rest.more(); rest.next(args, c)) load_k(rest.n);
            load_k(walk.n);
          }
        });
      });
}

// Of tile n of the keys, `columns` of the values past a length become zeros: weights are zeros
// there, but values may be NaN. `tile`: where the first of these columns lie, a whole epilogue tile
// or more. By all threads of a warpgroup, which meet(); what others clear meanwhile is the same.
template <class S, class Bounds, class Meet>
SINTER_DEVICE void clear_values(const BandOf<S, Bounds>& band, int n, unsigned tile, int columns,
                                const Meet& meet) {
  if constexpr (Bounds::padding) {
    const int from = band.columns - band.first_column - n * S::tile_k;
    if (from >= S::tile_k) return;
    static_assert(S::TileV::major == Major::mn, "neighbours along e lie together");
    const int pieces = columns / 2;
#pragma unroll 1
    for (int i = static_cast<int>(threadIdx.x % 128); i < (S::tile_k - from) * pieces; i += 128)
      hopper::clear_word(tile + S::TileV::place(i % pieces * 2, from + i / pieces));
    hopper::fence_async_proxy();
    meet();
  }
}

}  // namespace sinter::attention
