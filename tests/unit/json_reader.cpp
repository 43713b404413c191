// The strict JSON reader: what it refuses, and that it names the place.
#include <clocale>
#include <cmath>
#include <limits>
#include <string>

#include "json/base64.hpp"
#include "json/reader.hpp"
#include "support/catch.hpp"

using namespace sinter;

namespace {

Diagnostic error_of(std::string_view text) {
  const auto r = json::parse(text, "doc.json");
  REQUIRE_FALSE(r.ok());
  return r.error();
}

}  // namespace

TEST_CASE("a JSON document becomes a tree with the lines of its values") {
  const auto r =
      json::parse("{\"a\": [1,\n -2.5, true],\n \"b\": {\"c\": null, \"d\": \"x\"}}", "f");
  REQUIRE(r.ok());
  REQUIRE(r->members.size() == 2);
  const auto& a = r->members[0].value;
  CHECK(a.items[0].integer == 1);
  CHECK(a.items[0].line == 1);
  CHECK(a.items[1].real == -2.5);
  CHECK(a.items[1].line == 2);
  CHECK(a.items[2].boolean);
  CHECK(r->find("b")->line == 3);
  CHECK(r->find("b")->find("d")->text == "x");
  CHECK(r->find("nothing") == nullptr);
}

TEST_CASE("JSON that is not strict is refused with its place") {
  CHECK(error_of("{\"a\": 1,\n\"b\": 2,\n\"a\": 3}").rule == Rule::json_duplicate);
  CHECK(error_of("{\"a\": 1,\n\"b\": 2,\n\"a\": 3}").line == 3);
  CHECK(error_of("{\"a\":\n [1, 2").rule == Rule::json_syntax);
  CHECK(error_of("{\"a\":\n [1, 2").line == 2);
  for (auto text : {"",
                    " ",
                    "{",
                    "[1,]",
                    "{\"a\":1,}",
                    "// c\n1",
                    "1 2",
                    "{} x",
                    "nul",
                    "01",
                    "+1",
                    "1.",
                    ".5",
                    "NaN",
                    "Infinity",
                    "'a'",
                    "\"\n\"",
                    "\"\\x\"",
                    "\"\\ud800\"",
                    "\"\xff\"",
                    "\"\xc0\x80\"",
                    "\"\xed\xa0\x80\""}) {
    INFO(text);
    CHECK(error_of(text).rule == Rule::json_syntax);
  }
  CHECK(error_of(std::string_view("{}\0{", 4)).rule == Rule::json_syntax);
}

TEST_CASE("JSON numbers keep their kind and never wrap") {
  CHECK(error_of("[1, 1e400]").rule == Rule::json_number);
  const auto r = json::parse(
      "[9223372036854775807, 9223372036854775808, -9223372036854775808, "
      "-9223372036854775809, 1e3, 3.0, 123456789012345678901234567890]",
      "");
  REQUIRE(r.ok());
  const auto& v = r->items;
  CHECK((v[0].fits && v[0].integer == std::numeric_limits<std::int64_t>::max()));
  CHECK((v[1].kind == json::Kind::integer && !v[1].fits && v[1].real == 0x1p63));
  CHECK((v[2].fits && v[2].integer == std::numeric_limits<std::int64_t>::min()));
  CHECK((v[3].kind == json::Kind::integer && !v[3].fits));
  CHECK(v[4].kind == json::Kind::real);
  CHECK(v[5].kind == json::Kind::real);
  CHECK((!v[6].fits && v[6].real == 123456789012345678901234567890.0));
}

TEST_CASE("JSON may be nested 64 levels deep and no deeper") {
  const auto nested = [](std::size_t n) { return std::string(n, '[') + std::string(n, ']'); };
  CHECK(json::parse(nested(64), "").ok());
  CHECK(error_of(nested(65)).rule == Rule::json_depth);
  CHECK(error_of(std::string(1'000'000, '[')).rule == Rule::json_depth);
  std::string objects;
  for (int i = 0; i < 100; ++i) objects += "{\"a\":";
  CHECK(error_of(objects).rule == Rule::json_depth);
}

TEST_CASE("numbers are written so that they read back as the same number") {
  const double values[] = {0.0,
                           -0.0,
                           1,
                           -1,
                           0.1,
                           1e300,
                           -1e-300,
                           5e-324,
                           0x1.fffffep127,
                           1e22,
                           3.141592653589793,
                           123456789012345678.0};
  for (double value : values) {
    const std::string text = json::number(value);
    INFO(text);
    const auto r = json::parse("[" + text + "]", "");
    REQUIRE(r.ok());
    CHECK(r->items[0].real == value);
    CHECK(std::signbit(r->items[0].real) == std::signbit(value));
  }
  CHECK(json::number(0.1) == "0.1");
  CHECK(json::number(-std::numeric_limits<double>::infinity()) == "\"-inf\"");
}

TEST_CASE("strings are written so that any bytes stay inside the quotes") {
  for (std::string name : {std::string("plain"), std::string("a\"b\\c\n\t"), std::string("\0x", 2),
                           std::string("gr\xc3\xb6\xc3\x9f"
                                       "e")}) {
    const auto r = json::parse("[" + json::json_string(name) + "]", "");
    REQUIRE(r.ok());
    CHECK(r->items[0].text == name);
  }
  CHECK(json::parse("[" + json::json_string("\xff\xfe") + "]", "").ok());
}

TEST_CASE("base64 round-trips and accepts only its own text") {
  std::string bytes;
  for (int i = 0; i < 300; ++i) {
    const auto text = json::to_base64(bytes);
    REQUIRE(json::from_base64(text) == bytes);
    bytes += static_cast<char>(i * 37);
  }
  CHECK(json::to_base64("foob") == "Zm9vYg==");
  for (auto text : {"Z", "Zm9", "Zm9v Zm9v", "Zm=v", "====", "Zh==x", "Zm9=", "Z===", "Zm9v\n"})
    CHECK_FALSE(json::from_base64(text).has_value());
}
