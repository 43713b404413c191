#include "planner/rewrite/views.hpp"

#include "planner/memory/storage.hpp"

namespace sinter {
namespace {

// Reshapes only: visits the groups of dims [i, to_i) of `from` and [j, to_j) of `to` whose products
// are the same, while visit() says so; whether there are such, and all visits did.
template <class Visit>
bool each_group(const Dims& from, const Dims& to, const Visit& visit) {
  int i = 0, j = 0;
  while (i < from.size() || j < to.size()) {
    std::int64_t have = 1, want = 1;
    const int first_i = i, first_j = j;
    if (i < from.size()) have *= from[i++];
    if (j < to.size()) want *= to[j++];
    while (have != want) {
      if (have < want && i < from.size())
        have *= from[i++];
      else if (want < have && j < to.size())
        want *= to[j++];
      else
        return false;
    }
    if (!visit(first_i, i, first_j, j)) return false;
  }
  return true;
}

// Reshapes only: `operand`, with as many dims as `from`. Each group must be there in full or not at
// all.
std::optional<Dims> reshaped_operand(const Dims& operand, const Dims& from, const Dims& to) {
  Dims result;
  const bool fits = each_group(from, to, [&](int first_i, int i, int first_j, int j) {
    bool whole = true, none = true;
    for (int d = first_i; d < i; ++d) {
      whole = whole && operand[d] == from[d];
      none = none && operand[d] == 1;
    }
    for (int d = first_j; d < j; ++d) result.push_back(whole ? to[d] : 1);
    return whole || none;
  });
  return fits ? std::optional(result) : std::nullopt;
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

std::optional<Dims> whole_groups(const View& v, const Dims& operand) {
  const int skip = v.from.size() - operand.size();
  if (v.op != OpKind::reshape || skip < 0) return std::nullopt;
  Dims dim = Dims::filled(v.from.size(), 1);
  for (int i = 0; i < operand.size(); ++i) dim[i + skip] = operand[i];
  const bool fits = each_group(v.from, v.to, [&](int first, int end, int, int) {
    bool none = true;
    for (int i = first; i < end; ++i) none = none && dim[i] == 1;
    for (int i = first; i < end && !none; ++i) dim[i] = v.from[i];
    return true;
  });
  return fits ? std::optional(dim) : std::nullopt;
}

int kept_axis(const View& v, int axis) {
  if (const auto* a = std::get_if<TransposeAttributes>(&v.attributes)) {
    for (int i = 0; i < v.to.size(); ++i)
      if (a->permutation[i] == axis) return i;
    return -1;
  }
  if (v.op != OpKind::reshape) return v.from == v.to ? axis : -1;
  std::int64_t before = 1, made = 1;
  for (int i = 0; i < axis; ++i) before *= v.from[i];
  for (int i = 0; i < v.to.size(); made *= v.to[i++])
    if (made == before && v.to[i] == v.from[axis]) return i;
  return -1;
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
