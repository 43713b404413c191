// From a lowered graph to kernels in order, and to the memory between them. Total: every valid
// graph gets a plan. Patterns propose, the largest saving of memory traffic wins, and what no
// pattern joins becomes one kernel a node.
#pragma once
#include <map>
#include <span>
#include <string_view>
#include <vector>

#include "lower/lower.hpp"
#include "plan/kernel_spec.hpp"
#include "plan/plan_data.hpp"
#include "planner/aliases.hpp"
#include "schedule/scheduled_kernel.hpp"

namespace sinter {

// A tensor in the workspace, and the kernels that touch it first and last.
struct Lifetime {
  TensorId tensor = kNoTensor;
  std::string name;  // of the port that touches it first
  DataType type{};
  std::int64_t bytes = 0;
  int first = 0, last = 0;
};

struct Kept {
  std::string name;
  std::int64_t bytes = 0;
};

struct Partition {
  std::vector<KernelSpec> kernels;  // in the order they run; empty domains left out
  std::vector<PlanCut> cuts;
  std::map<TensorId, std::int64_t> workspace;    // virtual tensors in memory: byte offset
  std::map<TensorId, std::int64_t> temporaries;  // that the lowered graph does not have: bytes
  // What the caller binds instead, as one plan of prepare() hands it to the other.
  std::map<TensorId, Kept> kept;
  std::vector<Lifetime> lifetimes;  // of what is in the workspace, in the order of first use
  std::int64_t workspace_bytes = 0;
};

// `context`: the device whose engines the kernels may use, and what was measured on it.
// `regions`: of the lowered graph, see Lowered. `aliases`: what may be written over is read first.
Partition partition(const Graph& lowered, bool fuse, const PlanContext& context,
                    std::span<const Region> regions = {}, std::span<const Alias> aliases = {});
inline Partition partition(const Graph& lowered, bool fuse, std::string_view target = {},
                           std::span<const Region> regions = {}) {
  return partition(lowered, fuse, PlanContext{device_model(target), {}}, regions);
}

// Byte offsets for the tensors that kernels hand to each other, but for those kept; two share
// memory when no kernel from the first write to the last read of one touches the other.
void place_workspace(const Graph& lowered, Partition& partition);

}  // namespace sinter
