#include "planner/rewrite/views.hpp"

#include "fusion_patterns/pattern.hpp"

namespace sinter {
namespace {

// Reshapes only: `operand`, with as many dims as `from`, by groups of dims whose products are the
// same in `from` and `to`. Each group must be there in full or not at all.
std::optional<Dims> reshaped_operand(const Dims& operand, const Dims& from, const Dims& to) {
  Dims result;
  int i = 0, j = 0;
  while (i < from.size() || j < to.size()) {
    std::int64_t have = 1, want = 1;
    bool whole = true, none = true;
    const auto take = [&] {
      have *= from[i];
      whole = whole && operand[i] == from[i];
      none = none && operand[i] == 1;
      ++i;
    };
    const int first = j;
    if (i < from.size()) take();
    if (j < to.size()) want *= to[j++];
    while (have != want) {
      if (have < want && i < from.size())
        take();
      else if (want < have && j < to.size())
        want *= to[j++];
      else
        return std::nullopt;
    }
    if (!whole && !none) return std::nullopt;
    for (int d = first; d < j; ++d) result.push_back(whole ? to[d] : 1);
  }
  return result;
}

}  // namespace

View inverse(const View& v) {
  View back{v.op, ReshapeAttributes{v.from}, v.to, v.from};
  if (const auto* a = std::get_if<TransposeAttributes>(&v.attributes)) {
    TransposeAttributes t;
    t.permutation = Dims::filled(a->permutation.size(), 0);
    for (int i = 0; i < a->permutation.size(); ++i)
      t.permutation[static_cast<int>(a->permutation[i])] = i;
    back.attributes = t;
  }
  return back;
}

std::optional<OperandView> operand_view(const View& v, const Dims& operand) {
  const int rank = v.from.size(), skip = rank - operand.size();
  if (skip < 0 || count(v.from) == 0) return std::nullopt;
  OperandView result;
  result.dim = Dims::filled(rank, 1);
  for (int i = 0; i < operand.size(); ++i) result.dim[i + skip] = operand[i];
  View view{v.op, v.attributes, result.dim, {}};
  if (v.op == OpKind::reshape) {
    const auto to = reshaped_operand(result.dim, v.from, v.to);
    if (!to) return std::nullopt;
    view.to = *to;
    view.attributes = ReshapeAttributes{*to};
  } else if (const auto* a = std::get_if<TransposeAttributes>(&v.attributes)) {
    for (auto p : a->permutation) view.to.push_back(result.dim[static_cast<int>(p)]);
  } else {
    SliceAttributes s = *std::get_if<SliceAttributes>(&v.attributes);
    bool cuts = false;
    for (int i = 0; i < rank; ++i) {
      if (result.dim[i] != v.from[i]) {
        s.start[i] = 0;
        s.limit[i] = 1;
        if (!s.step.empty()) s.step[i] = 1;
      }
      const std::int64_t step = s.step.empty() ? 1 : s.step[i];
      view.to.push_back((s.limit[i] - s.start[i] + step - 1) / step);
      cuts = cuts || view.to[i] != result.dim[i];
    }
    result.to = view.to;
    if (!cuts) return result;
    view.attributes = s;
  }
  result.to = view.to;
  // Fewer dims than the result's stay as they are, if they are the last ones.
  const bool broadcasts = operand.size() < rank && operand.size() <= view.to.size() &&
                          without_leading_ones(view.to) == without_leading_ones(operand) &&
                          (v.op == OpKind::reshape || count(operand) == 1);
  const bool same = broadcasts || (v.op == OpKind::reshape && view.to == operand);
  if (!same) result.view = std::move(view);
  return result;
}

std::vector<int> joined_axes(const Dims& x, const Dims& y) {
  std::vector<int> axes;
  int to = 0;
  for (int i = 0; i < x.size(); ++i) {
    while (to < y.size() && y[to] == 1 && x[i] != 1) ++to;
    const bool left_out = x[i] == 1 && (to == y.size() || y[to] != 1);
    const bool two = !left_out && to < y.size() && y[to] > 0 && x[i] != y[to] && i + 1 < x.size() &&
                     x[i] * x[i + 1] == y[to];
    if (!left_out && !two && (to == y.size() || x[i] != y[to])) return {};
    axes.push_back(left_out ? -1 : to);
    if (two) axes.push_back(to), ++i;
    if (!left_out) ++to;
  }
  while (to < y.size() && y[to] == 1) ++to;
  return to == y.size() ? axes : std::vector<int>{};
}

}  // namespace sinter
