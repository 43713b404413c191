// The checks of single values, and the near misses that errors suggest.
#include "json/fields.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

namespace sinter::json {
namespace {

// A type as NumPy and PyTorch call it in letters of ours: float16 as f16, uint8 as u8.
std::string short_name(std::string_view type) {
  static constexpr std::pair<std::string_view, std::string_view> beginnings[] = {
      {"bfloat", "bf"}, {"float", "f"},  {"fp", "f"},      {"uint", "u"},
      {"int", "i"},     {"half", "f16"}, {"double", "f64"}};
  std::string name = lower_case(type);
  std::erase(name, '_');
  for (const auto& [theirs, ours] : beginnings)
    if (name.starts_with(theirs)) return std::string(ours) + name.substr(theirs.size());
  return name;
}

}  // namespace

bool Fields::fail(Rule rule, const Place& at, unsigned line, std::string seen, std::string allowed,
                  std::string fix) {
  if (++failures_ > kMaxErrors) return false;
  Diagnostic d;
  d.rule = rule;
  d.node = at.node;
  d.tensor = at.tensor;
  d.attribute = at.field;
  d.seen = std::move(seen);
  d.allowed = std::move(allowed);
  d.fix = std::move(fix);
  d.file = file_;
  d.line = line;
  errors_.push_back(std::move(d));
  return false;
}

bool Fields::is(Kind kind, const Value& v, const Place& at) {
  if (v.kind == kind) return true;
  static constexpr std::string_view names[] = {
      "null", "true or false", "an integer", "a number", "a string", "an array", "an object"};
  return fail(Rule::json_type, at, v.line, v.describe(),
              std::string(names[static_cast<std::size_t>(kind)]));
}

bool Fields::read(const Value& v, const Place& at, bool& out) {
  if (!is(Kind::boolean, v, at)) return false;
  out = v.boolean;
  return true;
}

bool Fields::read(const Value& v, const Place& at, std::int64_t& out) {
  if (!is(Kind::integer, v, at)) return false;
  if (!v.fits)
    return fail(Rule::json_number, at, v.line, v.describe(), "integers from -2^63 to 2^63 - 1");
  out = v.integer;
  return true;
}

bool Fields::read(const Value& v, const Place& at, double& out) {
  constexpr double inf = std::numeric_limits<double>::infinity();
  if (v.kind == Kind::string) {
    if (v.text == "inf") return out = inf, true;
    if (v.text == "-inf") return out = -inf, true;
    if (v.text == "nan") return out = std::numeric_limits<double>::quiet_NaN(), true;
  }
  if (!v.is_number()) return is(Kind::real, v, at);
  out = v.real;
  return true;
}

bool Fields::read(const Value& v, const Place& at, std::string& out) {
  if (!is(Kind::string, v, at)) return false;
  out = v.text;
  return true;
}

bool Fields::read(const Value& v, const Place& at, Dims& out, Rule rule) {
  if (!is(Kind::array, v, at)) return false;
  if (v.items.empty() || v.items.size() > static_cast<std::size_t>(kMaxRank))
    return fail(rule, at, v.line, std::to_string(v.items.size()) + " entries", "1 to 8 entries");
  out = {};
  for (std::size_t i = 0; i < v.items.size(); ++i) {
    std::int64_t n = 0;
    if (!read(v.items[i], at.with(at.field + "[" + std::to_string(i) + "]"), n)) return false;
    out.push_back(n);
  }
  return true;
}

bool Fields::read(const Value& v, const Place& at, DataType& out, bool compute) {
  static const auto storage = [] {
    std::vector<std::string_view> names;
    for (const auto& t : kDataTypes)
      if (t.name != info(DataType::none).name && t.name != info(DataType::tf32).name)
        names.push_back(t.name);
    return names;
  }();
  static constexpr std::string_view computing[] = {"f64",  "f32", "tf32", "f16",
                                                   "bf16", "i32", "i64"};
  if (!is(Kind::string, v, at)) return false;
  const std::span<const std::string_view> words =
      compute ? std::span<const std::string_view>(computing) : storage;
  if (std::find(words.begin(), words.end(), v.text) == words.end())
    return fail(compute ? Rule::attribute_value : Rule::tensor_data_type, at, v.line, v.describe(),
                one_of(words), suggestion(short_name(v.text), words));
  out = *data_type_from_name(v.text);
  return true;
}

bool Fields::only(const Value& object, Place at, std::span<const std::string_view> known,
                  Rule rule) {
  bool ok = true;
  const std::string prefix = at.field.empty() ? "" : at.field + ".";
  for (const auto& m : object.members) {
    if (std::find(known.begin(), known.end(), m.key) != known.end()) continue;
    ok = fail(rule, at.with(prefix + m.key), m.value.line, m.value.describe(), one_of(known),
              meant(m.key, known));
  }
  return ok;
}

const Value* Fields::required(const Value& object, const Place& at, std::string_view key,
                              Rule rule) {
  if (const Value* v = object.find(key)) return v;
  const std::string prefix = at.field.empty() ? "" : at.field + ".";
  fail(rule, at.with(prefix + std::string(key)), object.line, "no such field", "",
       "add the field '" + std::string(key) + "'");
  return nullptr;
}

std::string Fields::one_of(std::span<const std::string_view> words) {
  std::string s;
  for (auto w : words) s += (s.empty() ? "" : ", ") + std::string(w);
  return words.empty() ? "none" : s;
}

}  // namespace sinter::json
