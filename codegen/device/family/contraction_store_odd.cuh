// Results of 16 bits whose rows begin anywhere in memory, or end within a piece of 16 bytes, see
// contraction_store.cuh: stmatrix brings them to shared memory as they are stored, and lanes cut
// the aligned pieces of memory out of there. Body has, besides stores_rows, row and Stored,
//
//   odd_rows      such rows
//   packed_rows   which lie one behind another, and all exist
//
// Packed rows of up to 64 columns are one run of memory for a warp's 16 rows. Of others, what eight
// lanes have of a row begins and ends in pieces that neighbouring tiles, or rows, share: each of
// the eight stores one element of these, and seven of them, or all, a whole piece.
#pragma once
#include "sinter/device/core/shifted.cuh"
#include "sinter/device/family/contraction_store.cuh"

namespace sinter::contraction {

template <class Body>
concept StoresOddRows = requires {
  requires Body::odd_rows;
};

// Fetches what is the same for all rows, of columns that exist.
template <class Config>
struct ColumnsOf {
  template <class Access, class Element, int width, int aligned, class Coord>
  static SINTER_DEVICE void fetch(const Element* base, const Coord& c,
                                  Pack<Element, width, aligned>& pack) {
    using P = Problem<Config>;
    const auto place = locate<Access>(c);
    pack.inside = place.inside;
#pragma unroll
    for (int e = 0; e < width; ++e) {
      pack.at[e] = Element{};
      if (place.inside && c.at[P::first_k - 1] + e < P::columns)
        pack.at[e] = Format<Element>::fetch(base + place.offset + e);
    }
  }
  template <class Access, class Element, class Coord>
  static SINTER_DEVICE void fetch(const Element* base, const Coord& c, Same<Element>& same) {
    sinter::fetch<Access>(base, c, same);
  }
};

// Elements that lie between the place and the aligned piece of 16 bytes before it.
SINTER_DEVICE int elements_into_piece(const void* place) {
  return static_cast<int>(reinterpret_cast<unsigned long long>(place) / 2 % 8);
}

// `rows` rows of `columns` each, one behind another in memory from `to` on.
template <class Stored>
SINTER_DEVICE void store_run(Stored* to, const unsigned char* tile, int rows, int columns) {
  const int into = elements_into_piece(to), count = rows * columns;
  for (int piece = static_cast<int>(threadIdx.x) % 32; piece * 8 < count + into; piece += 32) {
    const int first = piece * 8 - into;
    int row = (first < 0 ? 0 : first) / columns, column = first - row * columns;
    unsigned words[4] = {};
#pragma unroll
    for (int e = 0; e < 8; ++e) {
      if (first + e >= 0 && first + e < count) {
        const auto bits =
            *reinterpret_cast<const unsigned short*>(tile + StoreTile::place(row, column));
        words[e / 2] |= static_cast<unsigned>(bits) << e % 2 * 16;
      }
      if (++column == columns) column = 0, ++row;
    }
    if (first >= 0 && first + 8 <= count) {
      *reinterpret_cast<uint4*>(to + first) = {words[0], words[1], words[2], words[3]};
    } else {
#pragma unroll
      for (int e = 0; e < 8; ++e)
        if (first + e >= 0 && first + e < count)
          reinterpret_cast<unsigned short*>(to)[first + e] =
              static_cast<unsigned short>(words[e / 2] >> e % 2 * 16);
    }
  }
}

// `columns` elements of a row of the tile, up to 64, to `to` on, by eight lanes of which this is
// number `lane`.
template <class Stored>
SINTER_DEVICE void store_part_of_row(Stored* to, const unsigned char* tile, int row, int columns,
                                     int lane) {
  const int into = elements_into_piece(to), first = lane * 8 - into;
  if (first >= 0 && first + 8 <= columns) {
    Shifted<Stored, 8> window;
    const int from = first / 8 * 8;
    window.shift = (first - from) * 2;
    auto* const pieces = reinterpret_cast<uint4*>(window.at);
    pieces[0] = *reinterpret_cast<const uint4*>(tile + StoreTile::place(row, from));
    pieces[1] = uint4{};
    if (window.shift != 0)
      pieces[1] = *reinterpret_cast<const uint4*>(tile + StoreTile::place(row, from + 8));
    window.shift_to_front();
    *reinterpret_cast<uint4*>(to + first) = {window.at[0], window.at[1], window.at[2],
                                             window.at[3]};
  }
  // Before the first whole piece and behind the last: of 64 columns none, or eight together.
  const int left = (8 - into) % 8, before = left < columns ? left : columns,
            end = (columns + into) / 8 * 8 - into, behind = end > before ? end : before;
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const int number = lane + i * 8, column = number < before ? number : behind + number - before;
    if (column < columns)
      reinterpret_cast<unsigned short*>(to)[column] =
          *reinterpret_cast<const unsigned short*>(tile + StoreTile::place(row, column));
  }
}

template <class Config, class Body, class Args>
SINTER_DEVICE void store_odd_rows(const Args& args, const TileCoord<Config>& tile, int first_row,
                                  EpilogueTile& epilogue_tile) {
  using P = Problem<Config>;
  using S = Shape<Config>;
  static_assert(stores_as_summed<Config, Body>() && Body::sources == 0);
  constexpr bool run = Body::packed_rows && S::across == 1;
  const int warp = static_cast<int>(threadIdx.x) / 32 % 4;
  typename P::Coord batch;
  P::set_batch(batch, tile.batch);
  using Result = RowPieces<typename Body::Stored>;
  Result result;
  bool exists[Result::own];
  retake_tile<Config, Body, false>(args, tile, batch, first_row);
  PartColumns<Config, Body> read_columns;
  read_columns.fetch(args, batch, tile.column);
  for_each_part<Config, kWrittenOut<Body, 0>>([&](auto number) {
    const int block = number / S::across, part = number % S::across,
              row = tile.row + first_row + block * 64 + warp * 16, column = tile.column + part * 64;
    unsigned char* const staged =
        reinterpret_cast<unsigned char*>(&epilogue_tile) + number % 2 * StoreTile::bytes;
    __syncwarp();  // what was here has left
    PartSums sums;
    get_part<Config>(number, sums);
    put_results<Config, Body>(args, batch, row, column, next_part<Config>(tile, part),
                              S::columns - part * 64, read_columns, sums, hopper::address(staged));
    __syncwarp();
    const int left = static_cast<int>(P::columns) - column, own = S::columns - part * 64,
              most = own < 64 ? own : 64, columns = left < most ? left : most;
    if constexpr (run) {
      if (P::columns <= S::columns) {
        typename P::Coord c = batch;
        P::set_m(c, row);
        P::set_n(c, 0);
        const int rows = tile.row_end - row < 16 ? tile.row_end - row : 16;
        if (rows > 0) store_run(Body::row(args, c), staged, rows, static_cast<int>(P::columns));
        return;
      }
    }
    if (part == 0)
      Result::each_row(tile, batch, row, tile.column, exists,
                       [&](int i, const auto& c) { result.at[i] = Body::row(args, c); });
#pragma unroll
    for (int i = 0; i < Result::own; ++i)
      if (exists[i] && columns > 0)
        store_part_of_row(result.at[i] + part * 64, staged, Result::row(i), columns,
                          static_cast<int>(threadIdx.x) % 8);
  });
  __syncwarp();
}

}  // namespace sinter::contraction
