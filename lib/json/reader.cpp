// The tokens come from nlohmann's SAX parser, which is iterative and checks UTF-8; the tree, the
// limits and the places of errors are ours. Its DOM is not used: it keeps the last of two equal
// keys and converts numbers silently.
#include "json/reader.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <mutex>
#include <nlohmann/json.hpp>
#include <numeric>
#include <set>

#include "sinter/base/text.hpp"

namespace sinter::json {
namespace {

// Where the lexer stands. It reads one byte past a number, so the place is one byte back.
class Position {
 public:
  explicit Position(std::string_view text) : text_(text) {}
  std::size_t consumed = 0;

  unsigned line() { return line_of(consumed > 0 ? consumed - 1 : 0); }
  // Asked for in rising order, so that a whole document costs one pass.
  unsigned line_of(std::size_t offset) {
    for (offset = std::min(offset, text_.size()); counted_ < offset; ++counted_)
      line_ += text_[counted_] == '\n';
    return line_;
  }
  static std::size_t column_of(std::string_view text, std::size_t offset) {
    offset = std::min(offset, text.size());
    const auto begin = offset == 0 ? std::string_view::npos : text.rfind('\n', offset - 1);
    return begin == std::string_view::npos ? offset + 1 : offset - begin;
  }

 private:
  std::string_view text_;
  std::size_t counted_ = 0;
  unsigned line_ = 1;
};

// Hands the text to the lexer byte by byte and counts.
class CountingIterator {
 public:
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = const char&;

  CountingIterator(const char* at, Position* position) : at_(at), position_(position) {}
  reference operator*() const { return *at_; }
  CountingIterator& operator++() {
    ++at_;
    ++position_->consumed;
    return *this;
  }
  CountingIterator operator++(int) {
    auto before = *this;
    ++*this;
    return before;
  }
  friend bool operator==(const CountingIterator& a, const CountingIterator& b) {
    return a.at_ == b.at_;
  }
  friend bool operator!=(const CountingIterator& a, const CountingIterator& b) {
    return a.at_ != b.at_;
  }

 private:
  const char* at_;
  Position* position_;
};

constexpr std::size_t kQuoted = 160;  // bytes of the document that an error quotes

class TreeBuilder {
 public:
  using number_integer_t = nlohmann::json::number_integer_t;
  using number_unsigned_t = nlohmann::json::number_unsigned_t;
  using number_float_t = nlohmann::json::number_float_t;
  using string_t = nlohmann::json::string_t;
  using binary_t = nlohmann::json::binary_t;

  TreeBuilder(std::string_view text, std::string_view file, Position& position)
      : text_(text), file_(file), position_(position) {}

  Value root;
  Diagnostics errors;

  bool null() { return add(Kind::null) != nullptr; }
  bool boolean(bool b) {
    Value* v = add(Kind::boolean);
    if (v) v->boolean = b;
    return v != nullptr;
  }
  bool number_integer(number_integer_t n) {
    Value* v = add(Kind::integer);
    if (!v) return false;
    v->integer = n;
    v->real = static_cast<double>(n);
    v->text = std::to_string(n);
    return true;
  }
  bool number_unsigned(number_unsigned_t n) {
    Value* v = add(Kind::integer);
    if (!v) return false;
    v->fits = n <= static_cast<number_unsigned_t>(INT64_MAX);
    v->integer = v->fits ? static_cast<std::int64_t>(n) : 0;
    v->real = static_cast<double>(n);
    v->text = std::to_string(n);
    return true;
  }
  bool number_float(number_float_t n, const string_t& token) {
    // A whole number that no 64-bit type holds arrives here too.
    const bool digits = token.find_first_not_of("-0123456789") == string_t::npos;
    Value* v = add(digits ? Kind::integer : Kind::real);
    if (!v) return false;
    v->fits = !digits;
    v->real = n;
    v->text = token;
    return true;
  }
  bool string(string_t& s) {
    Value* v = add(Kind::string);
    if (v) v->text = std::move(s);
    return v != nullptr;
  }
  bool binary(binary_t&) { return false; }
  bool start_object(std::size_t) { return open(Kind::object); }
  bool start_array(std::size_t) { return open(Kind::array); }
  bool key(string_t& k) {
    stack_.back()->members.push_back({std::move(k), {}});
    stack_.back()->members.back().value.line = position_.line();
    return true;
  }
  bool end_object() {
    const bool unique = no_duplicates(stack_.back()->members);
    stack_.pop_back();
    return unique;
  }
  bool end_array() {
    stack_.pop_back();
    return true;
  }
  bool parse_error(std::size_t byte, const std::string& last,
                   const nlohmann::detail::exception& e) {
    const std::size_t at = byte > 0 ? byte - 1 : 0;
    // "[json.exception.parse_error.101] parse error at line 1, column 2: syntax error while ..."
    if (e.id == 406) {
      fail(Rule::json_number, at, detail::shortened(last, kQuoted),
           "numbers of up to 1.8e308 (64-bit floating point)");
      errors.back().attribute = detail::text({path(), ", ", errors.back().attribute});
      return false;
    }
    std::string_view what = e.what();
    if (const auto found = what.find("syntax error "); found != std::string_view::npos)
      what.remove_prefix(found);
    return fail(Rule::json_syntax, at, detail::shortened(what, kQuoted), "");
  }
  bool fail(Rule rule, std::size_t offset, std::string seen, std::string allowed) {
    Diagnostic d;
    d.rule = rule;
    d.attribute = "column " + std::to_string(Position::column_of(text_, offset));
    d.seen = std::move(seen);
    d.allowed = std::move(allowed);
    d.file = file_;
    Position fresh(text_);
    d.line = fresh.line_of(offset);
    errors.push_back(std::move(d));
    return false;
  }

 private:
  // Of the value that is read next: "tensors.half.value", "nodes[3].relu_upper_clip".
  std::string path() const {
    std::string s;
    for (const Value* v : stack_) {
      if (v->kind == Kind::array)  // an item that is open is in the list already
        s += detail::text({"[", v->items.size() - (v == stack_.back() ? 0 : 1), "]"});
      else if (!v->members.empty())
        s += (s.empty() ? "" : ".") + detail::shortened(v->members.back().key, kQuoted);
    }
    return s.empty() ? "the document" : s;
  }
  Value* add(Kind kind) {
    if (++count_ > kMaxValues) {
      fail(Rule::json_format, position_.consumed, "more values",
           "at most " + std::to_string(kMaxValues) + " values in a document");
      return nullptr;
    }
    Value* v = &root;
    if (!stack_.empty()) {
      Value& parent = *stack_.back();
      v = parent.kind == Kind::array ? &parent.items.emplace_back() : &parent.members.back().value;
    }
    v->kind = kind;
    v->line = position_.line();
    return v;
  }
  bool open(Kind kind) {
    if (stack_.size() >= kMaxDepth)
      return fail(Rule::json_depth, position_.consumed - 1, "more than 64 levels",
                  "at most 64 levels");
    Value* v = add(kind);
    if (v) stack_.push_back(v);
    return v != nullptr;
  }
  bool no_duplicates(const std::vector<Member>& members) {
    std::vector<std::size_t> order(members.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::stable_sort(order.begin(), order.end(),
                     [&](std::size_t a, std::size_t b) { return members[a].key < members[b].key; });
    for (std::size_t i = 1; i < order.size(); ++i) {
      const Member& second = members[order[i]];
      if (members[order[i - 1]].key != second.key) continue;
      Diagnostic d;
      d.rule = Rule::json_duplicate;
      d.attribute = "key '" + detail::shortened(second.key, kQuoted) + "'";
      d.seen = "line " + std::to_string(members[order[i - 1]].value.line) + " and line " +
               std::to_string(second.value.line);
      d.allowed = "each key once in an object";
      d.file = file_;
      d.line = second.value.line;
      errors.push_back(std::move(d));
      return false;
    }
    return true;
  }

  std::string_view text_;
  std::string file_;
  Position& position_;
  std::vector<Value*> stack_;
  std::size_t count_ = 0;
};

}  // namespace

const Value* Value::find(std::string_view key) const {
  for (const auto& m : members)
    if (m.key == key) return &m.value;
  return nullptr;
}

std::string Value::describe() const {
  switch (kind) {
    case Kind::null:
      return "null";
    case Kind::boolean:
      return boolean ? "true" : "false";
    case Kind::integer:
    case Kind::real:
      return detail::shortened(text, 40);
    case Kind::string:
      return "'" + detail::shortened(text, 60) + "'";
    case Kind::array:
      return "an array of " + std::to_string(items.size());
    case Kind::object:
      return "an object";
  }
  return "";
}

Result<Value> parse(std::string_view text, std::string_view file) {
  Position position(text);
  TreeBuilder builder(text, file, position);
  if (text.size() > kMaxBytes) {
    builder.fail(Rule::json_format, 0, std::to_string(text.size()) + " bytes", "at most 1 GiB");
    return std::move(builder.errors);
  }
  // The lexer takes a zero byte for the end of the text and would not see what follows it.
  if (const auto zero = text.find('\0'); zero != std::string_view::npos) {
    builder.fail(Rule::json_syntax, zero, "a zero byte", "");
    return std::move(builder.errors);
  }
  const bool ok =
      nlohmann::json::sax_parse(CountingIterator(text.data(), &position),
                                CountingIterator(text.data() + text.size(), &position), &builder);
  if (!ok || !builder.errors.empty()) {
    if (builder.errors.empty()) builder.fail(Rule::json_syntax, position.consumed, "", "");
    return std::move(builder.errors);
  }
  return std::move(builder.root);
}

std::string json_string(std::string_view text) {
  std::string quoted;
  quoted.reserve(text.size() + text.size() / 8 + 2);
  append_json_string(quoted, text);
  return quoted;
}

void append_json_string(std::string& to, std::string_view text) {
  // Printable ASCII, as kernels' texts are, a run at a time: in the JSON library's writer these
  // took a sixth of what it takes to make a plan, write it and read it back.
  const auto as_it_is = [](char c) { return c >= ' ' && c <= '~' && c != '"' && c != '\\'; };
  const std::size_t before = to.size();
  to += '"';
  for (auto at = text.begin();; ++at) {
    const auto end = std::find_if_not(at, text.end(), as_it_is);
    to.append(at, end);
    at = end;
    if (at == text.end()) {
      to += '"';
      return;
    }
    if (*at != '\n' && *at != '"' && *at != '\\') break;
    to += '\\';
    to += *at == '\n' ? 'n' : *at;
  }
  to.resize(before);
  to += nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

std::string number(double value) {
  if (std::isnan(value)) return "\"nan\"";
  if (std::isinf(value)) return value > 0 ? "\"inf\"" : "\"-inf\"";
  if (value == 0) return std::signbit(value) ? "-0.0" : "0";
  return fmt::format("{}", value);
}

const char* lasting_name(std::string_view file) {
  static std::mutex mutex;
  static std::set<std::string, std::less<>> names;
  const std::lock_guard lock(mutex);
  const auto found = names.find(file);
  return (found != names.end() ? found : names.emplace(file).first)->c_str();
}

}  // namespace sinter::json
