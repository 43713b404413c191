// Rowwise: reductions over the same axes of the same domain with everything elementwise around them.
//
//     x ----> prologue ----> reduce ----> per-row values
//      \________________________ \________/
//                               epilogue ----> y       again and again: a second reduction may use
//                                                      what the first one gave (softmax, norms)
//
// Nodes run over the full domain F, or over R: F with the reduced axes 1.
#include "fusion_patterns/pattern.hpp"
#include "planner/body_builder.hpp"

namespace sinter {
namespace {

class RowwisePattern final : public Pattern {
 public:
  std::string_view name() const override { return "rowwise"; }

  std::optional<Match> propose(FusionState& state, NodeId anchor, bool explain) const override {
    const Node& reduction = state.node(anchor);
    if (reduction.op != OpKind::reduction) return std::nullopt;
    const Graph& g = state.graph();
    const Dims full = g[reduction.inputs[0]].dim, kept = g[reduction.outputs[0]].dim;
    const Dims full_domain = without_leading_ones(full), row_domain = without_leading_ones(kept);
    Match m{{anchor}, anchor, 0};
    grow(state, m.nodes, {name(), false, explain}, [&](NodeId n) -> std::string {
      const Node& other = state.node(n);
      if (other.op == OpKind::reduction) {
        if (g[other.inputs[0]].dim == full && g[other.outputs[0]].dim == kept) return {};
        return "it reduces " + to_string(g[other.inputs[0]].dim) + " to " +
               to_string(g[other.outputs[0]].dim) + ", the kernel " + to_string(full) + " to " +
               to_string(kept);
      }
      if (reads_from_memory(other.op)) return "it reads its operands from memory";
      const std::string why = refuse_other_domain(state, n, full_domain);
      return why.empty() ? why : refuse_other_domain(state, n, row_domain);
    });
    m.saved_bytes = saved_bytes(state, m.nodes);
    return m;
  }

  std::vector<KernelSpec> lower(const FusionState& state, const Match& m) const override {
    return {rowwise_spec(state, m.nodes, m.anchor)};
  }
};

}  // namespace

const Pattern& rowwise_pattern() {
  static const RowwisePattern pattern;
  return pattern;
}

}  // namespace sinter
