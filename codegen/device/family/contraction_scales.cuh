// Operands of 8-bit floats with a scale for every so many elements of k (DeepSeek-V3's blocks of
// 128): a stage's sums are multiplied with the scales of its block as they are promoted (added in
// f32).
#pragma once
#include "sinter/device/engine/named_accumulator.cuh"
#include "sinter/device/family/contraction_tiles.cuh"

namespace sinter::contraction {

// A set of a warpgroup's sums: number 64 r of its rows, of a stage's own sums further ones.
template <class Config, int set>
using Sums = NamedAccumulator<typename Config::Sum, Shape<Config>::product_columns, set>;

struct NoScales {
  static constexpr bool on = false;
};

// Each has value(c), the scale at a row or a column and at any k of the block, and says whether it
// is the same for all rows, or all columns, of a batch entry.
template <class ScaleA, class ScaleB, class ScaleB2 = ScaleB>
struct BlockScales {
  static constexpr bool on = true;
  using A = ScaleA;
  using B = ScaleB;
  using B2 = ScaleB2;
};

// The scale of an operand that has none.
struct Unscaled {
  static constexpr bool same = true;
  template <class Args>
  SINTER_DEVICE explicit Unscaled(const Args&) {}
  template <class Coord>
  SINTER_DEVICE float value(const Coord&) const {
    return 1;
  }
};

// The scales that a warp multiplies a stage's sums with: a thread holds those of its rows, and of
// the tile's columns those of every 32nd, or one of each product.
template <class Config, class Scales>
class StageScales {
  using P = Problem<Config>;
  using S = Shape<Config>;
  static constexpr bool same = Scales::B::same && Scales::B2::same;
  static constexpr int rows = 2 * S::blocks,
                       columns = same ? Config::products : (Config::tile_n + 31) / 32;
  float row_[rows], column_[columns];

  template <class Args, class Coord>
  static SINTER_DEVICE float of_column(const Args& args, const Coord& c, int product) {
    return product == 0 ? typename Scales::B{args}.value(c) : typename Scales::B2{args}.value(c);
  }

 public:
  // For the rows from `first_row` of the tile on.
  template <class Args, class Rows>
  SINTER_DEVICE void fetch(const Args& args, const Rows& rows_of, const TileCoord<Config>& tile,
                           int first_row, int step) {
    const int lane = static_cast<int>(threadIdx.x) % 32,
              warp = static_cast<int>(threadIdx.x) / 32 % 4;
    typename P::Coord c;
    P::set_batch(c, tile.batch);
    P::set_k(c, step * S::step);
#pragma unroll
    for (int i = 0; i < rows; ++i) {
      const int row = tile.row + first_row + i / 2 * 64 + warp * 16 + i % 2 * 8 + lane / 4;
      const bool exists = row < tile.row_end;
      P::set_m(c, exists ? rows_of.source(static_cast<typename P::Index>(row)) : 0);
      row_[i] = exists ? typename Scales::A{args}.value(c) : 0;
    }
#pragma unroll
    for (int i = 0; i < columns; ++i) {
      const int of_tile = lane + i * 32, product = same ? i : of_tile / S::columns,
                column = tile.column + (same ? 0 : of_tile - product * S::columns);
      P::set_n(c, column);
      const bool exists = column < P::columns && (same || of_tile < Config::tile_n);
      column_[i] = exists ? of_column(args, c, product) : 0;
    }
  }
  // Adds the stage's sums, the sets from `from` on, to those of the stages before. `room`: the
  // warp's, for a number of each column.
  template <int from>
  SINTER_DEVICE void promote(float* room) const {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    if constexpr (!same) {
#pragma unroll
      for (int i = 0; i < columns; ++i) room[lane + i * 32] = column_[i];
      __syncwarp();
    }
    for_each_number<S::blocks>([&]<int block>() {
      for_each_number<Config::tile_n / 8>([&]<int four>() {
        const float first = row_[2 * block], second = row_[2 * block + 1];
        float2 of;
        if constexpr (same)
          of.x = of.y = column_[four * 8 / S::columns];
        else
          of = *reinterpret_cast<float2*>(room + four * 8 + lane % 4 * 2);
        Sums<Config, block>{}.template add_scaled<four * 4>(
            Sums<Config, from + block>{}, first * of.x, first * of.y, second * of.x, second * of.y);
      });
    });
    if constexpr (!same) __syncwarp();
  }
};

}  // namespace sinter::contraction
