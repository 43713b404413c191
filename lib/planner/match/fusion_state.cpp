#include "planner/match/fusion_state.hpp"

#include <algorithm>
#include <numeric>
#include <set>
#include <string>
#include <unordered_set>

#include "planner/match/recomputed_biases.hpp"

namespace sinter {
namespace {

// Nodes that are visited to find out whether one kernel must wait for another.
constexpr int kMostVisited = 4096;
// Kernels that refuse a node for one reason, which are kept: more than nodes fit into one kernel,
// so that one of them is another than the node's.
constexpr int kMostRefusals = 256;

}  // namespace

FusionState::FusionState(const Graph& graph, const Storage& storage, bool recompute,
                         const PlanContext& context, std::span<const Region> regions,
                         std::vector<TensorId> overwritten)
    : graph_(graph),
      storage_(storage),
      context_(context),
      regions_(regions),
      overwritten_(std::move(overwritten)),
      region_(graph.nodes().size(), -1),
      last_refusal_(graph.nodes().size(), nullptr),
      pool_(graph.nodes().size()),
      seen_(graph.nodes().size()) {
  for (const Node& n : graph.nodes()) ops_.push_back(n.op);
  for (std::size_t r = 0; r < regions.size(); ++r)
    for (NodeId n : regions[r].nodes) region_[static_cast<std::size_t>(n)] = static_cast<int>(r);
  group_.assign(graph.nodes().size(), -1);
  latest_.resize(graph.nodes().size());
  std::iota(latest_.begin(), latest_.end(), 0);
  changed_.assign(graph.nodes().size(), 0);
  reserved_.assign(graph.nodes().size(), 0);
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
  open_consumers_ = consumers_;
  taken_consumers_.assign(consumers_.size(), 0);
}

// One more consumer is taken. Once that is half of them, all such go.
void FusionState::drop_taken_consumers(TensorId t) {
  auto& open = open_consumers_[static_cast<std::size_t>(t)];
  auto& taken = taken_consumers_[static_cast<std::size_t>(t)];
  if (2 * ++taken < open.size()) return;
  std::erase_if(open, [&](NodeId n) { return group(n) >= 0; });
  taken = 0;
}

const Region* FusionState::region_of(NodeId n) const {
  const int r = region_[static_cast<std::size_t>(n)];
  return r < 0 ? nullptr : &regions_[static_cast<std::size_t>(r)];
}

std::span<const TensorId> FusionState::operands(NodeId n) const {
  const auto* a = std::get_if<PointwiseAttributes>(&node(n).attributes);
  if (a && a->mode == PointwiseMode::gen_index) return {};
  return node(n).inputs;
}

namespace {

constexpr int kRecomputeCost = 8;  // operations an element
constexpr int kManyReaders = 8;    // elements for each of a result that is made again for them
// Of a function of special units, which a thread calls once for the elements that it moves at once.
constexpr int kSpecialCost = 4;
constexpr std::size_t kMostBeside = 32;  // nodes that are visited to find out what a kernel holds

// What special units compute in a few instructions.
bool costs_special_units(PointwiseMode m) {
  using M = PointwiseMode;
  switch (m) {
    case M::div:
    case M::sqrt:
    case M::rsqrt:
    case M::reciprocal:
    case M::exp:
    case M::log:
    case M::tanh_fwd:
    case M::sigmoid_fwd:
    case M::softplus_fwd:
    case M::swish_fwd:
      return true;
    default:
      return false;
  }
}

}  // namespace

bool costs_an_addition(PointwiseMode m) {
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

bool FusionState::recomputed_result(TensorId t) const {
  return producer(t) >= 0 && recomputed(producer(t));
}

bool FusionState::given(TensorId t) const {
  return graph_[t].has_value || producer(storage_[t].root) < 0;
}

// Whether each reader of an elementwise node's result computes as many elements. (Biases of
// attention are made again where recomputed_biases.hpp says so.)
bool FusionState::readers_may_make(NodeId n) const {
  const TensorId t = node(n).outputs[0];
  return node(n).op == OpKind::pointwise && graph_.is_virtual(t) && storage_[t].root == t &&
         std::ranges::all_of(consumers(t), [&](NodeId c) {
           const OpKind op = node(c).op;
           return !region_of(c) &&
                  (op == OpKind::reduction ||
                   (op == OpKind::pointwise &&
                    count(graph_[node(c).outputs[0]].dim) == count(graph_[t].dim)));
         });
}

bool FusionState::may_read_later(TensorId t) const {
  return given(t) && std::ranges::find(overwritten_, storage_[t].root) == overwritten_.end();
}

std::vector<NodeId> FusionState::chain_to_inputs(NodeId n, std::size_t longest) const {
  const TensorId result = node(n).outputs[0];
  if (no_kernel(n) || !readers_may_make(n) || consumers(result).size() < 2) return {};
  std::vector<NodeId> chain{n};
  std::set<TensorId> read;
  for (std::size_t j = 0; j < chain.size(); ++j)
    for (TensorId x : operands(chain[j])) {
      if (x < 0 || graph_[x].has_value) continue;
      if (may_read_later(x)) {
        read.insert(x);
        continue;
      }
      const NodeId p = producer(x);
      if (contains(chain, p)) continue;
      if (p < 0 || chain.size() == longest || !(recomputed(p) || readers_may_make(p))) return {};
      chain.push_back(p);
    }
  std::int64_t bytes_read = 0;
  for (TensorId x : read) bytes_read += bytes(x);
  if (read.empty() || bytes_read > bytes(result)) return {};
  return chain;
}

bool FusionState::recompute_chains_of(std::size_t longest) {
  bool found = false;
  for (NodeId i = 0; i < static_cast<NodeId>(graph_.nodes().size()); ++i)
    for (NodeId n : chain_to_inputs(i, longest)) {
      recompute_[static_cast<std::size_t>(n)] = true;
      found = true;
    }
  return found;
}

bool FusionState::recompute_chains() {
  const bool found = recompute_chains_of(kRecomputeCost);
  if (found) keep_what_is_read_from_memory();
  return found;
}

// Whether a node's kernel is sure to be elementwise: nothing else is computed from what it is
// connected with.
bool FusionState::only_elementwise(NodeId n) const {
  std::vector<NodeId> connected{n};
  for (std::size_t i = 0; i < connected.size(); ++i) {
    if (node(connected[i]).op != OpKind::pointwise || connected.size() > kMostBeside) return false;
    const auto visit = [&](NodeId other) {
      if (other >= 0 && connected.size() <= kMostBeside && !contains(connected, other))
        connected.push_back(other);
    };
    for (TensorId t : operands(connected[i]))
      if (t >= 0) visit(producer(t));
    for (NodeId c : consumers(node(connected[i]).outputs[0])) visit(c);
  }
  return true;
}

// Whether what a thread of the reader moves at once has one element of `t`. (A gate of each channel
// of an image, steps of a state-space model.)
bool FusionState::makes_once_a_pack(NodeId reader, TensorId t) const {
  const Dims &of = graph_[t].dim, &to = graph_[node(reader).outputs[0]].dim,
             &stride = graph_[node(reader).outputs[0]].stride;
  return !of.empty() && of.back() == 1 && to.back() >= kManyReaders &&
         (stride.empty() || stride.back() == 1) && only_elementwise(reader);
}

void FusionState::find_recomputed() {
  std::vector<int> cost(graph_.nodes().size(), 0);
  // Memory, itself or through its operands; special units likewise.
  std::vector<bool> reads(graph_.nodes().size(), false), special(graph_.nodes().size(), false);
  for (NodeId i = 0; i < static_cast<NodeId>(graph_.nodes().size()); ++i) {
    const auto at = static_cast<std::size_t>(i);
    const auto* a = std::get_if<PointwiseAttributes>(&node(i).attributes);
    if (!a || !graph_.is_virtual(node(i).outputs[0])) continue;
    special[at] = costs_special_units(a->mode);
    if (!special[at] && !costs_an_addition(a->mode)) continue;
    cost[at] = special[at] ? kSpecialCost : 1;
    bool cheap_operands = true;
    for (TensorId t : operands(i)) {
      if (t < 0 || graph_[t].has_value) continue;
      if (recomputed_result(t)) {
        cost[at] += cost[static_cast<std::size_t>(producer(t))];
        reads[at] = reads[at] || reads[static_cast<std::size_t>(producer(t))];
        special[at] = special[at] || special[static_cast<std::size_t>(producer(t))];
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
                  (!from_memory || recomputed(c) || (op == OpKind::pointwise && larger)) &&
                  (!special[static_cast<std::size_t>(i)] || recomputed(c) ||
                   (from_memory && makes_once_a_pack(c, t)));
    }
    if (!in_bodies) recompute_[static_cast<std::size_t>(i)] = false;
  }
  // (What an activation's gradient is to the two sums of a groupnorm's and to the gradient behind
  // these: in f32 as much as both of its operands.)
  recompute_chains_of(1);
  for (NodeId n : nodes_of_recomputed_biases(*this, overwritten_))
    recompute_[static_cast<std::size_t>(n)] = true;
  keep_what_is_read_from_memory();
}

void FusionState::keep_what_is_read_from_memory() {
  // The kernels of attention read lengths and sinks from memory, which a small kernel makes.
  for (const Region& r : regions_) {
    const auto& p = r.op == OpKind::sdpa ? shapes::kSdpaPorts : shapes::kSdpaBackwardPorts;
    for (int port : {p.seq_q, p.seq_kv, p.sink})
      if (const TensorId t = r.inputs[static_cast<std::size_t>(port)]; t >= 0 && producer(t) >= 0)
        recompute_[static_cast<std::size_t>(producer(t))] = false;
  }
  // An operand that lost the property takes it from its readers.
  for (NodeId i = 0; i < static_cast<NodeId>(graph_.nodes().size()); ++i) {
    if (!recomputed(i)) continue;
    for (TensorId t : operands(i))
      if (t >= 0 && !given(t) && !recomputed_result(t))
        recompute_[static_cast<std::size_t>(i)] = false;
  }
}

int FusionState::take(std::vector<NodeId> nodes) {
  const int id = static_cast<int>(groups_.size());
  std::sort(nodes.begin(), nodes.end());
  groups_.push_back(nodes);
  NodeId last = -1;
  for (NodeId n : nodes) {
    group_[static_cast<std::size_t>(n)] = id;
    changed_[static_cast<std::size_t>(n)] = id + 1;
    last = std::max(last, latest_[static_cast<std::size_t>(n)]);
  }
  for (NodeId n : nodes) raise(n, last);
  for (NodeId n : nodes)
    for (TensorId t : operands(n))
      if (t >= 0) drop_taken_consumers(t);
  return id;
}

// Nodes are numbered in an order of execution, so that what waits for a node has a larger number,
// and only kernels wait for larger ones than their first: the walk ends soon.
void FusionState::raise(NodeId node, NodeId number) {
  std::vector<NodeId> work{node};
  while (!work.empty()) {
    const NodeId n = work.back();
    work.pop_back();
    const auto visit = [&](NodeId m) {
      if (latest_[static_cast<std::size_t>(m)] >= number) return;
      latest_[static_cast<std::size_t>(m)] = number;
      changed_[static_cast<std::size_t>(m)] = kernels();
      work.push_back(m);
    };
    visit(n);
    if (group(n) >= 0)
      for (NodeId m : groups_[static_cast<std::size_t>(group(n))]) visit(m);
    for (TensorId t : this->node(n).outputs)
      if (t >= 0)
        for (NodeId c : consumers(t)) visit(c);
  }
}

void FusionState::start_looking() const {
  looking_ = true;
  narrowed_ = false;
  seen_.clear();
  looked_at_.clear();
}

const std::vector<NodeId>& FusionState::looked_at() const {
  looking_ = false;
  return looked_at_;
}

void FusionState::reserve(const std::vector<NodeId>& nodes, int by) {
  for (NodeId n : nodes) {
    reserved_[static_cast<std::size_t>(n)] |= std::uint32_t{1} << by;
    reserved_nodes_.push_back(n);
  }
}

void FusionState::free_reserved() {
  for (NodeId n : reserved_nodes_) reserved_[static_cast<std::size_t>(n)] = 0;
  reserved_nodes_.clear();
}

JoinedNodes::JoinedNodes(const FusionState& state, const std::vector<NodeId>& nodes)
    : state_(state), inside_(state.marks()), listed_(state.marks()) {
  for (NodeId n : nodes) add(n);
}

void JoinedNodes::add(NodeId n) {
  inside_.insert(n);
  first_ = std::min(first_, n);
  for (TensorId t : state_.operands(n))
    if (t >= 0 && state_.producer(t) >= 0 && listed_.insert(state_.producer(t)))
      read_.push_back(state_.producer(t));
}

// A cycle needs a path that leaves the joined set and comes back. Nodes are numbered in an order of
// execution and every kernel taken so far is a unit, so the walk goes from the set's inputs
// upwards, through whole kernels, looking for the set again.
bool FusionState::makes_cycle(const JoinedNodes& nodes, NodeId extra) const {
  MarkPool::Borrowed seen = marks(), seen_kernels = marks();
  const NodeId first = std::min(nodes.first(), extra);
  const auto inside = [&](NodeId n) { return n == extra || nodes.contains(n); };
  std::vector<NodeId>& work = to_visit_;
  work.clear();
  const auto visit = [&](NodeId p) {
    // What runs before `p` has smaller numbers than all that is inside.
    look_at(p);
    if (latest_[static_cast<std::size_t>(p)] >= first && seen.insert(p)) work.push_back(p);
  };
  for (NodeId p : nodes.read())
    if (!inside(p)) visit(p);
  for (TensorId t : operands(extra))
    if (t >= 0 && producer(t) >= 0 && !inside(producer(t))) visit(producer(t));
  for (int visited = 0; !work.empty();) {
    const NodeId n = work.back();
    work.pop_back();
    if (inside(n) || ++visited > kMostVisited) return true;
    for (TensorId t : operands(n)) {
      const NodeId p = t < 0 ? -1 : producer(t);
      if (p < 0) continue;
      if (inside(p)) return true;
      visit(p);
    }
    if (group(n) < 0 || !seen_kernels.insert(group(n))) continue;
    for (NodeId m : groups_[static_cast<std::size_t>(group(n))])
      if (seen.insert(m)) work.push_back(m);
  }
  return false;
}

bool FusionState::makes_cycle(const std::vector<NodeId>& nodes, NodeId extra) const {
  return makes_cycle(JoinedNodes(*this, nodes), extra);
}

bool FusionState::needed_outside(TensorId t, const std::vector<NodeId>& nodes) const {
  if (graph_[t].output) return true;
  for (NodeId c : consumers(t))
    if (!contains(nodes, c)) return true;
  return false;
}

void FusionState::cut(std::string_view pattern, NodeId kernel, NodeId n, TensorId t,
                      const Refusal& refusal) {
  const Refused what{n, t, reasons_(refusal.why.text())};
  auto*& last = last_refusal_[static_cast<std::size_t>(n)];
  if (!last || last->first != what) last = &*refusals_.try_emplace(what).first;
  Refusals& before = last->second;
  if (before.last_kernel == kernel || before.kernels == kMostRefusals) return;
  before = {kernel, before.kernels + 1};
  cuts_.push_back({pattern, kernel, what, fixes_(refusal.fix.text())});
}

std::vector<PlanCut> FusionState::cuts() const {
  std::vector<PlanCut> result;
  Interned labels;  // nodes of one composite share theirs
  std::vector<int> of_node(graph_.nodes().size(), -1), of_tensor(graph_.tensors().size(), -1);
  const auto number = [&](std::vector<int>& numbers, std::int32_t id, const auto& labelled) {
    int& known = numbers[static_cast<std::size_t>(id)];
    return known < 0 ? known = labels(graph_.label(labelled)) : known;
  };
  std::unordered_set<Refused, Refused::Hash> listed;  // by the numbers of labels
  for (const auto& [pattern, kernel, what, fix] : cuts_) {
    if (group(kernel) == group(what.node)) continue;
    const Refused labelled{number(of_node, what.node, node(what.node)),
                           number(of_tensor, what.tensor, what.tensor), what.reason};
    if (listed.insert(labelled).second)
      result.push_back({std::string(pattern), labels[labelled.node], labels[labelled.tensor],
                        reasons_[what.reason], graph_.label(node(kernel)), fixes_[fix]});
  }
  return result;
}

}  // namespace sinter
