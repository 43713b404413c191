// The shape of a tile on the tensor cores of sm_90a, its place in the result, and which tiles a
// block walks over; see contraction_wgmma.cuh.
#pragma once
#include "sinter/device/engine/pipeline.cuh"
#include "sinter/device/engine/shared_tile.cuh"
#include "sinter/device/family/contraction_epilogue_tile.cuh"
#include "sinter/device/family/contraction_rows.cuh"

namespace sinter::contraction {

// A convolution, one whose k has the filter's taps, and one that has phases;
// contraction_window.cuh.
template <class Config>
concept IsWindow = requires {
  typename Config::Window;
};
template <class Config>
concept TapsInK = IsWindow<Config> && Config::Window::taps_in_k;
template <class Config>
concept PhasedWindow = TapsInK<Config> && Config::Window::phased;
// Phases have unlike numbers of taps: they are listed, those of the most taps first.
template <class Config>
concept UnlikePhases = PhasedWindow<Config> && requires {
  typename Config::DeepestFirst;
};

// All consumers multiply the same rows, with columns of their own.
template <class Config>
concept SharesRows = requires {
  Config::taps_each;
};

// The products' operands are swapped: B's columns are the rows of an MMA and A's rows its
// columns, so that a few columns do not make narrow MMAs, which wait for the rows of A.
template <class Config>
concept SwapsProducts = requires {
  requires Config::swap_products;
};

// Columns of B that lie in lines of 64, of which a tile has not whole ones.
template <class Config>
concept LoadsMoreColumns = requires {
  Config::loaded_columns;
};

// The launch says how many rows, or columns, a tile has: those that a box of the operand brings. As
// many as an MMA takes have room; of the others it multiplies what lies there, and
// nothing is stored. So numbers of rows which want tiles of their own share a text. It says how
// many tiles that makes (`boxed_tiles`), too: a division is a call, behind which the compiler takes
// descriptors for ones that threads differ in (150 x 1024 x 4096 on an H200: 13.2 us, 9.1 with
// constants).
template <class Config>
concept BoxesRows = requires {
  Config::boxed_rows;
};
template <class Config>
concept BoxesColumns = requires {
  Config::boxed_columns;
};

// Boxes have so many elements of k, fewer than a stage: what MMAs read of a short one.
template <class Config>
concept LoadsPartOfDepth = requires {
  Config::loaded_depth;
};

// Results leave through the stages: a block has one tile, after which nobody fills them.
template <class Config>
concept LeavesThroughRing = requires {
  Config::through_ring;
};

template <class Config>
struct Shape {
  using P = Problem<Config>;
  static constexpr int neighbours = Config::cluster_m * Config::cluster_n;  // share operands
  static constexpr int cluster = neighbours * Config::split;
  static constexpr int line = 128;                           // bytes
  static constexpr int step = line / Config::operand_bytes;  // elements of k in a stage
  static constexpr int loaded_depth = [] {                   // of these, by boxes; 0: all
    if constexpr (LoadsPartOfDepth<Config>)
      return Config::loaded_depth;
    else
      return 0;
  }();
  // Of k, in a batch entry. Phases of a strided data gradient have some each, or none.
  // Only these clear their sums: the compiler then waits after each product (C7515).
  static constexpr bool may_be_empty = [] {
    if constexpr (PhasedWindow<Config>) return Config::Window::may_be_empty;
    return false;
  }();
  static SINTER_DEVICE int steps(int batch) {
    if constexpr (TapsInK<Config>) {
      typename P::Coord c;
      P::set_batch(c, static_cast<typename P::Index>(batch));
      return Config::Window::steps(c);
    }
    return static_cast<int>(ceil_divide(P::depth, step));
  }
  // A tap's channels, or a k of at most two stages, end within a stage, behind which come zeros
  // that need no products. Steps of 32 bytes of k in a stage, in the one that ends so, and from one
  // such stage to the next.
  static constexpr int line_steps =
                           (loaded_depth > 0 ? loaded_depth : step) * Config::operand_bytes / 32,
                       ends_after = [] {
                         if constexpr (TapsInK<Config>)
                           return Config::Window::lines;
                         else if constexpr (!IsWindow<Config> && is_known(P::depth) &&
                                            Config::rotate == 0)
                           return P::depth <= 2 * step
                                      ? static_cast<int>(ceil_divide(P::depth, step))
                                      : 0;
                         return 0;
                       }();
  static constexpr int last_steps = [] {
    if constexpr (TapsInK<Config>)
      return (Config::Window::last_channels * Config::operand_bytes + 31) / 32;
    else if constexpr (ends_after > 0)
      return static_cast<int>(
          ceil_divide((P::depth - (ends_after - 1) * step) * Config::operand_bytes, 32));
    return line_steps;
  }();
  // Calls f.operator()<steps>() for the stage of step `step` of k.
  template <class F>
  static SINTER_DEVICE void with_steps(int step, const F& f) {
    if constexpr (last_steps == line_steps)
      f.template operator()<line_steps>();
    else if constexpr (ends_after == 1)
      f.template operator()<last_steps>();
    else if ((step + 1) % ends_after != 0)
      f.template operator()<line_steps>();
    else
      f.template operator()<last_steps>();
  }
  // What a tile has of the result; of columns, those of one product.
  static constexpr auto tile_rows = [] {
    if constexpr (BoxesRows<Config>)
      return Config::boxed_rows;
    else
      return Config::tile_m;
  }();
  static constexpr auto tile_columns = [] {
    if constexpr (BoxesColumns<Config>)
      return Config::boxed_columns;
    else
      return Config::tile_n / Config::products;
  }();
  static_assert(!BoxesColumns<Config> || Config::products == 1);
  // Where the result has few rows, no more of A are loaded. MMAs read on past those,
  // into B and what follows: for rows of the result that do not exist.
  static constexpr int loaded_columns = [] {
    if constexpr (LoadsMoreColumns<Config>)
      return Config::loaded_columns;
    else
      return Config::tile_n;
  }();
  static constexpr int a_bytes = Config::loaded_rows * line, b_bytes = loaded_columns * line;
  static_assert(Config::loaded_rows == Config::tile_m ||
                ((!is_known(P::rows) || Config::loaded_rows >= P::rows) && Config::tile_m == 64));
  // Of the result: with two products, half of the tile's columns belong to each.
  static constexpr int columns = Config::tile_n / Config::products,
                       epilogue_tile_columns = EpilogueTile::columns / Config::products;
  static constexpr int stage_bytes = a_bytes + b_bytes;
  // A block of one warpgroup loads for itself (contraction_image_rows.cuh).
  static constexpr int consumers = Config::threads > 128 ? Config::threads / 128 - 1 : 1;
  // Of the warpgroups that share a tile.
  static constexpr bool whole = Config::alternate || SharesRows<Config>;  // a consumer has all rows
  static constexpr int rows = whole ? Config::tile_m : Config::tile_m / consumers;
  static constexpr int blocks = rows / 64;  // of an MMA
  static constexpr int product_columns = SwapsProducts<Config> ? rows : Config::tile_n;
  static constexpr int sharing = Config::alternate ? 1 : consumers;
  static_assert(rows % 64 == 0 && rows * (whole ? 1 : consumers) == Config::tile_m);
  static_assert(!Config::alternate || consumers == 2);
  static_assert((Config::cluster_m > 1) + (Config::cluster_n > 1) + (Config::split > 1) <= 1);
  static_assert(Config::stages >= 2);

  // Tiles of a cluster.
  static constexpr auto tiles_m = [] {
    if constexpr (BoxesRows<Config>)
      return Config::boxed_tiles;
    else
      return number<is_known(P::rows)>([] {
        return static_cast<int>(ceil_divide(P::rows, Config::tile_m * Config::cluster_m));
      });
  }();
  static constexpr auto tiles_n = [] {
    if constexpr (BoxesColumns<Config>)
      return Config::boxed_tiles;
    else
      return number<is_known(P::columns)>(
          [] { return static_cast<int>(ceil_divide(P::columns, columns * Config::cluster_n)); });
  }();
  static constexpr auto tiles = number<is_known(P::batches, tiles_m, tiles_n)>(
      [] { return static_cast<int>(P::batches) * tiles_m * tiles_n; });
  // With `split` a block has one tile, and its stages end as room for the epilogue tiles of the
  // sums.
  static constexpr int across = (columns + epilogue_tile_columns - 1) / epilogue_tile_columns;
  static constexpr int parts = blocks * across;  // epilogue tiles of a warp
  static_assert(Config::split == 1 ||
                (!Config::alternate &&
                 consumers * 4 * parts * static_cast<int>(sizeof(EpilogueTile)) <=
                     Config::stages * stage_bytes));
  // Known to be so, while numbers of tiles come with the launch.
  static constexpr bool one_batch = [] {
    if constexpr (is_known(P::batches)) return P::batches == 1;
    return false;
  }();
  // All tiles of a block, alone in its cluster, have the same columns of B, and the ring has all
  // steps of k so and so often: each stage is given its columns once, and then rows of A alone.
  static constexpr bool columns_stay = [] {
    if constexpr (!TapsInK<Config> && is_known(P::depth, tiles_n) && cluster == 1) {
      constexpr int all = static_cast<int>(ceil_divide(P::depth, step));
      return one_batch && tiles_n == 1 && all > 0 && Config::stages % (all > 0 ? all : 1) == 0 &&
             (all == 1 || Config::rotate == 0);
    }
    return false;
  }();
  static SINTER_DEVICE int first_step(int steps, int rank) {
    return Config::split > 1 ? steps * rank / Config::split : 0;
  }
  static SINTER_DEVICE int end_step(int steps, int rank) {
    return Config::split > 1 ? steps * (rank + 1) / Config::split : steps;
  }

  // Shared memory, from a multiple of 1024 on.
  static constexpr int ring = Config::stages * stage_bytes,
                       room = consumers * 4 * static_cast<int>(sizeof(EpilogueTile)),
                       epilogue_tiles = LeavesThroughRing<Config> ? 0 : ring;
  static_assert(!LeavesThroughRing<Config> || (Config::split == 1 && room <= ring));
  static constexpr int full = LeavesThroughRing<Config> ? ring : ring + room,
                       empty = full + Config::stages * 8, end = empty + Config::stages * 8;
  static_assert((Config::stages - 1) * stage_bytes + Config::tile_m * line <= end);  // read on
};

// Stages hold 128 bytes of k of `extent` rows of A, or columns of B.
template <class Operand, int extent>
using StageTile = SharedTile<typename Operand::Number, Operand::k_fastest ? Major::k : Major::mn,
                             extent, 128 / static_cast<int>(sizeof(typename Operand::Number))>;
template <class Config>
using StagePipeline = Pipeline<Config::stages, Shape<Config>::neighbours>;

// A tile's batch entry, its first row and column, and where the batch entry's rows end.
template <class Config>
struct TileCoord {
  int batch, row, column, row_end;

  // Tile number `tile` of a batch entry with its rows from `begin` to `end` on, of which it has
  // `tiles_m` rows of tiles, perhaps a number that is known when compiling. They are numbered so
  // that those which run at once lie in a patch: `group` rows of them, one column after another.
  SINTER_DEVICE TileCoord(int entry, int tile, int rank, int tiles_m, int begin, int end,
                          bool rows_known)
      : batch(entry), row_end(end) {
    using S = Shape<Config>;
    // Of few rows one group has all: a division less of those that take long.
    const bool one_group = !is_known(Config::group, S::tiles) && tiles_m <= Config::group;
    const int in_group = Config::group * S::tiles_n,
              of_group = one_group ? 0 : quotient(tile, in_group);
    const int first = of_group * Config::group;
    tile -= of_group * in_group;
    const int height = tiles_m - first < Config::group ? tiles_m - first : Config::group;
    int n;
    if (rows_known) {  // constants: a group has so many, or, the last one, so many
      const int rest = tiles_m % Config::group;
      n = rest > 0 && first + Config::group > tiles_m ? quotient(tile, rest)
                                                      : quotient(tile, Config::group);
    } else {
      n = quotient(tile, height);
    }
    const int m = first + tile - n * height;
    row = begin + (m * Config::cluster_m + (Config::cluster_m > 1 ? rank : 0)) * S::tile_rows;
    column = (n * Config::cluster_n + (Config::cluster_n > 1 ? rank : 0)) * S::tile_columns;
    if constexpr (BoxesRows<Config>)
      if (row_end > row + S::tile_rows) row_end = row + S::tile_rows;
  }
};

// The tiles of a block, one after another: each cluster takes every so many-th.
template <class Config, class Rows>
class TileWalk;

template <class Config>
class TileWalk<Config, AllRows> {
  using S = Shape<Config>;

  static SINTER_DEVICE int grid() { return static_cast<int>(gridDim.x) / S::cluster; }
  // Of phases of unlike depths: places of which each cluster has as many of each phase.
  static SINTER_DEVICE int even_places() {
    return S::tiles / static_cast<int>(Problem<Config>::batches) / grid() * grid();
  }

 public:
  int tile = static_cast<int>(blockIdx.x) / S::cluster;

  SINTER_DEVICE explicit TileWalk(const AllRows&) {}
  SINTER_DEVICE bool more() const { return tile < S::tiles; }
  SINTER_DEVICE void advance() {
    if constexpr (UnlikePhases<Config>) {
      // What is left begins with the deepest; who had these has the last of the next ones.
      const int left = even_places() * static_cast<int>(Problem<Config>::batches);
      if (tile >= left && tile < left + grid()) {
        tile = 2 * (left + grid()) - 1 - tile;
        return;
      }
    }
    tile += grid();
  }
  SINTER_DEVICE TileCoord<Config> place(int rank) const {
    constexpr bool known = is_known(Config::group, S::tiles);
    if constexpr (UnlikePhases<Config>) {
      using Order = typename Config::DeepestFirst;
      constexpr int batches = static_cast<int>(Problem<Config>::batches),
                    copies = batches / Order::size;  // groups
      const int even = even_places(), left = tile - even * batches;
      if (left >= 0) {
        const int places = S::tiles / batches - even, nth = left / places;
        return {nth % copies * Order::size + select<Order>(nth / copies),
                even + left - nth * places,
                rank,
                S::tiles_m,
                0,
                static_cast<int>(Problem<Config>::rows),
                known};
      }
    }
    if constexpr (PhasedWindow<Config>) {
      // Phases of one place run side by side, as their results are neighbours in memory; each block
      // has all of them in turn, as they take unlike times.
      constexpr int phases = static_cast<int>(Problem<Config>::batches);
      const int at = tile / phases,
                turn =
                    static_cast<int>(static_cast<unsigned>(at * phases * S::cluster) / gridDim.x);
      return {(tile - at * phases + turn) % phases,    at,   rank, S::tiles_m, 0,
              static_cast<int>(Problem<Config>::rows), known};
    }
    const int in_batch = S::tiles_m * S::tiles_n;
    const int batch = S::one_batch ? 0 : quotient(tile, in_batch);
    return {batch, tile - batch * in_batch,
            rank,  S::tiles_m,
            0,     static_cast<int>(Problem<Config>::rows),
            known};
  }
};

// How many tiles a group of rows has is known only here: the walk goes from group to group.
template <class Config, class Rows>
class TileWalk {
  using S = Shape<Config>;
  using P = Problem<Config>;
  static constexpr int all_rows = static_cast<int>(P::rows), batches = static_cast<int>(P::batches);
  static constexpr int each = batches / static_cast<int>(Config::Extent::at(0));  // of a group
  static_assert(Rows::grouped && Config::split == 1);

  Rows rows_;
  int batch_ = 0, first_ = 0;  // its first tile
  int begin_, end_;            // its group's rows

  SINTER_DEVICE int tiles_m() const {
    constexpr int step = Config::tile_m * Config::cluster_m;
    return end_ > begin_ ? (end_ - begin_ + step - 1) / step : 0;
  }
  // Goes on to the batch entry of the tile.
  SINTER_DEVICE void find() {
    while (batch_ < batches) {
      const int next = first_ + tiles_m() * S::tiles_n;
      if (tile < next) return;
      first_ = next;
      if (++batch_ == batches) return;
      if (batch_ % each != 0) continue;
      begin_ = end_;
      end_ = rows_.end(batch_ / each, all_rows);
    }
  }

 public:
  int tile = static_cast<int>(blockIdx.x) / S::cluster;

  SINTER_DEVICE explicit TileWalk(const Rows& rows)
      : rows_(rows), begin_(rows.begin(0, all_rows)), end_(rows.end(0, all_rows)) {
    find();
  }
  SINTER_DEVICE bool more() const { return batch_ < batches; }
  SINTER_DEVICE void advance() {
    tile += static_cast<int>(gridDim.x) / S::cluster;
    find();
  }
  SINTER_DEVICE TileCoord<Config> place(int rank) const {
    return {batch_, tile - first_, rank, tiles_m(), begin_, end_, false};
  }
};

// The place of a block's first tile, where divisions by what comes with the launch find it. That is
// done ahead of the barrier before the block waits for the kernel before it, so that they run
// meanwhile. The compiler would move them to where the place is used, behind the wait, but for the
// assembly. (Barriers prepared by another warp at the same time make it slower: steps of GPT with
// 200 tokens 147 -> 151 us on an H100.)
template <class Config, bool known_ = true>
struct FirstTile {
  static constexpr bool known = known_;
  TileCoord<Config> place;
  SINTER_DEVICE explicit FirstTile(int rank)
      : place(TileWalk<Config, AllRows>(AllRows{}).place(rank)) {
    hardware::compute_here(place.batch, place.row, place.column);
  }
};
// Constants are divided by in less time than that takes; of some rows a table in memory says where
// they are. (Where k alone comes with the launch, so does the group, and numbers of tiles do not.)
template <class Config>
struct FirstTile<Config, false> {
  static constexpr bool known = false;
  SINTER_DEVICE explicit FirstTile(int) {}
};
template <class Config, class Rows>
using FirstTileOf =
    FirstTile<Config, !Rows::grouped && !is_known(Shape<Config>::tiles, Config::group)>;

}  // namespace sinter::contraction
