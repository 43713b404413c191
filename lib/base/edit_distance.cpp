#include "base/edit_distance.hpp"

#include <algorithm>
#include <numeric>
#include <utility>
#include <vector>

namespace sinter {

std::string lower_case(std::string_view word) {
  std::string text(word);
  for (char& c : text)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return text;
}

std::size_t edit_distance(std::string_view a, std::string_view b) {
  // Rows of the table, of as many letters of a as were seen: this one and the two before it.
  std::vector<std::size_t> before, last, row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 0; i < a.size(); ++i) {
    before = std::exchange(last, row);
    row[0] = i + 1;
    for (std::size_t j = 0; j < b.size(); ++j) {
      row[j + 1] = std::min({last[j] + (a[i] != b[j]), row[j] + 1, last[j + 1] + 1});
      if (i > 0 && j > 0 && a[i] == b[j - 1] && a[i - 1] == b[j])
        row[j + 1] = std::min(row[j + 1], before[j - 1] + 1);
    }
  }
  return row.back();
}

std::string suggestion(std::string_view word, std::span<const std::string_view> known) {
  if (word.size() > 64) return {};
  const std::string text = lower_case(word);
  // Of a short word two other letters make another word: `mean` is not `min`.
  const std::size_t nearest = std::clamp<std::size_t>(text.size() / 3, 1, 2);
  std::string_view best;
  std::size_t best_distance = nearest + 1;
  for (auto candidate : known) {
    const std::size_t distance = edit_distance(text, lower_case(candidate));
    // Words in which nothing is the same are not near, however short they are.
    if (distance >= best_distance || distance >= std::max(text.size(), candidate.size())) continue;
    best_distance = distance;
    best = candidate;
  }
  // "tanh" is rather "tanh_fwd" than "tan".
  const auto beginning = [&](const std::string& begin) {
    const auto found = std::ranges::find_if(known, [&](std::string_view candidate) {
      return lower_case(candidate).starts_with(begin);
    });
    return found == known.end() ? std::string_view() : *found;
  };
  if (const auto whole = beginning(text + "_"); best_distance > 0 && !whole.empty())
    best = whole;
  else if (best.empty() && text.size() > 2)
    best = beginning(text);
  // "conv2d" for "conv_fprop": the first of several words is the nearest.
  best_distance = best.empty() && text.size() >= 4 ? nearest + 1 : 0;
  for (auto candidate : known) {
    const std::string first = lower_case(candidate.substr(0, candidate.find('_')));
    if (first.size() < 4 || first.size() == candidate.size()) continue;
    const std::size_t distance = edit_distance(text, first);
    if (distance >= best_distance) continue;
    best_distance = distance;
    best = candidate;
  }
  return best.empty() ? std::string{} : "did you mean '" + std::string(best) + "'";
}

}  // namespace sinter
