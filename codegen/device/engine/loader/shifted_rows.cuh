// Lines of an operand that begin anywhere: TMA wants each at a multiple of 16 bytes. All threads of
// the producer copy the aligned pieces of 16 bytes that a stage's lines lie in (cp.async), some
// stages ahead, to where TMA would have put the lines' own pieces. When these have come, each is
// shifted where it lies: what ends it is in the next piece, which a neighbouring lane has.
//
// Eight threads have a line of 128 bytes, and a thread the same pieces of every sixteenth line. So
// many lines are a multiple of 16 bytes, whatever one is: a thread's shift is the same for all of
// them. What does not exist becomes zero.
#pragma once
#include "sinter/device/core/warp_matrix.cuh"
#include "sinter/device/engine/loader/loader.cuh"

namespace sinter {

template <class Tile_>
struct ShiftedRows {
  using Tile = Tile_;
  using Number = typename Tile::Number;
  static constexpr int threads = 128, tma_bytes = 0;
  static constexpr int size = 2, each = 16 / size, line_bytes = Tile::swizzle,
                       beside = line_bytes / 16, apart = threads / beside,
                       own = (Tile::lines + apart - 1) / apart, all = Tile::panels * own;
  // Parts of at most eight, all as large.
  static constexpr int at_once = [] {
    int n = all < 8 ? all : 8;
    while (all % n != 0) --n;
    return n;
  }();
  static constexpr bool along_k = Tile::major == Major::k;
  static_assert(sizeof(Number) == size && line_bytes == 128 && beside == 8);
  static_assert(apart % 8 == 0, "after eight lines the swizzle repeats");
  static_assert(all % at_once == 0);

  const Number* base;      // of the batch entry, in a buffer that starts at a multiple of 16 bytes
  const Number* end;       // of the buffer
  long long pitch;         // elements from a line to the next
  int first, rows, depth;  // the tile's first row; of the operand

  // A thread's pieces of a stage.
  struct Place {
    const char* from;           // of the first
    unsigned to;                // from the start of the tile
    int line, lines, elements;  // of the tile; that exist from there on, of both
    int shift;                  // bytes
  };
  SINTER_DEVICE Place place_of(int step) const {
    const int thread = static_cast<int>(threadIdx.x) % threads, line = thread / beside,
              along = thread % beside * each;
    const int k = step * Tile::depth, first_line = (along_k ? first : k) + line,
              first_along = (along_k ? k : first) + along;
    const Number* const from = base + first_line * pitch + first_along;
    return {reinterpret_cast<const char*>(from),
            static_cast<unsigned>(along_k ? Tile::place(line, along) : Tile::place(along, line)),
            line,
            (along_k ? rows : depth) - first_line,
            (along_k ? depth : rows) - first_along,
            static_cast<int>(reinterpret_cast<unsigned long long>(from) % 16)};
  }
  // Number i of them: elements that exist, and the aligned piece that it begins in.
  struct Piece {
    int count;
    const char* aligned;
    unsigned to;
    bool fits;    // the tile
    bool copied;  // it has elements, or ends those of the piece before
  };
  SINTER_DEVICE Piece piece_of(const Place& place, int i) const {
    const int panel = i / own, down = i % own * apart;
    const int left = place.elements - panel * (line_bytes / size);
    return {down >= place.lines || left <= 0 ? 0
            : left < each                    ? left
                                             : each,
            place.from - place.shift + down * pitch * size + panel * line_bytes,
            place.to + panel * Tile::panel_bytes + down * line_bytes,
            Tile::lines % apart == 0 || place.line + down < Tile::lines,
            down < place.lines && place.shift + left * size > 0};
  }
  // Bytes of the piece that the buffer has.
  SINTER_DEVICE int in_buffer(const char* piece) const {
    const long long left = reinterpret_cast<const char*>(end) - piece;
    return left < 16 ? static_cast<int>(left) : 16;
  }

  // Starts to copy. The piece that the buffer ends in is loaded by elements: of cp.async's address
  // the hardware, and the sanitizer, see the whole piece.
  template <class Args>
  SINTER_DEVICE void load(const Args&, int step, unsigned to, unsigned) const {
    const Place place = place_of(step);
    bool ends = false;
#pragma unroll
    for (int i = 0; i < all; ++i) {
      const Piece piece = piece_of(place, i);
      const bool cut = piece.copied && in_buffer(piece.aligned) < 16;
      ends |= cut;
      if (!piece.fits || cut) continue;
      warp_matrix::copy_part<16>(
          to + piece.to,
          piece.copied ? piece.aligned : reinterpret_cast<const char*>(base) - base_shift(),
          piece.copied ? 16 : 0);
    }
    if (ends)
#pragma unroll 1
      for (int i = 0; i < all; ++i)
        if (const Piece piece = piece_of(place, i);
            piece.fits && piece.copied && in_buffer(piece.aligned) < 16)
          warp_matrix::put(to + piece.to, part_of(piece.aligned));
  }
  // Shifts what has come to the tile at `tile`, `to` for instructions.
  SINTER_DEVICE void finish(int step, const unsigned char* tile, unsigned to) const {
    const Place place = place_of(step);
    const bool last = threadIdx.x % beside == beside - 1;
#pragma unroll 1
    for (int from = 0; from < all; from += at_once) {
      uint4 behind[at_once];  // of the last piece of a line
      bool at_end = false;    // of the buffer, which has a part of it
#pragma unroll
      for (int i = 0; i < at_once; ++i) {
        const Piece piece = piece_of(place, from + i);
        const bool needed = last && place.shift + piece.count * size > 16,
                   whole = in_buffer(piece.aligned + 16) == 16;
        behind[i] = uint4{};
        if (needed && whole)
          behind[i] = hardware::load(reinterpret_cast<const uint4*>(piece.aligned + 16));
        at_end |= needed && !whole;
      }
      if (at_end) {
#pragma unroll
        for (int i = 0; i < at_once; ++i)
          if (const Piece piece = piece_of(place, from + i);
              place.shift + piece.count * size > 16 && in_buffer(piece.aligned + 16) < 16)
            behind[i] = part_of(piece.aligned + 16);
      }
#pragma unroll
      for (int i = 0; i < at_once; ++i) {
        const Piece piece = piece_of(place, from + i);
        uint4 low{};
        if (piece.fits) low = *reinterpret_cast<const uint4*>(tile + piece.to);
        const uint4 next{of_next(low.x), of_next(low.y), of_next(low.z), of_next(low.w)};
        if (piece.fits)
          warp_matrix::put(to + piece.to,
                           cut(low, last ? behind[i] : next, place.shift, piece.count));
      }
    }
  }

 private:
  SINTER_DEVICE int base_shift() const {
    return static_cast<int>(reinterpret_cast<unsigned long long>(base) % 16);
  }
  static SINTER_DEVICE unsigned of_next(unsigned word) {
    return __shfl_sync(~0u, word, (static_cast<int>(threadIdx.x) + 1) % 32);
  }
  // What the buffer has of a piece.
  SINTER_DEVICE uint4 part_of(const char* piece) const {
    unsigned at[4] = {};
#pragma unroll
    for (int e = 0; e < each; ++e)
      if (e * size < in_buffer(piece))
        at[e / 2] |= static_cast<unsigned>(
                         hardware::load(reinterpret_cast<const unsigned short*>(piece) + e))
                     << e % 2 * 16;
    return {at[0], at[1], at[2], at[3]};
  }
  // The 16 bytes `shift` from the start of the two pieces, of which `count` elements exist.
  static SINTER_DEVICE uint4 cut(const uint4& low, const uint4& high, int shift, int count) {
    unsigned at[8] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
#pragma unroll
    for (int i = 0; i < 6; ++i) at[i] = shift & 8 ? at[i + 2] : at[i];
#pragma unroll
    for (int i = 0; i < 5; ++i) at[i] = shift & 4 ? at[i + 1] : at[i];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      at[i] = __funnelshift_r(at[i], at[i + 1], static_cast<unsigned>(shift & 2) * 8);
      at[i] = count >= 2 * i + 2 ? at[i] : count > 2 * i ? at[i] & 0xffffu : 0;
    }
    return {at[0], at[1], at[2], at[3]};
  }
};

}  // namespace sinter
