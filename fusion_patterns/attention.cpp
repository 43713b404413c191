// Attention: two products with a softmax between them, and what lies behind. The scores are never
// in memory.
//
//     q --.                                                      any DAG over the scores, with side
//          matmul --> score --> softmax --> weight --.           inputs: scale, bias, softcap,
//          ALiBi
//     k --'                                           matmul --> epilogue --> y, ...
//                                                v --'
#include <algorithm>

#include "fusion_patterns/growth.hpp"
#include "lower/op_kinds.hpp"
#include "planner/match/pattern.hpp"
#include "planner/rearrange/materialised_operands.hpp"
#include "planner/spec/attention_spec.hpp"
#include "planner/spec/contraction_spec.hpp"
#include "schedule/scheduled_kernel.hpp"

namespace sinter {
namespace {

// A node that sums of rows alone read (dO O of Delta, where gradients are in the graph, too): their
// kernel computes it as it loads what this one has stored. Here its result, most often f32, would
// be written to be read again.
Refusal left_to_reductions(const FusionState& state, const std::vector<NodeId>& nodes, NodeId n) {
  const Graph& g = state.graph();
  std::int64_t apart = 0, here = 0;  // bytes that pass through memory
  for (TensorId t : state.node(n).outputs) {
    if (t < 0) continue;
    const auto& readers = state.consumers(t);
    const bool summed = !g[t].output && !readers.empty() &&
                        std::all_of(readers.begin(), readers.end(), [&](NodeId r) {
                          return state.node(r).op == OpKind::reduction && state.free(r) &&
                                 count(g[state.node(r).outputs[0]].dim) > 1;
                        });
    if (!summed) return {};
    here += 2 * state.bytes(t);
  }
  for (TensorId t : state.node(n).inputs)
    if (const NodeId p = t >= 0 ? state.producer(t) : -1; p >= 0 && contains(nodes, p)) {
      const bool stored = leaves(state, t, [&](NodeId r) { return r == n || contains(nodes, r); });
      apart += state.bytes(t) * (stored ? 1 : 2);
    }
  if (here < apart) return {};
  return "the sum that reads it takes it, which then reads what this kernel stores";
}

class AttentionPattern final : public Pattern {
 public:
  std::string_view name() const override { return "attention"; }

  bool anchors(const FusionState& state, NodeId n) const override {
    if (state.node(n).op != OpKind::matmul) return false;
    const auto attention = attention_at(state, n, can_run_attention);
    return attention && all_free(state, *attention) &&
           fits(state, *attention, nodes_of(*attention));
  }

  std::optional<Match> propose(FusionState& state, NodeId anchor, bool explain) const override {
    const auto attention = attention_at(state, anchor, can_run_attention);
    if (!attention || !all_free(state, *attention)) return {};
    Match m{nodes_of(*attention), anchor, 0};
    add_epilogue(state, *attention, m, explain);
    if (!fits(state, *attention, m.nodes)) m.nodes = nodes_of(*attention);
    m.saved_bytes = saved_bytes(state, m.nodes);
    return m;
  }

  std::vector<KernelSpec> lower(const FusionState& state, const Match& m) const override {
    const auto attention = attention_at(state, m.anchor, can_run_attention);
    return {attention_spec(state, *attention, m.nodes)};
  }

 private:
  static bool all_free(const FusionState& state, const AttentionNodes& a) {
    const std::vector<NodeId> nodes = nodes_of(a);
    return std::all_of(nodes.begin(), nodes.end(),
                       [&](NodeId n) { return contains(a.views, n) || state.free(n); });
  }

  static bool fits(const FusionState& state, const AttentionNodes& a,
                   const std::vector<NodeId>& nodes) {
    for (NodeId n : nodes)
      if (std::vector<NodeId> others = nodes; std::erase(others, n) && state.makes_cycle(others, n))
        return false;
    return can_run_attention(state, attention_spec(state, a, nodes));
  }

  // The elementwise nodes behind the second product, and those that are for these alone (a gate).
  void add_epilogue(FusionState& state, const AttentionNodes& a, Match& m, bool explain) const {
    const std::vector<NodeId> own = nodes_of(a);
    const Dims domain = without_leading_ones(state.graph()[state.node(m.anchor).outputs[0]].dim);
    grow(state, m.nodes, {.pattern = name(), .explain = explain}, [&](NodeId other) -> Refusal {
      const Node& n = state.node(other);
      if (reads_from_memory(n.op) || n.op == OpKind::concatenate) return refuse_product(n.op);
      // Of what this kernel computes only the products are in registers there; Stats are stored.
      for (TensorId t : n.inputs)
        if (const NodeId p = t >= 0 ? state.producer(t) : -1;
            p >= 0 && p != a.second && contains(own, p))
          return {"it reads another result of the attention than O",
                  "compute it from O, which the kernel has at hand"};
      // One number of all results (amax), which the next kernel finishes.
      if (n.op == OpKind::reduction) {
        if (count(state.graph()[n.outputs[0]].dim) != 1 || a.offsets_q >= 0)
          return "it is a reduction to more than one number";
        if (Refusal r = reduction_refuses(state, m.nodes, m.anchor, other); !r.why.empty())
          return r;
      }
      for (TensorId t : n.inputs)
        if (const NodeId p = t >= 0 ? state.producer(t) : -1; p >= 0 && contains(m.nodes, p) &&
                                                              !contains(own, p) &&
                                                              state.node(p).op == OpKind::reduction)
          return {"it needs a total, which the kernel's end completes",
                  "take the total of the call before, as an input"};
      const auto of_epilogue = [&](NodeId p) { return contains(m.nodes, p) && !contains(own, p); };
      const bool behind = std::any_of(n.inputs.begin(), n.inputs.end(), [&](TensorId t) {
        const NodeId p = t >= 0 ? state.producer(t) : -1;
        return p == a.second || (p >= 0 && of_epilogue(p));
      });
      const bool beside = std::all_of(n.outputs.begin(), n.outputs.end(), [&](TensorId t) {
        if (t < 0 || state.graph()[t].output) return t < 0;
        const auto& readers = state.consumers(t);
        return std::all_of(readers.begin(), readers.end(), of_epilogue);
      });
      if (!behind && !beside)
        return {"it is not behind the products", "let what is behind them be all that reads it"};
      if (n.op == OpKind::reduction) return {};
      if (Refusal r = refuse_other_domain(state, other, domain); !r.why.empty()) return r;
      return left_to_reductions(state, m.nodes, other);
    });
  }
};

}  // namespace

std::span<const Pattern* const> attention_patterns() {
  static const AttentionPattern pattern;
  static const Pattern* const all[] = {&pattern};
  return all;
}

}  // namespace sinter
