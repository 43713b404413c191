// What patterns see while a graph is partitioned: which nodes are free, who reads what, and whether
// joining nodes would make kernels wait for each other in a circle.
#pragma once
#include <limits>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "lower/region.hpp"
#include "plan/plan_data.hpp"
#include "planner/match/interned.hpp"
#include "planner/match/node_marks.hpp"
#include "planner/memory/storage.hpp"
#include "schedule/scheduled_kernel.hpp"
#include "sinter/graph.hpp"

namespace sinter {

class JoinedNodes;

// A text that most often is a constant, which is not copied then.
class Reason {
 public:
  Reason() = default;
  Reason(const char* constant) : constant_(constant) {}
  Reason(std::string made) : made_(std::move(made)) {}
  std::string_view text() const { return made_.empty() ? constant_ : made_; }
  bool empty() const { return text().empty(); }

 private:
  std::string_view constant_;
  std::string made_;
};

// Why a node does not join a kernel. Empty: it does.
struct Refusal {
  Refusal() = default;
  Refusal(std::string reason, Reason remedy = {})
      : why(std::move(reason)), fix(std::move(remedy)) {}
  Refusal(const char* reason, Reason remedy = {}) : why(reason), fix(std::move(remedy)) {}
  Reason why;
  Reason fix;  // the change of the graph that would let it join, where one is known
};

// Whether an operation takes about as long as an addition, or less.
bool costs_an_addition(PointwiseMode mode);

class FusionState {
 public:
  // `recompute`: results that a few operations make from nothing but indices and constants (masks,
  // positions), or from small inputs of the graph that are broadcast (1 + scale; a sigmoid, where
  // packs share it), are made where they are read, and have no kernel and no memory.
  // `context`: the device whose engines may be used, and what was measured on it.
  // `regions`: attention that a pattern may take as a whole.
  // `overwritten`: inputs whose memory takes an output, which are read no longer than they must be.
  FusionState(const Graph& graph, const Storage& storage, bool recompute,
              const PlanContext& context, std::span<const Region> regions = {},
              std::vector<TensorId> overwritten = {});

  const Graph& graph() const { return graph_; }
  const Storage& storage() const { return storage_; }
  std::span<const TensorId> overwritten() const { return overwritten_; }
  const PlanContext& context() const { return context_; }
  const DeviceModel& device() const { return context_.device; }
  std::span<const Region> regions() const { return regions_; }
  // The one that a node belongs to, or null.
  const Region* region_of(NodeId n) const;
  const Node& node(NodeId n) const { return graph_.nodes()[static_cast<std::size_t>(n)]; }
  // node(n).op, apart from the nodes: growing kernels ask it of all readers of a tensor.
  OpKind op(NodeId n) const { return ops_[static_cast<std::size_t>(n)]; }
  NodeId producer(TensorId t) const { return graph_[t].producer; }
  const std::vector<NodeId>& consumers(TensorId t) const {
    return consumers_[static_cast<std::size_t>(t)];
  }
  // Those, but for most of the ones that a kernel has taken: what is asked again for each kernel.
  const std::vector<NodeId>& open_consumers(TensorId t) const {
    return open_consumers_[static_cast<std::size_t>(t)];
  }
  // What a node reads: of its operand, gen_index only takes the dims.
  std::span<const TensorId> operands(NodeId n) const;
  // Whether a kernel may take the node.
  bool free(NodeId n) const {
    if (group(n) >= 0 || no_kernel(n)) return false;  // and never will be
    if (reserved(n)) {
      narrowed_ = true;
      return false;
    }
    look_at(n);
    return true;
  }
  bool recomputed(NodeId n) const { return recompute_[static_cast<std::size_t>(n)]; }
  bool no_kernel(NodeId n) const {
    return storage_.folded(n) || recomputed(n) || unread_[static_cast<std::size_t>(n)];
  }
  int group(NodeId n) const { return group_[static_cast<std::size_t>(n)]; }
  int kernels() const { return static_cast<int>(groups_.size()); }

  // Takes the nodes as one kernel.
  int take(std::vector<NodeId> nodes);

  // True when a kernel of `nodes` plus `extra` would have to run both before and after another, or
  // where so much lies between them that this is not searched.
  bool makes_cycle(const JoinedNodes& nodes, NodeId extra) const;
  bool makes_cycle(const std::vector<NodeId>& nodes, NodeId extra) const;

  // ---- what a proposal depends on, so that it is made again only after that has changed

  // From start_looking() on, notes each node whose state (free, what it waits for) was asked for,
  // once; looked_at() ends that.
  void start_looking() const;
  const std::vector<NodeId>& looked_at() const;
  // How many kernels had been taken when the node's state changed last.
  int changed(NodeId n) const { return changed_[static_cast<std::size_t>(n)]; }

  // Nodes that are not free for pattern number `by`, until all are given back: others' proposals
  // would overlap with theirs.
  void reserve(const std::vector<NodeId>& nodes, int by);
  void free_reserved();
  // Who asks whether nodes are free from now on; for nobody (-1) none is reserved.
  void look_as(int pattern) { viewer_ = pattern < 0 ? 0 : std::uint32_t{1} << pattern; }
  // Whether a reserved node was asked for since start_looking().
  bool narrowed() const { return narrowed_; }

  // ---- two ways to cut what several kernels could compute; whoever chooses compares them

  // Whether a kernel leaves what only others need, and could compute, to these. Notes that it was
  // asked, which it is where that makes a difference.
  bool leaves_tail() const {
    tail_found_ = true;
    return leave_tails_;
  }
  bool tail_found() const { return tail_found_; }
  void leave_tails() { leave_tails_ = true; }
  // Has each kernel compute again what a few elementwise nodes, one after another, make of inputs
  // that take no longer to read than their result would (the normalised rows of a norm's
  // gradients), as single nodes are anyway. Before anything is taken; false: there are none.
  bool recompute_chains();

  // An empty set of nodes.
  MarkPool::Borrowed marks() const { return MarkPool::Borrowed(pool_); }

  // The tensor's size in memory.
  std::int64_t bytes(TensorId t) const { return count(graph_[t].dim) * info(graph_.type(t)).bytes; }
  // True when a reader outside `nodes` (or the caller) needs the tensor in memory.
  bool needed_outside(TensorId t, const std::vector<NodeId>& nodes) const;

  // Whether refusals need their reason: most are asked for nobody, and take longer to say than to
  // find.
  void say_why(bool say) { says_why_ = say; }
  bool says_why() const { return says_why_; }

  // Why `node` did not join the kernel that `kernel` belongs to.
  void cut(std::string_view pattern, NodeId kernel, NodeId node, TensorId tensor,
           const Refusal& refusal);
  // The refusals that held: the two did end up in different kernels.
  std::vector<PlanCut> cuts() const;

 private:
  struct Refused {
    std::int32_t node, tensor, reason;  // their numbers
    bool operator==(const Refused&) const = default;
    struct Hash {
      std::size_t operator()(const Refused& r) const {
        std::size_t h = 0;
        for (const std::int32_t part : {r.node, r.tensor, r.reason})
          h = (h ^ static_cast<std::size_t>(part)) * 0x9E3779B97F4A7C15;
        return h ^ h >> 32;
      }
    };
  };
  const Graph& graph_;
  const Storage& storage_;
  const PlanContext& context_;
  std::span<const Region> regions_;
  std::vector<TensorId> overwritten_;
  std::vector<OpKind> ops_;  // by node
  std::vector<int> region_;  // by node; -1: none
  std::vector<std::vector<NodeId>> consumers_, open_consumers_;
  std::vector<std::size_t> taken_consumers_;  // of open_consumers_, by tensor
  std::vector<int> group_;
  std::vector<std::vector<NodeId>> groups_;
  struct Cut {
    std::string_view pattern;
    NodeId kernel;
    Refused what;
    int fix;  // in fixes_
  };
  bool reserved(NodeId n) const { return (reserved_[static_cast<std::size_t>(n)] & viewer_) != 0; }
  // Raises latest_ of the node to `number`, and of what waits for it.
  void raise(NodeId n, NodeId number);
  void look_at(NodeId n) const {
    if (looking_ && seen_.insert(n)) looked_at_.push_back(n);
  }
  void find_consumers();
  void drop_taken_consumers(TensorId t);
  bool only_elementwise(NodeId n) const;
  bool makes_once_a_pack(NodeId reader, TensorId t) const;
  void find_recomputed();
  void keep_what_is_read_from_memory();
  // The nodes, at most so many, that make a result of inputs which take no longer to read than the
  // result would, itself the first: then no kernel stores it for others. Empty: there are none.
  std::vector<NodeId> chain_to_inputs(NodeId n, std::size_t longest) const;
  bool recompute_chains_of(std::size_t longest);  // false: there are none
  bool readers_may_make(NodeId n) const;
  bool recomputed_result(TensorId t) const;
  bool given(TensorId t) const;           // a value, or in memory before the graph is run
  bool may_read_later(TensorId t) const;  // given, and nothing else is written there
  std::vector<bool> unread_, recompute_;  // unread: nobody needs what the node makes
  std::vector<Cut> cuts_;
  Interned reasons_, fixes_;
  struct Refusals {
    NodeId last_kernel = -1;
    int kernels = 0;
  };
  std::unordered_map<Refused, Refusals, Refused::Hash> refusals_;
  // By node: what it was refused for last, which it often is again by the next kernel.
  std::vector<std::pair<const Refused, Refusals>*> last_refusal_;
  // The largest number of a node that runs before this one, or with it, as kernels stand now.
  std::vector<NodeId> latest_;
  std::vector<int> changed_;
  std::vector<std::uint32_t> reserved_;
  std::vector<NodeId> reserved_nodes_;
  std::uint32_t viewer_ = 0;
  mutable MarkPool pool_;
  mutable bool looking_ = false, narrowed_ = false, tail_found_ = false;
  bool leave_tails_ = false, says_why_ = true;
  mutable NodeMarks seen_;
  mutable std::vector<NodeId> looked_at_, to_visit_;  // to_visit_: of makes_cycle()
};

// The nodes of a kernel that grows, with what is asked for every node that might join.
class JoinedNodes {
 public:
  JoinedNodes(const FusionState& state, const std::vector<NodeId>& nodes);
  void add(NodeId n);

  bool contains(NodeId n) const { return inside_.contains(n); }
  NodeId first() const { return first_; }
  // Nodes that a member reads, each once; those that have joined since are among them.
  const std::vector<NodeId>& read() const { return read_; }

 private:
  const FusionState& state_;
  MarkPool::Borrowed inside_, listed_;
  NodeId first_ = std::numeric_limits<NodeId>::max();
  std::vector<NodeId> read_;
};

inline bool contains(const std::vector<NodeId>& nodes, NodeId n) {
  for (NodeId m : nodes)
    if (m == n) return true;
  return false;
}

}  // namespace sinter
