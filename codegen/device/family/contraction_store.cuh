// The end of a contraction whose epilogue reads nothing and has one result of 16 bits with n
// fastest: the epilogue is computed where the sums are, stmatrix brings 16 rows x 64 columns of a
// warp to shared memory, and TMA stores them while the warp goes on with the next ones. No float
// passes through shared memory.
//
// A generated file asks for it by a member of its Body:
//
//   struct TileStore    prefetch(args);
//                       store(args, coordinates of the batch entry, row, column, from):
//                       hopper::store_box with a tiled map of the result, [batch...,] m, n; box 64
//                       columns x 16 rows, swizzle 128
//   result(place)       the Pack of the result in a Place
//
// The map wants strides that are multiples of 16 bytes. What lies past the last row or column it
// leaves out.
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

// 16 rows x 64 columns of results.
using StoreTile = SharedTile<bf16, Major::k, 16, 64>;
static_assert(2 * StoreTile::bytes ==
              sizeof(EpilogueTile));  // one leaves while the other is written

// Two neighbouring sums of a row to two results.
template <class Config, class Body, class Args, class Coord>
SINTER_DEVICE unsigned results(const Args& args, const Coord& c, float first, float second) {
  typename Body::template Place<2> place;
  typename Body::Reductions none;
  const typename Config::Accumulator one[1] = {first}, other[1] = {second};
  constexpr int last = Problem<Config>::first_k - 1;
  Body::element(args, c, 0, one, place, none);
  Body::element(args, neighbour<last>(c, 1), 1, other, place, none);
  return Body::result(place).word(0);
}

// `slab`: of the warp.
template <class Config, class Body, class Rows, class Args>
SINTER_DEVICE void store_tile(const Args& args, const TilePlace<Config>& tile, int first_row,
                              EpilogueTile& slab) {
  using P = Problem<Config>;
  using S = Shape<Config>;
  static_assert(Config::products == 1 && Config::n_fastest && Config::split == 1 && !Rows::grouped,
                "TMA stores whole tiles of one product");
  static_assert(S::columns % 64 == 0, "a box has 64 columns of one tile");
  static_assert(is_same<typename Config::Sum, float>);
  static_assert(!EpilogueReductions<Config, Body>::any, "tiles are stored without reductions");
  const int lane = static_cast<int>(threadIdx.x) % 32,
            warp = static_cast<int>(threadIdx.x) / 32 % 4;
  // Lane 8 i + j names line j of block i: rows 0 to 7 and 8 to 15 of eight columns, then of the
  // next eight.
  const int line = lane % 16, half = lane / 16;
  typename P::Coord batch;
  P::set_batch(batch, tile.batch);
  for_each_number<S::blocks>([&]<int block>() {
    const int row = tile.row + first_row + block * 64 + warp * 16;
    for_each_number<S::columns / 64>([&]<int part>() {
      const unsigned to =
          hopper::address(&slab) + (block * (S::columns / 64) + part) % 2 * StoreTile::bytes;
      hopper::wait_for_stores<1>();  // the one before the last has left; of the lane that stored it
      __syncwarp();
      for_each_number<4>([&]<int sixteen>() {
        unsigned blocks[4];
        for_each_number<2>([&]<int eight>() {
          constexpr int first = part * 64 + sixteen * 16 + eight * 8;
          float sums[4];
          Sums<Config, block>{}.template get<first / 2>(sums);
          const auto at = [&](int below) {
            typename P::Coord c = batch;
            P::set_m(c, row + lane / 4 + below);
            P::set_n(c, tile.column + first + lane % 4 * 2);
            return c;
          };
          blocks[2 * eight] = results<Config, Body>(args, at(0), sums[0], sums[1]);
          blocks[2 * eight + 1] = results<Config, Body>(args, at(8), sums[2], sums[3]);
        });
        hopper::put_blocks(to + StoreTile::place(line, sixteen * 16 + half * 8), blocks);
      });
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

}  // namespace sinter::contraction
