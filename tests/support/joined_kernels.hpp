// Kernels' texts as one, so that a compiler reads the headers that they share once.
#pragma once
#include <cstddef>
#include <map>
#include <set>
#include <span>
#include <sstream>
#include <string>
#include <vector>

#include "plan/plan_data.hpp"

namespace sinter::test {

// Kernels of a text. 0.1 to 0.5 s of a text are no kernel's own: the compiler's start, the headers
// and instances that kernels share. (By the emulator's compiler, s of a core: 311 pointwise kernels
// in texts of 8: 11.0, of 24: 7.7; 93 products of wgmma: 13.0 and 11.7, 70 of attention: 18.0
// and 16.1.)
inline constexpr std::size_t kMostJoined = 24;
// The same where every kernel's plan then carries, and loads, the machine code of the whole text.
inline constexpr std::size_t kMostJoinedOfPlans = 8;

inline bool is_include(const std::string& line) { return line.starts_with("#include"); }
// Defines an instruction in the device library's namespace, which no other namespace may hold.
inline bool is_instruction(const std::string& line) { return line.starts_with("SINTER_WGMMA"); }

// What a kernel's text includes, a line each. Only kernels that include the same are joined, so
// that none finds a header that it should have included itself.
inline std::string headers_of(const std::string& source) {
  std::string headers;
  std::istringstream lines(source);
  for (std::string line; std::getline(lines, line);)
    if (is_include(line)) headers += line + "\n";
  return headers;
}

// Where a kernel's names are in the joined text.
inline std::string space_of(const PlanKernel& k) { return k.entry + "_alone"; }

inline std::string joined(std::span<const PlanKernel* const> kernels) {
  std::set<std::string> instructions;
  std::string text;
  for (const PlanKernel* k : kernels) {
    text += "namespace " + space_of(*k) + " {\n";
    std::istringstream lines(k->source);
    for (std::string line; std::getline(lines, line);) {
      if (is_include(line)) continue;
      if (is_instruction(line)) {
        instructions.insert(line + "\n");
        continue;
      }
      const std::string global = "= ::Fragment<";
      if (const auto at = line.find(global); at != std::string::npos)
        line.replace(at, global.size(), "= " + space_of(*k) + "::Fragment<");
      text += line + "\n";
    }
    text += "}\n";
  }
  std::string front = headers_of(kernels.front()->source);
  for (const std::string& line : instructions) front += line;
  return front + text;
}

// Kernels that can be joined, in parts of at most `most`. `key`: what else they must have in
// common.
template <class Key>
std::vector<std::vector<const PlanKernel*>> joinable(std::span<const PlanKernel* const> kernels,
                                                     std::size_t most, const Key& key) {
  using Part = std::vector<const PlanKernel*>;
  std::map<std::pair<std::string, decltype(key(*kernels[0]))>, std::vector<Part>> parts;
  for (const PlanKernel* k : kernels) {
    auto& like = parts[{headers_of(k->source), key(*k)}];
    if (like.empty() || like.back().size() == most) like.emplace_back();
    like.back().push_back(k);
  }
  std::vector<Part> result;
  for (auto& [what, like] : parts) result.insert(result.end(), like.begin(), like.end());
  return result;
}

}  // namespace sinter::test
