// The error bounds must hold: random expressions, evaluated in float with several orders and with
// and without contraction to fma, never leave the bound that Bounded<float> gives them.
#include <cmath>
#include <random>
#include <vector>

#include "reference/apply.hpp"
#include "reference/bounded_math.hpp"
#include "support/catch.hpp"

using namespace sinter;
using namespace sinter::reference;
using B = Bounded<float>;

namespace {

// A number as three kernels compute it beside its bounded value.
struct Tracked {
  B bounded;
  std::vector<float> kernels;
};

bool holds(const B& b, float kernel) {
  if (!b.trusted()) return true;
  if (b.v != b.v) return kernel != kernel;
  return distance(b.v, static_cast<double>(kernel)) <= b.e;
}

Tracked constant(float v) { return {B(v, 0), {v, v, v}}; }

Tracked map(const Tracked& a, B (*bounded)(const B&), float (*plain)(float)) {
  Tracked r{bounded(a.bounded), {}};
  for (float k : a.kernels) r.kernels.push_back(plain(k));
  return r;
}

// Multiply-add: rounded twice in kernel 0, once in kernel 1, and as the product alone in kernel 2.
Tracked multiply_add(const Tracked& a, const Tracked& b, const Tracked& c) {
  Tracked r{a.bounded * b.bounded + c.bounded, {}};
  const volatile float product = a.kernels[0] * b.kernels[0];
  r.kernels.push_back(product + c.kernels[0]);
  r.kernels.push_back(std::fma(a.kernels[1], b.kernels[1], c.kernels[1]));
  r.kernels.push_back(static_cast<float>(static_cast<double>(a.kernels[2]) * b.kernels[2]) +
                      c.kernels[2]);
  return r;
}

Tracked divide(const Tracked& a, const Tracked& b) {
  Tracked r{a.bounded / b.bounded, {}};
  for (int i = 0; i < 3; ++i)
    r.kernels.push_back(a.kernels[static_cast<std::size_t>(i)] /
                        b.kernels[static_cast<std::size_t>(i)]);
  return r;
}

Tracked choose(const Tracked& a, const Tracked& b) {
  Tracked r{select(less(a.bounded, b.bounded), a.bounded + b.bounded, b.bounded * B(3.0f)), {}};
  for (std::size_t i = 0; i < 3; ++i)
    r.kernels.push_back(a.kernels[i] < b.kernels[i] ? a.kernels[i] + b.kernels[i]
                                                    : b.kernels[i] * 3.0f);
  return r;
}

float random_float(std::mt19937_64& random) {
  const double sizes[] = {1, 1, 1, 1e-3, 30, 1e5, 1e-20};
  const double v = std::normal_distribution<>()(random) * sizes[random() % 7];
  return random() % 5 == 0 ? static_cast<float>(std::rint(v)) : static_cast<float>(v);
}

}  // namespace

TEST_CASE("no float evaluation of a random expression leaves its bound", "[reference][bounded]") {
  std::mt19937_64 random(20240607);
  int trusted = 0, checked = 0;
  for (int trial = 0; trial < 20000; ++trial) {
    std::vector<Tracked> pool;
    for (int i = 0; i < 4; ++i) pool.push_back(constant(random_float(random)));
    for (int step = 0; step < 8; ++step) {
      const auto any = [&]() -> const Tracked& { return pool[random() % pool.size()]; };
      Tracked next;
      switch (random() % 12) {
        case 0:
        case 1:
        case 2:
        case 3:
          next = multiply_add(any(), any(), any());
          break;
        case 4:
          next = divide(any(), any());
          break;
        case 5:
          next = choose(any(), any());
          break;
        case 6:
          next = map(
              any(), [](const B& x) { return sqrt(x); }, [](float x) { return std::sqrt(x); });
          break;
        case 7:
          next = map(
              any(), [](const B& x) { return exp(x); }, [](float x) { return std::exp(x); });
          break;
        case 8:
          next = map(
              any(), [](const B& x) { return tanh(x); }, [](float x) { return std::tanh(x); });
          break;
        case 9:
          next = map(
              any(), [](const B& x) { return floor(x); }, [](float x) { return std::floor(x); });
          break;
        case 10:
          next = map(
              any(), [](const B& x) { return normal_tail(abs(x)); },
              [](float x) { return math::normal_tail(std::fabs(x)); });
          break;
        default:
          next = map(
              any(), [](const B& x) { return log(abs(x)); },
              [](float x) { return std::log(std::fabs(x)); });
          break;
      }
      for (const float k : next.kernels) {
        if (holds(next.bounded, k)) continue;
        CAPTURE(trial, step, next.bounded.v, next.bounded.e, k);
        FAIL("outside of its bound");
      }
      ++checked;
      trusted += next.bounded.trusted();
      pool.push_back(std::move(next));
    }
  }
  CHECK(trusted > checked / 2);  // a bound of infinity everywhere would hold as well
}

TEST_CASE("every pointwise formula in float stays inside its bound", "[reference][bounded]") {
  std::mt19937_64 random(7);
  for (int m = 0; m < static_cast<int>(std::size(EnumNames<PointwiseMode>::names)); ++m) {
    const auto mode = static_cast<PointwiseMode>(m);
    if (mode == PointwiseMode::gen_index) continue;
    with_formula(mode, [&]<class Formula>(Formula) {
      int trusted = 0, tight = 0;
      for (int trial = 0; trial < 4000; ++trial) {
        B bounded[3];
        double exact[3];
        float plain[3];
        for (int i = 0; i < 3; ++i) {
          // A kernel's operand that is off by up to e.
          const float v = random_float(random);
          const double e = trial % 2 ? std::fabs(v) * 0x1p-20 : 0;
          exact[i] = v;
          bounded[i] = B(v, e);
          plain[i] =
              e == 0
                  ? static_cast<float>(v)
                  : static_cast<float>(v + e * (static_cast<double>(random() % 2001) / 1000 - 1));
          if (distance(plain[i], v) > e) plain[i] = v;
        }
        const B params[] = {B(0.25), B(4.0), B(0.1)};
        const float float_params[] = {0.25f, 4.0f, 0.1f};
        const B r = apply<Formula>(bounded, params);
        const float k = apply<Formula>(plain, float_params);
        if (!holds(r, k)) {
          CAPTURE(name(mode), exact[0], exact[1], exact[2], plain[0], plain[1], plain[2], r.v, r.e,
                  k);
          FAIL("outside of its bound");
        }
        trusted += r.trusted();
        tight += r.trusted() && r.e <= 0x1p-10 * (std::fabs(r.v) + 1);
      }
      INFO(name(mode));
      CHECK(trusted > 1000);
      CHECK(tight > 500);
    });
  }
}

TEST_CASE("integer-valued data stays exact", "[reference][bounded]") {
  const B a(3.0f), b(-7.0f);
  for (const B& r : {a + b, a * b, a - b, minimum(a, b), abs(b), B(12.0f) / a, sqrt(B(49.0f)),
                     a * b + B(1.0f), floor(a), -b}) {
    CAPTURE(r.v);
    CHECK(r.e == 0);
  }
  CHECK((B(1.0f) / a).e > 0);
  CHECK((B(1.0f) / a).e < 0x1p-25);
  CHECK((B(16777216.0f) + B(1.0f)).e == 1);  // half way between two floats: may be either
}

TEST_CASE("exact infinities and NaN are exact, inexact operands make them open",
          "[reference][bounded]") {
  const double inf = std::numeric_limits<double>::infinity();
  const B infinite(inf, 0), nan(std::numeric_limits<double>::quiet_NaN(), 0), near(1.0, 1e-6),
      around_zero(0.0, 1e-6);
  CHECK((infinite + near).e == 0);
  CHECK((infinite - infinite).exact_nan());
  CHECK((infinite * near).v == inf);
  CHECK((infinite * near).e == 0);
  CHECK_FALSE((infinite * around_zero).trusted());
  CHECK_FALSE((near / around_zero).trusted());
  CHECK((B(1.0f) / B(0.0f)).v == inf);
  CHECK((nan + near).exact_nan());
  CHECK(minimum(nan, near).exact_nan());
  CHECK(exp(-infinite).v == 0);
  CHECK(exp(-infinite).e == 0);
  CHECK_FALSE((B(3e38f) * B(10.0f)).trusted());
  CHECK_FALSE(sqrt(around_zero).trusted());
  CHECK(tanh(infinite).e == 0);
  CHECK(less(nan, near).certain);
  CHECK_FALSE(less(B(1.0f), near).certain);
  CHECK(less(B(0.5f), near).certain);
}
