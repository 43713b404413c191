#include <fmt/format.h>

#include <algorithm>

#include "planner/explain/explain.hpp"

namespace sinter {
namespace {

constexpr std::size_t kMostKernels = 12;

bool any_in(const std::vector<int>& one, const std::vector<int>& other) {
  return std::any_of(one.begin(), one.end(), [&](int k) {
    return std::find(other.begin(), other.end(), k) != other.end();
  });
}

// The tensors that pass between the kernels, with what they cost.
std::string passing(const Explanation& e, const std::vector<int>& a, const std::vector<int>& b) {
  std::string s;
  for (const auto& c : e.crossings)
    if ((any_in(c.writers, a) && any_in(c.readers, b)) ||
        (any_in(c.writers, b) && any_in(c.readers, a)))
      s += fmt::format("  between them: {}, {}, {:.1f} us\n", c.tensor, megabytes(c.bytes),
                       c.microseconds);
  return s;
}

std::string said(const PlanCut& c) {
  std::string s = fmt::format("  {}\n", sentence(c));
  if (!c.fix.empty()) s += fmt::format("    to remove it: {}\n", c.fix);
  return s;
}

}  // namespace

std::vector<int> kernels_with(const PlanData& p, const std::string& node) {
  std::vector<int> kernels;
  for (std::size_t k = 0; k < p.kernels.size(); ++k) {
    const auto& nodes = p.kernels[k].nodes;
    if (std::find(nodes.begin(), nodes.end(), node) != nodes.end())
      kernels.push_back(static_cast<int>(k));
  }
  return kernels;
}

std::string explain_why(const PlanData& p, const std::string& a, const std::string& b) {
  const auto in_a = kernels_with(p, a), in_b = kernels_with(p, b);
  std::vector<int> both;
  for (int k : in_a)
    if (std::find(in_b.begin(), in_b.end(), k) != in_b.end()) both.push_back(k);
  if (!both.empty() && in_a == in_b)
    return fmt::format("{} and {} are both in {}\n", a, b, kernels_listed(both, kMostKernels));
  std::string s = fmt::format("{} is in {}, {} in {}\n", a, kernels_listed(in_a, kMostKernels), b,
                              kernels_listed(in_b, kMostKernels));
  s += passing(explain(p, nullptr), in_a, in_b);
  bool refused = false;
  for (const auto& c : p.cuts) {
    if (!(c.node == a && c.with == b) && !(c.node == b && c.with == a)) continue;
    refused = true;
    s += said(c);
  }
  if (refused) return s;
  // Kernels grow from neighbour to neighbour: what holds a neighbour back holds back what is
  // behind.
  const auto with_a = nodes_of(p, in_a), with_b = nodes_of(p, in_b);
  for (const auto& c : p.cuts) {
    if (!(with_a.contains(c.node) && with_b.contains(c.with)) &&
        !(with_b.contains(c.node) && with_a.contains(c.with)))
      continue;
    refused = true;
    s += said(c);
  }
  if (!refused)
    s += "  no fusion pattern met both: it grows from a node to those that read or write the same "
         "tensors\n";
  return s;
}

}  // namespace sinter
