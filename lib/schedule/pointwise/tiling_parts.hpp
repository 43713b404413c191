// What the ways to tile a pointwise kernel have in common (tiling.cpp, tiling_anywhere.cpp).
#pragma once
#include <array>
#include <cstdint>
#include <vector>

#include "plan/access.hpp"
#include "plan/kernel_spec.hpp"
#include "schedule/packing.hpp"
#include "schedule/pointwise/tiling.hpp"
#include "schedule/schedule_parts.hpp"

namespace sinter::tiles {

inline constexpr int kFewestRounds = 2;
inline constexpr int kSegment = 128;           // bytes that lie together: what memory moves at once
inline constexpr int kSharedBytes = 32 << 10;  // so that several blocks share an SM
inline constexpr int kFewest = 16;             // a smaller extent cannot carry a tile

inline bool multiple(std::int64_t value, std::int64_t of) { return value % of == 0; }
inline double elements(const KernelSpec& s) { return elements(s.extent, 0, s.extent.size()); }
inline int bytes_of(const KernelPort& p) { return info(p.type).bytes; }

// A port that a tile can transpose: plain strides, memory lies along `across`.
inline bool can_stage(const Access& a, int along, int across) {
  return a.via.empty() && a.windows.empty() && a.stride[across] == 1 && a.stride[along] > 1;
}

// What a pair of indices makes of the ports, in bytes an element.
struct Pair {
  int along = -1, across = -1;
  int through = -1;  // see choose_through; -1: there is no other index
  int apart = 0, direct = 0, staged = 0, stored = 0, loaded = 0;  // stored: staged and written
  int widest_direct = 1, widest_staged = 1;
  bool all_dense = true;    // the staged ones
  double apart_across = 0;  // bytes between neighbours along `across` of what is written directly
};

struct Choice {
  Tiling tiling;
  Packing packing{};
  std::array<double, 3> rank{};  // the least is the best
};

// Rows that start anywhere: packs start where memory is aligned, column by column. Only loads are
// staged.
Choice make_misaligned_choice(const KernelSpec& spec, const std::vector<bool>& used,
                              const Pair& pair, int widest, const DeviceModel& device);
// Small matrices that start anywhere: those of all that is moved follow one another without gaps.
Choice make_flat_choice(const KernelSpec& spec, const std::vector<bool>& used, const Pair& pair,
                        int widest, const DeviceModel& device);
// Runs shorter than a sector of memory, of which others lie beside each other where they are read
// than where they are written: blocks take rectangles of runs, so that lines are read and written
// whole. (Bf16 on an H200, us in the order of the result and so: 2000 x 3000 x 6 as (1, 0, 2) 62.2
// and 45.5, of 2 45.6 and 20.0, of 12 91.6 and 82.4.)
Choice make_block_choice(const KernelSpec& spec, const std::vector<bool>& used, int widest,
                         const DeviceModel& device);
// Whether something moves by so little at once that it does not keep memory busy.
bool tile_moves_narrowly(const KernelSpec& spec, const Choice& c);

}  // namespace sinter::tiles
