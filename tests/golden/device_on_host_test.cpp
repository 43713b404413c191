// The arithmetic of the device library that needs no GPU, compiled for the host: number formats and
// random numbers, against independent definitions.
#include "support/device_on_host.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string_view>
#include <vector>

#include "embed/embedded.hpp"
#include "emit/body_text.hpp"
#include "reference/bounded_math.hpp"
#include "reference/element.hpp"
#include "reference/philox.hpp"
#include "schedule/attention/forward_parts.hpp"
#include "schedule/contraction/depthwise_boxes.hpp"
#include "schedule/gathering.hpp"
#include "sinter/ops/pointwise_host.hpp"
#include "support/catch.hpp"

namespace on_device {
#include "sinter/device/core/philox.cuh"
#include "sinter/device/core/types.cuh"
}  // namespace on_device

namespace {

namespace device = on_device::sinter;
using on_device::bits_as;

bool same(double a, double b) {
  return a == b ? std::signbit(a) == std::signbit(b) : a != a && b != b;
}

// Every finite value of a format with the code that holds it.
template <class Element>
std::vector<std::pair<double, int>> finite_values(int codes) {
  std::vector<std::pair<double, int>> values;
  for (int code = 0; code < codes; ++code) {
    const double v = Element{static_cast<unsigned char>(code)}.decode();
    if (std::isfinite(v)) values.push_back({v, code});
  }
  return values;
}

// The nearest finite value of the same sign, the even code of two that are equally near: by search.
double nearest(const std::vector<std::pair<double, int>>& values, double x) {
  x = std::min(std::max(x, -1e6), 1e6);  // beyond every format, where distances are still exact
  double best = 0, distance = std::numeric_limits<double>::infinity();
  int best_code = 1;
  for (const auto& [v, code] : values) {
    if (std::signbit(v) != std::signbit(x)) continue;
    const double d = std::fabs(v - x);
    if (d < distance || (d == distance && code % 2 == 0 && best_code % 2 == 1))
      best = v, distance = d, best_code = code;
  }
  return best;
}

// Numbers at, near and between the values of a format, and far outside it.
std::vector<double> probes(const std::vector<std::pair<double, int>>& values) {
  std::vector<double> x = {1e-300, -1e-300, 1e300, -1e300, 0x1p-149, -0x1p-149, 0x1.8p-150};
  for (std::size_t i = 0; i < values.size(); ++i)
    for (std::size_t j = 0; j <= i; ++j) {
      const double at = (values[i].first + values[j].first) / 2;
      x.insert(x.end(), {at, std::nextafter(at, -1e308), std::nextafter(at, 1e308)});
    }
  std::mt19937_64 random(7);
  for (int i = 0; i < 20000; ++i)
    x.push_back(std::ldexp(std::normal_distribution<double>()(random),
                           static_cast<int>(random() % 40) - 20));
  return x;
}

template <class Element>
void check_minifloat(int codes, sinter::DataType type) {
  const auto values = finite_values<Element>(codes);
  for (int code = 0; code < codes; ++code) {
    const Element e{static_cast<unsigned char>(code)};
    const unsigned char byte = e.bits;
    INFO("code " << code);
    CHECK(same(e.decode(), sinter::load_element(type, &byte, 0)));
    if (std::isfinite(e.decode())) CHECK(Element::encode(e.decode()).bits == code);
  }
  int wrong = 0;
  for (double x : probes(values)) {
    const double expected = nearest(values, x);
    wrong += !same(device::convert<Element>(x), expected);
    wrong += !same(expected, sinter::round_to(type, x));
    const float f = static_cast<float>(x);
    if (std::isfinite(f)) wrong += !same(device::convert<Element>(f), nearest(values, f));
  }
  CHECK(wrong == 0);
  const double infinity = std::numeric_limits<double>::infinity(),
               largest = sinter::info(type).largest;
  CHECK(device::convert<Element>(infinity) == largest);
  CHECK(device::convert<Element>(-infinity) == -largest);
}

}  // namespace

TEST_CASE("device f8e4m3 rounds once to nearest even and saturates") {
  check_minifloat<device::f8e4m3>(256, sinter::f8e4m3);
  CHECK(device::f8e4m3::encode(NAN).bits == 0x7f);
}

TEST_CASE("device f8e5m2 rounds once to nearest even and saturates") {
  check_minifloat<device::f8e5m2>(256, sinter::f8e5m2);
  CHECK(device::f8e5m2::encode(NAN).bits == 0x7f);
}

TEST_CASE("device f4e2m1 rounds once to nearest even, saturates, and has no NaN") {
  check_minifloat<device::f4e2m1>(16, sinter::f4e2m1);
  CHECK(device::f4e2m1::encode(NAN).bits == 7);
  CHECK(device::f4e2m1::encode(-NAN).bits == 7);
}

TEST_CASE("device f8e8m0 goes up to the next power of two and has no negative numbers") {
  for (int code = 0; code < 256; ++code) {
    const device::f8e8m0 e{static_cast<unsigned char>(code)};
    CHECK(same(e.decode(), code == 255 ? NAN : std::ldexp(1.0, code - 127)));
    if (code == 255) continue;
    const double v = e.decode();
    CHECK(device::Format<device::f8e8m0>::encode(v).bits == code);
    CHECK(device::Format<device::f8e8m0>::encode(-v).bits == 255);
    CHECK(std::isnan(sinter::round_to(sinter::f8e8m0, -v)));
    const int above = std::min(code + 1, 254);
    CHECK(device::Format<device::f8e8m0>::encode(std::nextafter(v, 1e300)).bits == above);
    CHECK(device::Format<device::f8e8m0>::encode(std::nextafter(v, 0.0)).bits == code);
  }
  CHECK(device::f8e8m0::encode(0.0f).bits == 0);
  CHECK(device::f8e8m0::encode(-0.0f).bits == 0);
  CHECK(sinter::round_to(sinter::f8e8m0, -0.0) == 0x1p-127);
  for (const float x : {NAN, -INFINITY, -0x1p-149f}) {
    CHECK(device::f8e8m0::encode(x).bits == 255);
    CHECK(std::isnan(sinter::round_to(sinter::f8e8m0, x)));
  }
  CHECK(device::Format<device::f8e8m0>::encode(-1e-300).bits == 255);
  CHECK(device::f8e8m0::encode(INFINITY).bits == 254);
}

TEST_CASE("rounding a double to odd first makes the second rounding the only one") {
  std::mt19937_64 random(11);
  int wrong = 0;
  for (sinter::DataType type : {sinter::f16, sinter::bf16})
    for (int i = 0; i < 200000; ++i) {
      // Near the middle between two neighbours, where rounding twice goes wrong.
      const double v = sinter::round_to(
          type, std::ldexp(1 + (random() >> 11) * 0x1p-53, static_cast<int>(random() % 60) - 35));
      const int precision = sinter::info(type).precision;
      const double middle = v * (1 + std::ldexp(i % 2 ? 1.0 : -1.0, -precision));
      const double x = middle * (1 + std::ldexp(static_cast<double>(i % 3 - 1),
                                                -30 - static_cast<int>(random() % 22)));
      wrong += !same(sinter::round_to(type, device::round_to_odd(x)), sinter::round_to(type, x));
      wrong += !same(sinter::round_to(type, device::round_to_odd(-x)), sinter::round_to(type, -x));
    }
  CHECK(wrong == 0);
  CHECK(device::round_to_odd(0.0) == 0.0f);
  CHECK(device::round_to_odd(1e-300) == 0x1p-149f);
  CHECK(device::round_to_odd(1e300) == 0x1.fffffep127f);
  CHECK(std::isinf(device::round_to_odd(INFINITY)));
  CHECK(std::isnan(device::round_to_odd(NAN)));
}

TEST_CASE("schedules count with the rows and columns that the device library has") {
  const auto& files = sinter::embedded_files();
  const auto says = [&](std::string_view name, const std::string& declaration) {
    const auto file = std::find_if(std::begin(files), std::end(files), [&](const auto& f) {
      return std::string_view(f.name).ends_with(name);
    });
    return file != std::end(files) &&
           std::string_view(file->text).find(declaration) != std::string_view::npos;
  };
  constexpr int kRows = sinter::kEpilogueTileBytes / 4 / sinter::kEpilogueTileColumns;
  CHECK(says("/contraction_epilogue_tile.cuh",
             fmt::format("struct EpilogueTile {{\n  static constexpr int rows = {}, columns = {};",
                         kRows, sinter::kEpilogueTileColumns)));
  CHECK(says("/attention_forward_parts.cuh",
             fmt::format("struct BlocksOfRows {{\n  static constexpr int rows = {};",
                         sinter::kJoinedRows)));
  CHECK_FALSE(says("/attention_forward_parts.cuh", "static constexpr int rows = 17;"));
  CHECK(says("/resampled.cuh", fmt::format("kWrittenOut = {};", sinter::kWrittenOut)));
  CHECK(says("/contraction_depthwise_boxes.cuh",
             fmt::format("kStepsBehind = {};", sinter::kStepsBehind)));
}

// in_both_words() says why.
TEST_CASE("doubles are converted to 32 bits behind an addition") {
  int seen = 0;
  for (const auto& file : sinter::embedded_files()) {
    INFO(file.name);
    const std::string_view text = file.text;
    for (auto at = text.find("__double2"); at != text.npos; at = text.find("__double2", at + 1)) {
      if (text.substr(at).starts_with("__double2ll")) continue;
      const auto operand = text.find('(', at) + 1;
      INFO(text.substr(at, 60));
      CHECK(text.substr(operand).starts_with("in_both_words("));
      ++seen;
    }
  }
  CHECK(seen >= 3);
}

TEST_CASE("device integers saturate, NaN is zero, and bool is not zero") {
  CHECK(device::Format<device::i8>::encode(127.5f) == 127);
  CHECK(device::Format<device::i8>::encode(-1000.0) == -128);
  CHECK(device::Format<device::u8>::encode(-1.0f) == 0);
  CHECK(device::Format<device::u8>::encode(2.5) == 2);
  CHECK(device::Format<device::u8>::encode(3.5) == 4);
  CHECK(device::Format<device::i32>::encode(NAN) == 0);
  CHECK(device::Format<device::i64>::encode(static_cast<double>(NAN)) == 0);
  CHECK(device::convert<device::bool8>(0.0f) == 0.0f);
  CHECK(device::convert<device::bool8>(-0.0) == 0.0);
  CHECK(device::convert<device::bool8>(1e-300) == 1.0);
  CHECK(device::convert<device::bool8>(static_cast<float>(NAN)) == 1.0f);
  CHECK(device::bool8{7}.decode() == 1.0f);
}

// Every pair of zeros, infinities, NaN and ordinary numbers.
template <class T>
void check_extrema() {
  const T inf = std::numeric_limits<T>::infinity(), nan = std::numeric_limits<T>::quiet_NaN();
  const T tiny = std::numeric_limits<T>::denorm_min();
  const T values[] = {-inf, T(-2), -tiny, T(-0.0), T(0.0), tiny, T(2), inf, nan};  // ascending
  for (int i = 0; i < 9; ++i)
    for (int j = 0; j < 9; ++j) {
      const T a = values[i], b = values[j], nan_or_max = values[std::max(i, j)],
              nan_or_min = i == 8 || j == 8 ? nan : values[std::min(i, j)];
      INFO(a << " and " << b);
      CHECK(same(device::math::maximum(a, b), nan_or_max));
      CHECK(same(device::math::minimum(a, b), nan_or_min));
      CHECK(same(sinter::math::maximum(a, b), nan_or_max));
      CHECK(same(sinter::math::minimum(a, b), nan_or_min));
    }
}

TEST_CASE("maximum and minimum keep NaN and order zeros by sign, on the device and on the host") {
  check_extrema<float>();
  check_extrema<double>();
}

// The device's own functions over all magnitudes, against the bounds that kernels are judged by.
// Some ulp of the bound (`left`) are left to what the GPU's exponential is less accurate than the
// host's: 1.5 each time that it is a factor.
template <class Device, class Bound>
void check_accuracy(Device on_device, Bound bound, double lowest, double highest, double left) {
  using B = sinter::reference::Bounded<float>;
  std::mt19937_64 random(13);
  for (int i = 0; i < 400000; ++i) {
    const double uniform = static_cast<double>(random() >> 11) * 0x1p-53;
    double v = lowest + (highest - lowest) * uniform;
    if (i % 2) v = (v < 0 ? lowest : highest) * std::exp2(-150.0 * uniform);
    const auto x = static_cast<float>(v);
    const B expected = bound(B(x, 0.0));
    const double error = std::fabs(on_device(x) - expected.v),
                 spared = left * 0x1p-23 * std::fabs(expected.v);
    if (error + spared <= expected.e + 0x1p-148) continue;
    CAPTURE(x, expected.v, error);
    FAIL_CHECK("beyond the bound");
  }
}

TEST_CASE("the device's own functions keep the error that the reference allows them") {
  using B = sinter::reference::Bounded<float>;
  check_accuracy([](float x) { return device::math::normal_tail(x); },
                 [](const B& x) { return normal_tail(x); }, 0, 64, 3);
  check_accuracy([](float x) { return device::math::expm1_nonpositive(x); },
                 [](const B& x) { return expm1_nonpositive(x); }, -105, 0, 0);
  check_accuracy([](float x) { return device::math::log1p_unit(x); },
                 [](const B& x) { return log1p_unit(x); }, 0, 1, 0);
  const float inf = INFINITY;
  CHECK(device::math::normal_tail(0.0f) == 0.5f);
  CHECK(device::math::normal_tail(64.0f) == 0);
  CHECK(device::math::expm1_nonpositive(-inf) == -1);
  CHECK(device::math::log1p_unit(0.0f) == 0);
  CHECK(std::isnan(device::math::normal_tail(NAN)));
  CHECK(std::isnan(device::math::expm1_nonpositive(NAN)));
  CHECK(std::isnan(device::math::log1p_unit(NAN)));
}

TEST_CASE("division by a power of two is what its inverse gives") {
  std::mt19937 random(11);
  for (int exponent = -127; exponent <= 127; ++exponent) {
    const float y = std::ldexp(1.0f, exponent);
    for (int i = 0; i < 2000; ++i) {
      const auto bits = static_cast<std::uint32_t>(random());
      float x;
      std::memcpy(&x, &bits, 4);
      if (!same(device::math::divide(x, device::math::PowerOfTwo(y)), x / y)) FAIL_CHECK(exponent);
    }
  }
  CHECK(std::isnan(device::math::divide(1.0f, device::math::PowerOfTwo(NAN))));
}

TEST_CASE("division of many numbers by one gives the rounded quotients") {
  const auto check = [](float x, float y) {
    const float expected = x / y, q = device::math::divide(x, device::math::Divisor(y));
    // As the error-carrying reference has it.
    const double exact = static_cast<double>(x) / y, error = std::fabs(q - exact),
                 allowed = std::fabs(expected - exact) +
                           sinter::reference::missed_by_divisor<float>(exact);
    const bool sign = expected != 0 || std::signbit(q) == std::signbit(expected);
    if (same(q, expected) || (error <= allowed && sign)) return;
    CAPTURE(x, y, expected, q);  // writing numbers takes ten times as long as the division
    FAIL_CHECK("not the rounded quotient");
  };
  std::mt19937 random(7);
  const auto any_bits = [&] {
    const auto bits = static_cast<std::uint32_t>(random());
    float x;
    std::memcpy(&x, &bits, 4);
    return x;
  };
  for (int i = 0; i < 1000000; ++i) check(any_bits(), any_bits());
  for (int a = -300; a <= 300; ++a)
    for (int b = -300; b <= 300; ++b) check(static_cast<float>(a), static_cast<float>(b));
  const float inf = INFINITY, most = std::numeric_limits<float>::max();
  const float special[] = {0.0f, -0.0f, inf, -inf, NAN, most, -most, 0x1p-149f, 0x1p-126f, 1, -3};
  for (float x : special)
    for (float y : special) check(x, y);
  for (int i = 0; i < 100000; ++i)
    for (float y : special) check(any_bits(), y), check(y, any_bits());
}

TEST_CASE("device bf16 as a float is what is stored and read back") {
  std::mt19937 random(5);
  int wrong = 0;
  for (int i = 0; i < 100000; ++i) {
    const float x = bits_as<float>(static_cast<unsigned>(random()));
    wrong += !same(device::convert<device::bf16>(x), device::bf16::encode(x).decode());
  }
  CHECK(wrong == 0);
}

// A tensor whose logical index is index 0 of the domain.
struct Line : device::Strided {
  using Stride = device::Dims<1>;
};
using LineCoord = device::Coordinates<int, device::Dims<64>>;
LineCoord line_at(int index) {
  LineCoord c;
  c.at[0] = index;
  return c;
}

device::Philox4 one_run(unsigned long long key, unsigned long long counter) {
  device::Philox4 x[1];
  device::philox4x32_10(key, {counter}, x);
  return x[0];
}

TEST_CASE("device Philox gives the published numbers and those of the reference") {
  // Known answer of Random123 for a zero key and counter.
  const unsigned known[] = {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8};
  const auto zero = one_run(0, 0);
  for (int i = 0; i < 4; ++i) CHECK(zero.lane[i] == known[i]);
  std::mt19937_64 random(3);
  for (int i = 0; i < 1000; ++i) {
    const auto key = random(), counter = random();
    const auto expected = sinter::reference::philox(key, counter);
    const auto seen = one_run(key, counter);
    for (std::size_t lane = 0; lane < 4; ++lane) CHECK(seen.lane[lane] == expected[lane]);
  }
}

TEST_CASE("device distributions follow the element's lane and counter") {
  const auto number = [](int index, const auto& distribution) {
    return device::random<double, Line>(42, 7, line_at(index), distribution);
  };
  for (int index = 0; index < 64; ++index) {
    const auto lanes = sinter::reference::philox(42, 7 + static_cast<std::uint64_t>(index) / 4);
    const auto u = [&](int lane) {
      return (lanes[static_cast<std::size_t>(lane)] + 0.5) / 4294967296.0;
    };
    const int pair = index % 4 / 2 * 2;
    const double radius = std::sqrt(-2 * std::log(u(pair)));
    const double angle = 2 * 3.14159265358979323846 * u(pair + 1);
    const double normal = radius * (index % 2 ? std::sin(angle) : std::cos(angle));
    const device::Bernoulli bernoulli{sinter::bernoulli_limit(0.3)};
    CHECK(number(index, device::Uniform{0, 1}) == u(index % 4));
    CHECK(number(index, bernoulli) == (u(index % 4) < 0.3 ? 1 : 0));
    CHECK(number(index, device::Normal{1, 2}) == Approx(1 + 2 * normal).epsilon(1e-12));
  }
}

// Packs of `width` neighbours that start at any multiple of `together`.
template <int width, int together, int beside = 4>
void check_packs() {
  const device::Bernoulli bernoulli{sinter::bernoulli_limit(0.3)};
  const device::Normal normal{1, 2};
  int wrong = 0;
  for (int first = 0; first < 32; first += together) {
    device::RandomBits<width> bits;
    device::RandomPack<double, width> numbers;
    device::draw<Line, 0, together, beside, width>(42, 7, line_at(first), bits, bernoulli);
    device::draw<Line, 0, together, beside, width>(42, 7, line_at(first), numbers, normal);
    for (int e = 0; e < width; ++e) {
      const auto c = line_at(first + e);
      wrong += device::drawn<float>(bits, e) != device::random<float, Line>(42, 7, c, bernoulli);
      wrong += device::drawn<double>(numbers, e) != device::random<double, Line>(42, 7, c, normal);
    }
  }
  CHECK(wrong == 0);
}

TEST_CASE("a pack of random numbers holds those of its elements") {
  check_packs<1, 1>();
  check_packs<2, 1>();
  check_packs<2, 2>();
  check_packs<4, 4>();
  check_packs<8, 1>();
  check_packs<8, 2>();
  check_packs<8, 4>();
  check_packs<16, 4>();
  check_packs<16, 4, 1>();
  check_packs<8, 1, 2>();
  check_packs<1, 4>();  // what is left of a row of packs
}

TEST_CASE("uniform numbers are rounded once") {
  int wrong = 0;
  const auto check = [&](unsigned x) {
    const double exact = (x + 0.5) * 0x1p-32;
    wrong += device::unit_interval<double>(x) != exact;
    wrong += device::unit_interval<float>(x) != static_cast<float>(exact);
  };
  for (int bit = 0; bit < 32; ++bit)
    for (int off = -20; off <= 20; ++off) check((1u << bit) + static_cast<unsigned>(off));
  std::mt19937 random(9);
  for (int i = 0; i < 100000; ++i) check(static_cast<unsigned>(random()) >> i % 32);
  CHECK(wrong == 0);
}

TEST_CASE("Bernoulli's comparison of integers is that of the uniform numbers") {
  constexpr std::uint64_t kEnd = 1ull << 32;
  std::vector<double> probabilities = {0,       -0.0,      1,  0.5, 0.1,       0.9,   0x1p-33,
                                       0x1p-32, 0x1.8p-33, -1, 2,   0x1p-1074, 1e300, NAN};
  for (double p : {0x1p-33, 0x1.8p-32, 1 - 0x1p-33, 1 - 0x1p-32, 0.5, 0.5 + 0x1p-33, 0.3, 1.0})
    for (double to : {-1.0, 2.0}) probabilities.push_back(std::nextafter(p, to));
  std::mt19937_64 random(5);
  for (int i = 0; i < 1000; ++i)
    probabilities.push_back((static_cast<double>(random() >> 32) + (i % 2 ? 0.5 : 0)) * 0x1p-32);
  for (double p : probabilities) {
    const std::uint64_t limit = sinter::bernoulli_limit(p);
    REQUIRE(limit <= kEnd);
    const auto holds = [&](std::uint64_t x) {
      return device::unit_interval<double>(static_cast<unsigned>(x)) < p;
    };
    INFO(p << " " << limit);
    CHECK((limit == 0 || holds(limit - 1)));
    CHECK((limit == kEnd || !holds(limit)));
  }
}
