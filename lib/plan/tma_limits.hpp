// What TMA takes: the limits of cuTensorMapEncodeTiled and cuTensorMapEncodeIm2col without
// interleaving, and of the coordinates that its instructions take. Schedules choose within them,
// and map_problem() checks plans by them.
#pragma once
#include <cstdint>

namespace sinter::tma {

inline constexpr int kMostDims = 5;
inline constexpr std::int64_t kUnit =
    16;  // bytes, what addresses, strides and rows are multiples of
inline constexpr std::int64_t kStrideEnd = std::int64_t{1} << 40;  // bytes
inline constexpr std::int64_t kMostExtent = std::int64_t{1} << 32;
inline constexpr std::int64_t kCoordinateEnd = std::int64_t{1} << 31;  // of an instruction: signed
inline constexpr std::int64_t kMostBox = 256;  // elements of a box along a dim

// im2col: pixels of an instruction, and the step from one to the next.
inline constexpr int kFewestPixelDims = 3;
inline constexpr std::int64_t kMostPixels = 1024, kMostPixelStep = 8;
// Of images of 1, 2 and 3 dims: corners lie from -n to n - 1, and offsets of taps below n.
inline constexpr std::int64_t kCornerEnd[] = {32768, 128, 16}, kOffsetEnd[] = {65535, 255, 31};

// Whether a map may step by so many bytes along a dim of more than one.
constexpr bool takes_step(std::int64_t bytes) {
  return bytes > 0 && bytes % kUnit == 0 && bytes < kStrideEnd;
}

// The step along a dim of one, where only the form matters: over a row of so many bytes.
constexpr std::int64_t any_step(std::int64_t bytes) { return (bytes + kUnit - 1) / kUnit * kUnit; }

}  // namespace sinter::tma
