#include "planner/planner.hpp"

#include <algorithm>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <set>

#include "lower/op_kinds.hpp"
#include "planner/match/pattern.hpp"
#include "planner/passes/kernel_passes.hpp"

namespace sinter {
namespace {

struct Candidate {
  const Pattern* pattern;
  Match match;
};

// The proposals of a graph's nodes, each kept until something that it depends on has changed.
class Proposals {
 public:
  explicit Proposals(FusionState& state) : state_(state), kept_(state.graph().nodes().size()) {}

  // `p`: whose proposal it has to be. Else that of the pattern which the node has as others are
  // taken now, or of the one before where nothing has changed that it depends on.
  const std::optional<Match>& of(NodeId anchor, bool explain, const Pattern* p = nullptr) {
    Kept& k = kept_[static_cast<std::size_t>(anchor)];
    const auto same = [&](NodeId n) { return state_.changed(n) <= k.kernels; };
    if (k.until >= pass_ && (!p || p == k.pattern) &&
        std::all_of(k.looked_at.begin(), k.looked_at.end(), same))
      return k.match;
    state_.start_looking();
    state_.say_why(explain);
    const Pattern& own = pattern_of(state_, anchor);  // which looks at nodes, too
    k.pattern = p ? p : &own;
    k.match = k.pattern->propose(state_, anchor, explain);
    k.looked_at = state_.looked_at();
    k.kernels = state_.kernels();
    k.until = state_.narrowed() ? pass_ : std::numeric_limits<int>::max();
    return k.match;
  }
  // Whose proposal the last answer is.
  const Pattern* by(NodeId anchor) const { return kept_[static_cast<std::size_t>(anchor)].pattern; }
  // What was proposed next to reserved nodes is not kept any longer.
  void next_pass() { ++pass_; }

 private:
  struct Kept {
    int until = -1;   // the last pass for which it is kept
    int kernels = 0;  // that there were when it was made
    const Pattern* pattern = nullptr;
    std::optional<Match> match;
    std::vector<NodeId> looked_at;
  };
  FusionState& state_;
  std::vector<Kept> kept_;
  int pass_ = 0;
};

// A proposal of one pass, ordered by what it saves and then by the pattern's place.
struct Ranked {
  NodeId anchor;
  int rank;
  std::int64_t saved_bytes;
  std::vector<NodeId> covered;  // of a full kernel: its nodes, of which others were not asked
};

// What the patterns propose for the nodes that are free. Nodes that a full kernel of a pattern
// would take are not proposed again with others by that pattern.
std::vector<Ranked> propose_all(FusionState& state, Proposals& proposals, bool explain) {
  const auto all = patterns();
  std::vector<Ranked> ranked;
  std::vector<char> covered(state.graph().nodes().size(), 0);
  for (NodeId n = 0; n < static_cast<NodeId>(covered.size()); ++n) {
    if (!state.free(n) || covered[static_cast<std::size_t>(n)]) continue;
    const Pattern& p = pattern_of(state, n);
    const int rank = static_cast<int>(std::find(all.begin(), all.end(), &p) - all.begin());
    state.look_as(rank);
    if (const auto& m = proposals.of(n, explain, &p)) {
      for (NodeId other : m->nodes)
        if (other != n && &pattern_of(state, other) == &p && p.same_from(state, *m, other))
          covered[static_cast<std::size_t>(other)] = 1;
      ranked.push_back({n, rank, m->saved_bytes, {}});
      if (m->full) state.reserve(ranked.back().covered = m->nodes, rank);
    }
    state.look_as(-1);
  }
  state.free_reserved();
  std::stable_sort(ranked.begin(), ranked.end(), [](const Ranked& a, const Ranked& b) {
    if (a.saved_bytes != b.saved_bytes) return a.saved_bytes > b.saved_bytes;
    return a.rank < b.rank;
  });
  return ranked;
}

std::vector<Candidate> choose_alone(FusionState& state) {
  std::vector<Candidate> chosen;
  for (NodeId n = 0; n < static_cast<NodeId>(state.graph().nodes().size()); ++n) {
    if (!state.free(n)) continue;
    state.take({n});
    chosen.push_back({&pattern_of(state, n), {{n}, n, 0}});
  }
  return chosen;
}

// Kernels of the nodes that make the outputs of aliases that are apart, where these are
// elementwise: others would read as operands what they overwrite.
std::vector<Candidate> choose_apart(FusionState& state, std::span<const Alias> aliases) {
  std::vector<Candidate> chosen;
  for (const Alias& a : aliases) {
    const NodeId n = state.producer(a.output);
    if (!a.apart || n < 0 || !state.free(n) || !is_elementwise(state, n)) continue;
    state.take({n});
    chosen.push_back({&pattern_of(state, n), {{n}, n, 0}});
  }
  return chosen;
}

// Repeats: ask the patterns about every free node, take the best proposals whose nodes are still
// free. A pass takes at least one, so this ends.
std::vector<Candidate> choose(FusionState& state, std::span<const Alias> aliases) {
  std::vector<Candidate> chosen = choose_apart(state, aliases);
  Proposals proposals(state);
  // Refusals are recorded while nothing is taken yet, so that each is the first reason.
  for (bool explain = true;; explain = false, proposals.next_pass()) {
    const auto ranked = propose_all(state, proposals, explain);
    if (ranked.empty()) return chosen;
    bool first = true;
    MarkPool::Borrowed waiting = state.marks();
    const auto wait = [&](const std::vector<NodeId>& nodes) {
      for (NodeId n : nodes) waiting.insert(n);
    };
    for (const Ranked& r : ranked) {
      const auto* m = state.free(r.anchor) ? &proposals.of(r.anchor, false) : nullptr;
      const Pattern* const pattern = patterns()[static_cast<std::size_t>(r.rank)];
      if (m && *m) {
        const auto& nodes = (*m)->nodes;
        const bool held =
            std::any_of(nodes.begin(), nodes.end(), [&](NodeId n) { return waiting.contains(n); });
        const bool another =
            proposals.by(r.anchor) != pattern || (*m)->saved_bytes != r.saved_bytes;
        // What was taken in this pass may have closed a circle or changed what is best. Then it is
        // ranked again in the next one, and until then nothing that saves less takes its nodes.
        if (!first && (held || another)) {
          wait(nodes);
        } else {
          first = false;
          state.take(nodes);
          chosen.push_back({pattern, **m});
        }
      }
      wait(r.covered);
    }
  }
}

// What a tensor takes in memory: results in f32 that products alone read from there have 16 bits
// (narrow_operands).
std::int64_t stored_bytes(const FusionState& state, TensorId t) {
  const Graph& g = state.graph();
  const NodeId producer = state.producer(t);
  if (producer < 0 || !g.is_virtual(t) || g.type(t) != DataType::f32 ||
      info(g.options().io).bytes != 2)
    return state.bytes(t);
  const auto& readers = state.consumers(t);
  const bool narrow = std::all_of(readers.begin(), readers.end(), [&](NodeId r) {
    return state.group(r) == state.group(producer) || is_contraction(state.node(r).op);
  });
  return state.bytes(t) / (narrow ? 2 : 1);
}

// What the kernels bring from memory and store, in bytes, each tensor once a kernel.
std::int64_t traffic(const FusionState& state, const std::vector<Candidate>& chosen) {
  std::int64_t bytes = 0;
  for (const Candidate& c : chosen) {
    const JoinedNodes joined(state, c.match.nodes);
    std::set<TensorId> reached;
    std::set<NodeId> made;  // again, of what they read
    const auto read = [&](NodeId n, const auto& self) -> void {
      for (TensorId t : state.operands(n)) {
        const NodeId p = t >= 0 ? state.producer(t) : -1;
        if (p >= 0 && state.recomputed(p)) {
          if (made.insert(p).second) self(p, self);
        } else if (t >= 0 && !(p >= 0 && joined.contains(p))) {
          reached.insert(t);
        }
      }
    };
    for (NodeId n : c.match.nodes) {
      read(n, read);
      for (TensorId t : state.node(n).outputs)
        if (t >= 0 && state.needed_outside(t, c.match.nodes)) bytes += stored_bytes(state, t);
    }
    for (TensorId t : reached) bytes += stored_bytes(state, t);
  }
  return bytes;
}

// A cover of the graph by kernels, in one of the ways in which what several of them could compute
// is made by each or left to one.
struct Cover {
  std::unique_ptr<FusionState> state;
  std::vector<Candidate> chosen;
};

// Not by an estimate, which is not the same for all extents of a class.
void take_better(Cover& best, Cover other) {
  const std::int64_t more = traffic(*other.state, other.chosen) - traffic(*best.state, best.chosen);
  const std::size_t kernels = best.chosen.size(), of_other = other.chosen.size();
  if (of_other <= kernels && more <= 0 && (of_other < kernels || more < 0)) best = std::move(other);
}

// An order of execution: kernels are units, folded nodes pass their inputs on.
class Order {
 public:
  Order(const FusionState& state, const std::vector<Candidate>& chosen)
      : state_(state),
        kernels_(static_cast<int>(chosen.size())),
        units_(kernels_),
        unit_(state.graph().nodes().size(), -1) {
    for (std::size_t i = 0; i < chosen.size(); ++i)
      for (NodeId n : chosen[i].match.nodes) unit_[at(n)] = static_cast<int>(i);
    for (auto& u : unit_)
      if (u < 0) u = units_++;
    next_.resize(at(units_));
    waits_.resize(at(units_));
    first_.assign(at(units_), static_cast<int>(unit_.size()));
    for (std::size_t n = 0; n < unit_.size(); ++n) {
      int& first = first_[at(unit_[n])];
      first = std::min(first, static_cast<int>(n));
      for (TensorId t : state.operands(static_cast<NodeId>(n)))
        if (const NodeId p = t >= 0 ? state.producer(t) : -1; p >= 0) add(unit_[at(p)], unit_[n]);
    }
  }

  // Who reads an input runs before who writes an output in its memory, but for those that need what
  // is written: these make the alias unsafe.
  void read_first(const Alias& alias) {
    const NodeId producer = state_.producer(alias.output);
    if (producer < 0) return;
    const int writer = unit_[at(producer)];
    std::vector<TensorId> read{alias.input};
    for (std::size_t i = 0; i < read.size(); ++i)
      for (NodeId n : state_.consumers(read[i])) {
        const int reader = unit_[at(n)];
        if (reader >= kernels_)
          read.insert(read.end(), state_.node(n).outputs.begin(), state_.node(n).outputs.end());
        else if (!reaches(writer, reader))
          add(reader, writer);
      }
  }

  std::vector<std::size_t> kernels() {
    std::set<std::pair<int, int>> ready;
    for (int u = 0; u < units_; ++u)
      if (waits_[at(u)] == 0) ready.insert({first_[at(u)], u});
    std::vector<std::size_t> result;
    while (!ready.empty()) {
      const int u = ready.begin()->second;
      ready.erase(ready.begin());
      if (u < kernels_) result.push_back(at(u));
      for (int v : next_[at(u)])
        if (--waits_[at(v)] == 0) ready.insert({first_[at(v)], v});
    }
    return result;
  }

 private:
  static std::size_t at(int i) { return static_cast<std::size_t>(i); }
  void add(int from, int to) {
    if (from != to && next_[at(from)].insert(to).second) ++waits_[at(to)];
  }
  bool reaches(int from, int to) const {
    std::vector<int> reached{from};
    std::set<int> seen{from};
    for (std::size_t i = 0; i < reached.size(); ++i) {
      if (reached[i] == to) return true;
      for (int u : next_[at(reached[i])])
        if (seen.insert(u).second) reached.push_back(u);
    }
    return false;
  }

  const FusionState& state_;
  const int kernels_;
  int units_;
  std::vector<int> unit_;            // by node
  std::vector<std::set<int>> next_;  // by unit, as all below
  std::vector<int> waits_, first_;   // first: node, which decides between those that are ready
};

}  // namespace

Partition partition(const Graph& lowered, bool fuse, const PlanContext& context,
                    std::span<const Region> regions, std::span<const Alias> aliases) {
  const Storage storage(lowered);
  std::vector<TensorId> overwritten;
  for (const Alias& alias : aliases) overwritten.push_back(alias.input);
  const auto cover = [&](bool chains, bool leave_tails) -> Cover {
    Cover c{std::make_unique<FusionState>(lowered, storage, fuse, context, regions, overwritten),
            {}};
    if (chains && !c.state->recompute_chains()) return {};
    if (leave_tails) c.state->leave_tails();
    c.chosen = fuse ? choose(*c.state, aliases) : choose_alone(*c.state);
    return c;
  };
  Cover best = cover(false, false);
  constexpr std::size_t kMostCompared = 4096;  // nodes: larger graphs are covered in one way alone
  if (fuse && lowered.nodes().size() <= kMostCompared) {
    if (best.state->tail_found()) take_better(best, cover(false, true));
    if (Cover chains = cover(true, false); chains.state) {
      const bool tails = chains.state->tail_found();
      take_better(best, std::move(chains));
      if (tails) take_better(best, cover(true, true));
    }
  }
  const FusionState& state = *best.state;
  Order order(state, best.chosen);
  for (const Alias& alias : aliases) order.read_first(alias);
  KernelList list{state,        aliases,
                  overwritten,  {},
                  state.cuts(), Temporaries(static_cast<TensorId>(lowered.tensors().size()))};
  for (std::size_t i : order.kernels())
    for (auto& spec : best.chosen[i].pattern->lower(state, best.chosen[i].match))
      if (!has_no_results(spec)) list.kernels.push_back(std::move(spec));
  run_kernel_passes(list, fuse);
  Partition result;
  result.kernels = std::move(list.kernels);
  result.cuts = std::move(list.cuts);
  result.temporaries = list.temporaries.bytes();
  place_workspace(lowered, result);
  return result;
}

}  // namespace sinter
