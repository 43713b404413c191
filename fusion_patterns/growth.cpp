#include "fusion_patterns/growth.hpp"

#include <algorithm>
#include <iterator>
#include <span>
#include <unordered_set>

#include "planner/spec/contraction_spec.hpp"

namespace sinter {

namespace {

bool reads(const FusionState& state, NodeId n, TensorId t) {
  const auto& inputs = state.node(n).inputs;
  return std::find(inputs.begin(), inputs.end(), t) != inputs.end();
}

// Appends the tensors in memory that a node of a kernel reaches, not counting what others `inside`
// reach, nor parts of a concatenation.
template <class Inside>
void add_reached(const FusionState& state, NodeId n, const Inside& inside,
                 std::vector<TensorId>& reached) {
  const auto read = [&](const auto& self, NodeId reader) -> void {
    for (TensorId t : state.operands(reader)) {
      if (t < 0 || state.graph()[t].has_value) continue;
      const NodeId p = state.producer(t);
      if (p >= 0 && state.recomputed(p))
        self(self, p);
      else if (p < 0 || !inside(p))
        reached.push_back(t);
    }
  };
  if (state.storage().parts(n).empty()) read(read, n);
  for (TensorId t : state.node(n).outputs)
    if (t >= 0 && leaves(state, t, inside)) reached.push_back(t);
}

void sort_unique(std::vector<TensorId>& tensors) {
  std::sort(tensors.begin(), tensors.end());
  tensors.erase(std::unique(tensors.begin(), tensors.end()), tensors.end());
}

constexpr const char* kUnsaid = "not said";  // the reason that nobody reads

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
    for (NodeId n : nodes) {
      add_reached(
          state, n, [&](NodeId other) { return contains(other); }, reached_);
      parts_ += state.storage().parts(n).size();
    }
    sort_unique(reached_);
  }

  bool contains(NodeId n) const { return joined_.contains(n); }
  // Joins a node, or says why it cannot; `full`: it would but for the limits of a kernel.
  Refusal join(NodeId extra, bool& full) {
    if (static_cast<int>(nodes_.size()) >= kMaxKernelNodes) {
      full = true;
      if (!state_.says_why()) return kUnsaid;
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
    const std::size_t parts = parts_ + state_.storage().parts(extra).size();
    reach_with(extra);
    if (reached_with_.size() + parts > static_cast<std::size_t>(kMaxKernelTensors)) {
      full = true;
      if (!state_.says_why()) return kUnsaid;
      return {"the kernel would reach more than " + std::to_string(kMaxKernelTensors) + " tensors",
              "pack small operands into one tensor and slice it"};
    }
    nodes_.push_back(extra);
    std::swap(reached_, reached_with_);
    parts_ = parts;
    joined_.add(extra);
    if (from_memory) from_memory_.push_back(extra);
    return {};
  }

 private:
  // What the kernel would reach with one more node: what that reaches, and what was reached before,
  // apart from what it makes, and from what it alone still had to read.
  void reach_with(NodeId extra) {
    const auto inside = [&](NodeId n) { return n == extra || contains(n); };
    const auto& operands = state_.operands(extra);
    const auto no_longer = [&](TensorId t) {
      const NodeId p = state_.producer(t);
      return p == extra || (p >= 0 && contains(p) &&
                            std::find(operands.begin(), operands.end(), t) != operands.end() &&
                            !leaves(state_, t, inside));
    };
    own_.clear();
    add_reached(state_, extra, inside, own_);
    sort_unique(own_);
    still_.clear();
    for (TensorId t : reached_)
      if (!no_longer(t)) still_.push_back(t);
    reached_with_.clear();
    std::ranges::set_union(still_, own_, std::back_inserter(reached_with_));
  }

  const FusionState& state_;
  std::vector<NodeId>& nodes_;
  JoinedNodes joined_;
  std::vector<NodeId> from_memory_;  // those that take no values
  // Distinct tensors in memory that the kernel reaches, and would with one more node; every part of
  // a concatenation counts besides.
  std::vector<TensorId> reached_, reached_with_;
  std::vector<TensorId> own_, still_;  // of reach_with()
  std::size_t parts_ = 0;
};

// Of the readers of one tensor, so many may be refused before the others are not asked any more;
// not counting those that no kernel of the pattern takes, which are asked for their reason alone.
constexpr int kMostRefused = 256;

// What the limits of a kernel kept out.
struct LeftOut {
  bool any = false;
  bool connected = false;  // some that read what the kernel makes, or make what it reads
};

// `nodes` with the neighbours that join it, in one order or the other.
class Growing {
 public:
  Growing(FusionState& state, std::vector<NodeId>& nodes, const Growth& growth,
          const std::function<Refusal(NodeId)>& refuse)
      : state_(state),
        nodes_(nodes),
        growth_(growth),
        refuse_(refuse),
        kernel_(state, nodes),
        refused_(state.marks()) {}

  // All neighbours of a node before those of the next one.
  LeftOut readers_first() {
    while_some_join([&] {
      for (std::size_t i = 0; i < nodes_.size(); ++i) {
        for (TensorId t : state_.node(nodes_[i]).outputs)
          if (t >= 0) consider_readers_once(t, true, [] {});
        for (TensorId t : operands(nodes_[i])) {
          if (t < 0) continue;
          consider_producer(t);
          if (is_shared(t)) consider_readers_once(t, false, [] {});
        }
      }
    });
    return left_out_;
  }

  // A reader of a tensor that the kernel reads, too, brings what it is connected to before the next
  // such reader is asked.
  LeftOut chains_first() {
    while_some_join([&] {
      first_ = 0;
      connect();
      for (std::size_t i = 0; i < nodes_.size(); ++i)
        for (TensorId t : operands(nodes_[i]))
          if (t >= 0 && is_shared(t)) consider_readers_once(t, false, [&] { connect_chain(); });
    });
    return left_out_;
  }

 private:
  template <class Round>
  void while_some_join(const Round& round) {
    for (std::size_t before = 0; before < nodes_.size() && !cut_off_;) {
      if (before > 0) refused_.clear();  // a larger set may heal what looked like a cycle
      before = nodes_.size();
      asked_.clear();
      round();
    }
  }

  // Whether a neighbour `through` a tensor joins; `connected`: that the one makes and the other
  // reads.
  bool consider(NodeId c, TensorId through, bool connected, int& refusals) {
    if (c < 0 || kernel_.contains(c) || refused_.contains(c) || !state_.free(c)) return false;
    bool full = false;
    Refusal r = refuse_(c);
    if (r.why.empty()) r = kernel_.join(c, full);
    if (r.why.empty()) return true;
    left_out_.any |= full;
    left_out_.connected |= full && connected;
    ++refusals;
    refused_.insert(c);
    if (growth_.explain) state_.cut(growth_.pattern, nodes_.front(), c, through, r);
    return false;
  }

  void consider_producer(TensorId t) {
    int refusals = 0;
    consider(state_.producer(t), t, true, refusals);
  }

  // Of a tensor that a node reads or, `connected`, makes. `behind`: called behind each that joins.
  template <class Behind>
  void consider_readers(TensorId t, bool connected, const Behind& behind) {
    int refusals = 0, never = 0;
    for (NodeId c : state_.open_consumers(t)) {
      const bool takes = growth_.takes(state_, c);
      if (!takes && (!growth_.explain || never == kMostRefused)) continue;
      if (consider(c, t, connected, takes ? refusals : never)) behind();
      if (refusals == kMostRefused || cut_off_) break;
    }
  }
  template <class Behind>
  void consider_readers_once(TensorId t, bool connected, const Behind& behind) {
    if (!cut_off_ && asked_.insert(t).second) consider_readers(t, connected, behind);
  }

  // What nodes from number first_ on are connected to, but for readers of what they read.
  void connect() {
    for (std::size_t before = 0; before < nodes_.size();) {
      before = nodes_.size();
      for (std::size_t i = first_; i < nodes_.size(); ++i) {
        for (TensorId t : state_.node(nodes_[i]).outputs)
          if (t >= 0) consider_readers(t, true, [] {});
        for (TensorId t : operands(nodes_[i]))
          if (t >= 0) consider_producer(t);
      }
      if (nodes_.size() > before) refused_.clear();
    }
    first_ = nodes_.size();
  }
  // The same of the last one alone, which goes again where the kernel has no room for all of it.
  void connect_chain() {
    const std::size_t start = nodes_.size() - 1;
    left_out_.connected = false;
    connect();
    cut_off_ = left_out_.connected;
    if (cut_off_) nodes_.resize(start);
  }

  // Operands of a product come through memory or a prologue.
  std::span<const TensorId> operands(NodeId n) const {
    return is_contraction(state_.node(n).op) ? std::span<const TensorId>() : state_.operands(n);
  }
  bool is_shared(TensorId t) const {
    return !state_.graph()[t].has_value && count(state_.graph()[t].dim) >= growth_.shared;
  }

  FusionState& state_;
  std::vector<NodeId>& nodes_;
  const Growth& growth_;
  const std::function<Refusal(NodeId)>& refuse_;
  GrowingKernel kernel_;
  MarkPool::Borrowed refused_;
  std::unordered_set<TensorId> asked_;  // tensors whose readers were asked
  std::size_t first_ = 0;               // of connect(): those before it are
  bool cut_off_ = false;  // a chain was, by the limits of a kernel: nothing joins any longer
  LeftOut left_out_;
};

// What a kernel saves, without what passes through memory to those that go on with its results.
std::int64_t saved_beside_passed(const FusionState& state, const std::vector<NodeId>& nodes) {
  std::int64_t saved = saved_bytes(state, nodes);
  const JoinedNodes joined(state, nodes);
  for (NodeId n : nodes)
    for (TensorId t : state.node(n).outputs) {
      const auto inside = [&](NodeId reader) { return joined.contains(reader); };
      if (t >= 0 && !std::ranges::all_of(state.consumers(t), inside))
        saved -= state.bytes(t) * (state.graph()[t].output ? 1 : 2);
    }
  return saved;
}

}  // namespace

bool grow(FusionState& state, std::vector<NodeId>& nodes, const Growth& growth,
          const std::function<Refusal(NodeId)>& refuse) {
  std::vector<NodeId> other = nodes;
  const LeftOut left_out = Growing(state, nodes, growth, refuse).readers_first();
  if (!left_out.connected || growth.shared == std::numeric_limits<std::int64_t>::max())
    return left_out.any;
  // Readers of one tensor may have left no room for what goes on with what they make.
  std::swap(nodes, other);  // `refuse` looks at `nodes`
  Growth unsaid = growth;
  unsaid.explain = false;
  Growing(state, nodes, unsaid, refuse).chains_first();
  if (saved_beside_passed(state, nodes) <= saved_beside_passed(state, other))
    std::swap(nodes, other);
  return true;
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

// Of which there is one for each kind of operation.
static const char* not_elementwise(OpKind op) {
  static const std::vector<std::string> reasons = [] {
    std::vector<std::string> made;
    for (int i = 0; i < static_cast<int>(OpKind::last_); ++i)
      made.push_back(std::string(name(static_cast<OpKind>(i))) +
                     " is not computed element by element");
    return made;
  }();
  return reasons[static_cast<std::size_t>(op)].c_str();
}

Refusal refuse_other_domain(const FusionState& state, NodeId n, const Dims& domain) {
  if (runs_over(state, n, domain)) return {};
  if (!state.says_why()) return kUnsaid;
  if (!is_elementwise(state, n)) return not_elementwise(state.node(n).op);
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
    if (!state.says_why()) return kUnsaid;
    return "the kernel of " + g.label(state.node(product)) +
           " takes it, which then stores less than its sums";
  }
  return {};
}

Refusal refuse_product(OpKind op) {
  return std::string(name(op)) +
         " reads its operands from memory, not from the registers of another kernel";
}

}  // namespace sinter
