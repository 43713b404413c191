// A tile of an operand in shared memory, as tensor maps with a swizzle leave it and wgmma reads it.
//
// Major::k: k is fastest in memory. A line of `swizzle` bytes of k for every m or n; where there is
// more of k, the next lines form another panel. Major::mn: m or n is fastest. A line of `swizzle`
// bytes of m or n for every k, and further panels for more of m or n. Within a line, its pieces of
// 16 bytes are exchanged by the number of the line: piece p lies at p xor (line % 8) (128 bytes),
// line / 2 % 4 (64), line / 4 % 2 (32). A tile starts at a multiple of eight lines.
//
// Tiles may be views of lines that hold more: `pitch` lines from each eight to the next, and, with
// m or n fastest, `panel_pitch` lines from panel to panel. Both are offsets of addresses for wgmma,
// as is the start, which may then be any line: the swizzle goes by addresses.
#pragma once
#include "sinter/device/core/device.cuh"

namespace sinter {

enum class Major { k, mn };

// `extent` rows of A or columns of B; `depth` elements of k.
template <class Number_, Major major_, int extent_, int depth_, int swizzle_ = 128, int pitch_ = 8,
          int panel_pitch_ = 0>
struct SharedTile {
  using Number = Number_;
  static constexpr Major major = major_;
  static constexpr int extent = extent_, depth = depth_, swizzle = swizzle_, pitch = pitch_,
                       element = static_cast<int>(sizeof(Number));
  static_assert(swizzle == 128 || swizzle == 64 || swizzle == 32, "a swizzle has 128, 64 or 32");
  static_assert(major == Major::k || element != 1,
                "wgmma reads operands whose m or n is fastest only of 16 bits, threads of 32");
  static constexpr int fastest = major == Major::k ? depth : extent,
                       lines = major == Major::k ? extent : depth;
  static constexpr int panels = fastest * element / swizzle,
                       panel_bytes = (panel_pitch_ > 0 ? panel_pitch_ : lines) * swizzle,
                       bytes = panels * panel_bytes;
  static_assert(fastest * element % swizzle == 0, "a tile has whole lines");
  static_assert(lines % 8 == 0, "a tile has a multiple of eight lines");
  static_assert(depth * element % 32 == 0, "a tile has a multiple of 32 bytes of k");
  // Of 32 bytes of k each.
  static constexpr int steps = depth * element / 32, steps_in_panel = swizzle / 32;

  // Bits 0 to 13: the address; 16 to 29: from panel to panel (m or n fastest); 32 to 45: from eight
  // lines to the next; 62, 63: the swizzle. All in units of 16 bytes.
  static SINTER_DEVICE unsigned long long descriptor(unsigned shared) {
    constexpr unsigned long long leading = major == Major::k ? 16 : panel_bytes,
                                 stride = pitch * swizzle,
                                 kind = swizzle == 128  ? 1
                                        : swizzle == 64 ? 2
                                                        : 3;
    return static_cast<unsigned long long>((shared & 0x3ffff) >> 4) | leading >> 4 << 16 |
           stride >> 4 << 32 | kind << 62;
  }
  // How far step `i` of k lies from the start, in units of 16 bytes: to be added to the descriptor.
  static constexpr SINTER_DEVICE int step(int i) {
    if (major == Major::mn) return i * (32 / element) / 8 * pitch * swizzle / 16;
    return i / steps_in_panel * (panel_bytes / 16) + i % steps_in_panel * 2;
  }
  // Where `count` rows or columns further a tile of the same kind starts, in bytes.
  static constexpr SINTER_DEVICE int further(int count) {
    return major == Major::k ? count / 8 * pitch * swizzle
                             : count * element / swizzle * panel_bytes;
  }
  // Where an element lies, in bytes from the start; for threads that write a tile themselves.
  static SINTER_DEVICE int place(int mn, int k) {
    static_assert(pitch == 8 && panel_pitch_ == 0, "lines of a view lie elsewhere");
    const int along = (major == Major::k ? k : mn) * element, line = major == Major::k ? mn : k;
    const int byte = along / swizzle * panel_bytes + line * swizzle + along % swizzle;
    constexpr int pieces = swizzle / 16;
    return byte ^ (byte >> 7 & (pieces - 1)) << 4;
  }
};

}  // namespace sinter
