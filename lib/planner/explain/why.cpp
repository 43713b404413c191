#include <fmt/format.h>

#include <algorithm>

#include "planner/explain/explain.hpp"

namespace sinter {
namespace {

constexpr std::size_t kMostKernelsNamed = 12;

bool any_in(const std::vector<int>& one, const std::vector<int>& other) {
  return std::any_of(one.begin(), one.end(), [&](int k) {
    return std::find(other.begin(), other.end(), k) != other.end();
  });
}

// The tensors that pass between the kernels.
std::vector<Crossing> passing(const Explanation& e, const std::vector<int>& a,
                              const std::vector<int>& b) {
  std::vector<Crossing> between;
  for (const auto& c : e.crossings)
    if ((any_in(c.writers, a) && any_in(c.readers, b)) ||
        (any_in(c.writers, b) && any_in(c.readers, a)))
      between.push_back(c);
  return between;
}

std::vector<int> taking(const PlanData& p, const std::string& node) {
  std::vector<int> kernels;
  for (std::size_t k = 0; k < p.kernels.size(); ++k)
    if (const auto& nodes = p.kernels[k].nodes; std::ranges::find(nodes, node) != nodes.end())
      kernels.push_back(static_cast<int>(k));
  return kernels;
}

std::string said(const PlanCut& c) {
  std::string s = fmt::format("  {}\n", sentence(c));
  if (!c.fix.empty()) s += fmt::format("    to remove it: {}\n", c.fix);
  return s;
}

}  // namespace

std::vector<int> kernels_with(const PlanData& p, const Graph* graph, const std::string& node) {
  std::vector<int> kernels = taking(p, node);
  if (!kernels.empty() || !graph) return kernels;
  const auto again = computed_again(p, *graph);
  for (std::size_t k = 0; k < again.size(); ++k)
    if (std::ranges::find(again[k], node) != again[k].end()) kernels.push_back(static_cast<int>(k));
  return kernels;
}

Apart why_apart(const PlanData& p, const Graph* graph, const std::string& a, const std::string& b) {
  Apart apart{kernels_with(p, graph, a), kernels_with(p, graph, b), {}, {}};
  // A node that is computed in the kernels of its readers is in each of these.
  std::vector<int> both;
  std::ranges::set_intersection(apart.kernels_a, apart.kernels_b, std::back_inserter(both));
  apart.together = !both.empty() && (apart.kernels_a == apart.kernels_b || taking(p, a).empty() ||
                                     taking(p, b).empty());
  if (apart.together) {
    apart.kernels_a = apart.kernels_b = both;
    return apart;
  }
  apart.between = passing(explain(p, nullptr), apart.kernels_a, apart.kernels_b);
  const auto collect = [&](const auto& of_a, const auto& of_b) {
    for (const auto& c : p.cuts)
      if ((of_a(c.node) && of_b(c.with)) || (of_b(c.node) && of_a(c.with))) apart.cuts.push_back(c);
  };
  collect([&](const auto& n) { return n == a; }, [&](const auto& n) { return n == b; });
  if (!apart.cuts.empty()) return apart;
  // Kernels grow from neighbour to neighbour: what holds a neighbour back holds back what is
  // behind.
  const auto with_a = nodes_of(p, apart.kernels_a), with_b = nodes_of(p, apart.kernels_b);
  collect([&](const auto& n) { return with_a.contains(n); },
          [&](const auto& n) { return with_b.contains(n); });
  return apart;
}

std::string explain_why(const PlanData& p, const Graph* graph, const std::string& a,
                        const std::string& b) {
  const Apart apart = why_apart(p, graph, a, b);
  if (apart.together)
    return fmt::format("{} and {} are both in {}\n", a, b,
                       kernels_listed(apart.kernels_a, kMostKernelsNamed));
  std::string s =
      fmt::format("{} is in {}, {} in {}\n", a, kernels_listed(apart.kernels_a, kMostKernelsNamed),
                  b, kernels_listed(apart.kernels_b, kMostKernelsNamed));
  for (const auto& c : apart.between)
    s += fmt::format("  between them: {}, {}, {:.1f} us\n", c.tensor, megabytes(c.bytes),
                     c.microseconds);
  for (const auto& c : apart.cuts) s += said(c);
  if (apart.cuts.empty())
    s +=
        "  no fusion pattern was asked about both: nothing passes from one to the other, or a view "
        "lies between them\n";
  return s;
}

}  // namespace sinter
