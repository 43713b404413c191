// What all patterns share: which operations fuse element by element, and growing a set of nodes
// over one domain.
#include <algorithm>

#include "fusion_patterns/pattern.hpp"

namespace sinter {

bool is_elementwise(const FusionState& state, NodeId n) {
  switch (state.node(n).op) {
    case OpKind::concatenate:
      return !state.storage().parts(n).empty();
    case OpKind::pointwise: case OpKind::rng: case OpKind::resample: case OpKind::resample_backward:
    case OpKind::page_gather: case OpKind::block_mask:
      return true;
    default: return false;
  }
}

bool is_matmul(OpKind op) { return op == OpKind::matmul || op == OpKind::moe_grouped_matmul; }

bool is_contraction(OpKind op) {
  return is_matmul(op) || op == OpKind::conv_fprop || op == OpKind::conv_dgrad ||
         op == OpKind::conv_wgrad;
}

Dims without_leading_ones(const Dims& d) {
  Dims r;
  for (auto e : d)
    if (e != 1 || !r.empty()) r.push_back(e);
  return r;
}

bool reads_from_memory(OpKind op) {
  return is_contraction(op) || op == OpKind::resample || op == OpKind::resample_backward ||
         op == OpKind::page_gather || op == OpKind::block_mask;
}

std::int64_t saved_bytes(const FusionState& state, const std::vector<NodeId>& nodes) {
  std::int64_t saved = 0;
  for (NodeId n : nodes)
    for (TensorId t : state.node(n).outputs) {
      if (t < 0) continue;
      bool read_inside = false;
      for (NodeId c : state.consumers(t)) read_inside |= contains(nodes, c);
      if (read_inside) saved += state.bytes(t) * (state.needed_outside(t, nodes) ? 1 : 2);
    }
  return saved;
}

int tensors_reached(const FusionState& state, const std::vector<NodeId>& nodes) {
  std::vector<TensorId> reached;
  std::size_t joined = 0;
  const auto read = [&](const auto& self, NodeId n) -> void {
    for (TensorId t : state.operands(n)) {
      if (t < 0 || state.graph()[t].has_value) continue;
      const NodeId p = state.producer(t);
      if (p >= 0 && state.recomputed(p))
        self(self, p);
      else if (p < 0 || !contains(nodes, p))
        reached.push_back(t);
    }
  };
  for (NodeId n : nodes) {
    const auto& parts = state.storage().parts(n);
    joined += parts.size();
    if (parts.empty()) read(read, n);
    for (TensorId t : state.node(n).outputs)
      if (t >= 0 && state.needed_outside(t, nodes)) reached.push_back(t);
  }
  std::sort(reached.begin(), reached.end());
  reached.erase(std::unique(reached.begin(), reached.end()), reached.end());
  return static_cast<int>(reached.size() + joined);
}

std::string joining_fails(const FusionState& state, const std::vector<NodeId>& nodes, NodeId extra) {
  if (static_cast<int>(nodes.size()) >= kMaxKernelNodes)
    return "the kernel already has " + std::to_string(kMaxKernelNodes) + " nodes";
  // Seed and Offset of rng are raw integers, which no body value is. Parts of a concatenation run
  // over domains of their own.
  const auto from_memory = [](OpKind op) {
    return reads_from_memory(op) || op == OpKind::rng || op == OpKind::concatenate;
  };
  for (NodeId n : nodes) {
    if (from_memory(state.node(n).op))
      for (TensorId t : state.node(n).inputs)
        if (t >= 0 && state.producer(t) == extra)
          return state.graph().label(state.node(n)) + " reads it from memory";
    if (from_memory(state.node(extra).op))
      for (TensorId t : state.node(extra).inputs)
        if (t >= 0 && state.producer(t) == n) return "it reads its operand from memory";
  }
  if (state.makes_cycle(nodes, extra))
    return "a kernel between them needs the result of one and feeds the other";
  auto joined = nodes;
  joined.push_back(extra);
  if (tensors_reached(state, joined) > kMaxKernelTensors)
    return "the kernel would reach more than " + std::to_string(kMaxKernelTensors) + " tensors";
  return {};
}

void grow(FusionState& state, std::vector<NodeId>& nodes, const Growth& growth,
          const std::function<std::string(NodeId)>& refuse) {
  std::vector<NodeId> refused;
  const auto consider = [&](NodeId c, TensorId through) {
    if (c < 0 || contains(nodes, c) || contains(refused, c) || !state.free(c)) return false;
    std::string why = refuse(c);
    if (why.empty()) why = joining_fails(state, nodes, c);
    if (why.empty()) {
      nodes.push_back(c);
      return true;
    }
    refused.push_back(c);
    if (growth.explain) state.cut(growth.pattern, nodes.front(), c, through, why);
    return false;
  };
  for (bool grown = true; grown;) {
    grown = false;
    for (std::size_t i = 0; i < nodes.size(); ++i) {
      const Node& n = state.node(nodes[i]);
      for (TensorId t : n.outputs)
        if (t >= 0)
          for (NodeId c : state.consumers(t)) grown |= consider(c, t);
      if (is_contraction(n.op)) continue;  // operands come through memory or a prologue
      for (TensorId t : state.operands(nodes[i])) {
        if (t < 0) continue;
        grown |= consider(state.producer(t), t);
        if (!state.graph()[t].has_value && count(state.graph()[t].dim) >= growth.shared)
          for (NodeId c : state.consumers(t)) grown |= consider(c, t);
      }
    }
    if (grown) refused.clear();  // a larger set may heal what looked like a cycle
  }
}

std::string refuse_other_domain(const FusionState& state, NodeId n, const Dims& domain) {
  if (!is_elementwise(state, n))
    return std::string(name(state.node(n).op)) + " is not computed element by element";
  const Dims d = without_leading_ones(state.graph()[state.node(n).outputs[0]].dim);
  if (d != domain)
    return "it runs over " + to_string(d) + ", the kernel over " + to_string(domain);
  return {};
}

}  // namespace sinter
