// Results whose tile reaches into the next of packed sequences: TMA stores whole boxes alone, so
// threads store the lines that are the sequence's own.
#pragma once
#include "sinter/device/core/device.cuh"

namespace sinter::attention {

// Of a box of 64 columns of 16 bits, the first of which is `column` of a result of `width`, as TMA
// reads it with a swizzle of 128 bytes, the first `lines`. at(line): where the line's column 0 is
// stored. By `threads` threads of which this is number `thread`.
template <int width, class At>
SINTER_DEVICE void store_lines(const unsigned char* box, int lines, int column, int thread,
                               int threads, const At& at) {
#pragma unroll 1
  for (int i = thread; i < lines * 8; i += threads) {
    const int line = i / 8, first = column + i % 8 * 8;
    const unsigned char* const from = box + line * 128 + (i % 8 ^ line % 8) * 16;
    auto* const to = at(line) + first;
    if (first + 8 <= width) {
      *reinterpret_cast<uint4*>(to) = *reinterpret_cast<const uint4*>(from);
    } else {
#pragma unroll 1
      for (int e = 0; first + e < width; ++e)
        reinterpret_cast<unsigned short*>(to)[e] = reinterpret_cast<const unsigned short*>(from)[e];
    }
  }
}

}  // namespace sinter::attention
