// Rowwise: reductions over the same axes of the same domain with everything elementwise around
// them.
//
//     x ----> prologue ----> reduce ----> per-row values
//      \________________________ \________/
//                               epilogue ----> y       again and again: a second reduction may use
//                                                      what the first one gave (softmax, norms)
//
// Nodes run over the full domain F, or over R: F with the reduced axes 1. Values over F may also be
// reduced down the columns, over the axes that R keeps (the gradients of a norm's scale and bias)
// or some of them (one scale and bias for every image); such a result is complete only when the
// kernel has ended.
//
// Last may come reductions of each segment of a row, the last axis alone of several that the rows
// reduce, and what needs these (a norm whose result is quantised in blocks, a scale for each).
#include "schedule/rowwise/rowwise.hpp"

#include <algorithm>

#include "fusion_patterns/growth.hpp"
#include "lower/op_kinds.hpp"
#include "planner/match/pattern.hpp"
#include "planner/spec/body_builder.hpp"
#include "schedule/rowwise/column_walk.hpp"

namespace sinter {
namespace {

// Rows that a column of its own reduces: fewer are not worth a walk, nor are odd rows.
constexpr std::string_view kRowwise = "rowwise";
constexpr std::int64_t kLeastRows = 16, kMaxKinds = 4096, kWholePacks = 8;

// Whether neighbours in a row are neighbours in memory.
bool rows_are_contiguous(const Location& at, const Dims& full, const Dims& kept) {
  for (int i = full.size() - 1; i >= 0; --i)
    if (full[i] > 1 && at.stride[i] == 1) return full[i] != kept[i];
  return full[full.size() - 1] != kept[full.size() - 1];
}

// Whether a reduction reads what a kernel's nodes make, or one of theirs what it makes.
bool reads_result(const FusionState& state, const std::vector<NodeId>& nodes, NodeId reduction) {
  std::vector<NodeId> behind{reduction};
  for (std::size_t i = 0; i < behind.size(); ++i) {
    if (i > 0 && state.node(behind[i]).op == OpKind::reduction) return true;
    for (NodeId n : state.consumers(state.node(behind[i]).outputs[0]))
      if (contains(nodes, n) && !contains(behind, n)) behind.push_back(n);
  }
  const NodeId p = state.producer(state.node(reduction).inputs[0]);
  return p >= 0 && contains(nodes, p);
}

// The node reduces axes that the rows keep and no others.
bool reduces_columns(const Graph& g, const Node& n, const Dims& full, const Dims& kept) {
  const Dims& from = g[n.inputs[0]].dim;
  const Dims& to = g[n.outputs[0]].dim;
  const int last = full.size() - 1;
  if (from != full || count(kept) < 2) return false;
  std::int64_t kinds = 1;  // of rows: as many results has a column
  for (int i = 0; i <= last; ++i) {
    const bool of_row = full[i] != kept[i];
    if (to[i] != full[i] && (of_row || to[i] != 1)) return false;
    if (!of_row) kinds *= to[i];
  }
  return kinds == 1 || (kinds <= kMaxKinds && count(kept) >= kLeastRows * kinds &&
                        count(full) / count(kept) % kWholePacks == 0);
}

// Whether a kernel's reductions over whole rows and segments follow each other as it runs them, in
// a schedule that has a segment in one warp.
bool segments_fit(const FusionState& state, const std::vector<NodeId>& nodes, NodeId anchor,
                  const Dims& full, const Dims& kept) {
  const Graph& g = state.graph();
  // Values behind a segment's, of a kernel's nodes in the order in which they run.
  std::vector<NodeId> sorted = nodes, behind;
  std::ranges::sort(sorted);
  for (NodeId n : sorted) {
    const Node& node = state.node(n);
    const bool after = std::ranges::any_of(
        node.inputs, [&](TensorId t) { return t >= 0 && contains(behind, state.producer(t)); });
    if (after && node.op == OpKind::reduction) return false;
    if (after || reduces_segments(g, node, full, kept)) behind.push_back(n);
  }
  const KernelSpec spec = rowwise_spec(state, nodes, anchor);
  return spec.rowwise().segment > 0 && holds_segments(schedule_rowwise(spec, state.device()), spec);
}

// The nodes without those behind the reductions that no result of the kernel needs and that other
// kernels go on with, element by element or in a reduction: these can compute them for themselves.
std::vector<NodeId> without_tail(const FusionState& state, const std::vector<NodeId>& nodes,
                                 const Dims& full) {
  const Graph& g = state.graph();
  const auto goes_on = [&](NodeId reader) {
    const Node& n = state.node(reader);
    return (n.op == OpKind::pointwise && left_to_product(state, reader).why.empty()) ||
           (n.op == OpKind::reduction && g[n.inputs[0]].dim == full);
  };
  std::vector<NodeId> kept = nodes, tail;
  const auto is_tail = [&](NodeId n) {
    const Node& node = state.node(n);
    if (node.op != OpKind::pointwise || count(g[node.outputs[0]].dim) != count(full)) return false;
    const auto& readers = state.consumers(node.outputs[0]);
    return g.is_virtual(node.outputs[0]) && !readers.empty() &&
           std::all_of(readers.begin(), readers.end(), [&](NodeId r) {
             return contains(tail, r) || (!contains(nodes, r) && goes_on(r));
           });
  };
  for (bool found = true; found;) {
    found = false;
    for (std::size_t i = kept.size(); i-- > 1;)  // the anchor stays
      if (is_tail(kept[i])) {
        tail.push_back(kept[i]);
        kept.erase(kept.begin() + static_cast<std::ptrdiff_t>(i));
        found = true;
      }
  }
  return kept;
}

class RowwisePattern final : public Pattern {
 public:
  std::string_view name() const override { return kRowwise; }

  bool anchors(const FusionState& state, NodeId n) const override {
    return state.node(n).op == OpKind::reduction;
  }
  // A set that is not full may grow further from another reduction, since the order in which
  // neighbours are asked decides what a cycle keeps out.
  bool same_from(const FusionState& state, const Match& m, NodeId other) const override {
    const Graph& g = state.graph();
    const Node &a = state.node(m.anchor), &b = state.node(other);
    return m.full && g[a.inputs[0]].dim == g[b.inputs[0]].dim &&
           g[a.outputs[0]].dim == g[b.outputs[0]].dim;
  }

  std::optional<Match> propose(FusionState& state, NodeId anchor, bool explain) const override {
    const Graph& g = state.graph();
    const Node& reduction = state.node(anchor);
    const Dims full = g[reduction.inputs[0]].dim, kept = g[reduction.outputs[0]].dim;
    Match m = grown(state, anchor, explain, true);
    const bool segmented = std::ranges::any_of(
        m.nodes, [&](NodeId n) { return reduces_segments(g, state.node(n), full, kept); });
    if (segmented && !segments_fit(state, m.nodes, anchor, full, kept))
      m = grown(state, anchor, explain, false);
    return m;
  }

  std::vector<KernelSpec> lower(const FusionState& state, const Match& m) const override {
    return {rowwise_spec(state, m.nodes, m.anchor)};
  }

 private:
  // The largest set around an anchor, with reductions of segments or without.
  static Match grown(FusionState& state, NodeId anchor, bool explain, bool segments) {
    const Node& reduction = state.node(anchor);
    const Graph& g = state.graph();
    const Dims full = g[reduction.inputs[0]].dim, kept = g[reduction.outputs[0]].dim;
    const Dims full_domain = without_leading_ones(full), row_domain = without_leading_ones(kept);
    Match m{{anchor}, anchor, 0};
    const bool contiguous =
        full.size() > 0 && rows_are_contiguous(state.storage()[reduction.inputs[0]], full, kept);
    // A thread keeps the running results of its columns in registers.
    const std::int64_t most = most_columns(state.device());
    const auto is_column = [&](NodeId n) {
      return contiguous && state.node(n).op == OpKind::reduction &&
             reduces_columns(g, state.node(n), full, kept);
    };
    const auto is_segment = [&](NodeId n) {
      return segments && contiguous && reduces_segments(g, state.node(n), full, kept);
    };
    const Dims segment_domain = without_leading_ones(dims_of_segments(full));
    const auto any = [&](const auto& is) { return std::ranges::any_of(m.nodes, is); };
    m.full = grow(state, m.nodes, {kRowwise, count(full), explain}, [&](NodeId n) -> Refusal {
      const Node& other = state.node(n);
      for (TensorId t : other.inputs) {
        const NodeId p = t >= 0 ? state.producer(t) : -1;
        if (p >= 0 && contains(m.nodes, p) && is_column(p))
          return "it needs a column's total, which the kernel's end completes";
      }
      if (other.op == OpKind::reduction) {
        if (g[other.inputs[0]].dim == full && g[other.outputs[0]].dim == kept) return {};
        if (is_segment(n)) {
          if (any(is_column)) return "the kernel's columns are reduced over all rows";
          return {};
        }
        if (is_column(n)) {
          if (any(is_segment)) return "the kernel reduces segments of its rows";
          for (NodeId c : m.nodes)
            if (is_column(c) && g[state.node(c).outputs[0]].dim != g[other.outputs[0]].dim)
              return {"the kernel's columns are reduced over other rows",
                      "reduce these over the same rows"};
          for (NodeId c : state.consumers(other.outputs[0]))
            if (contains(m.nodes, c)) return "the kernel needs a column's total";
          if (count(full) / count(kept) > most)
            return {"its rows have more than " + std::to_string(most) + " columns",
                    "cut the columns in tensors of no more"};
          return {};
        }
        return {"it reduces " + to_string(g[other.inputs[0]].dim) + " to " +
                    to_string(g[other.outputs[0]].dim) + ", the kernel " + to_string(full) +
                    " to " + to_string(kept),
                explain && reads_result(state, m.nodes, n)
                    ? "give both reductions the same axes, or read this result in a later kernel "
                      "only"
                    : ""};
      }
      if (reads_from_memory(other.op)) return refuse_product(other.op);
      if (Refusal r = left_to_product(state, n); !r.why.empty()) return r;
      if (runs_over(state, n, full_domain)) return {};
      if (any(is_segment) && runs_over(state, n, segment_domain)) return {};
      return refuse_other_domain(state, n, row_domain);
    });
    // What a full kernel has no room for says nothing of who goes on with its results.
    if (!m.full)
      if (std::vector<NodeId> kept = without_tail(state, m.nodes, full);
          kept.size() < m.nodes.size() && state.leaves_tail())
        m.nodes = std::move(kept);
    m.saved_bytes = saved_bytes(state, m.nodes);
    return m;
  }
};

}  // namespace

std::span<const Pattern* const> rowwise_patterns() {
  static const RowwisePattern pattern;
  static const Pattern* const all[] = {&pattern};
  return all;
}

}  // namespace sinter
