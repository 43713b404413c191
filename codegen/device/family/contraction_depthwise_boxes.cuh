// Rows of a channels-last image in shared memory, as TMA writes them, for kernels of depthwise
// convolutions whose warps have some channels each and whose lanes read these of different pixels.
//
// A line is what one pixel has of the thread block's channels, 16 bytes (8 channels) for each of
// `lanes` warps. The swizzle exchanges the 16-byte units of a line by the number of the line, so
// that the same unit of eight neighbouring lines lies in all banks. Units of lines that are eight
// apart lie eight lines apart: a thread needs two addresses, its own and that four lines further.
#pragma once
#include "sinter/device/engine/pipeline.cuh"

namespace sinter::depthwise {

template <int lanes>
struct Lines {
  static_assert(lanes == 4 || lanes == 8);
  static constexpr int bytes = 16 * lanes;
  // Of a unit whose line is `line` lines behind a multiple of 1024 bytes.
  static SINTER_DEVICE unsigned place(int line, int unit) {
    const auto at = static_cast<unsigned>(line * bytes + unit * 16);
    return at ^ (at >> 7 & (lanes - 1)) << 4;
  }
};

// A lane's unit in all lines that lie a multiple of four behind its own.
template <int lanes>
struct LaneLines {
  const unsigned char* at[2];
  SINTER_DEVICE LaneLines(const unsigned char* memory, int line, int unit)
      : at{memory + Lines<lanes>::place(line, unit), memory + Lines<lanes>::place(line + 4, unit)} {
  }
  // `fours`: how many times four lines further, from `bytes` on, a multiple of 1024.
  template <class Vector = uint4>
  SINTER_DEVICE Vector get(int fours, int bytes) const {
    return *reinterpret_cast<const Vector*>(at[fours % 2] + fours / 2 * (8 * Lines<lanes>::bytes) +
                                            bytes);
  }
};

// Of stages that TMA fills, and of the steps of all warps.
template <class Config, class Walk>
SINTER_DEVICE void init_barriers(const Walk& walk) {
  if (threadIdx.x != 0) return;
  for (int i = 0; i < Config::stages; ++i) hopper::barrier_init(walk.full(i), 1);
  hopper::barrier_init(walk.passed(), Config::lanes);
  hopper::barriers_are_ready();
}

// Zeros, by all threads, in stages of which boxes leave some lines out.
template <int threads>
SINTER_DEVICE void clear_stages(unsigned char* stages, int bytes) {
#pragma unroll 1
  for (int i = static_cast<int>(threadIdx.x); i < bytes / 16; i += threads)
    reinterpret_cast<uint4*>(stages)[i] = uint4{};
  hopper::written_for_multiplications();
}

}  // namespace sinter::depthwise
