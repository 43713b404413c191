#include "emit/class_text.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <map>

namespace sinter {
namespace {

constexpr std::string_view kList = "sinter::Dims<", kArgs = "struct Args {\n";

bool starts_number(char c) { return c == '-' || (c >= '0' && c <= '9'); }

// Takes the number that `text` begins with off it.
std::int64_t take_number(std::string_view& text) {
  std::int64_t x = 0;
  const auto end = std::from_chars(text.data(), text.data() + text.size(), x).ptr;
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  return x;
}

// Constants that say in which order tiles run: any number is right, and each set of extents has its
// own best.
constexpr std::string_view kOrders[] = {"static constexpr int group = ",
                                        "static constexpr int heads_together = "};
constexpr std::string_view kConstant = "static constexpr int ";

// Where the number of the first such constant begins.
std::size_t find_order(std::string_view text) {
  std::size_t first = std::string_view::npos;
  for (const std::string_view order : kOrders)
    if (const std::size_t at = text.find(order); at != std::string_view::npos)
      first = std::min(first, at + order.size());
  return first;
}

}  // namespace

std::optional<ClassText> ClassText::of(std::string_view one, std::string_view other) {
  ClassText result;
  if (one == other) {
    result.rest_ = one;
    return result;
  }
  std::map<std::pair<std::int64_t, std::int64_t>, int> numbers;
  const auto take = [&](std::size_t n) {  // what both begin with
    if (one.substr(0, n) != other.substr(0, n)) return false;
    result.rest_ += one.substr(0, n);
    one.remove_prefix(n);
    other.remove_prefix(n);
    return true;
  };
  const auto add = [&](int number, bool constant) {
    if (number == result.count_) ++result.count_;
    result.pieces_.push_back({std::move(result.rest_), number, constant});
    result.rest_.clear();
  };
  while (!one.empty()) {
    const std::size_t list = one.find(kList), line = find_order(one);
    if (list == std::string_view::npos && line == std::string_view::npos) {
      if (one.size() != other.size() || !take(one.size())) return {};
      break;
    }
    if (line < list) {
      if (!take(line) || other.empty() || !starts_number(other.front())) return {};
      take_number(one), take_number(other);
      add(result.count_, true);
      continue;
    }
    if (!take(list + kList.size())) return {};
    while (!one.empty() && one.front() != '>') {
      if (other.empty() || starts_number(one.front()) != starts_number(other.front())) return {};
      if (!starts_number(one.front())) {
        if (!take(1)) return {};
        continue;
      }
      const std::int64_t a = take_number(one), b = take_number(other);
      if (a == b)
        result.rest_ += std::to_string(a);
      else
        add(numbers.try_emplace({a, b}, result.count_).first->second, false);
    }
  }
  if (!other.empty()) return {};
  return result;
}

std::optional<std::vector<std::int64_t>> ClassText::numbers(std::string_view text) const {
  std::vector<std::optional<std::int64_t>> found(static_cast<std::size_t>(count_));
  for (const Piece& p : pieces_) {
    if (!text.starts_with(p.before)) return {};
    text.remove_prefix(p.before.size());
    if (text.empty() || !starts_number(text.front())) return {};
    const std::int64_t x = take_number(text);
    auto& known = found[static_cast<std::size_t>(p.number)];
    if (known.value_or(x) != x) return {};
    known = x;
  }
  if (text != rest_) return {};
  std::vector<std::int64_t> result;
  for (const auto& x : found) result.push_back(*x);
  return result;
}

std::string ClassText::text() const {
  std::string text;
  for (const Piece& p : pieces_) {
    text += p.before;
    if (p.constant) text.replace(text.rfind(kConstant), kConstant.size(), "static constexpr auto ");
    const std::string number = fmt::format("sinter::dynamic({})", p.number);
    text += p.constant ? fmt::format("sinter::number_of<{}>", number) : number;
  }
  text += rest_;
  if (const auto args = text.find(kArgs); count_ > 0 && args != std::string::npos)
    text.insert(args + kArgs.size(), fmt::format("  long long dynamic[{}];\n", count_));
  return text;
}

}  // namespace sinter
