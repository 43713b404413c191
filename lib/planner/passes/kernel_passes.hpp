// From the kernels that patterns make of a graph's nodes to those of the plan: a list of passes
// over all kernels in their order, as lib/planner/rewrite/pass.hpp has one over nodes. Passes
// change kernels' specs; what a kernel computes stays, but sums may be added in another order.
#pragma once
#include <span>
#include <string_view>
#include <vector>

#include "planner/aliases.hpp"
#include "planner/planner.hpp"
#include "planner/split/split.hpp"

namespace sinter {

class FusionState;

struct KernelList {
  const FusionState& state;
  std::span<const Alias> aliases;
  std::span<const TensorId> overwritten;  // inputs that outputs lie in
  std::vector<KernelSpec> kernels;
  std::vector<PlanCut> cuts;
  Temporaries temporaries;
};

struct KernelPass {
  std::string_view name;
  std::string_view law;    // what it makes of which kernels, and why
  std::string_view place;  // why it stands behind the ones before it
  bool fuses;              // only where nodes are fused
  void (*run)(KernelList& list);
};

// In the order in which they run.
std::span<const KernelPass> kernel_passes();
void run_kernel_passes(KernelList& list, bool fuse);

// Whether the kernel has no results.
bool has_no_results(const KernelSpec& spec);

}  // namespace sinter
