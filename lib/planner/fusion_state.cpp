#include "planner/fusion_state.hpp"

#include <algorithm>

namespace sinter {

FusionState::FusionState(const Graph& graph, const Storage& storage, bool recompute,
                         const PlanContext& context)
    : graph_(graph), storage_(storage), context_(context) {
  group_.assign(graph.nodes().size(), -1);
  find_consumers();
  recompute_.assign(graph.nodes().size(), false);
  if (recompute) find_recomputed();
}

// From the last node to the first, so that what only unread nodes read is unread, too.
void FusionState::find_consumers() {
  consumers_.resize(graph_.tensors().size());
  unread_.assign(graph_.nodes().size(), false);
  for (auto i = static_cast<NodeId>(graph_.nodes().size()) - 1; i >= 0; --i) {
    const auto& outputs = node(i).outputs;
    unread_[static_cast<std::size_t>(i)] = std::none_of(
        outputs.begin(), outputs.end(),
        [&](TensorId t) { return t >= 0 && (graph_[t].output || !consumers(t).empty()); });
    if (unread_[static_cast<std::size_t>(i)]) continue;
    for (TensorId t : operands(i)) {
      if (t < 0) continue;
      auto& c = consumers_[static_cast<std::size_t>(t)];
      if (c.empty() || c.back() != i) c.push_back(i);
    }
  }
  for (auto& c : consumers_) std::reverse(c.begin(), c.end());
}

std::span<const TensorId> FusionState::operands(NodeId n) const {
  const auto* a = std::get_if<PointwiseAttributes>(&node(n).attributes);
  if (a && a->mode == PointwiseMode::gen_index) return {};
  return node(n).inputs;
}

namespace {

constexpr int kRecomputeCost = 8;  // operations an element
constexpr int kManyReaders = 8;    // elements for each of a result that is made again for them

// Operations that cost about as much as an addition.
bool cheap(PointwiseMode m) {
  using M = PointwiseMode;
  switch (m) {
    case M::identity:
    case M::add:
    case M::sub:
    case M::mul:
    case M::min:
    case M::max:
    case M::abs:
    case M::neg:
    case M::logical_and:
    case M::logical_or:
    case M::logical_not:
    case M::cmp_eq:
    case M::cmp_neq:
    case M::cmp_gt:
    case M::cmp_ge:
    case M::cmp_lt:
    case M::cmp_le:
    case M::binary_select:
    case M::gen_index:
      return true;
    default:
      return false;
  }
}

}  // namespace

bool FusionState::given(TensorId t) const {
  return graph_[t].has_value || producer(storage_[t].root) < 0;
}

void FusionState::find_recomputed() {
  const auto recomputed_operand = [&](TensorId t) {
    return producer(t) >= 0 && recomputed(producer(t));
  };
  std::vector<int> cost(graph_.nodes().size(), 0);
  std::vector<bool> reads(graph_.nodes().size(), false);  // memory, itself or through its operands
  for (NodeId i = 0; i < static_cast<NodeId>(graph_.nodes().size()); ++i) {
    const auto at = static_cast<std::size_t>(i);
    const auto* a = std::get_if<PointwiseAttributes>(&node(i).attributes);
    if (!a || !cheap(a->mode) || !graph_.is_virtual(node(i).outputs[0])) continue;
    cost[at] = 1;
    bool cheap_operands = true;
    for (TensorId t : operands(i)) {
      if (t < 0 || graph_[t].has_value) continue;
      if (recomputed_operand(t)) {
        cost[at] += cost[static_cast<std::size_t>(producer(t))];
        reads[at] = reads[at] || reads[static_cast<std::size_t>(producer(t))];
      } else {
        reads[at] = true;
        cheap_operands = cheap_operands && given(t);
      }
    }
    recompute_[at] = cheap_operands && cost[at] <= kRecomputeCost;
  }
  // Whoever reads such a result must be a body that can make it, or be made that way itself; and
  // run over far more elements, where the result is made from memory.
  for (auto i = static_cast<NodeId>(graph_.nodes().size()) - 1; i >= 0; --i) {
    if (!recomputed(i)) continue;
    const TensorId t = node(i).outputs[0];
    const bool from_memory = reads[static_cast<std::size_t>(i)];
    const std::int64_t many = kManyReaders * count(graph_[t].dim);
    bool in_bodies = storage_[t].root == t;
    for (NodeId c : consumers(t)) {
      const OpKind op = node(c).op;
      const bool larger = count(graph_[node(c).outputs[0]].dim) >= many;
      in_bodies = in_bodies && (op == OpKind::pointwise || op == OpKind::reduction) &&
                  (!from_memory || recomputed(c) || (op == OpKind::pointwise && larger));
    }
    if (!in_bodies) recompute_[static_cast<std::size_t>(i)] = false;
  }
  // An operand that lost the property takes it from its readers.
  for (NodeId i = 0; i < static_cast<NodeId>(graph_.nodes().size()); ++i) {
    if (!recomputed(i)) continue;
    for (TensorId t : operands(i))
      if (t >= 0 && !given(t) && !recomputed_operand(t))
        recompute_[static_cast<std::size_t>(i)] = false;
  }
}

int FusionState::take(std::vector<NodeId> nodes) {
  const int id = static_cast<int>(groups_.size());
  std::sort(nodes.begin(), nodes.end());
  for (NodeId n : nodes) group_[static_cast<std::size_t>(n)] = id;
  if (nodes.size() > 1) latest_.clear();
  groups_.push_back(std::move(nodes));
  return id;
}

NodeId FusionState::latest(NodeId n) const {
  if (latest_.empty()) {
    latest_.assign(graph_.nodes().size(), -1);
    // Nodes of a kernel share one number, which stands at the first of them. Numbers only grow, and
    // operands come before their readers but for those of kernels, so that few turns are needed.
    const auto shared = [&](NodeId i) -> NodeId& {
      const int g = group(i);
      return latest_[static_cast<std::size_t>(
          g < 0 ? i : groups_[static_cast<std::size_t>(g)].front())];
    };
    for (bool changed = true; changed;) {
      changed = false;
      for (NodeId i = 0; i < static_cast<NodeId>(latest_.size()); ++i) {
        NodeId last = std::max(shared(i), i);
        for (TensorId t : operands(i))
          if (t >= 0 && producer(t) >= 0) last = std::max(last, shared(producer(t)));
        changed = changed || last != shared(i);
        shared(i) = last;
      }
    }
    for (NodeId i = 0; i < static_cast<NodeId>(latest_.size()); ++i)
      latest_[static_cast<std::size_t>(i)] = shared(i);
  }
  return latest_[static_cast<std::size_t>(n)];
}

// A cycle needs a path that leaves the joined set and comes back. Nodes are numbered in an order of
// execution and every kernel taken so far is a unit, so the walk goes from the set's inputs
// upwards, through whole kernels, looking for the set again.
bool FusionState::makes_cycle(const std::vector<NodeId>& nodes, NodeId extra) const {
  std::vector<char> inside(graph_.nodes().size(), 0), seen(graph_.nodes().size(), 0);
  for (NodeId n : nodes) inside[static_cast<std::size_t>(n)] = 1;
  inside[static_cast<std::size_t>(extra)] = 1;
  NodeId first = extra;
  for (NodeId n : nodes) first = std::min(first, n);
  std::vector<NodeId> work;
  const auto push_inputs = [&](NodeId n, bool from_inside) -> bool {
    for (TensorId t : operands(n)) {
      if (t < 0) continue;
      const NodeId p = producer(t);
      if (p < 0) continue;
      if (inside[static_cast<std::size_t>(p)]) {
        if (!from_inside) return true;
        continue;
      }
      // What runs before `p` has smaller numbers than all that is inside.
      if (latest(p) < first) continue;
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
    PlanCut cut{std::string(c.pattern), graph_.label(node(c.node)), graph_.label(c.tensor),
                c.reason};
    const bool known = std::any_of(result.begin(), result.end(), [&](const PlanCut& o) {
      return o.node == cut.node && o.tensor == cut.tensor && o.reason == cut.reason;
    });
    if (!known) result.push_back(std::move(cut));
  }
  return result;
}

}  // namespace sinter
