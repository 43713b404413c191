// Conversions of every storage type, against the definition: the nearest representable number, ties
// to the even code, found here by walking all codes of the type.
#include "reference/element.hpp"

#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "sinter/ops/attributes.hpp"
#include "support/catch.hpp"

using namespace sinter;

namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

double value_of(DataType type, unsigned code) {
  std::uint32_t bits = code;
  return load_element(type, &bits, 0);
}
unsigned code_of(DataType type, double value) {
  std::uint32_t bits = 0;
  store_element(type, &bits, 0, value);
  return bits;
}

struct Format {
  DataType type;
  unsigned largest_code;  // of the largest finite positive number
};
constexpr Format kFormats[] = {
    {f16, 0x7bff}, {bf16, 0x7f7f}, {f8e4m3, 0x7e}, {f8e5m2, 0x7b}, {f4e2m1, 0x7}};

}  // namespace

TEST_CASE("every code of a floating type survives loading and storing", "[reference][element]") {
  for (const auto& f : kFormats) {
    const unsigned sign = f.type == f4e2m1 ? 8u : info(f.type).bytes == 1 ? 0x80u : 0x8000u;
    for (unsigned code = 0; code <= f.largest_code; ++code)
      for (const unsigned c : {code, code | sign}) {
        INFO(name(f.type) << " code " << c);
        REQUIRE(code_of(f.type, value_of(f.type, c)) == c);
      }
    CHECK(value_of(f.type, f.largest_code) == info(f.type).largest);
  }
  for (unsigned code = 0; code < 255; ++code)
    REQUIRE(code_of(f8e8m0, value_of(f8e8m0, code)) == code);
}

TEST_CASE("numbers between two codes go to the nearer, ties to the even code",
          "[reference][element]") {
  for (const auto& f : kFormats)
    for (unsigned code = 0; code < f.largest_code; ++code) {
      const double low = value_of(f.type, code), high = value_of(f.type, code + 1);
      const double middle = low + (high - low) / 2;
      INFO(name(f.type) << " codes " << code << " and " << code + 1);
      REQUIRE(high > low);
      REQUIRE(code_of(f.type, middle) == (code % 2 ? code + 1 : code));
      REQUIRE(code_of(f.type, std::nextafter(middle, 0.0)) == code);
      REQUIRE(code_of(f.type, std::nextafter(middle, kInfinity)) == code + 1);
      REQUIRE(round_to(f.type, -middle) == -round_to(f.type, middle));
    }
}

TEST_CASE("rounding to 16 bits is one rounding of the double", "[reference][element]") {
  // Through float this lies on the tie and goes down; in truth it lies above it.
  CHECK(round_to(f16, 1 + 0x1p-11 + 0x1p-40) == 1 + 0x1p-10);
  CHECK(round_to(bf16, 1 + 0x1p-8 + 0x1p-45) == 1 + 0x1p-7);
  CHECK(round_to(f32, 1 + 0x1p-24) == 1);
  CHECK(round_to(f32, 1 + 0x1p-24 + 0x1p-50) == 1 + 0x1p-23);
}

TEST_CASE("past the largest number f32, f16 and bf16 overflow and the narrower types saturate",
          "[reference][element]") {
  CHECK(round_to(f16, 65519.99) == 65504);
  CHECK(round_to(f16, 65520) == kInfinity);
  CHECK(round_to(bf16, -0x1p128) == -kInfinity);
  CHECK(round_to(f32, 1e39) == kInfinity);
  CHECK(round_to(f8e4m3, 1e9) == 448);
  CHECK(round_to(f8e4m3, -kInfinity) == -448);
  CHECK(round_to(f8e5m2, kInfinity) == 57344);
  CHECK(round_to(f4e2m1, -100) == -6);
  CHECK(code_of(f16, kInfinity) == 0x7c00);
  CHECK(code_of(bf16, -kInfinity) == 0xff80);
}

TEST_CASE("NaN stays NaN where the type has one", "[reference][element]") {
  for (const DataType t : {f64, f32, f16, bf16, f8e4m3, f8e5m2, f8e8m0}) {
    double memory = 0;
    store_element(t, &memory, 0, kNaN);
    INFO(name(t));
    CHECK(std::isnan(load_element(t, &memory, 0)));
    CHECK(std::isnan(round_to(t, kNaN)));
  }
  CHECK(code_of(f8e4m3, kNaN) == 0x7f);
  CHECK(round_to(f4e2m1, kNaN) == 6);
  CHECK(round_to(i32, kNaN) == 0);
  CHECK(round_to(boolean, kNaN) == 1);
}

TEST_CASE("f8e8m0 rounds up to a power of two", "[reference][element]") {
  CHECK(round_to(f8e8m0, 1) == 1);
  CHECK(round_to(f8e8m0, 1.0000001) == 2);
  CHECK(round_to(f8e8m0, 0.75) == 1);
  CHECK(round_to(f8e8m0, 0) == 0x1p-127);
  CHECK(round_to(f8e8m0, 1e-50) == 0x1p-127);
  CHECK(std::isnan(round_to(f8e8m0, -1)));
  CHECK(round_to(f8e8m0, 1e50) == 0x1p127);
  CHECK(code_of(f8e8m0, 1) == 127);
  CHECK(value_of(f8e8m0, 0) == 0x1p-127);
}

TEST_CASE("integers round to nearest even and saturate", "[reference][element]") {
  CHECK(round_to(i8, 2.5) == 2);
  CHECK(round_to(i8, 3.5) == 4);
  CHECK(round_to(i8, 1000) == 127);
  CHECK(round_to(i8, -1000) == -128);
  CHECK(round_to(u8, -3) == 0);
  CHECK(round_to(u8, 255.4) == 255);
  CHECK(round_to(i32, 1e20) == 2147483647);
  CHECK_FALSE(std::signbit(round_to(i32, -0.25)));
  std::int64_t big = 0;
  store_element(i64, &big, 0, 1e30);
  CHECK(big == std::numeric_limits<std::int64_t>::max());
  store_element(i64, &big, 0, -1e30);
  CHECK(big == std::numeric_limits<std::int64_t>::min());
}

TEST_CASE("bool holds whether a number is not zero", "[reference][element]") {
  CHECK(round_to(boolean, 1e-300) == 1);
  CHECK(round_to(boolean, -0.0) == 0);
  const unsigned char bytes[] = {0, 1, 7};
  CHECK(load_element(boolean, bytes, 0) == 0);
  CHECK(load_element(boolean, bytes, 2) == 1);
}
