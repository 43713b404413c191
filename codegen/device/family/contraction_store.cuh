// The end of a contraction with one result of 16 bits, or of 8, n fastest: the epilogue is computed
// where the sums are, and stmatrix brings 16 rows x 64 columns of a warp to shared memory as they
// are stored. No float passes through shared memory. From there they leave in one of two ways.
//
// TMA stores them while the warp goes on with the next ones, where a generated file has, in its
// Body,
//
//   struct TileStore    prefetch(args);
//                       store(args, coordinates of the batch entry, row, column, from):
//                       hopper::store_box with a tiled map of the result, [batch...,] m, n; box 64
//                       columns x 16 rows, swizzle 128
//
// The map wants strides that are multiples of 16 bytes, and columns that end at one: TMA writes
// whole pieces of 16. Rows and pieces past the last it leaves out.
//
// The warp stores them, 8 results a lane and a whole row's 64 side by side, where Body has
//
//   row(args, coordinates)   where the result of these is
//   sources                  how many operands differ from row to row, 16 bits each: up to two
//   source(Int<i>, args, coordinates), set_source(Int<i>, fragment, word)
//                            where they are, and two of them
//
// Rows may then lie anywhere, and not exist (Config::Bounds). What differs from row to row is read
// as results are stored, and comes to where the sums are by ldmatrix. Either way Body has
//
//   reads_columns                                whether something is read that is the same for
//                                                all rows
//   fetch_columns(args, coordinates, fragment)   reads it
//   result(fragment)                             the Pack of the result in a Fragment
//
// Where pixels of a convolution are pooled by 2 x 2 (PooledPixels), Body has
//
//   stores_pixels, averages_pixels   the pixels are stored, too; of windows their average is
//   pooled_row(args, coordinates)   where the result of the window is that begins at these
//
// Eight rows are neighbours in a row of the image, and the next eight those below them. So a warp's
// 16 rows of 64 columns are four whole windows, and each lane has the same 16 bytes of the four
// pixels of one.
//
// and, where results are the sums and nothing else, StoredSum: the type that they are rounded to.
// C++ then never sees them, which saves a tenth of the time to compile.
#pragma once
#include "sinter/device/core/hopper.cuh"
#include "sinter/device/core/warp_matrix.cuh"
#include "sinter/device/engine/fragment.cuh"
#include "sinter/device/engine/shared_tile.cuh"
#include "sinter/device/family/contraction_epilogue.cuh"
#include "sinter/device/family/contraction_row_pieces.cuh"
#include "sinter/device/family/contraction_scales.cuh"

namespace sinter::contraction {

template <class Body>
concept StoresTiles = requires {
  typename Body::TileStore;
};
template <class Body>
concept StoresRows = Body::stores_rows;
template <class Body>
concept PoolsPixels = requires {
  Body::stores_pixels;
};
template <class Body>
constexpr bool stores_pixels = [] {
  if constexpr (PoolsPixels<Body>) return Body::stores_pixels;
  return true;
}();
template <class Body>
concept StoresSums = requires {
  typename Body::StoredSum;
};

// What the epilogue reads for two neighbouring columns, and their two results.
template <class Config, class Body, class Args, class Coord>
SINTER_DEVICE void compute_results(const Args& args, const Coord& c,
                                   typename Body::template Fragment<2>& fragment, float first,
                                   float second) {
  typename Body::Reductions none;
  const typename Config::Accumulator one[1] = {first}, other[1] = {second};
  constexpr int last = Problem<Config>::first_k - 1;
  Body::element(args, c, 0, one, fragment, none);
  Body::element(args, neighbour<last>(c, 1), 1, other, fragment, none);
}
// The same, in a row.
template <class Config, class Body, class Args, class Coord>
SINTER_DEVICE unsigned results(const Args& args, const Coord& c,
                               typename Body::template Fragment<2>& fragment, float first,
                               float second) {
  compute_results<Config, Body>(args, c, fragment, first, second);
  const auto& result = Body::result(fragment);
  if constexpr (sizeof(result.at) == 2)
    return *reinterpret_cast<const unsigned short*>(result.at);
  else
    return result.word(0);
}

// Calls f.operator()<which>(), where `which` lies from `first` to `end`. Registers have no index:
// each part is a branch, found by halving.
template <class Config, int first = 0, int end = Shape<Config>::parts, class F>
SINTER_DEVICE void with_part(int which, const F& f) {
  constexpr int middle = (first + end) / 2;
  if constexpr (end - first == 1)
    f.template operator()<first>();
  else if (which < middle)
    with_part<Config, first, middle>(which, f);
  else
    with_part<Config, middle, end>(which, f);
}

// A part of a warp's sums: 16 rows x 64 columns, or those that the tile has.
using PartSums = float[EpilogueTile::columns / 2];
template <class Config>
SINTER_DEVICE void get_part(int which, PartSums& sums) {
  with_part<Config>(which, [&]<int number>() {
    using S = Shape<Config>;
    constexpr int block = number / S::across, from = number % S::across * 32,
                  left = (S::columns / 2 - from) / 4;
    Sums<Config, block>{}.template get<from, (left < 8 ? left : 8)>(sums);
  });
}
// Rounds them to a StoreTile at `to`.
template <class Config, class Body>
SINTER_DEVICE void put_part(int which, unsigned to) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  unsigned lines[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) lines[i] = to + StoreTile::place(lane % 16, i * 16 + lane / 16 * 8);
  with_part<Config>(which, [&]<int number>() {
    using S = Shape<Config>;
    constexpr int block = number / S::across, from = number % S::across * 32,
                  left = (S::columns / 2 - from) / 8;
    Sums<Config, block>{}
        .template put_blocks<wgmma::BlocksText<typename Body::StoredSum, false>, from,
                             (left < 4 ? left : 4)>(lines);
  });
}

// Few parts are written out: the next part's sums are on their way while a part leaves (2048 x 2048
// x 2048 3 % less than in a loop; 256 x 56 x 56 by 512 filters of 1 x 1, stride 2, on an H200 109.3
// us and 111.1). Not where the epilogue reads: four parts with scale, bias and residual take 770 ms
// to compile, a loop 510, and as long to run. They are written out as a loop that the compiler
// unrolls once it has simplified its body: copies of the body from the start take it a tenth
// longer.
template <class Body, int sources>
constexpr int kWrittenOut = Body::reads_columns || sources > 0 ? 2 : 4;
template <class Config, int written_out, class Store>
SINTER_DEVICE void for_each_part(const Store& store) {
  constexpr int parts = Shape<Config>::parts;
  if constexpr (parts <= written_out) {
#pragma unroll
    for (int number = 0; number < parts; ++number) store(number);
  } else {
#pragma unroll 1
    for (int number = 0; number < parts; ++number) store(number);
  }
}

// What the epilogue reads of a part's 64 columns that is the same for all rows: a lane's eight
// pairs. The next part's are on their way while a part is computed (scale, bias and residual of
// 256 channels of 14 x 14 pixels, 3 x 3: 5 % less).
template <class Config, class Body>
struct PartColumns {
  using P = Problem<Config>;
  static constexpr int pairs = 8;
  // Parts and tiles end where the result does: a branch a pair takes the compiler a tenth longer,
  // and results wait (16384 x 4096 x 1024 with bias and residual on an H200 253.4 us with branches,
  // 243.1 without; 512 x 8192 x 8192 with bias and relu 105.2 and 103.9).
  static constexpr bool all_there = [] {
    constexpr int columns = Shape<Config>::columns;
    if constexpr (is_known(P::columns))
      return columns % 64 == 0 && P::columns % (columns * Config::cluster_n) == 0;
    return false;
  }();
  typename Body::template Fragment<2> at[pairs];

  // The first column of pair `i` of a lane, of the part's.
  static SINTER_DEVICE int column(int i) { return i * 8 + static_cast<int>(threadIdx.x) % 4 * 2; }
  template <class Args, class Coord>
  SINTER_DEVICE void fetch(const Args& args, Coord c, int part_column, int i) {
    const int first = part_column + column(i);
    if (!all_there && first >= P::columns) return;
    P::set_n(c, first);
    Body::fetch_columns(args, c, at[i]);
  }
  template <class Args, class Coord>
  SINTER_DEVICE void fetch(const Args& args, const Coord& batch, int part_column) {
    if constexpr (Body::reads_columns)
#pragma unroll
      for (int i = 0; i < pairs; ++i) fetch(args, batch, part_column, i);
  }
};

// The results of a part's sums to a StoreTile at `to`. `batch`: the coordinates of the batch entry;
// `row`: the warp's first, `column`: the part's, `next_column`: the next part's; it has `columns`.
// `sums`: the part's, which a kernel that may take sums again does not copy (to an array that the
// compiler would store to local memory for nothing).
// Or elsewhere: put(first column of 16, their words).
template <class Config, class Body, int sources = 0, class Args, class Coord, class Put>
SINTER_DEVICE void put_results(const Args& args, const Coord& batch, int row, int column,
                               int next_column, int columns,
                               PartColumns<Config, Body>& read_columns, const float* sums,
                               unsigned to, const Put& put) {
  using P = Problem<Config>;
  using S = Shape<Config>;
  static_assert(S::columns % 16 == 0, "stmatrix puts 16 columns");
  const int lane = static_cast<int>(threadIdx.x) % 32;
  // Lane 8 i + j names line j of block i: rows 0 to 7 and 8 to 15 of eight columns, then of the
  // next eight.
  const int line = lane % 16, half = lane / 16;
  const auto at = [&](int below, int pair) {
    Coord c = batch;
    P::set_m(c, row + lane / 4 + below);
    P::set_n(c, column + PartColumns<Config, Body>::column(pair));
    return c;
  };
#pragma unroll
  for (int first = 0; first < 64; first += 16) {
    if (S::columns % 64 == 0 || first < columns) {
      const int place_of_line = StoreTile::place(line, first + half * 8);
      unsigned blocks[4], read[sources + 1][4];
      for_each_number<sources>([&]<int source>() {
        warp_matrix::get(read[source], to + source * StoreTile::bytes + place_of_line);
      });
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int pair = first / 8 + i / 2, sum = pair * 4 + i % 2 * 2;
        auto fragment = read_columns.at[pair];
        if constexpr (sources > 0)
          for_each_number<sources>(
              [&]<int source>() { Body::set_source(Int<source>{}, fragment, read[source][i]); });
        blocks[i] =
            results<Config, Body>(args, at(i % 2 * 8, pair), fragment, sums[sum], sums[sum + 1]);
      }
      put(first, blocks);
    }
    if constexpr (S::across > 1) {  // all of them: the next part may be wider
      read_columns.fetch(args, batch, next_column, first / 8);
      read_columns.fetch(args, batch, next_column, first / 8 + 1);
    }
  }
}

template <class Config, class Body, int sources = 0, class Tile = StoreTile, class Args,
          class Coord>
SINTER_DEVICE void put_results(const Args& args, const Coord& batch, int row, int column,
                               int next_column, int columns,
                               PartColumns<Config, Body>& read_columns, const float* sums,
                               unsigned to) {
  put_results<Config, Body, sources>(
      args, batch, row, column, next_column, columns, read_columns, sums, to,
      [&](int first, const unsigned(&blocks)[4]) { Tile::put(to, first, blocks); });
}

template <class Config, class Body>
constexpr bool stores_as_summed() {
  static_assert(Config::products == 1 && Config::n_fastest && Config::split == 1,
                "results are those of one product's sums");
  static_assert(is_same<typename Config::Sum, float>);
  static_assert(!EpilogueReductions<Config, Body>::any, "tiles are stored without reductions");
  return true;
}

// Takes those of a warp's sums that are NaN again (contraction_recompute.cuh). `held`: a lane's, in
// sets of `count` for 64 rows each; `row`, `column`: of the tile's first. `transposed`: rows of the
// registers are columns of the result.
template <class Config, class Body, bool transposed, int count, class Args, class Coord>
SINTER_DEVICE void recompute_held(const Args& args, const Coord& batch, int first_row, int row_end,
                                  int first_column, float* held, int all) {
  using P = Problem<Config>;
  const int lane = static_cast<int>(threadIdx.x) % 32,
            warp = static_cast<int>(threadIdx.x) / 32 % 4;
#pragma unroll 1
  for (int i = 0; i < all; ++i) {
    float sum = held[i];
#pragma unroll 1
    for (unsigned left = __ballot_sync(0xffffffffu, sum != sum); left != 0; left &= left - 1) {
      const int of_lane = __popc((left & (0u - left)) - 1),
                across = i / count * 64 + warp * 16 + of_lane / 4 + i / 2 % 2 * 8,
                along = i % count / 4 * 8 + of_lane % 4 * 2 + i % 2,
                row = first_row + (transposed ? along : across),
                column = first_column + (transposed ? across : along);
      Coord c = batch;
      P::set_m(c, row);
      P::set_n(c, column);
      if (row >= row_end || column >= P::columns || !P::exists(c)) continue;
      const float again = Body::Recomputed::template sum<P>(args, c);
      if (lane == of_lane) sum = again;
    }
    held[i] = sum;
  }
}

// Takes a warp's NaNs of a tile again, before its parts leave.
template <class Config, class Body, bool transposed, class Args, class Coord>
SINTER_DEVICE void recompute_tile(const Args& args, const TileCoord<Config>& tile,
                                  const Coord& batch, int first_row) {
  if constexpr (RecomputesSums<Body>) {
    using S = Shape<Config>;
    constexpr int count = Sums<Config, 0>::count, sets = transposed ? 1 : S::parts / S::across;
    float all = 0;
    for_each_number<sets>([&]<int set>() { all += Sums<Config, set>{}.total(); });
    if (!__any_sync(0xffffffffu, all != all)) return;
    float held[sets * count];  // in local memory: registers have no index
    for_each_number<sets>([&]<int set>() { Sums<Config, set>{}.save(held + set * count); });
    recompute_held<Config, Body, transposed, count>(args, batch, tile.row + first_row, tile.row_end,
                                                    tile.column, held, sets * count);
    for_each_number<sets>([&]<int set>() { Sums<Config, set>{}.restore(held + set * count); });
  }
}

// The first column of the part after number `part` of a row of parts: behind the last, the first.
template <class Config>
SINTER_DEVICE int next_part(const TileCoord<Config>& tile, int part) {
  return tile.column + (part + 1 < Shape<Config>::across ? (part + 1) * 64 : 0);
}

// `epilogue_tile`: of the warp. Its halves take parts in turn, also from one tile to the next:
// `tile_number` of the block's.
template <class Config, class Body, class Rows, class Args>
SINTER_DEVICE void store_tile(const Args& args, const TileCoord<Config>& tile, int first_row,
                              EpilogueTile& epilogue_tile, int tile_number) {
  using P = Problem<Config>;
  using S = Shape<Config>;
  static_assert(stores_as_summed<Config, Body>() && !Rows::grouped);
  static_assert(S::columns % 64 == 0, "a box has 64 columns of one tile");
  const int own_tile = Config::alternate ? tile_number / S::consumers : tile_number,
            turn = S::parts % 2 == 0 ? 0 : own_tile % 2;
  const int lane = static_cast<int>(threadIdx.x) % 32,
            warp = static_cast<int>(threadIdx.x) / 32 % 4;
  typename P::Coord batch;
  P::set_batch(batch, tile.batch);
  recompute_tile<Config, Body, false>(args, tile, batch, first_row);
  PartColumns<Config, Body> columns;
  columns.fetch(args, batch, tile.column);
  for_each_part<Config, kWrittenOut<Body, 0>>([&](auto number) {
    const int block = number / S::across, part = number % S::across,
              row = tile.row + first_row + block * 64 + warp * 16, column = tile.column + part * 64;
    const unsigned to = hopper::address(&epilogue_tile) + (number + turn) % 2 * StoreTile::bytes;
    PartSums sums;
    if constexpr (!StoresSums<Body>) get_part<Config>(number, sums);
    hopper::wait_for_stores<1>();  // the one before the last has left; of the lane that stored it
    __syncwarp();
    if constexpr (StoresSums<Body>)
      put_part<Config, Body>(number, to);
    else
      put_results<Config, Body>(args, batch, row, column, next_part<Config>(tile, part), 64,
                                columns, sums, to);
    hopper::fence_async_proxy();
    __syncwarp();
    if (lane == 0) {
      if (row < tile.row_end && column < P::columns)
        Body::TileStore::store(args, batch, row, column, to);
      hopper::commit_stores();
    }
  });
}

template <class Config, class Body, class Args>
SINTER_DEVICE void store_rows(const Args& args, const TileCoord<Config>& tile, int first_row,
                              EpilogueTile& epilogue_tile) {
  using P = Problem<Config>;
  using S = Shape<Config>;
  static_assert(stores_as_summed<Config, Body>());
  constexpr int sources = Body::sources;
  static_assert(sources <= 2, "a warp has room for two tiles");
  const int warp = static_cast<int>(threadIdx.x) / 32 % 4;
  typename P::Coord batch;
  P::set_batch(batch, tile.batch);
  constexpr bool pools = PoolsPixels<Body>;
  using Result = RowPieces<typename Body::Stored, pools>;
  const int end = P::columns < tile.column + S::columns ? P::columns : tile.column + S::columns,
            columns = end - tile.column - Result::column();  // from the lane's first on
  Result result;
  recompute_tile<Config, Body, false>(args, tile, batch, first_row);
  PartColumns<Config, Body> read_columns;
  read_columns.fetch(args, batch, tile.column);
  RowPieces<const typename Body::Stored, pools> source[sources + 1];
  typename Body::Stored* pooled = nullptr;
  bool exists[Result::own];
  const auto load_part = [&](int part) {
    for_each_number<sources>([&]<int s>() {
      if (part * 64 < columns) source[s].load(exists, part * 64);
    });
  };
  // A loop, too, where another consumer multiplies meanwhile: the data gradient of those filters
  // takes 167.6 us written out and 167.9 in a loop, which compiles in three quarters of the time.
  constexpr int written_out = Config::alternate ? 1 : kWrittenOut<Body, sources>;
  for_each_part<Config, written_out>([&](auto number) {
    const int block = number / S::across, part = number % S::across,
              row = tile.row + first_row + block * 64 + warp * 16;
    if (part == 0) {
      const auto find = [&](int i, const auto& c) {
        result.at[i] = Body::row(args, c);
        if constexpr (pools)
          if (i == 0) pooled = Body::pooled_row(args, c);
        if constexpr (sources > 0)
          for_each_number<sources>(
              [&]<int s>() { source[s].at[i] = Body::source(Int<s>{}, args, c); });
      };
      Result::each_row(tile, batch, row, tile.column + Result::column(), exists, find);
      load_part(0);
    }
    unsigned char* const tiles = reinterpret_cast<unsigned char*>(&epilogue_tile) +
                                 (sources > 0 ? 0 : number % 2) * StoreTile::bytes;
    __syncwarp();  // the tile that was here has been read
    for_each_number<sources>([&]<int s>() { source[s].put(tiles + s * StoreTile::bytes); });
    if constexpr (sources > 0) {
      if (part + 1 < S::across) load_part(part + 1);
      __syncwarp();
    }
    if constexpr (StoresSums<Body>) {
      put_part<Config, Body>(number, hopper::address(tiles));
    } else {
      PartSums sums;
      get_part<Config>(number, sums);
      put_results<Config, Body, sources, typename Result::Tile>(
          args, batch, row, tile.column + part * 64, next_part<Config>(tile, part),
          S::columns - part * 64, read_columns, sums, hopper::address(tiles));
    }
    __syncwarp();
    if (part * 64 < columns) {
      result.get(tiles);
      if constexpr (stores_pixels<Body>) result.store(exists, part * 64);
      if constexpr (pools)
        if (exists[0]) result.template store_pooled<Body::averages_pixels>(pooled, part * 64);
    }
  });
  __syncwarp();
}

}  // namespace sinter::contraction
