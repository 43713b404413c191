#include "planner/planner.hpp"

#include <algorithm>
#include <limits>
#include <map>
#include <set>

#include "fusion_patterns/pattern.hpp"
#include "plan/access.hpp"
#include "planner/depth.hpp"
#include "planner/operands.hpp"
#include "planner/split.hpp"

namespace sinter {
namespace {

struct Candidate {
  const Pattern* pattern;
  Match match;
};

const Pattern& pattern_of(const FusionState& state, NodeId n) {
  const OpKind op = state.node(n).op;
  if (is_contraction(op)) return contraction_pattern();
  if (op == OpKind::reduction) return rowwise_pattern();
  return is_elementwise(state, n) ? pointwise_pattern() : data_movement_pattern();
}

std::ptrdiff_t rank(const Pattern* p) {
  const auto all = patterns();
  return std::find(all.begin(), all.end(), p) - all.begin();
}

// Repeats: ask every pattern about every free node, take the best proposals whose nodes are still
// free. A pass takes at least one, so this ends.
std::vector<Candidate> choose(FusionState& state, bool fuse) {
  std::vector<Candidate> chosen;
  const auto count = static_cast<NodeId>(state.graph().nodes().size());
  const auto free = [&](NodeId n) { return state.free(n); };
  // Refusals are recorded while nothing is taken yet, so that each is the first reason.
  for (bool explain = true;; explain = false) {
    std::vector<Candidate> proposals;
    std::vector<char> covered(static_cast<std::size_t>(count), 0);
    for (NodeId n = 0; n < count; ++n) {
      if (!free(n)) continue;
      const Pattern& p = pattern_of(state, n);
      if (!fuse) {
        state.take({n});
        chosen.push_back({&p, {{n}, n, 0}});
        continue;
      }
      // Inside a pointwise set every anchor grows to the same set: one of them is enough.
      if (&p == &pointwise_pattern() && covered[static_cast<std::size_t>(n)]) continue;
      auto m = p.propose(state, n, explain);
      if (!m) continue;
      if (&p == &pointwise_pattern())
        for (NodeId k : m->nodes) covered[static_cast<std::size_t>(k)] = 1;
      proposals.push_back({&p, std::move(*m)});
    }
    if (proposals.empty()) return chosen;
    std::stable_sort(proposals.begin(), proposals.end(), [](const auto& a, const auto& b) {
      if (a.match.saved_bytes != b.match.saved_bytes)
        return a.match.saved_bytes > b.match.saved_bytes;
      return rank(a.pattern) < rank(b.pattern);
    });
    bool first = true;
    std::vector<char> waiting(static_cast<std::size_t>(count), 0);
    for (auto& c : proposals) {
      if (!free(c.match.anchor)) continue;
      // What was taken in this pass may have closed a circle or changed what is best. Then it is
      // ranked again in the next one, and until then nothing that saves less takes its nodes.
      if (!first) {
        auto again = c.pattern->propose(state, c.match.anchor, false);
        if (!again) continue;
        const bool held = std::any_of(again->nodes.begin(), again->nodes.end(), [&](NodeId n) {
          return waiting[static_cast<std::size_t>(n)];
        });
        if (held || again->saved_bytes != c.match.saved_bytes) {
          for (NodeId n : again->nodes) waiting[static_cast<std::size_t>(n)] = 1;
          continue;
        }
        c.match = std::move(*again);
      }
      first = false;
      state.take(c.match.nodes);
      chosen.push_back(std::move(c));
    }
  }
}

// An order of execution: kernels are units, folded nodes pass their inputs on.
std::vector<std::size_t> order(const FusionState& state, const std::vector<Candidate>& chosen) {
  const auto nodes = state.graph().nodes().size();
  std::vector<int> unit(nodes, -1);
  for (std::size_t i = 0; i < chosen.size(); ++i)
    for (NodeId n : chosen[i].match.nodes) unit[static_cast<std::size_t>(n)] = static_cast<int>(i);
  int units = static_cast<int>(chosen.size());
  for (auto& u : unit)
    if (u < 0) u = units++;
  std::vector<std::set<int>> next(static_cast<std::size_t>(units));
  std::vector<int> waits(static_cast<std::size_t>(units), 0),
      first(static_cast<std::size_t>(units), static_cast<int>(nodes));
  for (std::size_t n = 0; n < nodes; ++n) {
    first[static_cast<std::size_t>(unit[n])] =
        std::min(first[static_cast<std::size_t>(unit[n])], static_cast<int>(n));
    for (TensorId t : state.operands(static_cast<NodeId>(n))) {
      const NodeId p = t >= 0 ? state.producer(t) : -1;
      if (p < 0) continue;
      const int from = unit[static_cast<std::size_t>(p)];
      if (from != unit[n] && next[static_cast<std::size_t>(from)].insert(unit[n]).second)
        ++waits[static_cast<std::size_t>(unit[n])];
    }
  }
  std::set<std::pair<int, int>> ready;
  for (int u = 0; u < units; ++u)
    if (waits[static_cast<std::size_t>(u)] == 0)
      ready.insert({first[static_cast<std::size_t>(u)], u});
  std::vector<std::size_t> result;
  while (!ready.empty()) {
    const int u = ready.begin()->second;
    ready.erase(ready.begin());
    if (u < static_cast<int>(chosen.size())) result.push_back(static_cast<std::size_t>(u));
    for (int v : next[static_cast<std::size_t>(u)])
      if (--waits[static_cast<std::size_t>(v)] == 0)
        ready.insert({first[static_cast<std::size_t>(v)], v});
  }
  return result;
}

bool nothing_to_do(const KernelSpec& spec) {
  std::int64_t results = 1;
  const int outer = std::visit(Overloaded{[&](const PointwiseSpec&) { return spec.extent.size(); },
                                          [](const RowwiseSpec& r) { return r.outer_rank; },
                                          [](const ContractionSpec& c) { return c.first_k(); }},
                               spec.family);
  for (int i = 0; i < outer; ++i) results *= spec.extent[i];
  return results == 0;
}

}  // namespace

Partition partition(const Graph& lowered, bool fuse, const PlanContext& context) {
  const Storage storage(lowered);
  FusionState state(lowered, storage, fuse, context);
  const auto chosen = choose(state, fuse);
  Partition result;
  Temporaries temporaries(static_cast<TensorId>(lowered.tensors().size()));
  std::vector<KernelSpec> kernels;
  for (std::size_t i : order(state, chosen))
    for (auto& spec : chosen[i].pattern->lower(state, chosen[i].match))
      if (!nothing_to_do(spec))
        for (auto& part : split(std::move(spec), context.device, temporaries))
          if (!nothing_to_do(part)) kernels.push_back(std::move(part));
  narrow_operands(lowered, kernels);
  result.cuts = state.cuts();
  for (auto& spec : kernels)
    for (auto& whole : materialise_operands(std::move(spec), state, temporaries, result.cuts))
      for (auto& kernel : split_depth(std::move(whole), state, temporaries, result.cuts))
        result.kernels.push_back(std::move(kernel));
  result.temporaries = temporaries.bytes();
  place_workspace(lowered, result);
  return result;
}

std::int64_t compulsory_bytes(const Graph& lowered, const KernelSpec& spec) {
  // Ports of one tensor show different parts of it, or all of it more than once.
  struct Touched {
    std::int64_t elements = 0;
    int bytes = 0;
  };
  std::map<std::pair<TensorId, bool>, Touched> tensors;
  const ContractionSpec* const c = spec.as_contraction();
  for (const auto& p : spec.ports) {
    std::int64_t elements = std::numeric_limits<std::int64_t>::max(),
                 touched = p.together * elements_reached(spec.extent, p.access);
    if (p.tensor < static_cast<TensorId>(lowered.tensors().size())) {
      const Dims& dim = lowered[p.tensor].dim;
      const Dims stride = lowered.stride(p.tensor);
      elements = 1;
      for (int i = 0; i < dim.size(); ++i) elements *= stride[i] != 0 ? dim[i] : 1;
    }
    if (!spec.gathers.empty() || (c && c->rows.on)) touched = elements;
    Touched& t = tensors[{p.tensor, p.written}];
    const std::int64_t room = elements - t.elements;
    t.elements += std::min(room, touched);
    t.bytes = info(p.type).bytes;
  }
  std::int64_t bytes = 0;
  for (const auto& [tensor, t] : tensors) bytes += t.elements * t.bytes;
  return bytes;
}

double operations(const KernelSpec& spec) {
  const ContractionSpec* const c = spec.as_contraction();
  if (!c) return 0;
  double n = 2.0 * static_cast<double>(c->products.size());
  for (int i = c->rows.on ? c->batch : 0; i < spec.extent.size(); ++i)
    n *= static_cast<double>(spec.extent[i]);
  return n;
}

}  // namespace sinter
