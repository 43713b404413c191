#include "planner/fusion_state.hpp"

#include <algorithm>

namespace sinter {

FusionState::FusionState(const Graph& graph, const Storage& storage, bool recompute,
                         std::string_view architecture)
    : graph_(graph), storage_(storage), architecture_(architecture) {
  consumers_.resize(graph.tensors().size());
  group_.assign(graph.nodes().size(), -1);
  for (std::size_t i = 0; i < graph.nodes().size(); ++i)
    for (TensorId t : graph.nodes()[i].inputs)
      if (t >= 0) {
        auto& c = consumers_[static_cast<std::size_t>(t)];
        if (c.empty() || c.back() != static_cast<NodeId>(i)) c.push_back(static_cast<NodeId>(i));
      }
  recompute_.assign(graph.nodes().size(), false);
  if (recompute) find_recomputed();
}

namespace {

constexpr int kRecomputeCost = 8;  // operations an element

// Operations that cost about as much as an addition.
bool cheap(PointwiseMode m) {
  using M = PointwiseMode;
  switch (m) {
    case M::identity: case M::add: case M::sub: case M::mul: case M::min: case M::max: case M::abs:
    case M::neg: case M::logical_and: case M::logical_or: case M::logical_not: case M::cmp_eq:
    case M::cmp_neq: case M::cmp_gt: case M::cmp_ge: case M::cmp_lt: case M::cmp_le:
    case M::binary_select: case M::gen_index:
      return true;
    default: return false;
  }
}

}  // namespace

void FusionState::find_recomputed() {
  std::vector<int> cost(graph_.nodes().size(), 0);
  for (std::size_t i = 0; i < graph_.nodes().size(); ++i) {
    const Node& n = graph_.nodes()[i];
    const auto* a = std::get_if<PointwiseAttributes>(&n.attributes);
    if (!a || !cheap(a->mode) || !graph_.is_virtual(n.outputs[0])) continue;
    cost[i] = 1;
    bool from_nothing = true;
    for (TensorId t : n.inputs) {
      if (t < 0 || graph_[t].has_value || a->mode == PointwiseMode::gen_index) continue;
      const NodeId p = producer(t);
      from_nothing = from_nothing && p >= 0 && recompute_[static_cast<std::size_t>(p)];
      if (p >= 0) cost[i] += cost[static_cast<std::size_t>(p)];
    }
    recompute_[i] = from_nothing && cost[i] <= kRecomputeCost;
  }
  // Whoever reads such a result must be a body that can make it, or be made that way itself.
  for (auto i = static_cast<NodeId>(graph_.nodes().size()) - 1; i >= 0; --i) {
    if (!recompute_[static_cast<std::size_t>(i)]) continue;
    const TensorId t = node(i).outputs[0];
    bool in_bodies = storage_[t].root == t;
    for (NodeId c : consumers(t))
      in_bodies = in_bodies && (node(c).op == OpKind::pointwise || node(c).op == OpKind::reduction);
    if (!in_bodies) recompute_[static_cast<std::size_t>(i)] = false;
  }
  // An operand that lost the property takes it from its readers.
  for (std::size_t i = 0; i < graph_.nodes().size(); ++i) {
    if (!recompute_[i]) continue;
    const auto& a = *std::get_if<PointwiseAttributes>(&graph_.nodes()[i].attributes);
    for (TensorId t : graph_.nodes()[i].inputs)
      if (t >= 0 && !graph_[t].has_value && a.mode != PointwiseMode::gen_index)
        recompute_[i] = recompute_[i] && recompute_[static_cast<std::size_t>(producer(t))];
  }
}

int FusionState::take(std::vector<NodeId> nodes) {
  const int id = static_cast<int>(groups_.size());
  std::sort(nodes.begin(), nodes.end());
  for (NodeId n : nodes) group_[static_cast<std::size_t>(n)] = id;
  groups_.push_back(std::move(nodes));
  return id;
}

// A cycle needs a path that leaves the joined set and comes back. Nodes are numbered in an order of
// execution and every kernel taken so far is a unit, so the walk goes from the set's inputs upwards,
// through whole kernels, looking for the set again.
bool FusionState::makes_cycle(const std::vector<NodeId>& nodes, NodeId extra) const {
  std::vector<char> inside(graph_.nodes().size(), 0), seen(graph_.nodes().size(), 0);
  for (NodeId n : nodes) inside[static_cast<std::size_t>(n)] = 1;
  inside[static_cast<std::size_t>(extra)] = 1;
  std::vector<NodeId> work;
  const auto push_inputs = [&](NodeId n, bool from_inside) -> bool {
    for (TensorId t : node(n).inputs) {
      if (t < 0) continue;
      const NodeId p = producer(t);
      if (p < 0) continue;
      if (inside[static_cast<std::size_t>(p)]) {
        if (!from_inside) return true;
        continue;
      }
      if (!seen[static_cast<std::size_t>(p)]) {
        seen[static_cast<std::size_t>(p)] = 1;
        work.push_back(p);
      }
    }
    return false;
  };
  const auto is_inside = [&](NodeId n) { return inside[static_cast<std::size_t>(n)] != 0; };
  for (NodeId n : nodes) push_inputs(n, true);
  push_inputs(extra, true);
  while (!work.empty()) {
    const NodeId n = work.back();
    work.pop_back();
    if (is_inside(n)) return true;
    if (push_inputs(n, false)) return true;
    if (group(n) < 0) continue;
    for (NodeId m : groups_[static_cast<std::size_t>(group(n))])
      if (!seen[static_cast<std::size_t>(m)]) {
        seen[static_cast<std::size_t>(m)] = 1;
        work.push_back(m);
      }
  }
  return false;
}

bool FusionState::needed_outside(TensorId t, const std::vector<NodeId>& nodes) const {
  if (graph_[t].output) return true;
  for (NodeId c : consumers(t))
    if (!contains(nodes, c)) return true;
  return false;
}

void FusionState::cut(std::string_view pattern, NodeId kernel, NodeId n, TensorId t,
                      std::string reason) {
  cuts_.push_back({pattern, kernel, n, t, std::move(reason)});
}

std::vector<PlanCut> FusionState::cuts() const {
  std::vector<PlanCut> result;
  for (const auto& c : cuts_) {
    if (group(c.kernel) == group(c.node)) continue;
    PlanCut cut{std::string(c.pattern), graph_.label(node(c.node)), graph_.label(c.tensor), c.reason};
    const bool known = std::any_of(result.begin(), result.end(), [&](const PlanCut& o) {
      return o.node == cut.node && o.tensor == cut.tensor && o.reason == cut.reason;
    });
    if (!known) result.push_back(std::move(cut));
  }
  return result;
}

}  // namespace sinter
