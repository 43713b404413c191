// The formulas as kernels compute them, in float and double, where they leave the numbers: against
// the oracle's limits (tests/reference/oracle/limits.py) and inside the bounds that judge kernels.
#include <cmath>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>

#include "golden/device_formulas.hpp"
#include "reference/apply.hpp"
#include "sinter/json.hpp"
#include "sinter/ops/op_table.hpp"
#include "support/catch.hpp"
#include "support/environment.hpp"

using namespace sinter;
using namespace sinter::reference;
using Json = nlohmann::json;

namespace {

constexpr double kLargest = std::numeric_limits<float>::max();

double number(const Json& j) {
  if (j.is_number()) return j.get<double>();
  const double inf = std::numeric_limits<double>::infinity();
  return j == "inf" ? inf : j == "-inf" ? -inf : std::numeric_limits<double>::quiet_NaN();
}

// One operation at one point.
struct Point {
  PointwiseMode mode;
  double operands[3] = {}, params[3] = {}, expected = 0;

  template <class T>
  T on_device() const {
    T x[3], p[3];
    for (int i = 0; i < 3; ++i)
      x[i] = static_cast<T>(operands[i]), p[i] = static_cast<T>(params[i]);
    return test::device_formula(mode, x, p);
  }
  template <class T>
  Bounded<T> bounded() const {
    Bounded<T> x[3], p[3], r;
    for (int i = 0; i < 3; ++i) x[i] = Bounded<T>(operands[i]), p[i] = Bounded<T>(params[i]);
    with_formula(mode, [&]<class Formula>(Formula) { r = reference::apply<Formula>(x, p); });
    return r;
  }
  bool in_float() const {
    for (const double x : operands)
      if (std::isfinite(x) && static_cast<double>(static_cast<float>(x)) != x) return false;
    return true;
  }
};

template <class F>
void each_point(F&& f) {
  std::ifstream file(test::source_tree() + "/tests/reference/oracle.json");
  const Json oracle = Json::parse(file);
  int modes = 0;
  for (const Json& c : oracle.at("cases")) {
    if (!c.contains("limits")) continue;
    ++modes;
    const std::string name = c.at("name");
    const auto graph = graph_from_json(c.at("graph").dump());
    REQUIRE(graph);
    const auto* pointwise = std::get_if<PointwiseAttributes>(&(*graph)->nodes()[0].attributes);
    if (!pointwise) continue;
    const PointwiseAttributes& a = *pointwise;
    Point p{.mode = a.mode};
    for (int i = 0; i < info(a.mode).params; ++i) p.params[i] = a.*info(a.mode).param[i];
    const Json& outputs = c.at("outputs").at("y");
    for (std::size_t i = 0; i < outputs.size(); ++i) {
      int k = 0;
      for (const auto& [input, values] : c.at("inputs").items())
        p.operands[k++] = number(values[i]);
      p.expected = number(outputs[i]);
      f(name, p);
    }
  }
  CHECK(modes > 70);
}

bool same_sign_of_zero(double a, double b) {
  return a != 0 || b != 0 || std::signbit(a) == std::signbit(b);
}

}  // namespace

TEST_CASE("float formulas of kernels keep the limits and their bounds", "[limits]") {
  int judged = 0, open = 0;
  each_point([&](const std::string& name, const Point& p) {
    if (!p.in_float()) return;
    const auto seen = static_cast<double>(p.on_device<float>());
    const auto b = p.bounded<float>();
    CAPTURE(name, p.operands[0], p.operands[1], p.operands[2], p.expected, seen, b.v, b.e);
    // What float cannot hold, or holds only if nothing rounds up, is not judged; nor is the square
    // of add_square, which some kernels round before the sum.
    const bool overflows =
        (std::isfinite(p.expected) && std::fabs(p.expected) > 0.9999 * kLargest) ||
        (p.mode == PointwiseMode::add_square && p.operands[1] * p.operands[1] > kLargest);
    ++judged;
    if (!b.trusted()) {
      ++open;
      if (!overflows) FAIL_CHECK("not judged");
      return;
    }
    const bool nan = p.expected != p.expected;
    const bool agree = nan ? b.v != b.v : distance(b.v, p.expected) <= 1e-11 * std::fabs(b.v) + b.e;
    if (!agree) FAIL_CHECK("the reference is off");
    if (!(nan ? seen != seen : distance(seen, b.v) <= b.e)) FAIL_CHECK("the kernel is off");
    if (!name.ends_with("_bwd") && b.e == 0 && !same_sign_of_zero(seen, p.expected))
      FAIL_CHECK("another sign of zero");
  });
  CHECK(judged > 9000);
  CHECK(open * 10 < judged);
}

TEST_CASE("double formulas of kernels keep the limits and their bounds", "[limits]") {
  each_point([&](const std::string& name, const Point& p) {
    const double seen = p.on_device<double>();
    const auto b = p.bounded<double>();
    CAPTURE(name, p.operands[0], p.operands[1], p.operands[2], p.expected, seen, b.v, b.e);
    const bool nan = p.expected != p.expected;
    if (!(nan ? seen != seen
              : distance(seen, p.expected) <= 1e-11 * std::fabs(p.expected) + 0x1p-1070))
      FAIL_CHECK("the kernel is off");
    if (b.trusted() && !(b.v != b.v ? seen != seen : distance(seen, b.v) <= b.e))
      FAIL_CHECK("beyond the bound");
  });
}
