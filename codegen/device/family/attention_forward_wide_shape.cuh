// The products of attention_forward_wide.cuh with the places of their operands in shared memory,
// and the thread that has TMA bring them.
#pragma once
#include "sinter/device/family/attention_forward_producer.cuh"

namespace sinter::attention {

template <class Config, class First, class Q, class K, class V>
struct WideForwardShape : LoadedTiles<Config, First, Q, 64> {
  using B = LoadedTiles<Config, First, Q, 64>;
  using B::consumers, B::tile_k, B::stages, B::depth, B::width, B::columns, B::up;
  using typename B::Number, typename B::Numbers, typename B::Pipe, typename B::PipeQ;
  static_assert(consumers == 2, "two consumers share 64 rows");
  static_assert(Q::k_fastest && K::k_fastest && !V::k_fastest, "heads' elements lie together");
  static constexpr bool values_in_keys = Config::values_in_keys;

  // Of the panels of 64 columns of a result the first consumer sums as many as the second or one
  // more; a single one both, and the first stores it.
  static constexpr int panels = up(width, 64) / 64;
  static constexpr int panels_of(int consumer) {
    return panels == 1 ? 1 : (panels + 1 - consumer) / 2;
  }
  static constexpr int first_column(int consumer) {
    return panels == 1 ? 0 : consumer * panels_of(0) * 64;
  }

  using TileQ = SharedTile<Number, Major::k, 64, up(depth, 64)>;
  using TileK = SharedTile<Number, Major::k, tile_k, up(depth, 64)>;
  // K comes in parts of some panels, so that scores begin with the first one: all have a pipeline's
  // `full`, the first one its `empty`, too.
  static constexpr int parts = TileK::panels < 3 ? TileK::panels : 3,
                       panels_of_part = (TileK::panels + parts - 1) / parts;
  template <int part>
  static constexpr int panels_in =
      part + 1 < parts ? panels_of_part : TileK::panels - part* panels_of_part;
  template <int part>
  using PartQ = SharedTile<Number, Major::k, 64, 64 * panels_in<part>>;
  template <int part>
  using PartK = SharedTile<Number, Major::k, tile_k, 64 * panels_in<part>>;
  template <int part>
  using PartScores = Mma<Shape<64, tile_k>, Numbers, PartQ<part>, PartK<part>>;
  // The same bytes as the first panels of K where values are in keys.
  using TileV = SharedTile<Number, Major::mn, 64 * panels, tile_k>;
  using TileP = SharedTile<Number, Major::k, 64, tile_k,
                           tile_k % 64 == 0   ? 128
                           : tile_k % 32 == 0 ? 64
                                              : 32>;  // weights
  using Scores = Mma<Shape<64, tile_k>, Numbers, TileQ, TileK>;
  template <int columns>
  using Outputs = Mma<Shape<64, columns>, Numbers, Registers, TileV>;  // of own weights
  template <int columns>
  using OthersOutputs = Mma<Shape<64, columns>, Numbers, TileP, TileV>;  // of the other's

  // Weights lie in a panel of the keys that no values are in, if there is one of their size.
  static constexpr bool weights_in_keys =
      values_in_keys && TileK::panels > panels&& TileP::bytes <= TileK::panel_bytes;
  // Whether K has a stage for all of the next tile before the tile before is used up.
  static constexpr bool scores_first = !values_in_keys || stages > 2;

  // What one consumer tells the other of a tile of keys, beside weights: of each row the largest
  // score so far, and what was summed before is worth. Two stages.
  using PipeP = Pipeline<2>;
  static constexpr int bytes_of_rows = 2 * 64 * 4;
  static constexpr int bytes_of_totals = 128 * 2 * 4;  // a consumer's partial sums, by thread

  // Shared memory, from a multiple of 1024 on. Where Q was, results go.
  static constexpr int bytes_of_epilogue =
                           consumers * 4 * static_cast<int>(sizeof(contraction::EpilogueTile)),
                       q = 0,
                       k = TileQ::bytes > bytes_of_epilogue ? TileQ::bytes : bytes_of_epilogue,
                       v = values_in_keys ? k : k + stages * TileK::bytes,
                       p = weights_in_keys  ? k + panels * TileK::panel_bytes
                           : values_in_keys ? k + stages * TileK::bytes
                                            : v + stages * TileV::bytes,
                       bytes_of_stage_v = values_in_keys ? TileK::bytes : TileV::bytes,
                       bytes_of_stage_p = weights_in_keys ? TileK::bytes : TileP::bytes,
                       rows = weights_in_keys ? k + stages * TileK::bytes
                                              : p + PipeP::stages * TileP::bytes,
                       totals = rows + PipeP::stages * bytes_of_rows,
                       pipe_q = totals + consumers * bytes_of_totals,
                       pipe_k = pipe_q + PipeQ::bytes, pipe_p = pipe_k + parts * Pipe::bytes,
                       pipe_v = values_in_keys ? pipe_k : pipe_p + PipeP::bytes,
                       end = values_in_keys ? pipe_p + PipeP::bytes : pipe_v + Pipe::bytes,
                       loaded_v = v, pipe_loaded_v = pipe_v;  // by load_keys_and_values()
  using LoadedV = TileV;
  static constexpr int shared_bytes = end + SharedMemory::lost;
  static_assert(shared_bytes == Config::shared_bytes);

  static SINTER_DEVICE void init_barriers(unsigned shared) {
    PipeQ{shared + pipe_q}.init(1, consumers * 4);
    PipeP{shared + pipe_p}.init(4, 4);
    for (int part = 0; part < parts; ++part)
      pipe_of_part(shared, part).init(1, values_in_keys ? consumers * 4 : 4);
    if constexpr (!values_in_keys) Pipe{shared + pipe_v}.init(1, consumers * 4);
  }
  static SINTER_DEVICE Pipe pipe_of_part(unsigned shared, int part) {
    return {shared + pipe_k + part * Pipe::bytes};
  }
};

// One thread of the producer.
template <class Config, class S, class Q, class K, class V, class Bounds, class Args>
SINTER_DEVICE void produce_wide(const Args& args, unsigned shared) {
  const typename S::PipeQ pipe_q{shared + S::pipe_q};
  typename S::PipeQ::State state_q;
  typename S::Pipe::State state_k, state_v;
#pragma unroll 1
  for (int round = 0, i; (i = number_of_tile(round)) < S::items; ++round) {
    const TileOfRows tile = tile_of_rows<Config, S>(i);
    typename S::F::Coord c;
    S::F::set_batch(c, tile.entry);
    const Band<Bounds, S::queries_of_head, S::keys> band(args, c);
    const KeyTiles keys = keys_of<S>(band, tile);
    const bool none = keys.begin >= keys.end;
    pipe_q.acquire(state_q);  // also for results of nothing, which go where Q was
    pipe_q.expect(state_q, none ? 0 : S::TileQ::bytes);
    if (!none)
      load_tile<Q, typename S::TileQ>(args, c, tile.row, 0, shared + S::q, pipe_q.full(state_q));
    state_q.advance();
    const auto load_k = [&](int n) {
      S::pipe_of_part(shared, 0).acquire(state_k);
      for_each_number<S::parts>([&]<int part>() {
        using Part = typename S::template PartK<part>;
        constexpr int panel = part * S::panels_of_part;
        const auto pipe = S::pipe_of_part(shared, part);
        pipe.expect(state_k, Part::bytes);
        load_tile<K, Part>(
            args, c, n * S::tile_k, panel * 64,
            shared + S::k + state_k.stage * S::TileK::bytes + panel * Part::panel_bytes,
            pipe.full(state_k));
      });
      state_k.advance();
    };
    if constexpr (S::values_in_keys) {
#pragma unroll 1
      for (int n = keys.end - 1; n >= keys.begin; --n) load_k(n);
    } else if (!none) {
      load_keys_and_values<S, V>(args, c,
                                 KeyWalk<S, Bounds>(args, c, 0, 0, keys.begin, keys.end, keys.part),
                                 band.first_column, shared, state_v, load_k, [] {});
    }
  }
}

}  // namespace sinter::attention
