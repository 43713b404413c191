// What all parts of attention_backward.cuh know: the products with the places of their operands in
// shared memory.
#pragma once
#include "sinter/device/engine/pipeline.cuh"
#include "sinter/device/engine/shared_memory.cuh"
#include "sinter/device/engine/wgmma.cuh"
#include "sinter/device/family/attention_backward_tiles.cuh"

namespace sinter::attention {

// What computes gradients once more that are NaN (attention_backward_recompute.cuh) finds in shared
// memory: whether that is so of each consumer's sums of dK or dV; whether the K that its dQ is made
// of has infinite or NaN elements; and which tile of keys it is, so that no register holds this
// through the walk.
struct ToRecompute {
  int sums[3], keys[3];
  TileOfKeys tile;
  int cut_end;  // QueryBand::cut_end
  static constexpr int bytes = 48;
};
static_assert(sizeof(ToRecompute) <= ToRecompute::bytes);
template <class S>
SINTER_DEVICE volatile ToRecompute& to_recompute(unsigned char* shared) {
  return *reinterpret_cast<volatile ToRecompute*>(shared + S::recompute);
}

// Tiles that TMA loads: one warpgroup produces, the others consume.
template <class Config, class Q, int tile_k, int sequences>
struct LoadedBackwardTiles : BackwardTiles<Config, Q, tile_k, sequences> {
  using B = BackwardTiles<Config, Q, tile_k, sequences>;
  using B::depth, B::depth_v, B::tile_q, B::up;
  using typename B::Number;
  static constexpr int consumers = Config::threads / 128 - 1, panels = up(depth, 64) / 64,
                       panels_v = up(depth_v, 64) / 64;
  static_assert(tile_q % 64 == 0, "queries lie in panels of 64 in shared memory");

  // The same bytes are an operand whose k is the head's dimension and one whose k is queries or
  // keys.
  template <int lines, int panels>
  using ByHead = SharedTile<Number, Major::k, lines, 64 * panels>;
  template <int lines, int panels>
  using ByLine = SharedTile<Number, Major::mn, 64 * panels, lines>;
  using TileQ = ByHead<tile_q, panels>;
  using TileDO = ByHead<tile_q, panels_v>;
  using TileK = ByHead<tile_k, panels>;
  using TileV = ByHead<tile_k, panels_v>;
  using TileDS = SharedTile<Number, Major::mn, tile_q, tile_k>;  // a line of queries for each key
  static SINTER_DEVICE int place_of_ds(int query, int key) { return TileDS::place(query, key); }
  using TileKByLine = ByLine<tile_k, panels>;
  using Numbers = Types<Number, Number, float>;
};

// Whether the score's derivative is 1.
template <class Score>
inline constexpr bool is_additive = Score::plain || requires {
  Score::additive;
};

// What a score reads of memory beside its sum, where TMA brings it: `Box` of a score, with Number
// of 16 bits and load() as operands have it, whose rows are queries and whose k are keys. Boxes of
// 64 queries and 64 keys lie where a consumer writes ds of the same pairs, as soon as the product
// of dQ that read what was there before has ended: so they take no place of their own.
template <class Score>
concept TakesBoxes = requires {
  typename Score::Box;
};
struct NoBox {};
template <class Score>
struct BoxOfScore {
  using Type = NoBox;
};
template <TakesBoxes Score>
struct BoxOfScore<Score> {
  using Type = typename Score::Box;
};

template <class Config, class Bounds, class Q, class K, class V, class DO, class Score>
struct BackwardShape : LoadedBackwardTiles<Config, Q, Config::tile_k, sequences_of<Bounds>()> {
  using B = LoadedBackwardTiles<Config, Q, Config::tile_k, sequences_of<Bounds>()>;
  using B::consumers, B::tile_k, B::tile_q, B::panels, B::panels_v, B::depth, B::depth_v, B::up,
      B::windows;
  using typename B::Number, typename B::Numbers, typename B::TileQ, typename B::TileDO,
      typename B::TileK, typename B::TileV, typename B::TileDS, typename B::TileKByLine;
  static constexpr int stages = Config::stages;
  static_assert(depth <= 128 && depth_v <= 128, "sums of dK and dV stay in registers");
  using TileQByLine = typename B::template ByLine<tile_q, panels>;
  using TileDOByLine = typename B::template ByLine<tile_q, panels_v>;

  // Of 64 keys, of a consumer.
  static constexpr int blocks = tile_k / 64 / consumers;
  static_assert(tile_k == 64 * blocks * consumers && blocks <= 2);

  // Of keys and queries: 64 keys of a consumer are the rows, so that what is made of the sums is
  // the left operand of dV and dK as it lies in the registers.
  template <int queries>
  using Scores = Mma<Shape<64, queries>, Numbers, TileK, TileQ>;
  template <int queries>
  using DWeights = Mma<Shape<64, queries>, Numbers, TileV, TileDO>;
  // Of a head's last tile, where fewer than tile_q are multiplied.
  static constexpr int last_queries = [] {
    if constexpr (requires { Config::last_queries; })
      return Config::last_queries;
    else
      return tile_q;
  }();
  using DV = Mma<Shape<64, up(depth_v, 8)>, Numbers, Registers, TileDOByLine>;
  using DK = Mma<Shape<64, up(depth, 8)>, Numbers, Registers, TileQByLine>;
  // Of dQ's tile a consumer has 64 rows, or 64 columns where there are no more rows; or, where
  // there is one panel of these, what its own keys sum to: the first consumer adds such parts.
  static constexpr bool rows_of_dq = tile_q == tile_k, parts_of_dq = tile_k > 128;
  static_assert(rows_of_dq || (tile_q == 64 && panels == (parts_of_dq ? 1 : consumers)),
                "the consumers share a tile of dQ by rows, by panels or by keys");
  static constexpr int columns_of_dq = rows_of_dq || parts_of_dq ? up(depth, 8) : 64;
  static constexpr int keys_of_dq = parts_of_dq ? 64 * blocks : tile_k;
  using KeysOfDS = SharedTile<Number, Major::mn, tile_q, keys_of_dq>;
  using KeysOfK = typename B::template ByLine<keys_of_dq, panels>;
  using DQ = Mma<Shape<64, columns_of_dq>, Numbers, KeysOfDS, KeysOfK>;
  static constexpr int bytes_of_dq = up(columns_of_dq, 32) * 64 * 4;  // a consumer's
  // What a consumer adds at once, how often for a tile of queries, and the place of it.
  static constexpr int adds_of_dq(int) { return 1; }
  static constexpr int row_of_dq(int consumer) { return rows_of_dq ? consumer * 64 : 0; }
  static constexpr int key_of_dq(int consumer) { return parts_of_dq ? consumer * keys_of_dq : 0; }
  static constexpr int column_of_dq(int consumer, int) {
    return rows_of_dq || parts_of_dq ? 0 : consumer * 64;
  }

  // Whether windows have one tile of queries, too, and dBias is added up over them.
  static constexpr bool holds_dbias = windows > 1 && !parts_of_dq;
  // Else the keys of the next window come while this one's are multiplied: in turns they lie in two
  // places. For these ds has one place, not two in turns.
  static constexpr bool keys_ahead = windows > 1 && parts_of_dq;
  static constexpr int places_of_keys = keys_ahead ? 2 : 1, places_of_ds = keys_ahead ? 1 : 2,
                       bytes_of_keys = TileK::bytes + TileV::bytes;
  static constexpr SINTER_DEVICE int place_of_keys(int window) {
    return keys_ahead ? (window & 1) * bytes_of_keys : 0;
  }
  // Of the barriers of a window's keys: how far they lie from the first one's, and their phase.
  static constexpr SINTER_DEVICE int barrier_of_keys(int window) {
    return keys_ahead ? (window & 1) * 8 : 0;
  }
  static constexpr SINTER_DEVICE int phase_of_keys(int window) {
    return keys_ahead ? window / 2 & 1 : window & 1;
  }

  using PipeQ = Pipeline<stages>;
  using PipeDO = PipeQ;
  using PipeBoxes = Pipeline<2>;  // the halves of ds
  using Box = typename BoxOfScore<Score>::Type;
  static constexpr bool takes_boxes = TakesBoxes<Score>;
  // Whether it is said of each tile if it has rows that see nothing, as masks of -infinity leave
  // them: what they hold is not to make their scores' gradients NaN.
  static constexpr bool marks_unseen = is_additive<Score> && (!Score::plain || MasksPairs<Bounds>);
  static constexpr int box_bytes = 64 * 64 * 2, boxes = tile_q / 64 * (tile_k / 64);
  // Of number `panel` of 64 queries and number `keys` of 64 keys, in a half of ds.
  static constexpr int place_of_box(int half, int panel, int keys) {
    return ds + half * TileDS::bytes + panel * TileDS::panel_bytes + keys * box_bytes;
  }

  // Shared memory, from a multiple of 1024 on.
  static constexpr int k = 0, v = k + TileK::bytes, q = k + places_of_keys * bytes_of_keys,
                       d_o = q + stages * TileQ::bytes, ds = d_o + stages * TileDO::bytes,
                       dq = ds + places_of_ds * TileDS::bytes, dbias = dq + consumers * bytes_of_dq,
                       lse = dbias + (holds_dbias ? tile_k * tile_q * 4 : 0),
                       largest = lse + stages * tile_q * 4,
                       delta = largest + (B::totals ? stages * tile_q * 4 : 0),
                       pipe_q = delta + stages * tile_q * 4, pipe_do = pipe_q + PipeQ::bytes,
                       full_k = pipe_do + PipeDO::bytes, full_v = full_k + 8 * places_of_keys,
                       free_keys = full_v + 8 * places_of_keys,
                       walked = free_keys + (windows > 1 ? 8 * places_of_keys : 0),
                       pipe_boxes = walked + (Bounds::has_blocks ? stages * 8 : 0),
                       unseen = pipe_boxes + (takes_boxes ? PipeBoxes::bytes : 0),
                       recompute = unseen + (marks_unseen ? stages * 8 : 0),
                       end = recompute + ToRecompute::bytes;
  static constexpr int shared_bytes = end + SharedMemory::lost;
  static_assert(shared_bytes == Config::shared_bytes);
  static_assert(!holds_dbias || consumers == 1, "one consumer says that keys are free");
};

}  // namespace sinter::attention
