// Strict JSON text into a small tree of its own. Nothing is guessed or repaired: duplicate keys,
// deep nesting, bad UTF-8, text after the document and numbers out of range are errors, each with
// the line of its place. Untrusted text is read in bounded memory and without recursion.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "sinter/base/result.hpp"

namespace sinter::json {

inline constexpr int kMaxDepth = 64;
inline constexpr std::size_t kMaxBytes = std::size_t{1} << 30;
inline constexpr std::size_t kMaxValues = std::size_t{1} << 23;

enum class Kind : std::uint8_t { null, boolean, integer, real, string, array, object };

struct Member;

struct Value {
  Kind kind = Kind::null;
  bool boolean = false;
  bool fits = true;   // an integer token that is an int64; `real` holds the others
  unsigned line = 0;  // of the value's end, of an object's or array's begin
  std::int64_t integer = 0;
  double real = 0;              // every number, rounded where it is a large integer
  std::string text;             // of a string; of a number its token
  std::vector<Value> items;     // of an array
  std::vector<Member> members;  // of an object, in the order of the document

  bool is_number() const { return kind == Kind::integer || kind == Kind::real; }
  const Value* find(std::string_view key) const;
  // How the value reads in an error: "string 'abc'", "3.7", "an object".
  std::string describe() const;
};

struct Member {
  std::string key;
  Value value;
};

// `file` is named in the errors.
Result<Value> parse(std::string_view text, std::string_view file);

// The text as a JSON string, quotes included. Bytes that are no UTF-8 become U+FFFD.
std::string json_string(std::string_view text);
// The same, appended.
void append_json_string(std::string& to, std::string_view text);
// The shortest decimal that reads back as the same number; "inf", "-inf" and "nan" are strings.
std::string number(double value);

// Names of files in diagnostics outlive the document: they are kept for the life of the process.
const char* lasting_name(std::string_view file);

}  // namespace sinter::json
