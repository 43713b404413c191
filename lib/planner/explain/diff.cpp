#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "planner/explain/explain.hpp"

namespace sinter {
namespace {

using Kernels = std::vector<int>;

double total(const PlanData& p, const Kernels& kernels) {
  double us = 0;
  for (const int k : kernels) us += p.kernels[static_cast<std::size_t>(k)].microseconds;
  return us;
}

// What two plans have for the same nodes, in the order of the kernels.
std::vector<Change> pairs_of(const PlanData& before, const PlanData& after) {
  std::vector<Change> pairs;
  std::map<std::vector<std::string>, std::size_t> at;
  for (const bool second : {false, true}) {
    const auto& kernels = (second ? after : before).kernels;
    for (std::size_t k = 0; k < kernels.size(); ++k) {
      const auto [found, made] = at.try_emplace(kernels[k].nodes, pairs.size());
      if (made) pairs.push_back({kernels[k].nodes, {}, {}});
      Change& pair = pairs[found->second];
      (second ? pair.after : pair.before).push_back(static_cast<int>(k));
    }
  }
  return pairs;
}

bool same(const PlanKernel& a, const PlanKernel& b) {
  return a.family == b.family && a.config == b.config && a.grid == b.grid && a.block == b.block;
}

std::string side(const PlanData& p, const Kernels& kernels) {
  if (kernels.empty()) return "-";
  std::vector<std::string> families;
  for (const int k : kernels)
    families.emplace_back(name(p.kernels[static_cast<std::size_t>(k)].family));
  return fmt::format("{} ({:.1f} us)", listed(families, 3), total(p, kernels));
}

std::string plan_line(std::string_view which, const PlanData& p) {
  const Explanation e = explain(p, nullptr);
  return fmt::format("{:<7} {}: {} kernel{}, {:.1f} us estimated for {}, {} moved, workspace {}\n",
                     which, p.architecture.empty() ? "every GPU" : p.architecture, p.kernels.size(),
                     p.kernels.size() == 1 ? "" : "s", e.microseconds, e.device, megabytes(e.bytes),
                     megabytes(p.workspace_bytes));
}

}  // namespace

Changes changes(const PlanData& before, const PlanData& after) {
  Changes all;
  const auto kernel = [](const PlanData& p, int k) -> const PlanKernel& {
    return p.kernels[static_cast<std::size_t>(k)];
  };
  for (Change& c : pairs_of(before, after)) {
    if (std::equal(c.before.begin(), c.before.end(), c.after.begin(), c.after.end(),
                   [&](int a, int b) { return same(kernel(before, a), kernel(after, b)); })) {
      ++all.unchanged;
      continue;
    }
    c.microseconds = total(after, c.after) - total(before, c.before);
    all.changes.push_back(std::move(c));
  }
  std::stable_sort(all.changes.begin(), all.changes.end(), [](const Change& a, const Change& b) {
    return std::abs(a.microseconds) > std::abs(b.microseconds);
  });
  return all;
}

std::string explain_diff(const PlanData& before, const PlanData& after) {
  std::string s = plan_line("before", before) + plan_line("after", after);
  const Changes all = changes(before, after);
  for (const auto& c : all.changes)
    s += fmt::format("  {:>+8.1f} us  {}: {} -> {}\n", c.microseconds, listed(c.nodes, 6),
                     side(before, c.before), side(after, c.after));
  return s + fmt::format("  unchanged: the kernels of {} sets of nodes\n", all.unchanged);
}

}  // namespace sinter
