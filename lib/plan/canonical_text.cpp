#include "plan/canonical_text.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "plan/plan_data.hpp"

namespace sinter {
namespace {

bool starts_identifier(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}
bool continues_identifier(char c) { return starts_identifier(c) || (c >= '0' && c <= '9'); }

// Takes an identifier or a number off the beginning, or else one character.
std::string_view take_token(std::string_view& text) {
  std::size_t n = 1;
  if (continues_identifier(text.front()))
    while (n < text.size() && continues_identifier(text[n])) ++n;
  const std::string_view token = text.substr(0, n);
  text.remove_prefix(n);
  return token;
}

}  // namespace

std::string canonical_text(std::string_view source, std::span<const std::string> names) {
  if (names.empty()) return std::string(source);
  const std::set<std::string_view> known(names.begin(), names.end());
  std::map<std::string_view, std::string> numbered;
  std::string text;
  text.reserve(source.size());
  while (!source.empty()) {
    const std::string_view token = take_token(source);
    if (!known.contains(token)) {
      text += token;
      continue;
    }
    text += numbered.try_emplace(token, fmt::format("n{}_", numbered.size())).first->second;
  }
  return text;
}

std::string canonical_text(const PlanKernel& kernel) {
  return canonical_text(kernel.source, kernel.names);
}

std::vector<std::string> names_in_text(std::string_view named, std::string_view unnamed) {
  std::set<std::string> names, others;
  while (!named.empty() && !unnamed.empty()) {
    const std::string_view a = take_token(named), b = take_token(unnamed);
    if (a == b) {
      if (starts_identifier(a.front())) others.emplace(a);
    } else if (starts_identifier(a.front()) && starts_identifier(b.front())) {
      names.emplace(a);
    } else {
      return {};
    }
  }
  if (!named.empty() || !unnamed.empty()) return {};
  std::vector<std::string> result;
  std::ranges::set_difference(names, others, std::back_inserter(result));
  return result;
}

}  // namespace sinter
