#include "emit/class_text.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
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
constexpr std::string_view kOrders[] = {
    "static constexpr int group = ", "static constexpr int heads_together = ",
    // and how far tiles reach within their boxes
    "static constexpr int boxed_rows = ", "static constexpr int boxed_columns = ",
    "static constexpr int boxed_tiles = "};
// What an average divides by.
constexpr std::string_view kLength = "static constexpr long long length = ";
constexpr std::string_view kInt = "static constexpr int ", kLong = "static constexpr long long ",
                           kAuto = "static constexpr auto ";

// Where the number of the first constant begins that starts with one of these.
template <class Starts>
std::size_t find_number(std::string_view text, const Starts& starts) {
  std::size_t first = std::string_view::npos;
  for (const std::string_view start : starts)
    if (const std::size_t at = text.find(start); at != std::string_view::npos)
      first = std::min(first, at + start.size());
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
  const auto add = [&](int number, Piece::Kind kind) {
    if (number == result.count_) ++result.count_;
    result.pieces_.push_back({std::move(result.rest_), number, kind});
    result.rest_.clear();
  };
  // A number of both; where they differ it comes with the launch.
  const auto take_numbers = [&](Piece::Kind kind) {
    if (other.empty() || !starts_number(other.front())) return false;
    const std::int64_t a = take_number(one), b = take_number(other);
    if (a == b)
      result.rest_ += std::to_string(a);
    else
      add(numbers.try_emplace({a, b}, result.count_).first->second, kind);
    return true;
  };
  while (!one.empty()) {
    const std::size_t list = one.find(kList), order = find_number(one, kOrders),
                      length = find_number(one, std::array{kLength});
    const std::size_t first = std::min({list, order, length});
    if (first == std::string_view::npos) {
      if (one.size() != other.size() || !take(one.size())) return {};
      break;
    }
    if (first == order) {
      if (!take(order) || other.empty() || !starts_number(other.front())) return {};
      take_number(one), take_number(other);
      add(result.count_, Piece::Kind::order);
      continue;
    }
    if (first == length) {
      if (!take(length) || !take_numbers(Piece::Kind::length)) return {};
      continue;
    }
    if (!take(list + kList.size())) return {};
    while (!one.empty() && one.front() != '>') {
      if (other.empty() || starts_number(one.front()) != starts_number(other.front())) return {};
      if (starts_number(one.front()) ? !take_numbers(Piece::Kind::in_list) : !take(1)) return {};
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
    const std::string number = fmt::format("sinter::dynamic({})", p.number);
    if (p.kind == Piece::Kind::in_list) {
      text += number;
      continue;
    }
    const bool order = p.kind == Piece::Kind::order;
    const std::string_view type = order ? kInt : kLong;
    text.replace(text.rfind(type), type.size(), kAuto);
    text += fmt::format("sinter::{}<{}>", order ? "number_of" : "long_number_of", number);
  }
  text += rest_;
  if (const auto args = text.find(kArgs); count_ > 0 && args != std::string::npos)
    text.insert(args + kArgs.size(), fmt::format("  long long dynamic[{}];\n", count_));
  return text;
}

}  // namespace sinter
