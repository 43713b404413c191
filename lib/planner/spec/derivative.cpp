#include "planner/spec/derivative.hpp"

#include "planner/spec/body_copy.hpp"

namespace sinter {
namespace {

constexpr int kZero = -1;  // the derivative of what does not depend on the sum

class Differentiation {
 public:
  Differentiation(KernelSpec& spec, const Body& body) : spec_(spec), result_(body) {}

  std::optional<Body> run() {
    const int count = static_cast<int>(result_.statements.size());
    for (int i = 0; i < count; ++i) {
      const auto d = of(i);
      if (!d) return {};
      derivative_.push_back(*d);
    }
    if (derivative_.back() == kZero) derivative_.back() = constant(0);
    // The last statement is the value.
    if (derivative_.back() + 1 < static_cast<int>(result_.statements.size()))
      point(PointwiseMode::identity, {derivative_.back()});
    return std::move(result_);
  }

 private:
  using M = PointwiseMode;

  int add(Statement s) {
    s.label = "gradient";
    result_.statements.push_back(std::move(s));
    return static_cast<int>(result_.statements.size()) - 1;
  }
  int point(M mode, std::vector<int> args) {
    Statement s = statement(StatementKind::pointwise, DataType::f32, "");
    s.mode = mode;
    s.args = std::move(args);
    return add(std::move(s));
  }
  int constant(double value) {
    Statement s = statement(StatementKind::scalar, DataType::f32, "");
    s.port = static_cast<int>(spec_.scalars.size());
    spec_.scalars.push_back(
        {kNoTensor, "constant", DataType::f32, value, static_cast<std::int64_t>(value)});
    return add(std::move(s));
  }
  int product(int a, int b) { return a == kZero ? kZero : point(M::mul, {a, b}); }
  int sum(int a, int b) { return a == kZero ? b : b == kZero ? a : point(M::add, {a, b}); }
  int negative(int a) { return a == kZero ? kZero : point(M::neg, {a}); }

  // Of statement i, times accumulator 1.
  std::optional<int> of(int i) {
    const Statement s = result_.statements[static_cast<std::size_t>(i)];
    if (s.kind == StatementKind::accumulator) {
      Statement seed = s;
      seed.dim = 1;
      return add(std::move(seed));
    }
    std::vector<int> d;
    bool constant_here = true;
    for (int a : s.args) {
      d.push_back(derivative_[static_cast<std::size_t>(a)]);
      constant_here = constant_here && d.back() == kZero;
    }
    if (constant_here) return kZero;
    if (s.kind == StatementKind::convert) return d[0];
    if (s.kind != StatementKind::pointwise) return {};
    switch (s.mode) {
      case M::identity:
        return d[0];
      case M::neg:
        return negative(d[0]);
      case M::add:
        return sum(d[0], d[1]);
      case M::sub:
        return sum(d[0], negative(d[1]));
      case M::mul:
        return sum(product(d[0], s.args[1]), product(d[1], s.args[0]));
      case M::div:  // (da - y db) / b
        return point(M::div, {sum(d[0], negative(product(d[1], i))), s.args[1]});
      case M::tanh_fwd:
        return product(d[0], point(M::sub, {constant(1), point(M::mul, {i, i})}));
      case M::exp:
        return product(d[0], i);
      case M::binary_select: {
        if (d[2] != kZero) return {};
        const auto given = [&](int x) { return x == kZero ? constant(0) : x; };
        const int on = given(d[0]), off = given(d[1]);
        return point(M::binary_select, {on, off, s.args[2]});
      }
      default:
        return {};
    }
  }

  KernelSpec& spec_;
  Body result_;
  std::vector<int> derivative_;
};

}  // namespace

std::optional<Body> derivative(KernelSpec& spec, const Body& body) {
  return Differentiation(spec, body).run();
}

}  // namespace sinter
