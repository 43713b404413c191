// The end of a contraction with one result of 16 bits, n fastest: the epilogue is computed where
// the sums are, and stmatrix brings 16 rows x 64 columns of a warp to shared memory as they are
// stored. No float passes through shared memory. From there they leave in one of two ways.
//
// TMA stores them while the warp goes on with the next ones, where a generated file has, in its
// Body,
//
//   struct TileStore    prefetch(args);
//                       store(args, coordinates of the batch entry, row, column, from):
//                       hopper::store_box with a tiled map of the result, [batch...,] m, n; box 64
//                       columns x 16 rows, swizzle 128
//
// The map wants strides that are multiples of 16 bytes. What lies past the last row or column it
// leaves out.
//
// The warp stores them, 16 bytes a lane and a whole row's 128 bytes side by side, where Body has
//
//   row(args, coordinates)   where the result of these is
//   sources                  how many operands differ from row to row, 16 bits each: up to two
//   source<i>(args, coordinates), set_source<i>(place, word)   where they are, and two of them
//
// Rows may then lie anywhere, and not exist (Config::Bounds). What differs from row to row is read
// as results are stored, and comes to where the sums are by ldmatrix. Either way Body has
//
//   fetch_columns(args, coordinates, place)   reads what is the same for all rows
//   result(place)                             the Pack of the result in a Place
#pragma once
#include "sinter/device/core/hopper.cuh"
#include "sinter/device/core/warp_matrix.cuh"
#include "sinter/device/engine/fragment.cuh"
#include "sinter/device/engine/shared_tile.cuh"
#include "sinter/device/family/contraction_epilogue.cuh"
#include "sinter/device/family/contraction_scales.cuh"

namespace sinter::contraction {

template <class Body>
concept StoresTiles = requires {
  typename Body::TileStore;
};
template <class Body>
concept StoresRows = Body::stores_rows;

// 16 rows x 64 columns of results.
using StoreTile = SharedTile<bf16, Major::k, 16, 64>;
static_assert(2 * StoreTile::bytes ==
              sizeof(EpilogueTile));  // one leaves while the other is written

// What the epilogue reads for two neighbouring columns, and their two results in a row.
template <class Config, class Body, class Args, class Coord>
SINTER_DEVICE unsigned results(const Args& args, const Coord& c,
                               typename Body::template Place<2>& place, float first, float second) {
  typename Body::Reductions none;
  const typename Config::Accumulator one[1] = {first}, other[1] = {second};
  constexpr int last = Problem<Config>::first_k - 1;
  Body::element(args, c, 0, one, place, none);
  Body::element(args, neighbour<last>(c, 1), 1, other, place, none);
  return Body::result(place).word(0);
}

// The results of block `block` of 16 rows a warp, of columns `part` * 64 of the tile and the ones
// after it, to a StoreTile at `to`. `batch`: the coordinates of the batch entry; `row`: the warp's.
template <class Config, class Body, int block, int part, int sources = 0, class Args, class Coord>
SINTER_DEVICE void put_results(const Args& args, const Coord& batch, int row, int column,
                               unsigned to) {
  using P = Problem<Config>;
  using S = Shape<Config>;
  static_assert(S::columns % 16 == 0, "stmatrix puts 16 columns");
  constexpr int left = (S::columns - part * 64) / 16;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  // Lane 8 i + j names line j of block i: rows 0 to 7 and 8 to 15 of eight columns, then of the
  // next eight.
  const int line = lane % 16, half = lane / 16;
  for_each_number<(left < 4 ? left : 4)>([&]<int sixteen>() {
    const int place_of_line = StoreTile::place(line, sixteen * 16 + half * 8);
    unsigned blocks[4], read[sources + 1][4];
    for_each_number<sources>([&]<int source>() {
      warp_matrix::get(read[source], to + source * StoreTile::bytes + place_of_line);
    });
    for_each_number<2>([&]<int eight>() {
      constexpr int first = part * 64 + sixteen * 16 + eight * 8;
      float sums[4];
      Sums<Config, block>{}.template get<first / 2>(sums);
      const auto at = [&](int below) {
        Coord c = batch;
        P::set_m(c, row + lane / 4 + below);
        P::set_n(c, column + first + lane % 4 * 2);
        return c;
      };
      typename Body::template Place<2> place;
      if (column + first < P::columns) Body::fetch_columns(args, at(0), place);
      for_each_number<2>([&]<int lower>() {
        if constexpr (sources > 0)
          for_each_number<sources>([&]<int source>() {
            Body::template set_source<source>(place, read[source][2 * eight + lower]);
          });
        blocks[2 * eight + lower] =
            results<Config, Body>(args, at(8 * lower), place, sums[2 * lower], sums[2 * lower + 1]);
      });
    });
    hopper::put_blocks(to + place_of_line, blocks);
  });
}

template <class Config, class Body>
constexpr bool stores_as_summed() {
  static_assert(Config::products == 1 && Config::n_fastest && Config::split == 1,
                "results are those of one product's sums");
  static_assert(
      !requires { typename Body::Annihilation; }, "sums are final as they are");
  static_assert(is_same<typename Config::Sum, float>);
  static_assert(!EpilogueReductions<Config, Body>::any, "tiles are stored without reductions");
  return true;
}

// `slab`: of the warp.
template <class Config, class Body, class Rows, class Args>
SINTER_DEVICE void store_tile(const Args& args, const TilePlace<Config>& tile, int first_row,
                              EpilogueTile& slab) {
  using P = Problem<Config>;
  using S = Shape<Config>;
  static_assert(stores_as_summed<Config, Body>() && !Rows::grouped);
  static_assert(S::columns % 64 == 0, "a box has 64 columns of one tile");
  const int lane = static_cast<int>(threadIdx.x) % 32,
            warp = static_cast<int>(threadIdx.x) / 32 % 4;
  typename P::Coord batch;
  P::set_batch(batch, tile.batch);
  for_each_number<S::blocks>([&]<int block>() {
    const int row = tile.row + first_row + block * 64 + warp * 16;
    for_each_number<S::columns / 64>([&]<int part>() {
      const unsigned to =
          hopper::address(&slab) + (block * (S::columns / 64) + part) % 2 * StoreTile::bytes;
      hopper::wait_for_stores<1>();  // the one before the last has left; of the lane that stored it
      __syncwarp();
      put_results<Config, Body, block, part>(args, batch, row, tile.column, to);
      hopper::written_for_multiplications();
      __syncwarp();
      if (lane == 0) {
        const int column = tile.column + part * 64;
        if (row < tile.row_end && column < P::columns)
          Body::TileStore::store(args, batch, row, column, to);
        hopper::commit_stores();
      }
    });
  });
}

// A lane's part of rows of 16 bits, 64 columns each: 8 columns of every fourth row.
template <class Element>
struct RowPieces {
  static constexpr int together = 8, beside = 64 / together, apart = 32 / beside, own = 16 / apart;
  Element* at[own];  // the first piece of each row
  uint4 held[own];

  static SINTER_DEVICE int row(int i) {
    return static_cast<int>(threadIdx.x) % 32 / beside + i * apart;
  }
  static SINTER_DEVICE int column() {
    return static_cast<int>(threadIdx.x) % 32 % beside * together;
  }
  SINTER_DEVICE void load(const bool (&exists)[own], int column) {
#pragma unroll
    for (int i = 0; i < own; ++i)
      held[i] = exists[i] ? *reinterpret_cast<const uint4*>(at[i] + column) : uint4{};
  }
  SINTER_DEVICE void store(const bool (&exists)[own], int column) const {
#pragma unroll
    for (int i = 0; i < own; ++i)
      if (exists[i]) *reinterpret_cast<uint4*>(at[i] + column) = held[i];
  }
  SINTER_DEVICE void put(unsigned char* tile) const {
#pragma unroll
    for (int i = 0; i < own; ++i)
      *reinterpret_cast<uint4*>(tile + StoreTile::place(row(i), column())) = held[i];
  }
  SINTER_DEVICE void get(const unsigned char* tile) {
#pragma unroll
    for (int i = 0; i < own; ++i)
      held[i] = *reinterpret_cast<const uint4*>(tile + StoreTile::place(row(i), column()));
  }
};

template <class Config, class Body, class Args>
SINTER_DEVICE void store_rows(const Args& args, const TilePlace<Config>& tile, int first_row,
                              EpilogueTile& slab) {
  using P = Problem<Config>;
  using S = Shape<Config>;
  static_assert(stores_as_summed<Config, Body>());
  constexpr int sources = Body::sources;
  static_assert(sources <= 2, "a warp has room for two tiles");
  const int warp = static_cast<int>(threadIdx.x) / 32 % 4;
  typename P::Coord batch;
  P::set_batch(batch, tile.batch);
  using Result = RowPieces<typename Body::Stored>;
  const int end = P::columns < tile.column + S::columns ? P::columns : tile.column + S::columns,
            columns = end - tile.column - Result::column();  // from the lane's first on
  for_each_number<S::blocks>([&]<int block>() {
    const int row = tile.row + first_row + block * 64 + warp * 16;
    Result result;
    RowPieces<const typename Body::Stored> source[sources + 1];
    bool exists[Result::own];
#pragma unroll
    for (int i = 0; i < Result::own; ++i) {
      const int own_row = row + Result::row(i);
      typename P::Coord c = batch;
      P::set_m(c, own_row);
      exists[i] = own_row < tile.row_end && P::exists(c);
      P::set_n(c, tile.column + Result::column());
      result.at[i] = Body::row(args, c);
      for_each_number<sources>(
          [&]<int s>() { source[s].at[i] = Body::template source<s>(args, c); });
    }
    const auto load_part = [&](int part) {
      for_each_number<sources>([&]<int s>() {
        if (part * 64 < columns) source[s].load(exists, part * 64);
      });
    };
    load_part(0);
    for_each_number<S::across>([&]<int part>() {
      unsigned char* const tiles =
          reinterpret_cast<unsigned char*>(&slab) +
          (sources > 0 ? 0 : (block * S::across + part) % 2) * StoreTile::bytes;
      __syncwarp();  // the tile that was here has been read
      for_each_number<sources>([&]<int s>() { source[s].put(tiles + s * StoreTile::bytes); });
      if constexpr (sources > 0) {
        if constexpr (part + 1 < S::across) load_part(part + 1);
        __syncwarp();
      }
      put_results<Config, Body, block, part, sources>(args, batch, row, tile.column,
                                                      hopper::address(tiles));
      __syncwarp();
      if (part * 64 < columns) {
        result.get(tiles);
        result.store(exists, part * 64);
      }
    });
  });
  __syncwarp();
}

}  // namespace sinter::contraction
