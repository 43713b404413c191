// Nodes that no kernel takes, as each kernel that reads their results computes them again.
#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include "planner/explain/explain.hpp"
#include "planner/memory/storage.hpp"

namespace sinter {
namespace {

using Labels = std::unordered_set<std::string_view>;

// By kernel, what it reads of memory.
std::vector<Labels> read_by_kernels(const PlanData& p) {
  std::vector<Labels> read(p.kernels.size());
  for (std::size_t k = 0; k < p.kernels.size(); ++k)
    for (const auto& a : p.kernels[k].accesses) {
      const auto at = static_cast<std::size_t>(a.value);
      if (!a.written) read[k].insert(a.workspace ? p.buffers[at].name : p.tensors[at].name);
    }
  return read;
}

class Recomputed {
 public:
  Recomputed(const PlanData& p, const Graph& g)
      : graph_(g), kernels_(g.nodes().size()), taken_(g.nodes().size(), false) {
    std::unordered_map<std::string, std::size_t> numbers;
    for (std::size_t n = 0; n < kernels_.size(); ++n) numbers.emplace(g.label(g.nodes()[n]), n);
    for (std::size_t k = 0; k < p.kernels.size(); ++k)
      for (const auto& label : p.kernels[k].nodes)
        if (const auto n = numbers.find(label); n != numbers.end()) {
          kernels_[n->second].push_back(static_cast<int>(k));
          taken_[n->second] = true;
        }
  }

  std::vector<std::vector<std::string>> by_kernel(const PlanData& p) {
    std::vector<std::vector<std::string>> again(p.kernels.size());
    if (std::ranges::find(taken_, false) == taken_.end()) return again;
    const auto read = read_by_kernels(p);
    const auto& nodes = graph_.nodes();
    std::vector<std::vector<int>> readers(graph_.tensors().size());  // kernels
    for (std::size_t n = nodes.size(); n-- > 0;) {  // who reads a result comes behind its node
      auto& kernels = kernels_[n];
      if (!taken_[n]) {
        for (TensorId t : nodes[n].outputs)
          if (t >= 0) kernels.insert(kernels.end(), readers[at(t)].begin(), readers[at(t)].end());
        std::ranges::sort(kernels);
        kernels.erase(std::unique(kernels.begin(), kernels.end()), kernels.end());
        if (!only_moves(nodes[n])) keep_those_that_read(operands(n), read, kernels);
      }
      for (TensorId t : nodes[n].inputs)
        if (t >= 0) readers[at(t)].insert(readers[at(t)].end(), kernels.begin(), kernels.end());
    }
    for (std::size_t n = 0; n < nodes.size(); ++n)
      if (!taken_[n] && !only_moves(nodes[n]))
        for (int k : kernels_[n])
          again[static_cast<std::size_t>(k)].push_back(graph_.label(nodes[n]));
    return again;
  }

 private:
  static std::size_t at(std::int32_t i) { return static_cast<std::size_t>(i); }

  // What lies in memory of what a node computes with.
  Labels operands(std::size_t node) const {
    Labels names;
    std::unordered_set<std::size_t> seen{node};
    for (std::vector<std::size_t> open{node}; !open.empty();) {
      const std::size_t n = open.back();
      open.pop_back();
      for (TensorId t : graph_.nodes()[n].inputs) {
        if (t < 0 || graph_[t].has_value) continue;
        const NodeId producer = graph_[t].producer;
        if (producer < 0 || taken_[at(producer)])
          names.insert(graph_[t].name);
        else if (seen.insert(at(producer)).second)
          open.push_back(at(producer));
      }
    }
    return names;
  }

  // Of several kernels that compute parts of one reader.
  static void keep_those_that_read(const Labels& operands, const std::vector<Labels>& read,
                                   std::vector<int>& kernels) {
    const auto reads = [&](int k) {
      return std::ranges::any_of(operands, [&](auto name) { return read[at(k)].contains(name); });
    };
    if (std::ranges::any_of(kernels, reads))
      std::erase_if(kernels, [&](int k) { return !reads(k); });
  }

  const Graph& graph_;
  std::vector<std::vector<int>> kernels_;  // by node: that compute it
  std::vector<bool> taken_;
};

}  // namespace

bool only_moves(const Node& n) { return is_view_op(n.op) || n.op == OpKind::concatenate; }

std::vector<std::vector<std::string>> computed_again(const PlanData& p, const Graph& graph) {
  return Recomputed(p, graph).by_kernel(p);
}

}  // namespace sinter
