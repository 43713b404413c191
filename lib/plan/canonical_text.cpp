#include "plan/canonical_text.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <unordered_map>
#include <utility>

#include "plan/plan_data.hpp"

namespace sinter {
namespace {

// By character: whether words (identifiers and numbers) go on with it.
constexpr auto kOfWord = [] {
  std::array<bool, 256> of{};
  for (const unsigned char c :
       std::string_view("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_"))
    of[c] = true;
  return of;
}();
bool is_of_word(char c) { return kOfWord[static_cast<unsigned char>(c)]; }
bool is_digit(char c) { return c >= '0' && c <= '9'; }

// What stands in front of the next word, and the word, which is empty at the end of the text.
struct Piece {
  std::string_view before, word;
};
Piece take_piece(std::string_view& text) {
  std::size_t first = 0;
  while (first < text.size() && !is_of_word(text[first])) ++first;
  std::size_t end = first;
  while (end < text.size() && is_of_word(text[end])) ++end;
  const Piece piece{text.substr(0, first), text.substr(first, end - first)};
  text.remove_prefix(end);
  return piece;
}

// Drops what both begin with, up to the word in which they differ. (Eight bytes at a time: of two
// texts of a kernel most is the same.)
void skip_common(std::string_view& a, std::string_view& b) {
  const std::size_t most = std::min(a.size(), b.size());
  std::size_t same = 0;
  while (same + 8 <= most && std::memcmp(a.data() + same, b.data() + same, 8) == 0) same += 8;
  while (same < most && a[same] == b[same]) ++same;
  while (same > 0 && is_of_word(a[same - 1])) --same;
  a.remove_prefix(same);
  b.remove_prefix(same);
}

// By character: whether one of the words begins with it. Most words need no look-up.
class Beginnings {
 public:
  void add(std::string_view word) { of_[static_cast<unsigned char>(word.front())] = true; }
  bool has(std::string_view word) const {
    return !word.empty() && of_[static_cast<unsigned char>(word.front())];
  }

 private:
  std::array<bool, 256> of_{};
};

}  // namespace

std::string canonical_text(std::string_view source, std::span<const std::string> names) {
  if (names.empty()) return std::string(source);
  std::unordered_map<std::string_view, std::string> numbered;  // empty: not met yet
  Beginnings beginnings;
  for (const std::string& name : names)
    if (!name.empty() && numbered.try_emplace(name).second) beginnings.add(name);
  std::size_t met = 0;
  std::string text;
  text.reserve(source.size());
  while (!source.empty()) {
    const Piece piece = take_piece(source);
    text += piece.before;
    const auto name = beginnings.has(piece.word) ? numbered.find(piece.word) : numbered.end();
    if (name != numbered.end() && name->second.empty())
      name->second = "n" + std::to_string(met++) + "_";
    text += name == numbered.end() ? piece.word : std::string_view(name->second);
  }
  return text;
}

std::string canonical_text(const PlanKernel& kernel) {
  return canonical_text(kernel.source, kernel.names);
}

Diagnostics with_names(Diagnostics errors, const PlanKernel& kernel) {
  if (kernel.names.empty()) return errors;
  const std::string canonical = canonical_text(kernel);
  std::unordered_map<std::string_view, std::string_view> names;
  std::string_view theirs = canonical, own = kernel.source;
  while (!theirs.empty() && !own.empty()) {
    const Piece a = take_piece(theirs), b = take_piece(own);
    if (a.word != b.word) names.try_emplace(a.word, b.word);
  }
  for (Diagnostic& d : errors) {
    std::string text;
    for (std::string_view seen = d.seen; !seen.empty();) {
      const Piece piece = take_piece(seen);
      const auto name = names.find(piece.word);
      text += piece.before;
      text += name == names.end() ? piece.word : name->second;
    }
    d.seen = std::move(text);
  }
  return errors;
}

std::vector<std::string> names_in_text(std::string_view named, std::string_view unnamed) {
  // Of each word of `named` that differs: whether it stands for something else at another place.
  std::unordered_map<std::string_view, bool> words;
  Beginnings beginnings;
  const auto each_pair = [&](bool skip, const auto& take) {  // skip: words that are equal
    std::string_view a = named, b = unnamed;
    while (!a.empty() || !b.empty()) {
      if (skip) skip_common(a, b);
      const Piece x = take_piece(a), y = take_piece(b);
      if (x.before != y.before || x.word.empty() != y.word.empty()) return false;
      if (!x.word.empty() && !take(x.word, y.word)) return false;
    }
    return true;
  };
  const bool alike = each_pair(true, [&](std::string_view x, std::string_view y) {
    if (x == y) return true;
    if (words.try_emplace(x, false).second) beginnings.add(x);
    return !is_digit(x.front()) && !is_digit(y.front());
  });
  if (!alike || words.empty()) return {};
  each_pair(false, [&](std::string_view x, std::string_view y) {
    if (x == y && beginnings.has(x))
      if (const auto word = words.find(x); word != words.end()) word->second = true;
    return true;
  });
  std::vector<std::string> names;
  for (const auto& [word, elsewhere] : words)
    if (!elsewhere) names.emplace_back(word);
  std::ranges::sort(names);
  return names;
}

}  // namespace sinter
