// The gradients of attention: five products with the softmax's derivative between them, of which
// the scores are never in memory. Delta, the sum along a row of dO times O, is another kernel's.
//
//     q, k, v, dO, stats, delta --> scores, weights, dP, dS --> dq, dk, dv
#include <algorithm>

#include "planner/match/pattern.hpp"
#include "planner/rearrange/materialised_operands.hpp"
#include "planner/spec/attention_backward_spec.hpp"

namespace sinter {
namespace {

class AttentionBackwardPattern final : public Pattern {
 public:
  std::string_view name() const override { return "attention_backward"; }

  bool anchors(const FusionState& state, NodeId n) const override {
    if (state.node(n).op != OpKind::matmul) return false;
    const auto attention = attention_backward_at(state, n);
    return attention && fits(state, *attention);
  }

  std::optional<Match> propose(FusionState& state, NodeId anchor, bool) const override {
    const auto attention = attention_backward_at(state, anchor);
    if (!attention || !all_free(state, *attention)) return {};
    Match m{attention->nodes, anchor, 0};
    // Parts of what was rewritten for this kernel, which computes scores again, are no gain to any.
    constexpr std::int64_t kFirst = std::int64_t{1} << 60;
    m.saved_bytes = attention->region->written_out ? kFirst : saved_bytes(state, m.nodes);
    return m;
  }

  std::vector<KernelSpec> lower(const FusionState& state, const Match& m) const override {
    return {*attention_backward_spec(state, *attention_backward_at(state, m.anchor))};
  }

 private:
  static bool all_free(const FusionState& state, const AttentionBackwardNodes& a) {
    return std::all_of(a.nodes.begin(), a.nodes.end(),
                       [&](NodeId n) { return state.no_kernel(n) || state.free(n); });
  }
  static bool fits(const FusionState& state, const AttentionBackwardNodes& a) {
    if (!all_free(state, a)) return false;
    for (NodeId n : a.nodes)
      if (std::vector<NodeId> others = a.nodes;
          std::erase(others, n) && state.makes_cycle(others, n))
        return false;
    const auto spec = attention_backward_spec(state, a);
    return spec && can_run_attention_backward(state, *spec);
  }
};

}  // namespace

std::span<const Pattern* const> attention_backward_patterns() {
  static const AttentionBackwardPattern pattern;
  static const Pattern* const all[] = {&pattern};
  return all;
}

}  // namespace sinter
