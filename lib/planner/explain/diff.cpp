#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "planner/explain/explain.hpp"

namespace sinter {
namespace {

// What two plans have for the same nodes, in the order of the kernels.
struct Pair {
  std::vector<std::string> nodes;
  std::vector<const PlanKernel*> before, after;
};

double total(const std::vector<const PlanKernel*>& kernels) {
  double us = 0;
  for (const auto* k : kernels) us += k->microseconds;
  return us;
}

std::vector<Pair> pairs_of(const PlanData& before, const PlanData& after) {
  std::vector<Pair> pairs;
  for (const bool second : {false, true})
    for (const auto& k : (second ? after : before).kernels) {
      auto at = std::find_if(pairs.begin(), pairs.end(),
                             [&](const Pair& p) { return p.nodes == k.nodes; });
      if (at == pairs.end()) at = pairs.insert(pairs.end(), Pair{k.nodes, {}, {}});
      (second ? at->after : at->before).push_back(&k);
    }
  return pairs;
}

bool same(const PlanKernel& a, const PlanKernel& b) {
  return a.family == b.family && a.config == b.config && a.grid == b.grid && a.block == b.block;
}

std::string side(const std::vector<const PlanKernel*>& kernels) {
  if (kernels.empty()) return "-";
  std::vector<std::string> families;
  for (const auto* k : kernels) families.emplace_back(name(k->family));
  return fmt::format("{} ({:.1f} us)", listed(families, 3), total(kernels));
}

std::string plan_line(std::string_view which, const PlanData& p) {
  const Explanation e = explain(p, nullptr);
  return fmt::format("{:<7} {}: {} kernels, {:.1f} us estimated for {}, {} moved, workspace {}\n",
                     which, p.architecture.empty() ? "every GPU" : p.architecture, p.kernels.size(),
                     e.microseconds, e.device, megabytes(e.bytes), megabytes(p.workspace_bytes));
}

}  // namespace

std::string explain_diff(const PlanData& before, const PlanData& after) {
  std::string s = plan_line("before", before) + plan_line("after", after);
  auto pairs = pairs_of(before, after);
  const auto change = [](const Pair& p) { return total(p.after) - total(p.before); };
  std::stable_sort(pairs.begin(), pairs.end(), [&](const Pair& a, const Pair& b) {
    return std::abs(change(a)) > std::abs(change(b));
  });
  std::size_t unchanged = 0;
  for (const auto& p : pairs) {
    if (std::equal(p.before.begin(), p.before.end(), p.after.begin(), p.after.end(),
                   [](const auto* a, const auto* b) { return same(*a, *b); })) {
      ++unchanged;
      continue;
    }
    s += fmt::format("  {:>+8.1f} us  {}: {} -> {}\n", change(p), listed(p.nodes, 6),
                     side(p.before), side(p.after));
  }
  return s + fmt::format("  unchanged: the kernels of {} sets of nodes\n", unchanged);
}

}  // namespace sinter
