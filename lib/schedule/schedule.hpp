// How a kernel is run: block and grid, how a row is shared among threads, how wide an index must
// be. A pure function of the spec.
#pragma once
#include <cstdint>

#include "schedule/contraction/mma.hpp"
#include "schedule/contraction/wgmma.hpp"
#include "schedule/pointwise/tiling.hpp"

namespace sinter {

inline constexpr int kSmallTile = 64, kLargeTile = 128;  // of contraction_simt.cuh

struct Schedule {
  bool wide_index = false;  // offsets need 64 bits
  int threads = 256;
  int unroll = 1;  // places that a thread fetches before it computes
  std::uint32_t grid = 1;
  Packing packing;  // pointwise and rowwise
  Tiling tiling;    // pointwise
  int skew = -1;    // the port by which packs are aligned where rows start anywhere, or, where they
                    // lie together, one that is cut out of aligned pieces; -1: none
  std::int64_t places = 0;  // pointwise with such packs: of a row
  // rowwise
  int threads_per_row = 1, rows_per_block = 1;
  int blocks_per_row = 1;     // a cluster
  int rows_at_once = 1;       // resident, a warp a row at the most: that a thread has under way
  int least_blocks = 1;       // that a multiprocessor should hold at once: limits registers
  bool rows_fastest = false;  // neighbouring threads hold neighbouring rows
  bool resident = false;      // a row stays in registers from phase to phase
  bool prefetch = false;      // resident: what all rows share is fetched before the first phase
  bool renew = false;         // resident: values are computed anew in every phase, not kept
  int early = 0;              // resident: blocks that prefetch while the kernel before still runs
  bool ahead = false;         // column reductions: the next row is fetched before this one ends
  int ring = 0;               // ahead: rows that are under way to shared memory, or 0: to registers
  int under_way = 0;          // ring: those that need not have arrived when a row is taken
  int slot_bytes = 0;         // ring: of one row of every thread
  bool by_lanes = false;      // lanes fetch what belongs to rows as a whole for 32 steps
  int tile = kSmallTile;      // contraction on ordinary cores: its rows and columns
  // contraction: along which index neighbouring threads read A and B and write the result
  bool a_k_fastest = true, b_k_fastest = true, n_fastest = true;
  std::optional<TensorCores> tensor_cores;
  std::optional<Mma> mma;
};

Schedule choose_schedule(const KernelSpec& spec, const DeviceModel& device);

}  // namespace sinter
