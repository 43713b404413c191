#include "compile/kernel_nodes.hpp"

#include <algorithm>
#include <map>
#include <set>

#include "planner/match/fusion_state.hpp"
#include "planner/memory/storage.hpp"

namespace sinter {
namespace {

// From what the kernel writes back to the sums, or to what it reads. In the order of its nodes.
std::vector<NodeId> sums_and_behind(const Graph& g, const KernelSpec& spec) {
  std::set<TensorId> seen;
  std::vector<TensorId> open;
  for (const KernelPort& p : spec.ports) {
    seen.insert(p.tensor);
    if (p.written) open.push_back(p.tensor);
  }
  std::set<NodeId> found;
  while (!open.empty()) {
    const TensorId t = open.back();
    open.pop_back();
    if (t < 0 || t >= static_cast<TensorId>(g.tensors().size()) || g[t].producer < 0) continue;
    const Node& n = g.nodes()[static_cast<std::size_t>(g[t].producer)];
    const bool own = contains(spec.nodes, g[t].producer);
    if (own) found.insert(g[t].producer);
    if (own ? sums(n.op) : !is_view_op(n.op)) continue;
    for (TensorId input : n.inputs)
      if (seen.insert(input).second) open.push_back(input);
  }
  std::vector<NodeId> nodes = spec.nodes;
  std::erase_if(nodes, [&](NodeId n) { return !found.contains(n); });
  return nodes;
}

}  // namespace

std::vector<std::vector<NodeId>> computed_nodes(const Graph& lowered, const Partition& partition) {
  const auto& kernels = partition.kernels;
  std::vector<std::vector<NodeId>> nodes;
  std::map<TensorId, std::size_t> writers, readers;  // of temporaries
  for (std::size_t k = 0; k < kernels.size(); ++k) {
    nodes.push_back(kernels[k].nodes);
    for (const KernelPort& p : kernels[k].ports)
      if (partition.temporaries.contains(p.tensor)) (p.written ? writers : readers)[p.tensor] = k;
  }
  for (std::size_t k = kernels.size(); k-- > 0;) {
    if (!kernels[k].as_rowwise()) continue;
    // A pointwise kernel writes copies, not partial results.
    const bool adds = std::ranges::any_of(kernels[k].ports, [&](const KernelPort& p) {
      const auto writer = writers.find(p.tensor);
      return !p.written && writer != writers.end() && !kernels[writer->second].as_pointwise() &&
             std::ranges::any_of(kernels[writer->second].nodes,
                                 [&](NodeId n) { return contains(kernels[k].nodes, n); });
    });
    if (!adds) continue;
    std::vector<NodeId> own = sums_and_behind(lowered, kernels[k]);
    // Partial results of partial results are those of the kernel that completes them.
    for (const KernelPort& p : kernels[k].ports)
      if (const auto reader = readers.find(p.tensor);
          own.empty() && p.written && reader != readers.end() && reader->second > k)
        own = nodes[reader->second];
    if (!own.empty()) nodes[k] = std::move(own);
  }
  return nodes;
}

}  // namespace sinter
