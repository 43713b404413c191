// 16 rows of results in shared memory, on their way from the sums of a warp to memory as they are
// stored, and what a lane has of them there (contraction_store.cuh).
#pragma once
#include "sinter/device/core/hopper.cuh"
#include "sinter/device/core/pack.cuh"
#include "sinter/device/core/warp_matrix.cuh"
#include "sinter/device/engine/shared_tile.cuh"
#include "sinter/device/family/contraction_tiles.cuh"

namespace sinter::contraction {

// 16 rows x 64 columns of results, to which the pairs of 16 columns from `first` on are put: those
// of rows 0 to 7 and 8 to 15 of eight columns, then of the next eight.
struct StoreTile : SharedTile<bf16, Major::k, 16, 64> {
  static SINTER_DEVICE void put(unsigned to, int first, const unsigned (&pairs)[4]) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    hopper::put_blocks(to + place(lane % 16, first + lane / 16 * 8), pairs);
  }
};
// The same of 8 bits. Rows lie 18 words apart, so that lanes that put pairs have banks of their
// own.
struct StoreTileOfBytes {
  static SINTER_DEVICE void put(unsigned to, int first, const unsigned (&pairs)[4]) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
    for (int i = 0; i < 4; ++i)
      warp_matrix::put(to + place(lane / 4 + i % 2 * 8, first + i / 2 * 8 + lane % 4 * 2),
                       static_cast<unsigned short>(pairs[i]));
  }
  static SINTER_DEVICE int place(int row, int column) { return row * 72 + column; }
};
static_assert(2 * StoreTile::bytes ==
              sizeof(EpilogueTile));  // one leaves while the other is written

// A lane's part of rows of 16 or 8 bits, of 64 or fewer columns each: of 64, 8 columns of every
// fourth row, or of the four pixels of a window.
template <class Element, bool windows = false, int columns = 64>
struct RowPieces {
  static constexpr int together = 8, beside = columns / 8, apart = 32 / beside, own = 16 / apart;
  using Piece = typename Word<together * sizeof(Element)>::Type;
  using Tile = Choice<sizeof(Element) == 1, StoreTileOfBytes, StoreTile>;
  Element* at[own];  // the first piece of each row
  Piece held[own];

  static SINTER_DEVICE int row(int i) {
    const int own_row = static_cast<int>(threadIdx.x) % 32 / beside;
    if constexpr (windows)
      return own_row * 2 + i % 2 + i / 2 * 8;
    else
      return own_row + i * apart;
  }
  static SINTER_DEVICE int column() {
    return static_cast<int>(threadIdx.x) % 32 % beside * together;
  }
  // f(number, place) of each of a lane's rows, of the 16 from `first` on, where its part begins
  // that lies from `column` on; and which rows there are.
  template <class Config, class Coord, class F>
  static SINTER_DEVICE void each_row(const TileCoord<Config>& tile, const Coord& batch, int first,
                                     int column, bool (&exists)[own], const F& f) {
    using P = Problem<Config>;
#pragma unroll
    for (int i = 0; i < own; ++i) {
      const int own_row = first + row(i);
      Coord c = batch;
      P::set_m(c, own_row);
      exists[i] = own_row < tile.row_end && P::exists(c);
      P::set_n(c, column);
      f(i, c);
    }
  }
  SINTER_DEVICE void load(const bool (&exists)[own], int column) {
#pragma unroll
    for (int i = 0; i < own; ++i)
      held[i] = exists[i] ? *reinterpret_cast<const Piece*>(at[i] + column) : Piece{};
  }
  SINTER_DEVICE void store(const bool (&exists)[own], int column) const {
#pragma unroll
    for (int i = 0; i < own; ++i)
      if (exists[i]) *reinterpret_cast<Piece*>(at[i] + column) = held[i];
  }
  // The largest of a window's pixels, or their average.
  template <bool averages>
  SINTER_DEVICE void store_pooled(Element* to, int column) const {
    static_assert(windows && own == 4);
    Pack<Element, together> pixel[own], result;
#pragma unroll
    for (int i = 0; i < own; ++i) *reinterpret_cast<uint4*>(pixel[i].at) = held[i];
#pragma unroll
    for (int e = 0; e < together; ++e) {
      float value = sinter::get<float>(pixel[0], e);
#pragma unroll
      for (int i = 1; i < own; ++i) {
        const float other = sinter::get<float>(pixel[i], e);
        value = averages ? value + other : math::maximum(value, other);
      }
      sinter::put(result, e, averages ? value * (1.0f / own) : value);
    }
    *reinterpret_cast<uint4*>(to + column) = *reinterpret_cast<const uint4*>(result.at);
  }
  SINTER_DEVICE void put(unsigned char* tile) const {
#pragma unroll
    for (int i = 0; i < own; ++i)
      *reinterpret_cast<Piece*>(tile + Tile::place(row(i), column())) = held[i];
  }
  SINTER_DEVICE void get(const unsigned char* tile) {
#pragma unroll
    for (int i = 0; i < own; ++i)
      held[i] = *reinterpret_cast<const Piece*>(tile + Tile::place(row(i), column()));
  }
};

}  // namespace sinter::contraction
