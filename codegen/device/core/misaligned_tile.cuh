// A tile as in tile.cuh, of a tensor whose rows start anywhere in memory. Every row comes in the
// aligned pieces of 16 bytes that hold it, and lies in shared memory as far behind a multiple of 16
// bytes as in memory. The packs that are gathered are misaligned, too: those of a column start
// where the tensor that they go to is aligned (Spot::misalignment elements early). For these the
// tile has a pack's worth of rows more, ahead of its corner.
//
// Buffers start at multiples of 16 bytes; nothing is read ahead of them or behind their end.
#pragma once
#include "sinter/device/core/tile.cuh"

namespace sinter {

template <class Config, class Access, class Element>
struct MisalignedTile {
  using Index = typename Config::Index;
  static constexpr int size = sizeof(Element), width = Config::width, threads = Config::threads;
  static constexpr int rows = Config::tile_along + width, columns = Config::tile_across;
  static constexpr long long step = Access::Stride::at(Config::along);
  static constexpr Index extent = static_cast<Index>(Config::Extent::at(Config::along));
  static constexpr int pieces = (columns * size + 15) / 16 + 1, pitch = 16 * pieces;
  // From one pack to the next it is an odd multiple of 16 bytes, as in tile.cuh.
  static constexpr int gap = width * pitch % 32 == 0 ? 16 : 0;
  static constexpr int moves = rows * pieces, each = (moves + threads - 1) / threads;
  static_assert(rows % width == 0);

  alignas(16) unsigned char memory[rows * pitch + rows / width * gap];
  int start;  // bytes of row 0 behind a multiple of 16, once loaded

  static constexpr SINTER_DEVICE int at(int row) { return row * pitch + row / width * gap; }
  static constexpr SINTER_DEVICE int shift(int start, int row) {
    return static_cast<int>(static_cast<unsigned>(start) +
                            static_cast<unsigned>(row) * static_cast<unsigned>(step * size)) %
           16u;
  }

  // Behind the last element of the tensor.
  static constexpr SINTER_DEVICE Index end() {
    long long last = Access::offset;
    for (int i = 0; i < Config::Extent::size; ++i)
      last += (Config::Extent::at(i) - 1) * Access::Stride::at(i);
    return static_cast<Index>(last + 1);
  }

  // Calls f(byte of the tile, element that starts the row, bytes from there, bytes needed) for the
  // thread's pieces.
  template <class Corner, class F>
  static SINTER_DEVICE void for_pieces(const Corner& corner, Index offset, const F& f) {
    const int start = static_cast<int>(offset * size & 15);
    const int bytes = (Corner::whole ? columns : corner.columns) * size;
#pragma unroll(Corner::whole ? each : 1)
    for (int k = 0; k < each; ++k) {
      const int number = k * threads + static_cast<int>(threadIdx.x);
      if (moves % threads != 0 && number >= moves) break;
      const int row = number / pieces, piece = number % pieces;
      const Index along = corner.c.at[Config::along] - width + row;
      if (!Corner::whole && (along < 0 || along >= extent)) continue;
      const int behind = 16 * piece - shift(start, row);
      if (behind < bytes)
        f(at(row) + 16 * piece, offset + static_cast<Index>(step) * row, behind,
          least(bytes - behind, 16));
    }
  }

  // Where row 0 starts.
  template <class Corner>
  static SINTER_DEVICE Index first_element(const Corner& corner) {
    auto first = corner.c;
    first.at[Config::along] -= width;
    return locate<Access>(first).offset;
  }

  // From memory to the tile; the block meets at a barrier before it reads.
  template <class Corner>
  SINTER_DEVICE void load(const Element* base, const Corner& corner) {
    const Index offset = first_element(corner);
    if (threadIdx.x == 0) start = static_cast<int>(offset * size & 15);
    for_pieces(corner, offset, [&](int to, Index row, int behind, int bytes) {
      const Element* from = base + row + behind / size;
      auto* room = reinterpret_cast<Element*>(memory + to);
      if (row + (behind + 16) / size <= end()) return copy_async<16>(room, from);
      for (int i = 0; i < bytes / size; ++i) room[i] = from[i];
    });
  }

  template <int count>
  SINTER_DEVICE void read(const Spot& spot, Pack<Element, count>& pack) const {
    const int first = spot.pack * width + width - spot.misalignment, from = start;
#pragma unroll
    for (int e = 0; e < count; ++e) {
      const int row = first + e;
      pack.at[e] = *reinterpret_cast<const Element*>(memory + at(row) + shift(from, row) +
                                                     spot.column * size);
    }
  }
};

}  // namespace sinter
