// Memory that is written and bound a second time. What each tensor spans is sorted by address and
// swept once; where spans meet, gaps between strided elements may still keep the tensors apart.
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "runtime/bindings.hpp"

namespace sinter {
namespace {

// What a tensor spans, or the workspace (index -1).
struct Span {
  std::uintptr_t begin = 0, end = 0;
  std::int32_t index = -1;
  bool written = true;
};

constexpr std::size_t kSpansOnStack = 512;

// Elements as runs of bytes without gaps, `step` from one to the next; a step of 0 is a single run.
// Not regular: gaps of several sizes.
struct Runs {
  std::uint64_t bytes = 0, step = 0;
  bool regular = true;
};

Runs runs_of(const PlanTensor& t) {
  Runs runs{static_cast<std::uint64_t>(info(t.type).bytes)};
  Dims order;  // dims by stride
  for (int i = 0; i < t.dim.size(); ++i)
    if (t.dim[i] > 1 && t.stride[i] > 0) {
      int at = 0;
      while (at < order.size() && t.stride[static_cast<int>(order[at])] < t.stride[i]) ++at;
      order.insert(at, i);
    }
  std::uint64_t next = runs.bytes;  // the stride that continues what there is
  for (auto i : order) {
    const int dim = static_cast<int>(i);
    const auto step =
        static_cast<std::uint64_t>(t.stride[dim]) * static_cast<std::uint64_t>(info(t.type).bytes);
    const auto extent = static_cast<std::uint64_t>(t.dim[dim]);
    if (step == next && runs.step == 0) {
      runs.bytes *= extent;
    } else if (runs.step == 0 && step > next) {
      runs.step = step;
    } else if (step != next) {
      runs.regular = false;
    }
    next = step * extent;
  }
  return runs;
}

// Of tensors whose spans meet: whether they may have no byte in common. Runs of one step that do
// not meet modulo the step are apart, such as columns of one matrix; of gaps that differ nothing is
// claimed, and no call refused.
bool may_be_apart(std::span<const PlanTensor> tensors, const Span& a, const Span& b) {
  if (a.index < 0 || b.index < 0) return false;
  const Runs x = runs_of(tensors[static_cast<std::size_t>(a.index)]),
             y = runs_of(tensors[static_cast<std::size_t>(b.index)]);
  if (!x.regular || !y.regular) return true;
  if (x.step == 0 && y.step == 0) return false;
  if (x.step != 0 && y.step != 0 && x.step != y.step) return true;
  const std::uint64_t step = std::max(x.step, y.step);
  if (x.bytes > step || y.bytes > step) return false;
  const bool a_first = a.begin <= b.begin;
  const Runs &first = a_first ? x : y, &second = a_first ? y : x;
  const std::uint64_t from = (std::max(a.begin, b.begin) - std::min(a.begin, b.begin)) % step;
  return from >= first.bytes && from + second.bytes <= step;
}

Diagnostic overlap_of(std::span<const PlanTensor> tensors, const Span& a, const Span& b) {
  const auto name = [&](const Span& s) -> const std::string& {
    return tensors[static_cast<std::size_t>(s.index)].name;
  };
  if (a.index < 0 || b.index < 0)
    return {.rule = Rule::workspace_overlap,
            .attribute = "the workspace",
            .seen = fmt::format("memory of '{}'", name(a.index < 0 ? b : a))};
  // The output, where one is an input that is written in place.
  const bool first = tensors[static_cast<std::size_t>(a.index)].written || !b.written;
  const Span &written = first ? a : b, &other = first ? b : a;
  return {
      .rule = Rule::binding_overlap,
      .tensor = name(written),
      .seen = fmt::format("bytes {} to {} of '{}' in it", std::max(a.begin, b.begin) - other.begin,
                          std::min(a.end, b.end) - other.begin - 1, name(other)),
      .allowed = "memory of its own",
      .fix = tensors[static_cast<std::size_t>(written.index)].alias >= 0
                 ? "bind exactly the memory of the input that it is an alias of"
                 : "or declare it an alias of the input in the graph"};
}

// The spans of what is bound, in the order of the tensors; returns how many there are.
std::size_t spans_of(std::span<const PlanTensor> tensors, std::span<void* const> pointers,
                     Workspace workspace, std::int64_t workspace_bytes, Span* all) {
  std::size_t n = 0;
  const auto add = [&](const void* pointer, std::int64_t bytes, std::int32_t index, bool written) {
    const auto begin = reinterpret_cast<std::uintptr_t>(pointer);
    if (bytes > 0 && pointer)
      all[n++] = {begin, begin + static_cast<std::uintptr_t>(bytes), index, written};
  };
  add(workspace.pointer, workspace_bytes, -1, true);
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const PlanTensor& t = tensors[i];
    // Of an output in its input's place the input stands for both.
    const bool in_place =
        t.alias >= 0 && pointers[i] == pointers[static_cast<std::size_t>(t.alias)];
    if (!t.by_value && !in_place)
      add(pointers[i], t.bytes, static_cast<std::int32_t>(i), t.written);
    if (!in_place) continue;
    Span* const input = std::lower_bound(
        all, all + n, t.alias, [](const Span& a, std::int64_t at) { return a.index < at; });
    if (input != all + n && input->index == t.alias) input->written = true;
  }
  return n;
}

}  // namespace

Status check_overlaps(std::span<const PlanTensor> tensors, std::span<void* const> pointers,
                      Workspace workspace, std::int64_t workspace_bytes) {
  std::array<Span, kSpansOnStack> few;
  static thread_local std::vector<Span> many;  // for very large graphs
  const bool large = tensors.size() + 1 > few.size();
  if (large && many.size() <= tensors.size()) many.resize(tensors.size() + 1);
  Span* const all = large ? many.data() : few.data();
  const std::size_t n = spans_of(tensors, pointers, workspace, workspace_bytes, all);
  std::sort(all, all + n, [](const Span& a, const Span& b) { return a.begin < b.begin; });
  // How far those before reach, and those of them that are written.
  std::uintptr_t furthest = 0, written = 0;
  for (std::size_t i = 0; i < n; ++i) {
    const Span& t = all[i];
    if ((t.written ? furthest : written) > t.begin)
      for (std::size_t k = 0; k < i; ++k)
        if (all[k].end > t.begin && (t.written || all[k].written) &&
            !may_be_apart(tensors, all[k], t))
          return overlap_of(tensors, all[k], t);
    furthest = std::max(furthest, t.end);
    if (t.written) written = std::max(written, t.end);
  }
  return Done{};
}

}  // namespace sinter
