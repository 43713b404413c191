// Chained products: a matmul whose left operand is made of another matmul's results, element by
// element. The sums of the first one never leave the registers.
//
//     A --.                                    f: any DAG over A B's dims, with side inputs
//          matmul ---> f ---.
//     B --'                  matmul ---> epilogue ---> y, ...
//                       C ---'
//
// The columns of both products are at most 256: what one warpgroup's registers hold of 64 rows.
#include "fusion_patterns/chained.hpp"

#include <algorithm>

#include "fusion_patterns/growth.hpp"
#include "lower/op_kinds.hpp"
#include "planner/match/pattern.hpp"
#include "planner/spec/chained_spec.hpp"
#include "schedule/scheduled_kernel.hpp"

namespace sinter {
namespace {

class ChainedPattern final : public Pattern {
 public:
  std::string_view name() const override { return "chained"; }

  bool anchors(const FusionState& state, NodeId n) const override {
    const auto chain = chain_to(state, n);
    return chain && fits(state, *chain, chain_nodes(*chain));
  }

  std::optional<Match> propose(FusionState& state, NodeId anchor, bool explain) const override {
    const auto chain = chain_to(state, anchor);
    if (!chain) return {};
    Match m{chain_nodes(*chain), anchor, 0};
    add_epilogue(state, m, explain);
    if (!fits(state, *chain, m.nodes)) m.nodes = chain_nodes(*chain);
    m.saved_bytes = saved_bytes(state, m.nodes);
    return m;
  }

  std::vector<KernelSpec> lower(const FusionState& state, const Match& m) const override {
    // The nodes are taken by now, and so are no chain to be found again.
    Chain chain;
    chain.second = m.anchor;
    chain.first = m.nodes.front();
    for (std::size_t i = 1; m.nodes[i] != m.anchor; ++i) chain.middle.push_back(m.nodes[i]);
    return {chained_spec(state, chain, m.nodes)};
  }

 private:
  // The first product, what lies between, the second one.
  static std::vector<NodeId> chain_nodes(const Chain& chain) {
    std::vector<NodeId> nodes{chain.first};
    nodes.insert(nodes.end(), chain.middle.begin(), chain.middle.end());
    nodes.push_back(chain.second);
    return nodes;
  }

  static bool fits(const FusionState& state, const Chain& chain, const std::vector<NodeId>& nodes) {
    for (NodeId n : nodes)
      if (std::vector<NodeId> others = nodes; std::erase(others, n) && state.makes_cycle(others, n))
        return false;
    return static_cast<bool>(
        plan_chained(chained_spec(state, chain, nodes), state.context().device));
  }

  // The elementwise nodes behind the second product.
  void add_epilogue(FusionState& state, Match& m, bool explain) const {
    const Dims domain = without_leading_ones(state.graph()[state.node(m.anchor).outputs[0]].dim);
    const std::vector<NodeId> chain(m.nodes.begin(), m.nodes.end() - 1);
    grow(state, m.nodes, {.pattern = name(), .explain = explain}, [&](NodeId other) -> Refusal {
      const Node& n = state.node(other);
      if (n.op == OpKind::reduction)
        return "what chained products make is not reduced in their kernel";
      if (reads_from_memory(n.op) || n.op == OpKind::concatenate) return refuse_product(n.op);
      const bool behind = std::any_of(n.inputs.begin(), n.inputs.end(), [&](TensorId t) {
        const NodeId p = t >= 0 ? state.producer(t) : -1;
        return p >= 0 && contains(m.nodes, p) && !contains(chain, p);
      });
      return behind ? refuse_other_domain(state, other, domain)
                    : Refusal("it is not behind the products");
    });
  }
};

}  // namespace

const Pattern& chained_pattern() {
  static const ChainedPattern pattern;
  return pattern;
}

}  // namespace sinter
