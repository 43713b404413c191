// What all patterns share: which operations fuse element by element, and growing a set of nodes
// over one domain.
#include <algorithm>

#include "fusion_patterns/pattern.hpp"

namespace sinter {

bool is_elementwise(const FusionState& state, NodeId n) {
  switch (state.node(n).op) {
    case OpKind::concatenate:
      return !state.storage().parts(n).empty();
    case OpKind::pointwise:
    case OpKind::rng:
    case OpKind::resample:
    case OpKind::resample_backward:
    case OpKind::page_gather:
    case OpKind::block_mask:
      return true;
    default:
      return false;
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

namespace {

MarkPool::Borrowed marked(const FusionState& state, const std::vector<NodeId>& nodes) {
  MarkPool::Borrowed inside = state.marks();
  for (NodeId n : nodes) inside.insert(n);
  return inside;
}

// Whether the caller or a reader outside needs the tensor in memory.
bool leaves(const FusionState& state, TensorId t, const MarkPool::Borrowed& inside) {
  const auto& readers = state.consumers(t);
  return state.graph()[t].output ||
         !std::all_of(readers.begin(), readers.end(), [&](NodeId c) { return inside.contains(c); });
}

bool reads(const FusionState& state, NodeId n, TensorId t) {
  const auto& inputs = state.node(n).inputs;
  return std::find(inputs.begin(), inputs.end(), t) != inputs.end();
}

}  // namespace

std::int64_t saved_bytes(const FusionState& state, const std::vector<NodeId>& nodes) {
  const auto inside = marked(state, nodes);
  std::vector<TensorId> read;
  for (NodeId n : nodes)
    for (TensorId t : state.operands(n))
      if (t >= 0 && state.producer(t) >= 0 && inside.contains(state.producer(t))) read.push_back(t);
  std::sort(read.begin(), read.end());
  read.erase(std::unique(read.begin(), read.end()), read.end());
  std::int64_t saved = 0;
  for (TensorId t : read) saved += state.bytes(t) * (leaves(state, t, inside) ? 1 : 2);
  return saved;
}

namespace {

// Distinct tensors in memory that a kernel of these nodes reaches; every part of a concatenation
// counts.
int tensors_reached(const FusionState& state, const std::vector<NodeId>& nodes,
                    const MarkPool::Borrowed& inside) {
  std::vector<TensorId> reached;
  std::size_t joined = 0;
  const auto read = [&](const auto& self, NodeId n) -> void {
    for (TensorId t : state.operands(n)) {
      if (t < 0 || state.graph()[t].has_value) continue;
      const NodeId p = state.producer(t);
      if (p >= 0 && state.recomputed(p))
        self(self, p);
      else if (p < 0 || !inside.contains(p))
        reached.push_back(t);
    }
  };
  for (NodeId n : nodes) {
    const auto& parts = state.storage().parts(n);
    joined += parts.size();
    if (parts.empty()) read(read, n);
    for (TensorId t : state.node(n).outputs)
      if (t >= 0 && leaves(state, t, inside)) reached.push_back(t);
  }
  std::sort(reached.begin(), reached.end());
  reached.erase(std::unique(reached.begin(), reached.end()), reached.end());
  return static_cast<int>(reached.size() + joined);
}

// Seed and Offset of rng are raw integers, which no body value is. Parts of a concatenation run
// over domains of their own.
bool takes_no_values(OpKind op) {
  return reads_from_memory(op) || op == OpKind::rng || op == OpKind::concatenate;
}

struct Refusal {
  std::string why;  // empty: none
  bool full = false;
};

// Why `extra` cannot join a kernel of `nodes`.
Refusal joining_fails(const FusionState& state, std::vector<NodeId>& nodes, NodeId extra) {
  if (static_cast<int>(nodes.size()) >= kMaxKernelNodes)
    return {"the kernel already has " + std::to_string(kMaxKernelNodes) + " nodes", true};
  auto inside = marked(state, nodes);
  for (TensorId t : state.node(extra).outputs)
    if (t >= 0)
      for (NodeId c : nodes)
        if (takes_no_values(state.node(c).op) && reads(state, c, t))
          return {state.graph().label(state.node(c)) + " reads it from memory"};
  if (takes_no_values(state.node(extra).op))
    for (TensorId t : state.node(extra).inputs)
      if (t >= 0 && state.producer(t) >= 0 && inside.contains(state.producer(t)))
        return {"it reads its operand from memory"};
  if (state.makes_cycle(nodes, extra))
    return {"a kernel between them needs the result of one and feeds the other"};
  nodes.push_back(extra);
  inside.insert(extra);
  const bool fits = tensors_reached(state, nodes, inside) <= kMaxKernelTensors;
  nodes.pop_back();
  if (fits) return {};
  return {"the kernel would reach more than " + std::to_string(kMaxKernelTensors) + " tensors",
          true};
}

// Of the readers of one tensor, so many may be refused before the others are not asked any more.
constexpr int kMostRefused = 256;

}  // namespace

bool grow(FusionState& state, std::vector<NodeId>& nodes, const Growth& growth,
          const std::function<std::string(NodeId)>& refuse) {
  bool full = false;
  auto inside = marked(state, nodes), refused = state.marks();
  const auto consider = [&](NodeId c, TensorId through, int& refusals) {
    if (c < 0 || inside.contains(c) || refused.contains(c) || !state.free(c)) return false;
    Refusal r{refuse(c)};
    if (r.why.empty()) r = joining_fails(state, nodes, c);
    if (r.why.empty()) {
      nodes.push_back(c);
      inside.insert(c);
      return true;
    }
    full = full || r.full;
    ++refusals;
    refused.insert(c);
    if (growth.explain) state.cut(growth.pattern, nodes.front(), c, through, r.why);
    return false;
  };
  const auto consider_readers = [&](TensorId t) {
    bool grown = false;
    int refusals = 0;
    for (NodeId c : state.consumers(t)) {
      grown |= consider(c, t, refusals);
      if (refusals == kMostRefused) break;
    }
    return grown;
  };
  for (bool grown = true; grown;) {
    grown = false;
    for (std::size_t i = 0; i < nodes.size(); ++i) {
      const Node& n = state.node(nodes[i]);
      for (TensorId t : n.outputs)
        if (t >= 0) grown |= consider_readers(t);
      if (is_contraction(n.op)) continue;  // operands come through memory or a prologue
      for (TensorId t : state.operands(nodes[i])) {
        if (t < 0) continue;
        int refusals = 0;
        grown |= consider(state.producer(t), t, refusals);
        if (!state.graph()[t].has_value && count(state.graph()[t].dim) >= growth.shared)
          grown |= consider_readers(t);
      }
    }
    if (grown) refused.clear();  // a larger set may heal what looked like a cycle
  }
  return full;
}

std::string refuse_other_domain(const FusionState& state, NodeId n, const Dims& domain) {
  if (!is_elementwise(state, n))
    return std::string(name(state.node(n).op)) + " is not computed element by element";
  const Dims d = without_leading_ones(state.graph()[state.node(n).outputs[0]].dim);
  if (d != domain) return "it runs over " + to_string(d) + ", the kernel over " + to_string(domain);
  return {};
}

}  // namespace sinter
