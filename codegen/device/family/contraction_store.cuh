// The end of a contraction with one result of 16 bits, n fastest, whose epilogue reads nothing that
// differs from row to row: the epilogue is computed where the sums are, and stmatrix brings 16 rows x
// 64 columns of a warp to shared memory as they are stored. No float passes through shared memory.
// From there they leave in one of two ways.
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
//
// Rows may then lie anywhere, and not exist (Config::Bounds). Either way Body has
//
//   result(place)       the Pack of the result in a Place
#pragma once
#include "sinter/device/core/hopper.cuh"
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
template <class Config, class Body, int block, int part, class Args, class Coord>
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
    unsigned blocks[4];
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
      if (column + first < P::columns) Body::fetch(args, at(0), place);
      blocks[2 * eight] = results<Config, Body>(args, at(0), place, sums[0], sums[1]);
      blocks[2 * eight + 1] = results<Config, Body>(args, at(8), place, sums[2], sums[3]);
    });
    hopper::put_blocks(to + StoreTile::place(line, sixteen * 16 + half * 8), blocks);
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

template <class Config, class Body, class Args>
SINTER_DEVICE void store_rows(const Args& args, const TilePlace<Config>& tile, int first_row,
                              EpilogueTile& slab) {
  using P = Problem<Config>;
  using S = Shape<Config>;
  static_assert(stores_as_summed<Config, Body>());
  constexpr int together = 8, beside = 64 / together, apart = 32 / beside, own = 16 / apart;
  const int lane = static_cast<int>(threadIdx.x) % 32,
            warp = static_cast<int>(threadIdx.x) / 32 % 4;
  const int column = lane % beside * together;  // of the slab
  typename P::Coord batch;
  P::set_batch(batch, tile.batch);
  for_each_number<S::blocks>([&]<int block>() {
    const int row = tile.row + first_row + block * 64 + warp * 16;
    decltype(Body::row(args, batch)) at[own];  // of the lane's rows
    bool exists[own];
#pragma unroll
    for (int i = 0; i < own; ++i) {
      const int own_row = row + lane / beside + i * apart;
      typename P::Coord c = batch;
      P::set_m(c, own_row);
      exists[i] = own_row < tile.row_end && P::exists(c);
      at[i] = Body::row(args, c) + tile.column + column;
    }
    for_each_number<S::across>([&]<int part>() {
      const unsigned char* from =
          reinterpret_cast<const unsigned char*>(&slab) +
          (block * S::across + part) % 2 * StoreTile::bytes;
      __syncwarp();  // the tile before the last has been read
      put_results<Config, Body, block, part>(args, batch, row, tile.column,
                                             hopper::address(from));
      __syncwarp();
      const int end = P::columns < tile.column + S::columns ? P::columns : tile.column + S::columns;
      if (tile.column + part * 64 + column < end) {
#pragma unroll
        for (int i = 0; i < own; ++i)
          if (exists[i])
            *reinterpret_cast<uint4*>(at[i] + part * 64) = *reinterpret_cast<const uint4*>(
                from + StoreTile::place(lane / beside + i * apart, column));
      }
    });
  });
  __syncwarp();
}

}  // namespace sinter::contraction
