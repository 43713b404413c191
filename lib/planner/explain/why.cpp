#include <fmt/format.h>

#include <algorithm>

#include "planner/explain/explain.hpp"

namespace sinter {
namespace {

std::string numbers(const std::vector<int>& kernels) {
  std::vector<std::string> parts;
  for (int k : kernels) parts.push_back(std::to_string(k));
  return (kernels.size() == 1 ? "kernel " : "kernels ") + listed(parts, 12);
}

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
    return fmt::format("{} and {} are both in {}\n", a, b, numbers(both));
  std::string s = fmt::format("{} is in {}, {} in {}\n", a, numbers(in_a), b, numbers(in_b));
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
  for (const auto& c : p.cuts) {
    const auto of_node = kernels_with(p, c.node), of_with = kernels_with(p, c.with);
    if (!(any_in(of_node, in_a) && any_in(of_with, in_b)) &&
        !(any_in(of_node, in_b) && any_in(of_with, in_a)))
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
