#include "fusion_patterns/growth.hpp"

#include <algorithm>
#include <unordered_set>

#include "planner/spec/contraction_spec.hpp"

namespace sinter {

namespace {

bool reads(const FusionState& state, NodeId n, TensorId t) {
  const auto& inputs = state.node(n).inputs;
  return std::find(inputs.begin(), inputs.end(), t) != inputs.end();
}

// Distinct tensors in memory that these nodes of a kernel reach, not counting what others `inside`
// reach; every part of a concatenation counts.
template <class Inside>
int tensors_reached(const FusionState& state, std::span<const NodeId> nodes, const Inside& inside) {
  std::vector<TensorId> reached;
  std::size_t joined = 0;
  const auto read = [&](const auto& self, NodeId n) -> void {
    for (TensorId t : state.operands(n)) {
      if (t < 0 || state.graph()[t].has_value) continue;
      const NodeId p = state.producer(t);
      if (p >= 0 && state.recomputed(p))
        self(self, p);
      else if (p < 0 || !inside(p))
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

// A kernel that grows: `nodes`, with what is asked for every node that might join.
class GrowingKernel {
 public:
  GrowingKernel(const FusionState& state, std::vector<NodeId>& nodes)
      : state_(state), nodes_(nodes), joined_(state, nodes) {
    for (NodeId n : nodes)
      if (takes_no_values(state.node(n).op)) from_memory_.push_back(n);
    most_reached_ = tensors_reached_with(-1, nodes);
  }

  bool contains(NodeId n) const { return joined_.contains(n); }
  // Joins a node, or says why it cannot; `full`: it would but for the limits of a kernel.
  Refusal join(NodeId extra, bool& full) {
    if (static_cast<int>(nodes_.size()) >= kMaxKernelNodes) {
      full = true;
      return "the kernel already has " + std::to_string(kMaxKernelNodes) + " nodes";
    }
    for (TensorId t : state_.node(extra).outputs)
      if (t >= 0)
        for (NodeId c : from_memory_)
          if (reads(state_, c, t))
            return state_.graph().label(state_.node(c)) + " reads it from memory";
    const bool from_memory = takes_no_values(state_.node(extra).op);
    if (from_memory)
      for (TensorId t : state_.node(extra).inputs)
        if (t >= 0 && state_.producer(t) >= 0 && contains(state_.producer(t)))
          return "it reads its operand from memory";
    if (state_.makes_cycle(joined_, extra))
      return "a kernel between them needs the result of one and feeds the other";
    // What was reached before may be less now, but nothing else is added: counted again only where
    // that is too much.
    int reached = most_reached_ + tensors_reached_with(extra, {&extra, 1});
    nodes_.push_back(extra);
    if (reached > kMaxKernelTensors) reached = tensors_reached_with(extra, nodes_);
    if (reached > kMaxKernelTensors) {
      nodes_.pop_back();
      full = true;
      return {"the kernel would reach more than " + std::to_string(kMaxKernelTensors) + " tensors",
              "pack small operands into one tensor and slice it"};
    }
    most_reached_ = reached;
    joined_.add(extra);
    if (from_memory) from_memory_.push_back(extra);
    return {};
  }

 private:
  int tensors_reached_with(NodeId extra, std::span<const NodeId> nodes) const {
    return tensors_reached(state_, nodes, [&](NodeId n) { return n == extra || contains(n); });
  }

  const FusionState& state_;
  std::vector<NodeId>& nodes_;
  JoinedNodes joined_;
  std::vector<NodeId> from_memory_;  // those that take no values
  int most_reached_;                 // tensors that the kernel reaches, at most
};

// Of the readers of one tensor, so many may be refused before the others are not asked any more.
constexpr int kMostRefused = 256;

}  // namespace

bool grow(FusionState& state, std::vector<NodeId>& nodes, const Growth& growth,
          const std::function<Refusal(NodeId)>& refuse) {
  bool full = false;
  GrowingKernel kernel(state, nodes);
  auto refused = state.marks();
  const auto consider = [&](NodeId c, TensorId through, int& refusals) {
    if (c < 0 || kernel.contains(c) || refused.contains(c) || !state.free(c)) return false;
    Refusal r = refuse(c);
    if (r.why.empty()) r = kernel.join(c, full);
    if (r.why.empty()) return true;
    ++refusals;
    refused.insert(c);
    if (growth.explain) state.cut(growth.pattern, nodes.front(), c, through, r);
    return false;
  };
  std::unordered_set<TensorId> asked;  // tensors whose readers were asked
  const auto consider_readers = [&](TensorId t) {
    bool grown = false;
    int refusals = 0;
    if (!asked.insert(t).second) return false;
    for (NodeId c : state.consumers(t)) {
      grown |= consider(c, t, refusals);
      if (refusals == kMostRefused) break;
    }
    return grown;
  };
  for (bool grown = true; grown;) {
    grown = false;
    asked.clear();
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

bool runs_over(const FusionState& state, NodeId n, const Dims& domain) {
  return is_elementwise(state, n) &&
         without_leading_ones(state.graph()[state.node(n).outputs[0]].dim) == domain;
}

// Whether a tensor of these dims is read by each element of the domain.
static bool broadcasts(const Dims& d, const Dims& domain) {
  const int more = domain.size() - d.size();
  bool fits = more >= 0;
  for (int i = 0; fits && i < d.size(); ++i) fits = d[i] == 1 || d[i] == domain[i + more];
  return fits;
}

Refusal refuse_other_domain(const FusionState& state, NodeId n, const Dims& domain) {
  if (runs_over(state, n, domain)) return {};
  if (!is_elementwise(state, n))
    return std::string(name(state.node(n).op)) + " is not computed element by element";
  const Dims d = without_leading_ones(state.graph()[state.node(n).outputs[0]].dim);
  const std::string why = "it runs over " + to_string(d) + ", the kernel over " + to_string(domain);
  if (count(d) == count(domain))
    return {why, "give its result the dims " + to_string(domain) + ", which hold as many elements"};
  if (broadcasts(d, domain))
    return {why, "broadcast one of its operands to " + to_string(domain) +
                     ": the kernel then computes it for each element"};
  return why;
}

Refusal left_to_product(const FusionState& state, NodeId n) {
  const Graph& g = state.graph();
  const Node& node = state.node(n);
  if (node.op != OpKind::pointwise) return {};
  const TensorId result = node.outputs[0];
  for (TensorId sums : node.inputs) {
    const NodeId product = sums >= 0 ? state.producer(sums) : -1;
    if (product < 0 || !is_contraction(state.node(product).op) || !state.free(product)) continue;
    if (g[sums].output || state.consumers(sums).size() > 1 || g[sums].dim != g[result].dim)
      continue;
    if (state.bytes(result) >= state.bytes(sums)) continue;
    // What stands behind the product in the order of execution may need it.
    const bool ready = std::all_of(node.inputs.begin(), node.inputs.end(), [&](TensorId t) {
      return t < 0 || t == sums || state.producer(state.storage()[t].root) < product;
    });
    if (!ready || !epilogue_refuses(state, product, n).empty()) continue;
    return "the kernel of " + g.label(state.node(product)) +
           " takes it, which then stores less than its sums";
  }
  return {};
}

Refusal refuse_product() { return "it reads its operands from memory"; }

}  // namespace sinter
