//     q, k -> [ matmul ] -> sums -> scale, bias, masks -> score
//     score -> max -> x - max -> exp -> sum -> exp / sum -> probabilities -> dropout -> weight
//     weight, v -> [ matmul ]
#include "planner/spec/attention_by_hand.hpp"

#include <algorithm>
#include <map>
#include <set>

#include "planner/match/index_mask.hpp"
#include "planner/match/pattern.hpp"

namespace sinter {
namespace {

using M = PointwiseMode;

class Search {
 public:
  Search(const FusionState& state, NodeId second) : state_(state), g_(state.graph()) {
    a_.second = second;
    a_.weight = state.node(second).inputs[0];
  }

  std::optional<AttentionNodes> run() {
    if (!pointwise(a_.weight)) return {};
    look_behind(a_.weight);
    if (products_.empty() || behind_.size() >= kMaxKernelNodes) return {};
    for (NodeId n : behind_)
      if (state_.node(n).op == OpKind::reduction && softmax(n)) {
        // Scores may have other products in them: those are read.
        std::sort(products_.begin(), products_.end(), std::greater<>());
        for (NodeId first : products_)
          if (auto found = between(first)) return found;
      }
    return {};
  }

 private:
  const PointwiseAttributes* pointwise(TensorId t) const {
    const NodeId p = t >= 0 ? g_[t].producer : -1;
    return p >= 0 ? std::get_if<PointwiseAttributes>(&state_.node(p).attributes) : nullptr;
  }
  bool made_by(TensorId t, M mode) const {
    const auto* const p = pointwise(t);
    return p && p->mode == mode;
  }
  TensorId input(TensorId t, std::size_t i) const { return state_.node(g_[t].producer).inputs[i]; }
  bool is_value(TensorId t, double value) const {
    return t >= 0 && g_[t].has_value && g_[t].value == value;
  }
  bool in_f32(TensorId t) const {
    return g_.arithmetic(state_.node(g_[t].producer)) == DataType::f32;
  }
  // Which kernels do not round; f32 is what they compute in.
  bool is_f32(TensorId t) const { return g_.type(t) == DataType::f32; }
  // A reader of `t` of this mode, whose result it is.
  template <class Fits>
  TensorId reader(TensorId t, M mode, const Fits& fits) const {
    for (NodeId n : state_.consumers(t)) {
      const auto* const p = std::get_if<PointwiseAttributes>(&state_.node(n).attributes);
      const TensorId y = state_.node(n).outputs[0];
      if (p && p->mode == mode && in_f32(y) && fits(state_.node(n))) return y;
    }
    return kNoTensor;
  }

  // What `t` is made of element by element or by reductions, up to products and to what is read.
  void look_behind(TensorId t) {
    const NodeId p = t >= 0 ? g_[t].producer : -1;
    if (p < 0 || behind_.size() >= kMaxKernelNodes || contains(behind_, p)) return;
    const OpKind op = state_.node(p).op;
    if (op == OpKind::matmul && !contains(products_, p)) products_.push_back(p);
    if (op != OpKind::reduction && !is_elementwise(state_, p)) return;
    behind_.push_back(p);
    for (TensorId x : state_.operands(p)) look_behind(x);
  }

  bool is_row_of(TensorId row, TensorId x) const {
    Dims d = g_[x].dim;
    if (d.empty()) return false;
    d.back() = 1;
    return g_[row].dim == d && is_f32(row);
  }
  // What takes part in each row's softmax besides its scores: `t` without the views of one number
  // a head that rows broadcast and conversions that lose nothing.
  TensorId without_copies(TensorId t) const {
    while (made_by(t, M::identity) && !g_[t].output && holds(g_.type(t), g_.type(input(t, 0))) &&
           fits_f32(g_.type(input(t, 0))))
      t = input(t, 0);
    return t;
  }
  // `t` is max(row, s) of a row and another number s of each row, which becomes the sink; the row.
  TensorId without_sink(TensorId t) {
    if (!made_by(t, M::max) || !is_f32(t) || !in_f32(t)) return t;
    for (std::size_t side : {0u, 1u}) {
      const TensorId row = input(t, side), s = input(t, 1 - side);
      const NodeId p = row >= 0 ? g_[row].producer : -1;
      const auto* const r =
          p >= 0 ? std::get_if<ReductionAttributes>(&state_.node(p).attributes) : nullptr;
      if (!r || r->mode != ReductionMode::max || g_[row].dim != g_[t].dim) continue;
      sink_ = s;
      return row;
    }
    return t;
  }
  // Whether `t` is exp(sink - shift).
  bool is_weight_of_sink(TensorId t, TensorId shift) const {
    if (sink_ < 0 || !made_by(t, M::exp) || !is_f32(t)) return false;
    const TensorId x = input(t, 0);
    if (!is_f32(x)) return false;
    if (made_by(x, M::neg)) return is_value(sink_, 0) && input(x, 0) == shift;
    return made_by(x, M::sub) && input(x, 1) == shift &&
           without_copies(input(x, 0)) == without_copies(sink_);
  }
  // `t` is x, or select(x == when, otherwise, x) with that equality masking it.
  bool guarded(TensorId t, TensorId x, double when, double otherwise) const {
    if (!made_by(t, M::binary_select) || input(t, 1) != x || !is_value(input(t, 0), otherwise))
      return false;
    const TensorId c = input(t, 2);
    return made_by(c, M::cmp_eq) && holds_zero(g_.type(c)) && input(c, 0) == x &&
           is_value(input(c, 1), when);
  }

  // From the maximum of each row on.
  bool softmax(NodeId maximum) {
    const Node& n = state_.node(maximum);
    if (std::get<ReductionAttributes>(n.attributes).mode != ReductionMode::max) return false;
    const TensorId x = n.inputs[0], largest = n.outputs[0];
    if (!is_row_of(largest, x) || g_.arithmetic(n) != DataType::f32) return false;
    bool guards_shift = false, guards_sum = false;
    sink_ = kNoTensor;
    const TensorId shifted = reader(x, M::sub, [&](const Node& sub) {
      const TensorId shift = sub.inputs[1];
      if (sub.inputs[0] != x) return false;
      guards_shift = guarded(shift, largest, -kInfinity, 0);
      return shift == largest || guards_shift || without_sink(shift) == largest;
    });
    if (shifted < 0 || !is_f32(shifted)) return false;
    const TensorId e = reader(shifted, M::exp, [](const Node&) { return true; });
    TensorId total = e < 0 || !is_f32(e) ? kNoTensor : sum_of(e);
    if (total < 0) return false;
    if (sink_ >= 0)
      total = reader(total, M::add, [&](const Node& n) {
        const TensorId of_sink = n.inputs[n.inputs[0] == total ? 1 : 0];
        return is_f32(n.outputs[0]) && is_weight_of_sink(of_sink, input(shifted, 1));
      });
    if (total < 0) return false;
    const auto divides = [&](TensorId by) {
      guards_sum = guarded(by, total, 0, 1);
      return by == total || guards_sum;
    };
    TensorId p = reader(e, M::div, [&](const Node& node) {
      return node.inputs[0] == e && divides(node.inputs[1]);
    });
    if (p < 0)
      p = reader(e, M::mul, [&](const Node& node) {
        const TensorId other = node.inputs[node.inputs[0] == e ? 1 : 0];
        return other != e && made_by(other, M::reciprocal) && is_f32(other) &&
               divides(input(other, 0));
      });
    if (p < 0) return false;
    a_.score = score_ = x;
    a_.probabilities = p;
    a_.written_out = !(guards_shift && guards_sum);
    if (sink_ < 0 && guards_shift == guards_sum) {
      shift_ = input(shifted, 1), total_ = total;
      find_stats(largest, shift_, total);
    }
    return true;
  }
  TensorId sum_of(TensorId e) const {
    for (NodeId n : state_.consumers(e)) {
      const auto* const r = std::get_if<ReductionAttributes>(&state_.node(n).attributes);
      const TensorId y = state_.node(n).outputs[0];
      if (r && r->mode == ReductionMode::add && is_row_of(y, e) && in_f32(y)) return y;
    }
    return kNoTensor;
  }
  // shift + log(sum), which a softmax node guards by select(max - max == 0, .., max).
  void find_stats(TensorId largest, TensorId shift, TensorId total) {
    const TensorId log = reader(total, M::log, [](const Node&) { return true; });
    if (log < 0) return;
    const TensorId sum = reader(
        log, M::add, [&](const Node& n) { return n.inputs[0] == shift || n.inputs[1] == shift; });
    if (sum < 0 || !a_.written_out) {
      a_.stats = sum;
      return;
    }
    const TensorId guarded_sum = reader(sum, M::binary_select, [&](const Node& n) {
      const TensorId c = n.inputs[2];
      if (n.inputs[0] != sum || n.inputs[1] != largest) return false;
      if (!made_by(c, M::cmp_eq) || !holds_zero(g_.type(c)) || !is_value(input(c, 1), 0))
        return false;
      const TensorId d = input(c, 0);
      return made_by(d, M::sub) && input(d, 0) == largest && input(d, 1) == largest;
    });
    a_.adds_stats = guarded_sum < 0 && shift == largest && is_f32(sum);
    a_.stats = a_.adds_stats ? sum : guarded_sum;
  }

  // Whether regions of gradients read the largest score and the sum of exponentials
  // (AttentionSpec::largest), and nothing else does but this softmax and shift + log(sum), which is
  // the same of any largest: the kernel's own need not be that of all scores.
  bool gradients_read_totals() const {
    if (total_ < 0 || !is_f32(shift_)) return false;
    bool read = false;
    for (TensorId t : {shift_, total_}) {
      if (g_[t].output) return false;
      for (NodeId n : state_.consumers(t)) {
        if (contains(behind_, n) || makes_stats(n)) continue;
        const Region* const r = state_.region_of(n);
        if (!r || !r->written_out) return false;
        read = true;
      }
    }
    return read;
  }

  // Whether a node makes a_.stats, or the logarithm that nothing else reads.
  bool makes_stats(NodeId n) const {
    if (a_.stats < 0) return false;
    const NodeId sum = g_[a_.stats].producer;
    const TensorId y = state_.node(n).outputs[0];
    return n == sum ||
           (made_by(y, M::log) && !g_[y].output && state_.consumers(y) == std::vector<NodeId>{sum});
  }

  // With `first` as the product of q and k.
  std::optional<AttentionNodes> between(NodeId first) const {
    AttentionNodes a = a_;
    a.first = first;
    a.sums = state_.node(first).outputs[0];
    if (g_[a.sums].dim != g_[a.score].dim || g_[a.sums].dim.size() < 2) return {};
    // What depends on the sums, of what makes the weights and the statistics.
    std::vector<NodeId> all = behind_;
    if (gradients_read_totals()) {
      a.stats = kNoTensor;
      a.largest = shift_, a.total = total_;
    }
    if (a.stats >= 0) {
      Search of_stats(state_, a.second);
      of_stats.look_behind(a.stats);
      for (NodeId n : of_stats.behind_)
        if (!contains(all, n)) all.push_back(n);
    }
    std::sort(all.begin(), all.end());
    std::vector<NodeId> others;
    a.nodes = {first};
    for (NodeId n : all) {
      const auto inputs = state_.operands(n);
      const bool depends = std::any_of(inputs.begin(), inputs.end(), [&](TensorId t) {
        return t >= 0 && g_[t].producer >= 0 && contains(a.nodes, g_[t].producer);
      });
      (depends ? a.nodes : others).push_back(n);
    }
    if (!contains(a.nodes, g_[a.weight].producer)) return {};
    a.nodes.push_back(a.second);
    add_masks(a, others);
    if (!add_sink(a)) return {};
    a.score = score_;
    take_index_masks(state_, a);
    if (!a.band.bounded() && a.mask.condition < 0) {
      AttentionBand band = a.band;
      const TensorId x = without_number_mask(state_, a.score, band);
      if (!band.hidden || may_hide_by_number(a, x)) a.score = x, a.band = band;
    }
    const bool bounded = a.band.bounded();
    a.zero_dominates =
        bounded || std::get<MatmulAttributes>(state_.node(a.second).attributes).zero_dominates;
    const DataType type = attention_operand_type(state_, state_.node(a.second).inputs[1]);
    if (attention_operand_type(state_, a.weight) != type) return {};
    // The kernel rounds weights to this type in any case.
    a.rounds_weights = g_.type(a.weight) == type;
    if (!is_f32(a.weight) && !a.rounds_weights) return {};
    while (a.weight != a.probabilities && made_by(a.weight, M::identity) &&
           is_f32(input(a.weight, 0)))
      a.weight = input(a.weight, 0);
    const TensorId whole_score = a.mask.condition >= 0 ? a.masked_score : a.score;
    if (!is_body(a, a.sums, whole_score) || !scales_weight(a, a.weight)) return {};
    return is_attention(state_, a) ? std::optional(a) : std::nullopt;
  }

  // The sink, of which the kernel reads one number a row, and what only copies it.
  bool add_sink(AttentionNodes& a) const {
    if (sink_ < 0) return true;
    const TensorId t = without_copies(sink_);
    if (g_[t].has_value && (g_[t].bound_value || !is_f32(t))) return false;
    const NodeId p = g_[t].producer;
    if (p >= 0 && (contains(a.nodes, p) || state_.recomputed(p))) return false;
    for (TensorId copy = sink_; copy != t; copy = input(copy, 0)) {
      const NodeId n = g_[copy].producer;
      if (!contains(a.nodes, n) && !state_.no_kernel(n) && !state_.needed_outside(copy, a.nodes))
        a.nodes.push_back(n);
    }
    a.sink = t;
    return true;
  }

  // Whether a large number may mask `x` as a band. Rows whose scores are not far above it are taken
  // again, one by one: none is where scores are made of the sums alone, but masks from memory may
  // be as large. With few rows, parts of the keys are summed apart.
  bool may_hide_by_number(const AttentionNodes& a, TensorId x) const {
    constexpr std::int64_t kFewRows = 64;
    const Dims& dim = g_[a.sums].dim;
    return dim[dim.size() - 2] > kFewRows && reads_nothing(a, x);
  }
  bool reads_nothing(const AttentionNodes& a, TensorId x) const {
    return all_behind(x, [&](TensorId t) {
      const auto* const at = pointwise(t);
      if (t == a.sums || g_[t].has_value || (at && at->mode == M::gen_index)) return Look::yes;
      return by_elements(t) ? Look::further : Look::no;
    });
  }

  enum class Look { yes, no, further };
  // Whether at() says no of nothing that `until` is made of: it looks at each tensor once, and
  // where it says so at the inputs of the node that makes it.
  template <class At>
  bool all_behind(TensorId until, const At& at) const {
    std::vector<TensorId> left;
    std::set<TensorId> seen{kNoTensor};
    if (seen.insert(until).second) left.push_back(until);
    for (std::size_t i = 0; i < left.size(); ++i) {
      const Look look = at(left[i]);
      if (look == Look::no) return false;
      if (look == Look::further)
        for (TensorId t : state_.operands(g_[left[i]].producer))
          if (seen.insert(t).second) left.push_back(t);
    }
    return true;
  }
  bool by_elements(TensorId t) const {
    const NodeId p = g_[t].producer;
    return p >= 0 && is_elementwise(state_, p);
  }

  // Whether `t` is a multiple of the probabilities by numbers that do not depend on them, apart
  // from roundings, which see them divided by their row's sum: then it is zero where they are, and
  // may else be made of weights before that division.
  bool scales_weight(AttentionNodes& a, TensorId t) const {
    std::map<TensorId, bool> known;
    return scales_weight(a, t, known);
  }
  bool scales_weight(AttentionNodes& a, TensorId t, std::map<TensorId, bool>& known) const {
    const auto [it, fresh] = known.try_emplace(t, false);
    if (fresh) it->second = is_multiple(a, t, known);
    return it->second;
  }
  bool is_multiple(AttentionNodes& a, TensorId t, std::map<TensorId, bool>& known) const {
    if (!is_f32(t)) a.rounds_weights = true;
    if (t == a.probabilities) return true;
    if (!by_elements(t)) return false;
    const auto scaled = [&](std::size_t i) {
      const TensorId x = input(t, i);
      return depends_on(x, a.probabilities) && scales_weight(a, x, known);
    };
    const auto apart = [&](std::size_t i) {
      const TensorId x = input(t, i);
      return !depends_on(x, a.probabilities) && is_body(a, a.probabilities, x);
    };
    const auto zero_or_scaled = [&](std::size_t i) {
      return is_value(input(t, i), 0) || scaled(i);
    };
    if (made_by(t, M::identity) || made_by(t, M::neg)) return scaled(0);
    if (made_by(t, M::mul)) return (scaled(0) && apart(1)) || (apart(0) && scaled(1));
    if (made_by(t, M::div)) return scaled(0) && apart(1);
    if (made_by(t, M::add) || made_by(t, M::sub)) return scaled(0) && scaled(1);
    if (made_by(t, M::binary_select)) return zero_or_scaled(0) && zero_or_scaled(1) && apart(2);
    return false;
  }
  bool depends_on(TensorId x, TensorId on) const {
    return !all_behind(x, [&](TensorId t) {
      if (t == on) return Look::no;
      return by_elements(t) ? Look::further : Look::yes;
    });
  }

  // Whether elementwise nodes alone make `until`, of `from` and of what is read.
  bool is_body(const AttentionNodes& a, TensorId from, TensorId until) const {
    return all_behind(until, [&](TensorId t) {
      const NodeId p = g_[t].producer;
      if (t == from || p < 0 || !(contains(a.nodes, p) || state_.recomputed(p))) return Look::yes;
      return is_elementwise(state_, p) ? Look::further : Look::no;
    });
  }

  // Whether a node reads it by places of its own, or as the seed of random numbers, which takes
  // memory.
  bool takes_memory(TensorId t) const {
    return std::ranges::any_of(state_.consumers(t), [&](NodeId n) {
      const OpKind op = state_.node(n).op;
      return op == OpKind::block_mask || op == OpKind::page_gather || op == OpKind::rng;
    });
  }

  // Adds what is made for the scores alone of far less than they are: masks and biases, rather than
  // have them in memory. In a row of [.., columns] it stays a kernel of its own.
  void add_masks(AttentionNodes& a, const std::vector<NodeId>& others) const {
    constexpr std::int64_t kExpands = 8;
    std::vector<std::int64_t> read;  // elements, by place in `others`
    for (NodeId n : others) {
      std::int64_t elements = 0;
      for (TensorId t : state_.operands(n)) {
        if (t < 0 || g_[t].has_value) continue;
        const auto p = std::find(others.begin(), others.end(), g_[t].producer);
        elements += p == others.end() ? count(g_[t].dim)
                                      : read[static_cast<std::size_t>(p - others.begin())];
      }
      read.push_back(elements);
    }
    for (std::size_t i = others.size(); i-- > 0;) {
      const NodeId n = others[i];
      const TensorId t = state_.node(n).outputs[0];
      if (state_.no_kernel(n) || state_.node(n).op == OpKind::reduction ||
          state_.needed_outside(t, a.nodes) || takes_memory(t))
        continue;
      if (g_[t].dim == g_[a.sums].dim || count(g_[t].dim) >= kExpands * read[i])
        a.nodes.push_back(n);
    }
  }

  const FusionState& state_;
  const Graph& g_;
  AttentionNodes a_;
  TensorId score_ = kNoTensor, sink_ = kNoTensor, shift_ = kNoTensor, total_ = kNoTensor;
  std::vector<NodeId> behind_, products_;
};

}  // namespace

std::optional<AttentionNodes> attention_by_hand(const FusionState& state, NodeId second) {
  return state.node(second).op == OpKind::matmul ? Search(state, second).run() : std::nullopt;
}

}  // namespace sinter
