// What all parts of attention_backward.cuh know: the products with the places of their operands in
// shared memory, and the tiles of queries that a tile of keys meets.
#pragma once
#include "sinter/device/engine/pipeline.cuh"
#include "sinter/device/engine/shared_memory.cuh"
#include "sinter/device/engine/wgmma.cuh"
#include "sinter/device/family/attention_bounds.cuh"
#include "sinter/device/family/attention_softmax.cuh"

namespace sinter::attention {

// The problem and its tiles. `tile_k`: keys of a CTA.
template <class Config, class Bounds, class Q, int tile_k_>
struct BackwardTiles {
  using Number = typename Q::Number;
  using Extent = typename Config::Extent;
  using Coord = Coordinates<typename Config::Index, Extent>;
  static constexpr int entries = static_cast<int>(Extent::at(0)), group = Config::group,
                       heads = static_cast<int>(Extent::at(1)) / group,  // of K
      queries = static_cast<int>(Extent::at(2)), keys = static_cast<int>(Extent::at(3)),
                       depth = static_cast<int>(Extent::at(4)),
                       depth_v = static_cast<int>(Extent::at(5));
  static constexpr int up(int x, int to) { return (x + to - 1) / to * to; }
  static constexpr int consumers = Config::threads / 128 - 1, tile_k = tile_k_,
                       tile_q = Config::tile_q;
  static constexpr int slabs = up(depth, 64) / 64, slabs_v = up(depth_v, 64) / 64,
                       steps = up(depth, 16) / 16, steps_v = up(depth_v, 16) / 16;
  static_assert(sizeof(Number) == 2, "attention multiplies numbers of 16 bits");
  static_assert(tile_q % 64 == 0, "queries lie in slabs of 64 in shared memory");

  // The same bytes are an operand whose k is the head's dimension and one whose k is queries or
  // keys.
  template <int lines, int slabs>
  using ByHead = SharedTile<Number, Major::k, lines, 64 * slabs>;
  template <int lines, int slabs>
  using ByLine = SharedTile<Number, Major::mn, 64 * slabs, lines>;
  using TileQ = ByHead<tile_q, slabs>;
  using TileDO = ByHead<tile_q, slabs_v>;
  using TileK = ByHead<tile_k, slabs>;
  using TileV = ByHead<tile_k, slabs_v>;
  using TileDS = SharedTile<Number, Major::mn, tile_q, tile_k>;  // a line of queries for each key
  using TileKByLine = ByLine<tile_k, slabs>;
  using Numbers = Types<Number, Number, float>;

  static constexpr int tiles_q = (queries + tile_q - 1) / tile_q;
  static constexpr bool packed = PacksSequences<Bounds>;
  static constexpr int tiles_k = tiles_of(keys, tile_k, sequences_of<Bounds>()),
                       tiles = entries * heads * tiles_k;
};

template <class Config, class Bounds, class Q, class K, class V, class DO>
struct BackwardShape : BackwardTiles<Config, Bounds, Q, 64 * (Config::threads / 128 - 1)> {
  using B = BackwardTiles<Config, Bounds, Q, 64 * (Config::threads / 128 - 1)>;
  using B::consumers, B::tile_k, B::tile_q, B::slabs, B::slabs_v, B::depth, B::depth_v, B::up;
  using typename B::Number, typename B::Numbers, typename B::TileQ, typename B::TileDO,
      typename B::TileK, typename B::TileV, typename B::TileDS, typename B::TileKByLine;
  static constexpr int stages = Config::stages;
  static_assert(depth <= 128 && depth_v <= 128, "sums of dK and dV stay in registers");
  using TileQByLine = typename B::template ByLine<tile_q, slabs>;
  using TileDOByLine = typename B::template ByLine<tile_q, slabs_v>;

  // Of keys and queries: a consumer's 64 keys are the rows, so that what is made of the sums is the
  // left operand of dV and dK as it lies in the registers.
  using Scores = Mma<Shape<64, tile_q>, Numbers, TileK, TileQ>;
  using DWeights = Mma<Shape<64, tile_q>, Numbers, TileV, TileDO>;
  using DV = Mma<Shape<64, up(depth_v, 8)>, Numbers, Registers, TileDOByLine>;
  using DK = Mma<Shape<64, up(depth, 8)>, Numbers, Registers, TileQByLine>;
  // Of dQ's tile a consumer has 64 rows, or 64 columns where there are no more rows.
  static constexpr bool rows_of_dq = tile_q == tile_k;
  static_assert(rows_of_dq || (tile_q == 64 && slabs == consumers),
                "the consumers share a tile of dQ by rows or by slabs");
  static constexpr int columns_of_dq = rows_of_dq ? up(depth, 8) : 64;
  using DQ = Mma<Shape<64, columns_of_dq>, Numbers, TileDS, TileKByLine>;
  static constexpr int bytes_of_dq = up(columns_of_dq, 32) * 64 * 4;  // a consumer's
  // What a consumer adds at once, how often for a tile of queries, and the place of it.
  static constexpr int adds_of_dq(int) { return 1; }
  static constexpr int row_of_dq(int consumer) { return rows_of_dq ? consumer * 64 : 0; }
  static constexpr int column_of_dq(int consumer, int) { return rows_of_dq ? 0 : consumer * 64; }

  using PipeQ = Pipeline<stages>;
  using PipeDO = PipeQ;

  // Shared memory, from a multiple of 1024 on.
  static constexpr int k = 0, v = k + TileK::bytes, q = v + TileV::bytes,
                       d_o = q + stages * TileQ::bytes, ds = d_o + stages * TileDO::bytes,
                       dq = ds + 2 * TileDS::bytes, lse = dq + consumers * bytes_of_dq,
                       delta = lse + stages * tile_q * 4, pipe_q = delta + stages * tile_q * 4,
                       pipe_do = pipe_q + PipeQ::bytes, full_k = pipe_do + PipeDO::bytes,
                       full_v = full_k + 8, walked = full_v + 8,
                       end = walked + (Bounds::has_blocks ? stages * 8 : 0);
  static constexpr int shared_bytes = end + 1023;
  static_assert(shared_bytes <= 227 << 10, "tiles do not fit into shared memory");
};

// Where no mask hides blocks.
struct AllBlocks {
  static constexpr bool has_blocks = false;
  struct Blocks {
    SINTER_DEVICE bool sees(int, int) const { return true; }
  };
  template <class Args, class Coord>
  static SINTER_DEVICE Blocks blocks(const Args&, const Coord&, int) {
    return {};
  }
};

// The tile of keys of a CTA: `head` is the first of those of Q that share it. Tiles of some heads
// run together, the first keys first: under a causal bound these meet the most queries.
struct TileOfKeys {
  int entry, head, from;
};
template <class Config, class S>
SINTER_DEVICE TileOfKeys tile_of_keys(int i) {
  constexpr int all = S::entries * S::heads, together = Config::heads_together;
  const int first = i / (together * S::tiles_k) * together, within = i % (together * S::tiles_k);
  const int left = all - first, heads = left < together ? left : together;
  const int head = first + within % heads;
  return {head / S::heads, head % S::heads * S::group, within / heads * S::tile_k};
}

// The rows of queries that see a tile of keys, and which tiles of them hold pairs that do not see
// each other. Of tiles whose blocks a mask hides nothing is computed.
template <class S, class Bounds>
struct QueryBand {
  static constexpr bool has_blocks = Bounds::has_blocks;
  using Of = Band<Bounds, S::queries, S::keys>;
  Of band;
  int head, from;  // the first head of Q and the first key
  int begin, end;  // tiles of queries, from the band's first one on
  const typename Bounds::Blocks blocks;
  int seen = 0;  // tiles that `blocks` does not hide, of all query heads of the group

  // By whole warps. `key`: the first one; of packed sequences, the number of the tile times tile_k.
  template <class Args>
  SINTER_DEVICE QueryBand(const Args& args, const typename S::Coord& c, int key)
      : band(band_of(args, c, key)),
        head(static_cast<int>(c.at[1])),
        from(key),
        blocks(Bounds::blocks(args, c, key)) {
    const int last = (key + S::tile_k < band.columns ? key + S::tile_k : band.columns) - 1;
    int low = band.first_row, high = band.rows;
    if constexpr (Bounds::has_right) {
      const int row = key - band.shift - Bounds::right;
      if (row > low) low = row;
    }
    if constexpr (Bounds::has_left) {
      const int row = last - band.shift + Bounds::left;
      if (row < high) high = row;
    }
    begin = (low - band.first_row) / S::tile_q;
    end = last < key || high <= low ? begin : (high - band.first_row + S::tile_q - 1) / S::tile_q;
    if constexpr (Bounds::has_blocks) count_seen();
  }
  SINTER_DEVICE bool is_cut(int row) const {
    bool cut = S::keys % S::tile_k != 0 || Bounds::has_lengths || S::packed
                   ? from + S::tile_k > band.columns
                   : false;
    if constexpr (Bounds::has_right)
      cut = cut || from + S::tile_k - 1 > row + band.shift + Bounds::right;
    if constexpr (Bounds::has_left)
      cut = cut || from <= row + S::tile_q - 1 + band.shift - Bounds::left;
    return cut;
  }
  // The rows that see a key: [first, stop).
  SINTER_DEVICE int first(int key) const {
    return Bounds::has_right ? key - band.shift - Bounds::right : 0;
  }
  SINTER_DEVICE int stop(int key) const {
    return key >= band.columns ? 0
           : Bounds::has_left  ? key - band.shift + Bounds::left
                               : S::tiles_q * S::tile_q;
  }
  // Tiles of all query heads of the group.
  SINTER_DEVICE int count() const { return Bounds::has_blocks ? seen : (end - begin) * S::group; }
  SINTER_DEVICE bool sees(int head, int tile) const { return blocks.sees(head, tile * S::tile_q); }
  SINTER_DEVICE bool has_keys() const { return from < band.columns; }

 private:
  template <class Args>
  static SINTER_DEVICE Of band_of(const Args& args, const typename S::Coord& c, int& key) {
    if constexpr (S::packed)
      return Of::template of_tile<S::tile_k, true>(args, key / S::tile_k, key);
    else
      return Of(args, c);
  }
  SINTER_DEVICE void count_seen() {
    static_assert(!Bounds::has_blocks || (128 % S::tile_q == 0 && 128 % S::tile_k == 0),
                  "a tile is within a block");
    const int tiles = end - begin;
    for (int i = static_cast<int>(threadIdx.x) % 32; i < tiles * S::group; i += 32)
      seen += sees(head + i / tiles, begin + i % tiles);
    seen = sum_over_lanes<1, 16>(seen);
  }
};

// Walks over a band's tiles of queries, head by head, but for those that are hidden. Where there
// are such, the warps of the first warpgroup look for them; consumers read in shared memory which
// tile is in a stage, since they have no registers left to look.
template <class S>
struct QueryTile : BandStart<S::packed> {
  int begin, end;
  int head, tile;

  template <class Bounds>
  SINTER_DEVICE explicit QueryTile(const QueryBand<S, Bounds>& band)
      : BandStart<S::packed>(band.band),
        begin(band.begin),
        end(band.end),
        head(band.head),
        tile(band.begin) {}
  template <class Bounds>
  static SINTER_DEVICE QueryTile first(const QueryBand<S, Bounds>& band) {
    QueryTile at(band);
    if constexpr (Bounds::has_blocks)
      if (band.seen > 0) at.skip_hidden(band);
    return at;
  }
  SINTER_DEVICE int row() const { return this->first_row + tile * S::tile_q; }
  template <class Bounds>
  SINTER_DEVICE void advance(const QueryBand<S, Bounds>& band) {
    step();
    if constexpr (Bounds::has_blocks) skip_hidden(band);
  }

 private:
  SINTER_DEVICE void step() {
    if (++tile == end) tile = begin, ++head;
  }
  template <class Bounds>
  SINTER_DEVICE void skip_hidden(const QueryBand<S, Bounds>& band) {
    while (head < band.head + S::group && !band.sees(head, tile)) step();
  }
};

}  // namespace sinter::attention
