// Results of 16 bits whose rows begin anywhere in memory, or end within a piece of 16 bytes, see
// contraction_store.cuh: stmatrix brings them to shared memory as they are stored, and lanes cut
// the aligned pieces of memory out of there. Body has, besides stores_rows, row and Stored,
//
//   odd_rows      such rows
//   packed_rows   which lie one behind another, and all exist
//
// Packed rows that a tile has as a whole are runs of memory: a warp puts 8 or 16 of them to shared
// memory as they lie there, element by element, and stores whole pieces. Of others, what eight
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

// Rows of results that lie one behind another in memory, on their way there: in shared memory they
// do so, too, as far into a piece of 16 bytes as in memory, so that whole pieces leave. `columns`:
// of a row, up to so many; 8 or 16 rows of them fill an epilogue tile.
template <class Stored>
struct RunOfRows {
  static constexpr int most_columns = 255, most_of_16 = 127;
  Stored* to;
  unsigned short* staged;  // at a multiple of 16 bytes
  int columns, into;

  SINTER_DEVICE RunOfRows(Stored* to, EpilogueTile& tile, int columns)
      : to(to),
        staged(reinterpret_cast<unsigned short*>(&tile)),
        columns(columns),
        into(elements_into_piece(to)) {}
  // Results of a lane: two neighbours of rows lane / 4 and, `below`, 8 further, of each eight
  // columns from `first` on. Of `rows_at_once` 8 the rows from `half` * 8 on.
  template <int rows_at_once>
  SINTER_DEVICE void put(int first, const unsigned (&blocks)[4], int half) const {
    const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if (rows_at_once == 8 && i % 2 != half) continue;
      const int row = lane / 4 + (rows_at_once == 8 ? 0 : i % 2 * 8),
                column = first + i / 2 * 8 + lane % 4 * 2;
      unsigned short* const at = staged + into + row * columns + column;
      if (column < columns) at[0] = static_cast<unsigned short>(blocks[i]);
      if (column + 1 < columns) at[1] = static_cast<unsigned short>(blocks[i] >> 16);
    }
  }
  SINTER_DEVICE void store(int rows) const {
    const int count = rows * columns;
    for (int piece = static_cast<int>(threadIdx.x) % 32; piece * 8 < count + into; piece += 32) {
      const int first = piece * 8 - into;
      if (first >= 0 && first + 8 <= count) {
        *reinterpret_cast<uint4*>(to + first) = *reinterpret_cast<const uint4*>(staged + piece * 8);
      } else {
#pragma unroll
        for (int e = 0; e < 8; ++e)
          if (first + e >= 0 && first + e < count)
            reinterpret_cast<unsigned short*>(to)[first + e] = staged[piece * 8 + e];
      }
    }
  }
};

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
  const int warp = static_cast<int>(threadIdx.x) / 32 % 4;
  typename P::Coord batch;
  P::set_batch(batch, tile.batch);
  using Result = RowPieces<typename Body::Stored>;
  Result result;
  bool exists[Result::own];
  recompute_tile<Config, Body, false>(args, tile, batch, first_row);
  PartColumns<Config, Body> read_columns;
  using Run = RunOfRows<typename Body::Stored>;
  if constexpr (Body::packed_rows) {
    if (P::columns <= S::columns && P::columns <= Run::most_columns) {
      const auto store = [&]<int at_once>(Int<at_once>) {
#pragma unroll 1
        for (int i = 0; i < S::blocks * (16 / at_once); ++i) {
          const int block = i / (16 / at_once), half = i % (16 / at_once),
                    row = tile.row + first_row + block * 64 + warp * 16, own = row + half * 8;
          typename P::Coord c = batch;
          P::set_m(c, own);
          P::set_n(c, 0);
          const Run run(Body::row(args, c), epilogue_tile, static_cast<int>(P::columns));
          __syncwarp();  // what was here has left
#pragma unroll 1
          for (int part = 0; part < S::across; ++part) {
            PartSums sums;
            get_part<Config>(block * S::across + part, sums);
            if (S::across > 1 || i == 0) read_columns.fetch(args, batch, part * 64);
            put_results<Config, Body>(args, batch, row, part * 64, 0, S::columns - part * 64,
                                      read_columns, sums, 0,
                                      [&](int first, const unsigned(&blocks)[4]) {
                                        run.template put<at_once>(part * 64 + first, blocks, half);
                                      });
          }
          __syncwarp();
          const int left = tile.row_end - own;
          if (left > 0) run.store(left < at_once ? left : at_once);
        }
      };
      if (P::columns <= Run::most_of_16)
        store(Int<16>{});
      else
        store(Int<8>{});
      __syncwarp();
      return;
    }
  }
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
