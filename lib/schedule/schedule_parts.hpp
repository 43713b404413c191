// What schedules of all families are made of.
#pragma once
#include <algorithm>
#include <cstdint>

#include "schedule/packing.hpp"

namespace sinter {

inline bool is_16_bit_float(DataType t) { return t == DataType::bf16 || t == DataType::f16; }
inline bool is_f8(DataType t) { return t == DataType::f8e4m3 || t == DataType::f8e5m2; }

// How many units hold x, and what these hold.
inline std::int64_t divide_up(std::int64_t x, std::int64_t unit) { return (x + unit - 1) / unit; }
inline std::int64_t fill_up(std::int64_t x, std::int64_t unit) { return divide_up(x, unit) * unit; }

// Whether offsets of the kernel need 64 bits.
bool needs_wide_index(const KernelSpec& spec);

// The product of the extents [from, to).
double elements(const Dims& extent, int from, int to);

// What an element costs to compute, in simple instructions, roughly.
int element_cost(const KernelSpec& spec, const Body& body);
// The copies of a body that unrolling may make: they cost time to compile.
inline constexpr int kMostCode = 1200;
// The widest pack of the body that does not make too much code.
int widest_pack(const KernelSpec& spec);

// Whether some port moves by so little that packs which start where memory is aligned are better.
bool moves_narrowly(const KernelSpec& spec, const Packing& packing);

// What all ports move, if the caches keep what is read more than once.
double bytes_moved(const KernelSpec& spec);

inline constexpr int kFlightBytes = 64;  // that a thread should have in flight at once

// Figures of kernels that read images by windows of pixels, of all engines alike (fitted on an
// H200): the share of memory_bandwidth that they reach, and the bytes that an SM has in flight
// where they do.
inline constexpr double kWindowsReach = 0.85, kFlightOfSm = 40e3;
// The time of loads and instructions that run beside each other: of the shorter, the longer leaves
// `exposed` to be seen.
inline double overlapped(double loads, double instructions, double exposed = 0.2) {
  return std::max(loads, instructions) + exposed * std::min(loads, instructions);
}

// The spec without index i of its domain, on which nothing that is left depends.
KernelSpec without_index(KernelSpec spec, int i);
// Whether a body is straight-line f32 arithmetic on sums, indices and constants, and, where `loads`
// says so, on loads that do not wait for each other.
bool is_straight(const KernelSpec& spec, const Body& body, bool loads);

std::uint32_t clamp_grid(double blocks);
// The power of two from n on, or up to n; between 1 and `largest`.
int power_of_two_from(double n, int largest);
int power_of_two_to(double n, int largest);

}  // namespace sinter
