// Pointwise: any connected set of elementwise nodes over one domain, with as many results as it
// has.
//
//     a   b   c            every node runs over the same dims (leading ones apart);
//      \ / \ /             operands from outside broadcast and may have any strides;
//      add  mul  ...       every result that someone outside reads is stored
//
#include "fusion_patterns/growth.hpp"
#include "lower/op_kinds.hpp"
#include "planner/match/pattern.hpp"
#include "planner/spec/body_builder.hpp"

namespace sinter {
namespace {

class PointwisePattern final : public Pattern {
 public:
  std::string_view name() const override { return "pointwise"; }

  bool anchors(const FusionState& state, NodeId n) const override {
    return is_elementwise(state, n);
  }
  // Growing is the same from each, apart from what a kernel has no room for.
  bool same_from(const FusionState&, const Match&, NodeId) const override { return true; }

  std::optional<Match> propose(FusionState& state, NodeId anchor, bool explain) const override {
    const Dims domain = without_leading_ones(state.graph()[state.node(anchor).outputs[0]].dim);
    Match m{{anchor}, anchor, 0};
    const Growth growth{name(), count(domain), explain, is_elementwise};
    m.full = grow(state, m.nodes, growth, [&](NodeId n) -> Refusal {
      if (is_contraction(state.node(n).op)) return refuse_product(state.node(n).op);
      if (!is_elementwise(state, n)) return refuse_other_domain(state, n, domain);
      // A gather's indices are those of its own dims, leading ones included.
      if (reads_from_memory(state.node(n).op) &&
          state.graph()[state.node(n).outputs[0]].dim !=
              state.graph()[state.node(anchor).outputs[0]].dim)
        return {"it needs a domain of its own rank",
                "give it and its neighbours as many dims, leading ones included"};
      if (Refusal r = left_to_product(state, n); !r.why.empty()) return r;
      return refuse_other_domain(state, n, domain);
    });
    m.saved_bytes = saved_bytes(state, m.nodes);
    return m;
  }

  std::vector<KernelSpec> lower(const FusionState& state, const Match& m) const override {
    return {pointwise_spec(state, m.nodes)};
  }
};

// Data movement that needs a kernel: a reshape that is no view, a view that is a graph output, the
// parts of a concatenation that do not write into the result themselves, unless all are read where
// they lie.
class DataMovementPattern final : public Pattern {
 public:
  std::string_view name() const override { return "data_movement"; }

  bool anchors(const FusionState& state, NodeId n) const override {
    const OpKind op = state.node(n).op;
    return is_view_op(op) || op == OpKind::concatenate;
  }

  std::optional<Match> propose(FusionState&, NodeId anchor, bool) const override {
    return Match{{anchor}, anchor, 0};
  }

  std::vector<KernelSpec> lower(const FusionState& state, const Match& m) const override {
    return data_movement_specs(state, m.anchor);
  }
};

}  // namespace

std::span<const Pattern* const> pointwise_patterns() {
  static const PointwisePattern pointwise;
  static const DataMovementPattern data_movement;
  static const Pattern* const all[] = {&pointwise, &data_movement};
  return all;
}

}  // namespace sinter
