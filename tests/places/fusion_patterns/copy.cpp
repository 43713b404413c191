// Copy: an identity whose result has the type and dims of its operand.
//
//     x --- identity --- y
//
#include "planner/match/pattern.hpp"
#include "planner/spec/body_builder.hpp"

namespace sinter {
namespace {

class CopyPattern final : public Pattern {
 public:
  std::string_view name() const override { return "copy"; }

  bool anchors(const FusionState& state, NodeId n) const override {
    const Node& node = state.node(n);
    if (node.op != OpKind::pointwise) return false;
    const TensorDesc &x = state.graph()[node.inputs[0]], &y = state.graph()[node.outputs[0]];
    return std::get<PointwiseAttributes>(node.attributes).mode == PointwiseMode::identity &&
           x.data_type == y.data_type && x.dim == y.dim;
  }
  std::optional<Match> propose(FusionState&, NodeId anchor, bool) const override {
    return Match{{anchor}, anchor, 0};
  }
  std::vector<KernelSpec> lower(const FusionState& state, const Match& m) const override {
    KernelSpec spec = pointwise_spec(state, m.nodes);
    spec.family = CopySpec{};
    return {spec};
  }
};

}  // namespace

std::span<const Pattern* const> copy_patterns() {
  static const CopyPattern pattern;
  static const Pattern* const all[] = {&pattern};
  return all;
}

}  // namespace sinter
