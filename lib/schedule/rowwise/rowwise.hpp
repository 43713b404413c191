// How a rowwise kernel is run: how a row is shared among threads, what stays in registers, how
// blocks loop over the rows whose columns are reduced. A pure function of the spec and the device
// model.
#pragma once
#include <optional>

#include "schedule/launch.hpp"
#include "schedule/packing.hpp"
#include "target/device_model.hpp"

namespace sinter {

struct RowwiseConfig : Launch {
  int unroll = 1;  // vectors that a thread fetches before it computes
  Packing packing;
  int aligned_by = -1;  // the port by which packs are aligned where rows start anywhere, or, where
                        // rows are the fastest, one that is cut out of aligned pieces; -1: none
  int threads_per_row = 1, rows_per_block = 1;
  int blocks_per_row = 1;        // a cluster
  int rows_at_once = 1;          // resident, a warp a row at the most: that a thread has in flight
  bool rows_fastest = false;     // neighbouring threads hold neighbouring rows
  std::vector<int> row_aligned;  // rows_fastest: of each port, results of neighbouring rows that
                                 // are contiguous, as aligned; 0: none are
  bool resident = false;         // a row stays in registers from phase to phase
  int held_vectors = 0;          // resident, of any length: the most vectors that a thread has
  bool prefetch = false;         // resident: what all rows share is fetched before the first phase
  bool recompute = false;        // resident: values are recomputed in every phase, not cached
  std::vector<int> kept;    // resident: statements whose values the first phase that computes them
                            // leaves for the others (exp(x - max) of a softmax)
  std::vector<int> staged;  // ports whose rows a block brings to shared memory, all at once
  int early = 0;            // resident: blocks that prefetch while the kernel before still runs
  int persistent_ctas = 0;  // without cross-row reductions: blocks (clusters) that loop over the
                            // rows and keep what all of these share
  bool ahead = false;       // rows are looped over: the next is fetched before this one ends
  int pipeline_stages = 0;  // ahead: rows that are in flight to shared memory, or 0: to registers
  int in_flight = 0;        // pipeline_stages: those that need not have arrived when a row is taken
  int stage_bytes = 0;      // pipeline_stages: of one row of every thread
  bool by_lanes = false;    // lanes fetch what belongs to rows as a whole for 32 steps
};

// With what was decided for another spec of the same structure, whose rows are as long; nothing
// where that does not hold.
std::optional<RowwiseConfig> schedule_as(const RowwiseConfig& decided, const KernelSpec& spec,
                                         const DeviceModel& device);
RowwiseConfig schedule_rowwise(const KernelSpec& spec, const DeviceModel& device);
// Whether rows stay in registers, so that one kernel reads less than two, and threads side by side
// in a warp have each segment of a row.
bool holds_segments(const RowwiseConfig& config, const KernelSpec& spec);

}  // namespace sinter
