// Rows of a channels-last image in shared memory, as TMA writes them, for kernels of depthwise
// convolutions whose warps have some channels each and whose lanes read these of different pixels.
//
// A line is what one pixel has of the thread block's channels, 16 bytes (8 channels) for each of
// `lanes` warps. The swizzle exchanges the 16-byte units of a line by the number of the line, so
// that the same unit of eight neighbouring lines lies in all banks. Units of lines that are eight
// apart lie eight lines apart: a thread needs two addresses, its own and that four lines further.
// Lines of an odd number of units need none: that is odd times 16 bytes, all banks in eight lines.
#pragma once
#include "sinter/device/engine/pipeline.cuh"
#include "sinter/device/family/contraction_depthwise.cuh"

namespace sinter::depthwise {

//
// `joined`: as many pixels as fill 128 bytes are one line of the box and of the swizzle.
template <int lanes, int joined = 1>
struct Lines {
  static constexpr int swizzle = lanes * joined;  // units
  static constexpr bool swizzled = swizzle == 2 || swizzle == 4 || swizzle == 8;
  static_assert(joined == 1 ? swizzled || lanes % 2 == 1 : swizzle == 8);
  static constexpr int bytes = 16 * lanes;  // of a pixel
  // What differs between the places of an even line and the next one's.
  static constexpr unsigned beside = bytes | (bytes >> 7 & (lanes - 1)) << 4;
  // Of a unit whose line is `line` lines behind a multiple of 1024 bytes.
  static SINTER_DEVICE unsigned place(int line, int unit) {
    const auto at = static_cast<unsigned>(line * bytes + unit * 16);
    return swizzled ? at ^ (at >> 7 & (swizzle - 1)) << 4 : at;
  }
  // Of the unit `further` behind that `at`, which is a multiple of a power of two above it.
  static SINTER_DEVICE unsigned further(unsigned at, int further) {
    const auto bytes_further = static_cast<unsigned>(further * 16);
    return swizzled ? at ^ bytes_further : at + bytes_further;
  }
};

// A lane's unit in all lines that lie a multiple of four behind its own.
template <int lanes>
struct LaneLines {
  static_assert(Lines<lanes>::swizzled);
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

// The same by its address in shared memory, which takes half the registers and no sum of pointers.
template <int lanes>
struct LanePlaces {
  static_assert(Lines<lanes>::swizzled);
  unsigned at[2];
  SINTER_DEVICE LanePlaces(unsigned memory, int line, int unit)
      : at{memory + Lines<lanes>::place(line, unit), memory + Lines<lanes>::place(line + 4, unit)} {
  }
  SINTER_DEVICE unsigned place(int fours, int bytes) const {
    return at[fours % 2] + static_cast<unsigned>(fours / 2 * (8 * Lines<lanes>::bytes) + bytes);
  }
};

// Rows of results on their way to memory by TMA, where a generated file has, in its Result,
//
//   Element        of the results
//   of(fragment)   the pack of the results in a Fragment
//   store(args, coordinates, from, channel, column, row)
//               hopper::store_box with a map whose box has the row's channels, pixels and planes,
//               as Lines lie
//
// else Result is void, and threads store packs. Where the epilogue reads tensors that lie as they
// do, Beside is a List of structs with
//
//   Element, in_place    whether its boxes are brought to where the results will wait
//   of(fragment)         its pack in a Fragment, which may be written
//   load()               as of an Image
template <class Result>
inline constexpr bool leaves_by_boxes = true;
template <>
inline constexpr bool leaves_by_boxes<void> = false;

// Steps after which a warp waits for all others. (With two, 32 groups of 4, 128 x 128 x 56 x 56, 3
// x 3 took 62.3 us on an H200 where they take 60.7 with one, groups of 8 17.7 and 16.7.)
inline constexpr int kStepsBehind = 1;

// A row is written before its warp knows that others have passed the last `kStepsBehind` steps, in
// which they read rows as old again, and TMA one more.
template <int lanes, int pixels>
struct LeavingRows {
  static constexpr int row_bytes = (pixels * Lines<lanes>::bytes + 1023) / 1024 * 1024,
                       count = 2 * kStepsBehind + 1;
};

// Whether one of the sums is not finite, or all together are too large to be added.
template <int rows, int columns>
SINTER_DEVICE bool any_not_finite(const float (&sums)[rows][columns]) {
  float all[columns];
#pragma unroll
  for (int i = 0; i < rows * columns; ++i) {
    const float size = math::abs(sums[i / columns][i % columns]);
    all[i % columns] = i < columns ? size : all[i % columns] + size;
  }
#pragma unroll
  for (int i = 1; i < columns; ++i) all[0] += all[i];
  return !(all[0] <= math::largest(0.0f));
}

// A warp's steps, in which it multiplies the stages' rows and leaves rows of results. Work has
//
//   full(stage), passed(step % kStepsBehind)  barriers
//   multiply(stage)
//   fill(args, stage)             by warp 0: has TMA fill the stage again
//   begin(group)                   of tiles and planes
//   put_row(args, row)             leaves the first slot's sums in shared memory
//   store_row(args, row, group)    brings them to memory, behind the barrier
//   before_arriving()              and then the warp has passed the step
//   clear()                        sets sums to zero
template <class Config, class Steps, class Work, class Args>
SINTER_DEVICE void walk_boxes(Work& work, const Args& args, Steps now) {
  const int thread = static_cast<int>(threadIdx.x);
  PipelineState<Config::stages> stage, again;  // that is read, and that has been by all
  PipelineState<kStepsBehind> step;
  int rows[kStepsBehind], groups[kStepsBehind], group = 0;  // of results, to be stored; -1: none
#pragma unroll
  for (int i = 0; i < kStepsBehind; ++i) rows[i] = -1;
  // Of the oldest step: a barrier that nobody has arrived at lets pass.
  const auto finish_oldest = [&](bool fill) {
    hopper::wait(work.passed(step.stage), step.parity ^ 1);
    if (fill && thread < 32) {
      work.fill(args, again.stage);
      again.advance();
    }
    if (rows[0] >= 0) work.store_row(args, rows[0], groups[0]);
#pragma unroll
    for (int i = 0; i + 1 < kStepsBehind; ++i) rows[i] = rows[i + 1], groups[i] = groups[i + 1];
    rows[kStepsBehind - 1] = -1;
  };
  int steps = 0;
#pragma unroll 1
  while (now.more()) {
    hopper::wait(work.full(stage.stage), stage.parity);
    work.multiply(stage.stage);
    finish_oldest(steps >= kStepsBehind);
    if (now.begins()) work.begin(group = now.group);
    if (now.block >= now.first) {
      work.put_row(args, now.block);
      rows[kStepsBehind - 1] = now.block, groups[kStepsBehind - 1] = group;
    }
    __syncwarp();
    work.before_arriving();
    if (thread % 32 == 0) hopper::arrive(work.passed(step.stage));
    stage.advance();
    step.advance();
    ++steps;
    if (now.next()) {
      keep(stage.stage);  // makes this a branch, not a choice for each sum in every step
      work.clear();
    }
  }
#pragma unroll
  for (int i = 0; i < kStepsBehind; ++i) {
    finish_oldest(false);
    step.advance();
  }
}

// Of stages that TMA fills, and of the steps of all warps.
template <class Config, class Walk>
SINTER_DEVICE void init_barriers(const Walk& walk) {
  if (threadIdx.x != 0) return;
  for (int i = 0; i < Config::stages; ++i) hopper::barrier_init(walk.full(i), 1);
  for (int i = 0; i < kStepsBehind; ++i) hopper::barrier_init(walk.passed(i), Config::lanes);
  hopper::barriers_are_ready();
}

// Zeros, by all threads, in stages of which boxes leave some lines out.
template <int threads>
SINTER_DEVICE void clear_stages(unsigned char* stages, int bytes) {
#pragma unroll 1
  for (int i = static_cast<int>(threadIdx.x); i < bytes / 16; i += threads)
    reinterpret_cast<uint4*>(stages)[i] = uint4{};
  hopper::fence_async_proxy();
}

// Zeros in bytes [from, to) of `rows` rows, which boxes leave out, by threads 0 to `threads` - 1.
template <int threads, class Row>
SINTER_DEVICE void clear_behind(int rows, const Row& row, int from, int to) {
  const int vectors = (to - from) / 16;
#pragma unroll 1
  for (int i = static_cast<int>(threadIdx.x); i < rows * vectors; i += threads)
    reinterpret_cast<uint4*>(row(i / vectors) + from)[i % vectors] = uint4{};
}

}  // namespace sinter::depthwise
