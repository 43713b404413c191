// Messages from words and numbers. One plain function for all of them: chains of std::string's
// operator+ cost every file that includes the library time, and g++ 12 warns of them falsely.
#pragma once
#include <cstdint>
#include <cstdio>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>

namespace sinter::detail {

struct TextPart {
  TextPart(const char* s) : text(s) {}
  TextPart(std::string_view s) : text(s) {}
  TextPart(std::string s) : text(std::move(s)) {}
  TextPart(int n) : text(std::to_string(n)) {}
  TextPart(unsigned n) : text(std::to_string(n)) {}
  TextPart(std::int64_t n) : text(std::to_string(n)) {}
  TextPart(std::size_t n) : text(std::to_string(n)) {}
  TextPart(double x) : text(32, '\0') {  // to six digits
    text.resize(static_cast<std::size_t>(std::snprintf(text.data(), text.size(), "%g", x)));
  }
  std::string text;
};

// text({"port IN_", 2}) is "port IN_2".
inline std::string text(std::initializer_list<TextPart> parts) {
  std::string all;
  for (const auto& part : parts) all += part.text;
  return all;
}

// The text as a message quotes it: of one longer than `most` bytes the begin, and how long it is.
// No UTF-8 sequence is cut.
inline std::string shortened(std::string_view s, std::size_t most) {
  if (s.size() <= most) return std::string(s);
  while (most > 0 && (static_cast<unsigned char>(s[most]) & 0xc0) == 0x80) --most;
  return text({s.substr(0, most), ".. (", s.size(), " bytes)"});
}

}  // namespace sinter::detail
