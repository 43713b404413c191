// What patterns see while a graph is partitioned: which nodes are free, who reads what, and whether
// joining nodes would make kernels wait for each other in a circle.
#pragma once
#include <span>
#include <string>
#include <vector>

#include "plan/plan_data.hpp"
#include "planner/storage.hpp"
#include "schedule/scheduled_kernel.hpp"
#include "sinter/graph.hpp"

namespace sinter {

class FusionState {
 public:
  // `recompute`: results that a few operations make from nothing but indices and constants (masks,
  // positions), or from small inputs of the graph that are broadcast (1 + scale), are made where
  // they are read, and have no kernel and no memory.
  // `context`: the device whose engines may be used, and what was measured on it.
  FusionState(const Graph& graph, const Storage& storage, bool recompute,
              const PlanContext& context);

  const Graph& graph() const { return graph_; }
  const Storage& storage() const { return storage_; }
  const PlanContext& context() const { return context_; }
  const DeviceModel& device() const { return context_.device; }
  const Node& node(NodeId n) const { return graph_.nodes()[static_cast<std::size_t>(n)]; }
  NodeId producer(TensorId t) const { return graph_[t].producer; }
  const std::vector<NodeId>& consumers(TensorId t) const {
    return consumers_[static_cast<std::size_t>(t)];
  }
  // What a node reads: of its operand, gen_index only takes the dims.
  std::span<const TensorId> operands(NodeId n) const;
  bool free(NodeId n) const { return group_[static_cast<std::size_t>(n)] < 0 && !no_kernel(n); }
  bool recomputed(NodeId n) const { return recompute_[static_cast<std::size_t>(n)]; }
  bool no_kernel(NodeId n) const {
    return storage_.folded(n) || recomputed(n) || unread_[static_cast<std::size_t>(n)];
  }
  int group(NodeId n) const { return group_[static_cast<std::size_t>(n)]; }
  const std::vector<std::vector<NodeId>>& groups() const { return groups_; }

  // Takes the nodes as one kernel.
  int take(std::vector<NodeId> nodes);

  // True when a kernel of `nodes` plus `extra` would have to run both before and after another.
  bool makes_cycle(const std::vector<NodeId>& nodes, NodeId extra) const;

  // The tensor's size in memory.
  std::int64_t bytes(TensorId t) const { return count(graph_[t].dim) * info(graph_.type(t)).bytes; }
  // True when a reader outside `nodes` (or the caller) needs the tensor in memory.
  bool needed_outside(TensorId t, const std::vector<NodeId>& nodes) const;

  // Why `node` did not join the kernel that `kernel` belongs to.
  void cut(std::string_view pattern, NodeId kernel, NodeId node, TensorId tensor,
           std::string reason);
  // The refusals that held: the two did end up in different kernels.
  std::vector<PlanCut> cuts() const;

 private:
  const Graph& graph_;
  const Storage& storage_;
  const PlanContext& context_;
  std::vector<std::vector<NodeId>> consumers_;
  std::vector<int> group_;
  std::vector<std::vector<NodeId>> groups_;
  struct Cut {
    std::string_view pattern;
    NodeId kernel, node;
    TensorId tensor;
    std::string reason;
  };
  // The largest number of a node that runs before this one, or with it, as kernels stand now.
  NodeId latest(NodeId n) const;
  void find_consumers();
  void find_recomputed();
  bool given(TensorId t) const;           // a value, or in memory before the graph is run
  std::vector<bool> unread_, recompute_;  // unread: nobody needs what the node makes
  std::vector<Cut> cuts_;
  mutable std::vector<NodeId> latest_;  // empty: to be found again
};

inline bool contains(const std::vector<NodeId>& nodes, NodeId n) {
  for (NodeId m : nodes)
    if (m == n) return true;
  return false;
}

}  // namespace sinter
