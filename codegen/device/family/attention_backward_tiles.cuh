// The problem of attention backward in tiles of keys, and the tiles of queries that each meets.
#pragma once
#include "sinter/device/family/attention_bounds.cuh"
#include "sinter/device/family/attention_mask.cuh"
#include "sinter/device/family/attention_softmax.cuh"

namespace sinter::attention {

// The problem and its tiles. `tile_k`: keys of a CTA. `sequences`: packed ones.
template <class Config, class Q, int tile_k_, int sequences = 0>
struct BackwardTiles {
  using Number = typename Q::Number;
  using Extent = typename Config::Extent;
  using Coord = Coordinates<typename Config::Index, Extent>;
  static constexpr int group = Config::group_size, depth = static_cast<int>(Extent::at(4)),
                       depth_v = static_cast<int>(Extent::at(5));
  static constexpr auto entries =
      number<Extent::literals(0, 1)>([] { return static_cast<int>(Extent::at(0)); });
  static constexpr auto heads = number<Extent::literals(1, 1)>(  // of K
      [] { return static_cast<int>(Extent::at(1)) / group; });
  static constexpr auto queries =
      number<Extent::literals(2, 1)>([] { return static_cast<int>(Extent::at(2)); });
  static constexpr auto keys =
      number<Extent::literals(3, 1)>([] { return static_cast<int>(Extent::at(3)); });
  static constexpr int up(int x, int to) { return (x + to - 1) / to * to; }
  static constexpr int tile_k = tile_k_, tile_q = Config::tile_q;
  // Blocks of 16 elements.
  static constexpr int steps = up(depth, 16) / 16, steps_v = up(depth_v, 16) / 16;

  // CTAs of a tile of keys, each of which walks over a part of the tiles of queries.
  static constexpr int parts = [] {
    if constexpr (requires { Config::parts; })
      return Config::parts;
    else
      return 1;
  }();
  // Batch entries of a head, each of one tile of keys, that a CTA takes in turn.
  static constexpr int windows = [] {
    if constexpr (requires { Config::windows; })
      return Config::windows;
    else
      return 1;
  }();
  // Whether rows have RowShift's totals.
  static constexpr bool totals = requires { Config::row_totals; };
  // Whether the tiles of a head run side by side for all entries, which share a bias.
  static constexpr bool entries_first = requires { Config::entries_first; };
  // Whether tiles of the last keys start first.
  static constexpr bool last_keys_first = requires { Config::last_keys_first; };
  // See attention_backward_order.cuh.
  static constexpr bool in_order = requires { Config::in_order; };
  // Whether a walk has the heads of a group inside, tile of queries by tile of queries (QueryTile).
  static constexpr bool tile_by_tile = requires { Config::blocks_of_round; };
  static constexpr auto tiles_q =
      number<is_known(queries)>([] { return (queries + tile_q - 1) / tile_q; });
  static constexpr bool packed = sequences > 0;
  static constexpr auto tiles_k =
      number<is_known(keys)>([] { return tiles_of(keys, tile_k, sequences); });
};

// Whether tiles may hold pairs that do not see each other, of queries and keys that both exist. A
// mask of blocks hides whole tiles, and a score's body none: its -infinity makes a weight of zero
// like any other.
template <class Bounds>
inline constexpr bool hides_pairs = Bounds::has_left || Bounds::has_right || Bounds::has_lengths;

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
// run together, the first keys first: under a causal bound these meet the most queries; or the last
// ones, where a mask lets these be seen the most. All parts of a tile come before those of the next
// one, which may wait for them (in_order).
struct TileOfKeys {
  int entry, head, from, part;
  bool from_end = false;  // whether its walk begins at the last tile of queries
};
template <class Config, class S>
SINTER_DEVICE TileOfKeys tile_of_keys(int i) {
  if constexpr (S::windows > 1) return {i / S::heads * S::windows, i % S::heads * S::group, 0, 0};
  constexpr auto all = number<is_known(S::entries, S::heads)>([] { return S::entries * S::heads; });
  const int together = Config::heads_together, group = together * S::tiles_k * S::parts;
  const int first = i / group * together, within = i % group;
  const int left = all - first, heads = left < together ? left : together;
  const int number = first + within % heads, tile = within / heads,
            of_keys = S::last_keys_first ? S::tiles_k - 1 - tile / S::parts : tile / S::parts,
            entry = S::entries_first ? number % S::entries : number / S::heads,
            head = S::entries_first ? number / S::entries : number % S::heads;
  static_assert(!(S::last_keys_first && S::in_order), "each tile waits for those before it");
  TileOfKeys t{entry, head * S::group, of_keys * S::tile_k, tile % S::parts};
  if constexpr (S::tile_by_tile) t.from_end = i / Config::blocks_of_round % 2 == 0;
  return t;
}

// f(number, coordinates) for each window of a CTA, of which `c` has the first one's.
template <class S, class F>
SINTER_DEVICE void each_window(typename S::Coord c, const F& f) {
  if constexpr (S::windows == 1) {
    f(0, c);
  } else {
    static_assert(S::parts == 1 && !S::packed);
    const int left = S::entries - static_cast<int>(c.at[0]);
    const int count = left < S::windows ? left : S::windows;
#pragma unroll 1
    for (int i = 0; i < count; ++i, c.at[0] += 1) f(i, c);
  }
}

// The rows of queries that see a tile of keys, and which tiles of them hold pairs that do not see
// each other. Of tiles whose blocks a mask hides nothing is computed. Parts have equal shares of
// the walk over all query heads of the group.
template <class S, class Bounds>
struct QueryBand {
  static constexpr bool has_blocks = Bounds::has_blocks;
  using Mask = Bounds;
  using Of = Band<Bounds, S::queries, S::keys>;
  Of band;
  int head, from;       // the first head of Q and the first key
  const bool from_end;  // see TileOfKeys
  int cut_end;     // the end of the rows whose tiles may be cut by the last key or the next one
  int begin, end;  // tiles of queries, from the band's first one on
  const typename Bounds::Blocks blocks;
  int seen = 0;             // tiles that `blocks` does not hide, of all query heads of the group
  int before = 0, own = 0;  // of the walk, tiles of the parts before this one, and its own

  // By whole warps. `key`: the first one; of packed sequences, the number of the tile times tile_k.
  template <class Args>
  SINTER_DEVICE QueryBand(const Args& args, const typename S::Coord& c, int key,
                          const TileOfKeys& tile)
      : band(band_of(args, c, key)),
        head(static_cast<int>(c.at[1])),
        from(key),
        from_end(tile.from_end),
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
    cut_end = may_end && from + S::tile_k > band.columns ? 0x7fffffff
              : Bounds::has_right ? from + S::tile_k - 1 - band.shift - Bounds::right
                                  : -0x7fffffff;
    begin = (low - band.first_row) / S::tile_q;
    end = last < key || high <= low ? begin : (high - band.first_row + S::tile_q - 1) / S::tile_q;
    if constexpr (Bounds::has_blocks) count_seen();
    if constexpr (S::parts > 1) {
      const int all = Bounds::has_blocks ? seen : (end - begin) * S::group,
                each = (all + S::parts - 1) / S::parts;
      before = tile.part * each < all ? tile.part * each : all;
      own = all - before < each ? all - before : each;
    }
  }
  // Whether a tile may hold a query and a key that do not see each other.
  static constexpr bool may_end = !is_known(S::keys) || S::keys % S::tile_k != 0 ||
                                  Bounds::has_lengths || S::packed,
                        cuts = may_end || Bounds::has_right || Bounds::has_left;
  // Whether the last tile of queries may hold rows that do not exist, zeros, and nothing computes
  // again what they make NaN (hides_pairs): a zero times an infinite element of K or V.
  static constexpr bool ends_rows =
      !hides_pairs<Bounds> && (S::packed || !is_known(S::queries) || S::queries % S::tile_q != 0);
  // Where the diagonal alone cuts tiles, the most that it does, from the first one on; else 0. The
  // walk compares a tile with it: `cut_end` is one more number to hold, and read from shared memory
  // it is waited for between two products. (On an H200, us, from there and so: b4 h32 s4096 causal
  // d64 1,537 and 1,521, d128 2,753 and 2,733.)
  static constexpr int cut_by_diagonal = [] {
    if constexpr (may_end || !Bounds::has_right || Bounds::has_left || !is_known(S::queries)) {
      return 0;
    } else {
      // Whether the first tile begins where the first key's rows do.
      const int shift = Bounds::right + (Bounds::bottom_right ? S::keys - S::queries : 0);
      const bool aligned = S::tile_k % S::tile_q == 0 && shift % S::tile_q == 0;
      return (S::tile_k - 1 + (aligned ? 0 : S::tile_q - 1) + S::tile_q - 1) / S::tile_q;
    }
  }();
  SINTER_DEVICE bool is_cut(int row) const { return is_cut(row, cut_end); }
  SINTER_DEVICE bool is_cut(int row, int cut_end) const {
    bool cut = false;
    if constexpr (may_end || Bounds::has_right) cut = row < cut_end;
    if constexpr (Bounds::has_left)
      cut = cut || from <= row + S::tile_q - 1 + band.shift - Bounds::left;
    if constexpr (ends_rows) cut = cut || row + S::tile_q > band.rows;
    return cut;
  }
  // The same of 64 keys from `key` on.
  SINTER_DEVICE bool cuts_keys(int row, int key) const {
    bool cut = ends_rows && row + S::tile_q > band.rows;
    if constexpr (may_end) cut = cut || key + 64 > band.columns;
    if constexpr (Bounds::has_right) cut = cut || row < first(key + 63);
    if constexpr (Bounds::has_left)
      cut = cut || key <= row + S::tile_q - 1 + band.shift - Bounds::left;
    return cut;
  }
  // The rows that see a key: [first, stop).
  SINTER_DEVICE int first(int key) const {
    return Bounds::has_right ? key - band.shift - Bounds::right : 0;
  }
  SINTER_DEVICE int stop(int key) const {
    return key >= band.columns ? 0
           : Bounds::has_left  ? key - band.shift + Bounds::left
           : ends_rows         ? band.rows
                               : S::tiles_q * S::tile_q;
  }
  // Whether a tile of queries may hold rows that none of these keys sees although there are such
  // rows, and the rows that one of them sees: [first_seen(), end_seen()). What the others hold is
  // not to be multiplied, since a weight of zero times NaN is NaN.
  static constexpr bool hides_rows =
      Bounds::has_lengths || S::packed ||
      (Bounds::bottom_right && (!is_known(S::queries, S::keys) || S::queries > S::keys));
  SINTER_DEVICE int first_seen() const {
    return hides_rows && Bounds::has_right ? first(from) : band.first_row;
  }
  SINTER_DEVICE int end_seen() const {
    if constexpr (!(hides_rows && Bounds::has_left)) return band.rows;
    const int key = from + S::tile_k < band.columns ? from + S::tile_k : band.columns,
              end = stop(key - 1);
    return end < band.rows ? end : band.rows;
  }
  // Tiles of all query heads of the group, or of the part.
  SINTER_DEVICE int count() const {
    return S::parts > 1 ? own : Bounds::has_blocks ? seen : (end - begin) * S::group;
  }
  SINTER_DEVICE bool sees(int head, int tile) const { return blocks.sees(head, tile * S::tile_q); }
  SINTER_DEVICE bool has_keys() const { return from < band.columns; }
  // How many tiles of keys before this one meet a tile of queries, that starts at `row`. By whole
  // warps.
  template <class Args>
  SINTER_DEVICE int tiles_before(const Args& args, const typename S::Coord& c, int head,
                                 int row) const {
    const int own = (from - band.first_column) / S::tile_k,
              first = (band.first(row) - band.first_column) / S::tile_k;
    if constexpr (!Bounds::has_blocks) return own - first;
    int seen_before = 0;
    for (int i = first + static_cast<int>(threadIdx.x) % 32; i < own; i += 32)
      seen_before += Bounds::blocks(args, c, i * S::tile_k).sees(head, row);
    return sum_over_lanes<1, 16>(seen_before);
  }

 private:
  template <class Args>
  static SINTER_DEVICE Of band_of(const Args& args, const typename S::Coord& c, int& key) {
    if constexpr (S::packed)
      return Of::template of_tile<S::tile_k, true>(args, key / S::tile_k, key);
    else
      return Of(args, c);
  }
  SINTER_DEVICE void count_seen() {
    static_assert(Bounds::mask_block % S::tile_q == 0 && Bounds::mask_block % S::tile_k == 0,
                  "a tile is within a block, if there are such");
    const int tiles = end - begin;
    for (int i = static_cast<int>(threadIdx.x) % 32; i < tiles * S::group; i += 32)
      seen += sees(head + i / tiles, begin + i % tiles);
    seen = sum_over_lanes<1, 16>(seen);
  }
};

// Walks over a band's tiles of queries, head by head, but for those that are hidden.
//
// Tile by tile (S::tile_by_tile), for many heads over one and a causal bound: head by head, walks
// of neighbouring tiles of keys are unlike each other by their difference in length for each head,
// and what one has loaded and added to has left the second-level cache when the next one comes. The
// blocks of the first round start together at the last tile of queries and end one behind another,
// each where its diagonal is. Those of the second start one behind another, therefore, at their
// diagonals, which the blocks that started before them have reached by then, and end together. So
// in every round all blocks of a head are at one tile of queries, each at another head of the
// group, so that few add to the same sums at once.
//
// Where tiles are hidden, the warps of the first warpgroup look for them, a lane at one of 32
// tiles; consumers read in shared memory which tile is in a stage, since they have no registers
// left to look.
template <class S>
struct QueryTile : BandStart<S::packed> {
  int begin, end;
  int head, tile;
  int walked = 0;  // so many tiles of all heads, where tile_by_tile

 private:
  int word_ = 0;       // where tiles are hidden: the first of the 32 that were looked at last
  unsigned seen_ = 0;  // which of these are seen and still to come
  int others_ = 0;     // so many that other parts visit come before

 public:
  template <class Bounds>
  SINTER_DEVICE explicit QueryTile(const QueryBand<S, Bounds>& band)
      : BandStart<S::packed>(band.band),
        begin(band.begin),
        end(band.end),
        head(band.head),
        tile(S::in_order ? band.end - 1 : band.begin) {
    if constexpr (S::tile_by_tile) place(band);
    if constexpr (S::parts > 1 && !Bounds::has_blocks) {
      const int of_head = end > begin ? end - begin : 1, within = band.before % of_head;
      head += band.before / of_head;
      tile += S::in_order ? -within : within;
    }
  }
  // Where a walk begins, which for each of the band's tiles calls find(), behind which it is at the
  // tile, and pass(). By whole warps where tiles are hidden: then the text that looks is there
  // once.
  template <class Bounds>
  static SINTER_DEVICE QueryTile start(const QueryBand<S, Bounds>& band) {
    QueryTile at(band);
    if constexpr (Bounds::has_blocks) {
      at.word_ = S::in_order ? at.begin + S::up(at.end - at.begin, 32) : at.begin - 32;
      at.others_ = band.before;
    }
    return at;
  }
  template <class Bounds>
  SINTER_DEVICE void find(const QueryBand<S, Bounds>& band) {
    if constexpr (Bounds::has_blocks) {
#pragma unroll 1
      do {
        next_seen(band);
      } while (S::parts > 1 && others_-- > 0);
    }
  }
  SINTER_DEVICE int row() const { return this->first_row + tile * S::tile_q; }
  template <class Bounds>
  SINTER_DEVICE void pass(const QueryBand<S, Bounds>& band) {
    if constexpr (S::tile_by_tile)
      ++walked, place(band);
    else if constexpr (!Bounds::has_blocks)
      step();
  }
  // The first tile, and the next one.
  template <class Bounds>
  static SINTER_DEVICE QueryTile first(const QueryBand<S, Bounds>& band) {
    QueryTile at = start(band);
    if (band.count() > 0) at.find(band);
    return at;
  }
  template <class Bounds>
  SINTER_DEVICE void advance(const QueryBand<S, Bounds>& band) {
    pass(band), find(band);
  }

 private:
  template <class Bounds>
  SINTER_DEVICE void place(const QueryBand<S, Bounds>& band) {
    static_assert(!Bounds::has_blocks && !S::in_order && S::parts == 1);
    const int passed = walked / S::group;
    tile = band.from_end ? end - 1 - passed : begin + passed;
    head = band.head + (band.from / S::tile_k + walked) % S::group;
  }
  SINTER_DEVICE void step() {
    if constexpr (S::in_order) {
      if (tile-- == begin) tile = end - 1, ++head;
    } else {
      if (++tile == end) tile = begin, ++head;
    }
  }
  template <class Bounds>
  SINTER_DEVICE void next_seen(const QueryBand<S, Bounds>& band) {
#pragma unroll 1
    while (seen_ == 0) {
      word_ += S::in_order ? -32 : 32;
      if (S::in_order ? word_ < begin : word_ >= end) {
        word_ = S::in_order ? begin + (end - 1 - begin) / 32 * 32 : begin;
        if (++head == band.head + S::group) return;
      }
      const int of_lane = word_ + static_cast<int>(threadIdx.x) % 32;
      seen_ = __ballot_sync(0xffffffffu, of_lane < end && band.sees(head, of_lane));
    }
    const unsigned one = S::in_order ? seen_ : seen_ & -seen_;
    const int bit = 31 - __clz(static_cast<int>(one));
    tile = word_ + bit;
    seen_ &= ~(1u << bit);
  }
};

}  // namespace sinter::attention
