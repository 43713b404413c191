// Typed reading of the fields of a JSON object: every value that does not fit becomes a diagnostic
// that names node, tensor and field. Integers are integer tokens; nothing is converted silently.
#pragma once
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/edit_distance.hpp"
#include "json/other_names.hpp"
#include "json/reader.hpp"
#include "sinter/base/dims.hpp"
#include "sinter/graph.hpp"

namespace sinter::json {

// What a diagnostic is about.
struct Place {
  std::string node, tensor, field;
  Place with(std::string_view f) const { return {node, tensor, std::string(f)}; }
};

// Collects diagnostics of one document. Every reader returns whether it succeeded.
class Fields {
 public:
  explicit Fields(std::string_view file) : file_(lasting_name(file)) {}

  const char* file() const { return file_; }
  // At most kMaxErrors are kept; a hostile document could make millions.
  Diagnostics& errors() { return errors_; }
  std::size_t failures() const { return failures_; }
  bool fail(Rule rule, const Place& at, unsigned line, std::string seen, std::string allowed = {},
            std::string fix = {});

  bool is(Kind kind, const Value& v, const Place& at);
  bool read(const Value& v, const Place& at, bool& out);
  bool read(const Value& v, const Place& at, std::int64_t& out);
  bool read(const Value& v, const Place& at, double& out);  // also "inf", "-inf", "nan"
  bool read(const Value& v, const Place& at, std::string& out);
  // A list of 1 to 8 integers; `rule` is the one that another length breaks.
  bool read(const Value& v, const Place& at, Dims& out, Rule rule = Rule::attribute_length);
  bool read(const Value& v, const Place& at, DataType& out, bool compute = false);
  template <class T>
  bool read(const Value& v, const Place& at, std::optional<T>& out) {
    T value{};
    if (!read(v, at, value)) return false;
    out = value;
    return true;
  }
  template <class E>
  requires(std::size(EnumNames<E>::names) > 0) bool read(const Value& v, const Place& at, E& out) {
    if (!is(Kind::string, v, at)) return false;
    if (const auto found = enum_from_name<E>(v.text)) {
      out = *found;
      return true;
    }
    return fail(Rule::attribute_value, at, v.line, v.describe(), one_of(EnumNames<E>::names),
                meant(v.text, EnumNames<E>::names));
  }

  // Reports the members of an object that are not among `known`.
  bool only(const Value& object, Place at, std::span<const std::string_view> known,
            Rule rule = Rule::json_field);
  // The member, or a diagnostic and nullptr.
  const Value* required(const Value& object, const Place& at, std::string_view key, Rule rule);

  static std::string one_of(std::span<const std::string_view> words);

 private:
  static constexpr std::size_t kMaxErrors = 1000;
  const char* file_;
  Diagnostics errors_;
  std::size_t failures_ = 0;
};

}  // namespace sinter::json
