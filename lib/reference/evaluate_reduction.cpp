// Reductions. The elements that one result depends on are visited in lines along the last axis;
// where that axis is kept, a whole run of results is accumulated at once.
#include <bit>
#include <cmath>

#include "reference/job.hpp"

namespace sinter::reference {
namespace {

// What each family of modes accumulates. add(v, e) takes one element, finish(n) the number of
// elements; both see the job's precision and the unit of the operand. end_line(n) stands behind
// neighbours in a line.
struct Context {
  Precision precision;
  double unit;
  ReductionMode mode;
};

Bounded<double> as_bounded(const Judged& x) { return {x.value, x.error}; }
Judged as_judged(const Bounded<double>& x) { return {x.v, x.e}; }

// Divides by a whole number; a kernel may multiply by the rounded reciprocal instead.
Judged divide(const Judged& sum, std::int64_t n, const Precision& precision) {
  const auto d = static_cast<double>(n);
  const double v = sum.value / d;
  if (!std::isfinite(v) || sum.error == kUntrusted) return {v, sum.error == 0 ? 0 : kUntrusted};
  if (sum.error == 0 &&
      (v == 0 || (std::has_single_bit(static_cast<std::uint64_t>(n)) && std::fabs(v) > 0x1p-100)))
    return {v, 0};
  const double p = sum.error / d;
  return {v, p + 3 * precision.u * (std::fabs(v) + p) + precision.eta};
}

Judged square_root(const Judged& sum, const Precision& precision) {
  const bool single = precision.u > 0x1p-30;
  if (!single) return as_judged(sqrt(as_bounded(sum)));
  const auto root = sqrt(Bounded<float>(sum.value, sum.error));
  return {root.v, root.e};
}

struct SumState {
  Sums sums;
  double lost = 0;  // by the roundings of the sum: terms that are nearly equal round alike
  Lines lines;
  Sums line;  // the one that is being added
  double last = kInfinity;
  std::int64_t changes = 0, terms = 0;
  void add(double v, double e, const Context& c) {
    changes += v != last;
    last = v;
    ++terms;
    line.v += v, line.s += std::fabs(v), line.q += v * v;
    if (c.mode == ReductionMode::norm2) {
      if (e > 0) sums.p += 2 * std::fabs(v) * e + e * e;
      v *= v;
    } else {
      sums.p += e;
      if (c.mode == ReductionMode::norm1) v = std::fabs(v);
    }
    const double before = sums.v;
    sums.v += v;
    if (std::isfinite(sums.v)) {  // Knuth's TwoSum
      const double part = sums.v - before;
      lost += (before - (sums.v - part)) + (v - part);
    }
    sums.s += std::fabs(v);
    sums.q += v * v;
  }
  void end_line(std::int64_t n) {
    if (lines.open(n)) lines.add(line, changes, terms);
    line = {}, last = kInfinity, changes = terms = 0;
  }
  Judged finish(std::int64_t n, const Context& c) const {
    Sums sums = this->sums;
    sums.v += lost;
    sums.alike = lines.alike();
    const bool squares = c.mode == ReductionMode::norm2;
    const Judged sum = finish_sum(sums, summation_growth(sums, n) + (squares ? 1 : 0),
                                  squares ? c.unit * c.unit : c.unit, c.precision);
    if (squares) {
      // A sum of squares is never negative, however wide its bound.
      const double low = std::max(sum.value - sum.error, 0.0);
      if (low == 0 && sum.error > 0 && sum.error < kUntrusted)
        return {std::sqrt(sum.value), std::sqrt(sum.value + sum.error) * (1 + 4 * c.precision.u)};
      return square_root(sum, c.precision);
    }
    return c.mode == ReductionMode::avg ? divide(sum, n, c.precision) : sum;
  }
};

// min, max and amax: monotone in every element, so exact at the end points.
struct ExtremeState {
  void end_line(std::int64_t) {}
  double v = -kInfinity, low = -kInfinity, high = -kInfinity;
  bool nan = false, open = false;
  void add(double x, double e, const Context& c) {
    if (c.mode == ReductionMode::amax) x = std::fabs(x);
    if (c.mode == ReductionMode::min) x = -x;
    nan |= x != x && e == 0;
    open |= !(e < kUntrusted);
    if (x > v || (x == v && std::signbit(v))) v = x;  // +0 lies above -0
    if (x - e > low) low = x - e;
    if (x + e > high) high = x + e;
  }
  Judged finish(std::int64_t n, const Context& c) const {
    if (nan) return {std::numeric_limits<double>::quiet_NaN(), 0};
    if (c.mode == ReductionMode::amax && n == 0) return {0, 0};
    const double value = c.mode == ReductionMode::min ? -v : v;
    if (open) return {value, kUntrusted};
    return {value, std::max(distance(v, low), distance(high, v)) * (1 + 0x1p-50)};
  }
};

struct ProductState {
  void end_line(std::int64_t) {}
  double v = 1;
  double most = 1, least = 1;  // bounds of the magnitude of any partial product
  double reach = 1;            // product of the magnitudes with their errors
  double odd = 1;              // product of the odd parts: the exact product's significant bits
  bool exact = true, open = false, special = false, zero = false;
  void add(double x, double e, const Context& c) {
    if (c.mode == ReductionMode::mul_no_zeros) {
      if (x == 0 && e == 0) return;
      if (e > 0 && std::fabs(x) <= e) open = true;
    }
    v *= x;
    open |= !(e < kUntrusted);
    exact &= e == 0;
    special |= !std::isfinite(x);
    zero |= x == 0;
    const double a = std::fabs(x);
    reach *= a + e;
    most *= std::max(1.0, a + e);
    if (a > 0) least *= std::min(1.0, std::max(a - e, 0.0));
    if (a > 0 && std::isfinite(a)) {
      const auto mantissa = (std::bit_cast<std::uint64_t>(a) & ((std::uint64_t{1} << 52) - 1)) |
                            std::uint64_t{1} << 52;
      odd *= static_cast<double>(mantissa >> std::countr_zero(mantissa));
    }
  }
  Judged finish(std::int64_t n, const Context& c) const {
    if (v != v && exact && special) return {v, 0};
    const bool small = least < 0x1p-120;  // a partial product may lose bits or vanish
    if (open || !(most <= c.precision.largest)) {
      const bool infinite = special && exact && std::isinf(v) && !small;
      return {v, infinite ? 0 : kUntrusted};
    }
    if (zero && exact) return {v, 0};
    if (exact && !small && odd <= c.precision.integers) return {v, 0};
    if (small && v != 0) return {v, std::fabs(v) + reach + most * 0x1p-120};
    const double p = std::max(reach - std::fabs(v), 0.0);
    const auto steps = static_cast<double>(n);
    return {v, p + reach * std::expm1(steps * c.precision.u) + c.precision.eta};
  }
};

template <class State>
void reduce(const Job& job, std::int64_t begin, std::int64_t end, double* v, double* e) {
  const Operand& x = job.in[0];
  const Context context{job.precision, x.numbers.unit, *job.attributes<ReductionAttributes>().mode};
  const int last = x.dim.size() - 1;
  const bool last_reduced = job.dim[last] != x.dim[last];
  const std::int64_t terms = [&] {
    std::int64_t n = 1;
    for (int i = 0; i <= last; ++i)
      if (job.dim[i] != x.dim[i]) n *= x.dim[i];
    return n;
  }();
  std::vector<State> states;
  Line line;
  for_runs(job.box, begin, end, [&](const Dims& at, std::int64_t n, std::int64_t position) {
    states.assign(static_cast<std::size_t>(n), State{});
    Box region{at, Dims::filled(last + 1, 1)};
    int axis = last;  // of the lines; a reduced one belongs to one result
    for (int i = 0; i <= last; ++i) {
      if (job.dim[i] == x.dim[i]) continue;
      region.set(i, 0, x.dim[i]);
      if (n == 1 && !last_reduced && x.dim[i] > 1) axis = i;
    }
    const bool along = job.dim[axis] != x.dim[axis];
    if (along && x.dim[axis] > 0) region.set(axis, 0, 1);
    for_each(region, [&](const Dims& c) {
      x.view.line(c, axis, along ? x.dim[axis] : n, line);
      for (std::size_t i = 0; i < line.v.size(); ++i) {
        State& state = states[along ? 0 : i];
        state.add(line.v[i], line.e.empty() ? 0 : line.e[i], context);
        if (!along || i + 1 == line.v.size()) state.end_line(terms);
      }
    });
    for (std::int64_t i = 0; i < n; ++i) {
      const Judged r = states[static_cast<std::size_t>(i)].finish(terms, context);
      v[position + i] = r.value;
      if (e) e[position + i] = r.error;
    }
  });
}

}  // namespace

void evaluate_reduction(const Job& job, std::int64_t begin, std::int64_t end, double* v,
                        double* e) {
  switch (*job.attributes<ReductionAttributes>().mode) {
    case ReductionMode::min:
    case ReductionMode::max:
    case ReductionMode::amax:
      return reduce<ExtremeState>(job, begin, end, v, e);
    case ReductionMode::mul:
    case ReductionMode::mul_no_zeros:
      return reduce<ProductState>(job, begin, end, v, e);
    default:
      return reduce<SumState>(job, begin, end, v, e);
  }
}

}  // namespace sinter::reference
