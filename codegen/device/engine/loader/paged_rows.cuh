// Rows in pages that a table names: row r is row r % page of page table(r / page). A box for each
// page, by a tiled map of [pages, rows of a page, k]; a tile holds whole pages, or a page whole
// tiles.
//
// `Operand`: prefetch(args), page(args, number) from the table, load(args, page, row of the page,
// k, to, barrier).
#pragma once
#include "sinter/device/engine/loader/loader.cuh"

namespace sinter {

// Of a tile with Major::k a row is one of A, or a column of B (attention's keys); with Major::mn it
// is one of k (attention's values).
template <class Operand, class Tile_, int page>
struct PagedRows {
  using Tile = Tile_;
  static constexpr int threads = 1, tma_bytes = Tile::bytes, rows = Tile::lines;
  static constexpr int rows_at_once = page < rows ? page : rows;
  static_assert(page % rows_at_once == 0 && rows % rows_at_once == 0,
                "a tile holds whole pages, or a page whole tiles");
  static_assert(rows_at_once % 8 == 0, "after eight lines the swizzle repeats");
  // The tile's first row, where steps go along its columns (Major::k); the first column, where they
  // go along rows.
  int first;

  template <class Args>
  SINTER_DEVICE void load(const Args& args, int step, unsigned to, unsigned full) const {
    constexpr int along = Tile::swizzle / Tile::element;  // of a line
    const int row = Tile::major == Major::k ? first : step * Tile::depth,
              column = Tile::major == Major::k ? step * Tile::depth : first;
    int number[rows / rows_at_once];  // all are asked for before the first is used
#pragma unroll
    for (int r = 0; r < rows; r += rows_at_once)
      number[r / rows_at_once] = Operand::page(args, (row + r) / page);
#pragma unroll
    for (int r = 0; r < rows; r += rows_at_once)
#pragma unroll
      for (int panel = 0; panel < Tile::panels; ++panel)
        Operand::load(args, number[r / rows_at_once], (row + r) % page, column + panel * along,
                      to + panel * Tile::panel_bytes + r * Tile::swizzle, full);
  }
};

}  // namespace sinter
